"""`slotscope repair`: a copy that works."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from inspector.cli.bar import watched
from inspector.cli.completion import actions, families
from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, see_file_name, show
from inspector.cli.prompts import token_ids
from inspector.cli.targets import BuildOption, ForOption, ModelOption, UrlOption

if TYPE_CHECKING:
    from inspector.repair.draft import Options
    from inspector.repair.outcome import Written
    from inspector.repair.plan import Plan


def repair(
    file: Path = typer.Argument(
        ..., metavar="FILE", help="A state or a checkpoint list; it is never written."
    ),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="NEW", help="Where to write the copy."
    ),
    command: ForOption = None,
    build: BuildOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Only explain what would be done."),
    only: list[str] = typer.Option(
        [],
        metavar="ACTION",
        autocompletion=actions,
        help="Take no other action; repeatable. `slotscope explain ACTION` says what it does.",
    ),
    skip: list[str] = typer.Option(
        [], metavar="ACTION", autocompletion=actions, help="Do not take it; repeatable."
    ),
    at: int | None = typer.Option(
        None, min=1, metavar="N", help="End at token N, or at the last checkpoint before it."
    ),
    for_prompt: str | None = typer.Option(
        None,
        metavar="FILE",
        help="End where this prompt goes on: a JSON array of token ids; - for standard input.",
    ),
    to: str | None = typer.Option(
        None,
        metavar="FAMILY",
        autocompletion=families,
        help="Write checkpoints as pkcl1, llcp1, sckp1, lsckpt2 …",
    ),
    allow_loss: bool = typer.Option(
        False,
        "--allow-loss",
        help="Agree to losses that nobody asked for: those marked with `needs --allow-loss`.",
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="Replace NEW, and remove what lies beside it and would be taken for its companion.",
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Write a copy of FILE that its server restores, and makes the most of.

    Without -o it only explains. Exit code 1 says that not all could be done, or that an error stays
    in the copy, which is named. No copy is written that the server is known to refuse, or to die
    of while it restores it; that is not of the model where FILE is; that is not what was asked for;
    or that loses what nobody agreed to lose. What the server does with the next prompts stands in
    the table: some may still get an error. Where nothing is to be done, NEW becomes a plain copy.
    """
    from inspector.repair.apply import NotWritten
    from inspector.repair.outcome import Written
    from inspector.repair.plan import planned
    from inspector.repair.state import Refused
    from inspector.server.target import BadTarget, target_of
    from inspector.source import Unreadable

    if output is not None:
        see_file_name(output)
    options = _options(only, skip, at, for_prompt, to, allow_loss)
    named = any(word is not None for word in (command, build, model, url))
    new = output.name if output is not None else file.name
    code = USAGE
    try:
        with ExitStack() as stack:
            target = None
            if named:
                target = stack.enter_context(target_of(command, build, model, url=url))
            plan = stack.enter_context(planned(file, target, options, new))
            hindrance = _hindrance(plan, allow_loss=allow_loss)
            written = output if not dry_run and not hindrance else None
            removed = _write(plan, written, force=force) if written is not None else ()
            done = Written(written, removed, hindrance, dry_run, output if dry_run else None)
            _show(plan, file, done, as_json=json)
            if json and hindrance and output is not None:
                complain(f"nothing is written: {hindrance}")
            code = SOUND if plan.complete and not hindrance else FINDINGS
    except (BadTarget, NotWritten) as error:
        complain(str(error))
    except Unreadable as error:
        complain(f"{file}: {error}")
    except Refused as error:
        complain(f"{file}: {error}")
        if json:
            from json import dumps

            from inspector.render.repair_json import refused

            document(dumps(refused(str(error)), indent=2))
        code = FINDINGS
    raise typer.Exit(code)


def _hindrance(plan: Plan, *, allow_loss: bool) -> str:
    """Why no copy is written; empty if one may be."""
    if plan.undone:
        return f"{', '.join(dict.fromkeys(plan.undone))} is asked for, and cannot be done"
    if plan.futile and plan.after is not None:
        message = plan.after.restore.message
        helpless = "the server would not take the copy either"
        return f"{helpless if plan.steps else 'nothing of what is allowed helps'}: {message}"
    if plan.estranged and plan.after is not None:
        return f"the copy would not be of the model any more: {plan.after.identity.evidence}"
    if plan.unconfirmed and not allow_loss:
        return "--allow-loss agrees to what is lost"
    return ""


def _show(plan: Plan, file: Path, written: Written, *, as_json: bool) -> None:
    if as_json:
        from json import dumps

        from inspector.render.repair_json import to_dict

        document(dumps(to_dict(plan, written), indent=2))
    else:
        from inspector.render.repair import page

        show(page(plan, str(file), written))


def _options(
    only: list[str],
    skip: list[str],
    at: int | None,
    for_prompt: str | None,
    to: str | None,
    allow_loss: bool,
) -> Options:
    from inspector.repair.actions.session import FROM, TO
    from inspector.repair.draft import Options
    from inspector.repair.lists import BY_NAME
    from inspector.repair.plan import NAMES

    for name in (*only, *skip):
        if name not in NAMES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(NAMES)}")
    if {FROM, TO} <= set(only):
        raise typer.BadParameter(f"{TO} undoes {FROM}: one of them", param_hint="--only")
    if to is not None and to not in BY_NAME:
        raise typer.BadParameter(f"{to!r} is none of {', '.join(BY_NAME)}", param_hint="--to")
    if at is not None and for_prompt is not None:
        raise typer.BadParameter("one of them says where to end", param_hint="--at, --for-prompt")
    prompt = tuple(token_ids(for_prompt, "--for-prompt")) if for_prompt is not None else None
    return Options(tuple(only), tuple(skip), at, prompt, to, allow_loss)


def _write(plan: Plan, output: Path, *, force: bool) -> tuple[Path, ...]:
    """Write all files of a plan, with a progress bar on a terminal if it takes long."""
    from inspector.repair.outcome import carry_out

    total = sum(one.content.size for one in plan.outputs)
    with watched(total) as progress:
        return carry_out(plan, output, force=force, progress=progress)
