"""`slotscope inspect`: what every byte of a file is, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inspector.cli.completion import severities
from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, failed, show, unread, width
from inspector.cli.usage import Command
from inspector.render.escape import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from inspector.model.geometry import MemoryExpectation
    from inspector.node import Node
    from inspector.report import Report
    from inspector.span import Span

_DEPTH = 2
_OFFSET = r"(0x[0-9a-f]{1,16}|[0-9]{1,19})?"
_RANGE = re.compile(rf"{_OFFSET}\.\.{_OFFSET}", re.IGNORECASE)


class InspectCommand(Command):
    """`--hex` may stand alone: then it means the node of `--path`, or the whole file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a lone `--hex` an empty value."""
        following = zip(args, [*args[1:], "--"], strict=False)
        args = [
            "--hex=" if arg == "--hex" and after.startswith("-") else arg
            for arg, after in following
        ]
        return super().parse_args(ctx, args)


class _NoSuchPart(Exception):
    """A path that is not in the tree, or a range that is not in the file."""


def inspect(
    files: list[Path] = typer.Argument(
        ..., metavar="FILE...", readable=False, help="State files, sidecars or model files."
    ),
    path: str | None = typer.Option(
        None, metavar="PATH", help="Show this part of the tree, such as attn.streams[0].k[3]."
    ),
    hex_: str | None = typer.Option(
        None,
        "--hex",
        metavar="[PATH|FROM..TO]",
        help="Show annotated bytes: of a part, of a range, or alone of what --path names.",
    ),
    depth: int | None = typer.Option(
        None,
        min=1,
        metavar="N",
        help="Levels of the tree to show; 2 for --path, without it of the whole file.",
    ),
    show_tokens: bool = typer.Option(
        False, "--show-tokens", help="Print token ids. They are text: think before you paste them."
    ),
    model: Path | None = typer.Option(
        None,
        metavar="GGUF",
        readable=False,
        help="Hold the state against the header of this model.",
    ),
    deep: bool = typer.Option(
        False,
        "--deep",
        help="Read the tensors too: values that are no numbers, zero rows, norms by layer.",
    ),
    json: bool = typer.Option(
        False, "--json", help="Print one JSON document (a list for several files)."
    ),
    fail_on: str = typer.Option(
        "error",
        metavar="SEVERITY",
        autocompletion=severities,
        help="Exit 1 from this severity on: error, warning, note or never.",
    ),
) -> None:
    """Say what every byte of FILE is, what is wrong with it, and how that is known."""
    from inspector.findings import Severity, worst
    from inspector.report import examined
    from inspector.source import Unreadable

    if fail_on not in (*Severity, "never"):
        raise typer.BadParameter(
            f"{fail_on!r} is none of error, warning, note, never", param_hint="--fail-on"
        )
    parts = path is not None or hex_ is not None or depth is not None
    if json and parts:
        raise typer.BadParameter(
            "is the whole report; --path, --hex and --depth show parts of it to people",
            param_hint="--json",
        )
    memory = _memory(model) if model is not None else None
    limit = Severity(fail_on).rank if fail_on != "never" else -1
    outcome, documents = SOUND, []
    for index, file in enumerate(files):
        try:
            with examined(file, model=memory, deep=deep) as report:
                if json:
                    from inspector.render.as_json import to_dict

                    documents.append(to_dict(report))
                elif parts:
                    show(_parts(report, file, path, hex_, depth, show_tokens=show_tokens))
                else:
                    show(_page(report, file, show_tokens=show_tokens, first=not index))
                found = worst(report.findings)
                if found is not None and found.rank <= limit:
                    outcome = max(outcome, FINDINGS)
        except (Unreadable, _NoSuchPart) as error:
            outcome = USAGE
            complain(f"{file}: {unread(file, error)}")
            if json and len(files) > 1:
                documents.append(failed(file, unread(file, error)))
    if json and documents:
        from json import dumps

        document(dumps(documents[0] if len(files) == 1 else documents, indent=2))
    raise typer.Exit(outcome)


def _memory(path: Path) -> MemoryExpectation:
    """What a state of the model at `path` must hold."""
    from inspector.model.geometry import memory_of
    from inspector.model.gguf import Unusable, read_model
    from inspector.source import Unreadable, opened

    problem = "its metadata does not say how many layers it has"
    try:
        with opened(path) as source:
            found = read_model(source)
            memory = None if isinstance(found, Unusable) else memory_of(found)
            problem = found.reason if isinstance(found, Unusable) else problem
    except Unreadable as error:
        memory, problem = None, str(error)
    if memory is None:
        raise typer.BadParameter(f"{printable(str(path))}: {problem}", param_hint="--model")
    return memory


def _page(
    report: Report, file: Path, *, show_tokens: bool, first: bool
) -> Iterator[RenderableType]:
    from inspector.render.as_text import page

    if not first:
        yield ""
    yield from page(report, str(file), width(), show_tokens=show_tokens)


def _parts(
    report: Report,
    file: Path,
    path: str | None,
    hex_: str | None,
    depth: int | None,
    *,
    show_tokens: bool,
) -> Iterator[RenderableType]:
    """The parts of a file that were asked for, as a tree or as bytes."""
    from inspector.render.hexdump import hex_page
    from inspector.render.nodes import node_page, private_gaps
    from inspector.source import opened
    from inspector.span import Span

    whole, root = Span(0, report.size), report.tree
    if path is not None or hex_ is None:
        node = _found(root, path or "")
        yield from node_page(path or "", node, depth or _DEPTH, show_tokens=show_tokens)
    if hex_ is None:
        return
    window = _window(hex_, whole)
    at = "" if window is not None else hex_ or path or ""
    node = _found(root, at)
    with opened(file) as source:
        shown = window or node.span
        yield from hex_page(
            source,
            at,
            node,
            shown,
            width(),
            show_tokens=show_tokens,
            private=private_gaps(report),
        )


def _found(root: Node, path: str) -> Node:
    from inspector.node import find
    from inspector.render.nodes import nearest

    node = find(root, path)
    if node is None:
        near = ", ".join(nearest(root, path))
        hint = f"there is {near}" if near else "it has none; --hex FROM..TO shows its bytes"
        raise _NoSuchPart(f"no part {path!r}; {hint}")
    return node


def _window(range_: str, whole: Span) -> Span | None:
    """The bytes that `FROM..TO` names; None for what is no range."""
    from inspector.span import Span

    match = _RANGE.fullmatch(range_)
    if match is None:
        return None
    start, stop = (
        int(end, 16 if end[:2].lower() == "0x" else 10) if end else None for end in match.groups()
    )
    found = Span(start or 0, min(whole.stop if stop is None else stop, whole.stop))
    if found.start >= found.stop:
        raise _NoSuchPart(f"no bytes at {range_}; it has {whole}")
    return found
