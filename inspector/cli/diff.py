"""`slotscope diff`: what is different about two files."""

from __future__ import annotations

import time
from math import isnan
from pathlib import Path

import typer

from inspector.cli.bar import LONG, watched
from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, show, unread, width


def diff(
    a: Path = typer.Argument(
        ..., metavar="A", readable=False, help="A state, or a checkpoint list."
    ),
    b: Path = typer.Argument(..., metavar="B", readable=False, help="What it is compared with."),
    deep: bool = typer.Option(
        False, "--deep", help="Compare the stored numbers too, layer by layer and by position."
    ),
    tolerance: float | None = typer.Option(
        None,
        min=0,
        metavar="R",
        help="Exit 0 if both hold the same tokens and memory, in whatever form, and no error of a "
        "layer is above R, relative to its largest number, also in checkpoints that both have; "
        "implies --deep.",
    ),
    show_tokens: bool = typer.Option(
        False, "--show-tokens", help="Print token ids. They are text: think before you paste them."
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Say what is different about A and B: bytes, tokens, fields, cells, checkpoints.

    Exit code 0 says that A and B, and the companions beside them, are equal byte for byte; with
    --tolerance, that their content is equal: also the checkpoints and companions that both have,
    while one may have more of them. 1 says that they differ.
    """
    from inspector.diff.diff import NotCompared, bytes_to_compare, differences
    from inspector.report import examined
    from inspector.source import Unreadable

    if tolerance is not None and isnan(tolerance):
        raise typer.BadParameter("nan is no error to stay within", param_hint="--tolerance")
    deep = deep or tolerance is not None
    where = a
    try:
        with examined(a) as one:
            where = b
            with examined(b) as two:
                total, begun = bytes_to_compare(one, deep=deep), time.monotonic()
                with watched(total) as progress:
                    found = differences(one, two, deep=deep, progress=progress)
                seconds = time.monotonic() - begun
                if json:
                    from json import dumps

                    from inspector.render.diff_json import to_dict

                    document(dumps(to_dict(found, tolerance, show_tokens=show_tokens), indent=2))
                else:
                    from inspector.render.diff import page, speed

                    names = str(a), str(b)
                    show(page(found, names, width(), tolerance, show_tokens=show_tokens))
                    read = one.source.bytes_read + two.source.bytes_read
                    if read >= LONG:
                        show(speed(read, seconds))
    except Unreadable as error:
        complain(f"{where}: {unread(where, error)}")
        raise typer.Exit(USAGE) from error
    except NotCompared as error:
        complain(str(error))
        raise typer.Exit(USAGE) from error
    same = found.identical or (tolerance is not None and found.same_content(tolerance))
    raise typer.Exit(SOUND if same else FINDINGS)
