"""`slotscope anonymize`: a copy that can be shown to others."""

from __future__ import annotations

from pathlib import Path

import typer

from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.cli.output import complain, document, say_removed, see_file_name


def anonymize(
    file: Path = typer.Argument(..., metavar="FILE", help="A state or a sidecar; never written."),
    output: Path = typer.Option(
        ..., "-o", "--output", metavar="NEW", help="Where to write the copy."
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="Replace NEW, and remove what lies beside it and would be taken for its companion.",
    ),
) -> None:
    """Write a copy of FILE with the same structure and findings, and nothing of what it says.

    Token ids are replaced, the same id always by the same; numbers of tensors become others of the
    same type and size; texts, names, hashes and times become others too. Companions go along; a
    seal does not.

    What is kept: versions, counts, positions, sequence ids, lengths, types, the sizes of images,
    times of files, and which tokens and rows are equal. Between which powers of two a token id lies
    shows too from 256 on; of smaller ids only that they are smaller.
    """
    from inspector.anonymize import anonymized
    from inspector.render.escape import printable
    from inspector.repair.apply import File, NotWritten, see_apart, stale_beside, write
    from inspector.repair.segments import Composed, Write
    from inspector.repair.state import Refused
    from inspector.source import Unreadable

    see_file_name(output)
    code = USAGE
    try:
        made = anonymized(file)
        paths = [output.with_name(output.name + suffix) for suffix in made.files]
        see_apart(paths, made.originals)
        stale = stale_beside(output, paths, made.originals)
        files = [
            File(path, Composed((Write(data, "anonymize"),), path.name), 0o644, mtime_ns)
            for path, data, mtime_ns in zip(paths, made.files.values(), made.mtimes_ns, strict=True)
        ]
        say_removed(write(files, stale, lambda places: None, force=force))
        for name in made.left_out:
            complain(f"left out: {name}")
        names = printable(", ".join(map(str, paths)))
        document(f"{names}: {made.n_ids:,} token ids replaced")
        code = SOUND
    except Refused as error:
        complain(f"nothing is written: {error}")
        code = FINDINGS
    except NotWritten as error:
        complain(str(error))
    except Unreadable as error:
        complain(f"{file}: {error}")
    raise typer.Exit(code)
