"""`slotscope man`: the manual page, made of the help of all commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import typer

from inspector.cli.output import document


def man(context: typer.Context) -> None:
    """Print this help as a manual page.

    To have `man slotscope`, write it to a folder where man looks, such as
    ~/.local/share/man/man1/slotscope.1.
    """
    from importlib.metadata import version

    document("\n".join(_page(context.find_root(), version("slotscope"))))


def _page(root: Any, version: str) -> Iterator[str]:
    command = root.command
    yield f'.TH SLOTSCOPE 1 "" "slotscope {version}"'
    yield ".SH NAME"
    name, _, description = command.help.partition("\n\n")
    yield f"slotscope \\- {_text(name.rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield from _usage(command, root)
    yield ".SH DESCRIPTION"
    yield _text(description)
    yield ".SH OPTIONS"
    yield from _parameters(command, root)
    yield ".SH COMMANDS"
    yield from _commands(command, root)
    yield ".SH EXIT STATUS"
    yield from list(_paragraphs(command.epilog))[1:]


def _commands(group: Any, context: Any) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = type(context)(command, parent=context, info_name=name)
        yield f".SS {_text(inner.command_path)}"
        yield from _usage(command, inner)
        yield from _paragraphs(command.help)
        yield from _parameters(command, inner)
        yield from _paragraphs(command.epilog)
        if hasattr(command, "list_commands"):
            yield from _commands(command, inner)


def _usage(command: Any, context: Any) -> Iterator[str]:
    yield f".B {_text(context.command_path)}"
    yield _text(" ".join(command.collect_usage_pieces(context)))


def _parameters(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) is not None:
            yield ".TP"
            yield f".B {_text(record[0])}"
            yield _text(" ".join(record[1].split()))


def _paragraphs(words: str | None) -> Iterator[str]:
    """Paragraphs; one that begins with a backspace keeps its lines."""
    for paragraph in cleandoc(words or "").split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line]
        if not lines:
            continue
        yield ".PP"
        if lines[0] == "\b":
            yield from (".nf", *map(_text, lines[1:]), ".fi")
        else:
            yield _text(" ".join(line.strip() for line in lines))


def _text(words: str) -> str:
    """Words of which nothing is an instruction to the typesetter."""
    words = re.sub(r"\s*\n\s*", " ", words).replace("\\", "\\(rs").replace("-", "\\-")
    words = words.replace("~", "\\(ti").replace("^", "\\(ha").replace("`", "\\(ga")
    return f"\\&{words}" if words.startswith((".", "'")) else words
