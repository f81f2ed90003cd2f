"""`slotscope fuzz mutate`: files that are wrong in one known way."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inspector.cli.exits import SOUND, USAGE
from inspector.cli.fuzz_output import folder, link, manifest, put, ready, stoppable
from inspector.cli.output import complain, document, say_removed, see_file_name
from inspector.render.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inspector.fuzzing.mutators import Mutant
    from inspector.fuzzing.subject import Subject

_LARGEST = 64 << 20
"""Bytes of a file that is still read whole."""


_BEGINS = re.compile(r"\d{5}-")
"""How the names of mutants begin."""


def mutate(
    files: list[Path] = typer.Argument(..., metavar="FILE...", help="Any file; never written."),
    out: Path | None = typer.Option(
        None,
        "--out",
        metavar="DIR",
        parser=folder,
        help="Where to write all mutants; must be empty.",
    ),
    seed: int = typer.Option(0, min=0, metavar="S", help="The same seed gives the same mutants."),
    count: int | None = typer.Option(
        None, min=1, metavar="N", help="At most so many of each file, of as many kinds as can be."
    ),
    only: str | None = typer.Option(
        None, "--only", metavar="ID", help="One mutation, as name@path:seed; needs -o."
    ),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="NEW", help="Where to write that one."
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="Replace what is there, and remove what DIR/manifest.json lists or would be taken for "
        "a companion of NEW.",
    ),
) -> None:
    """Write mutants of FILE and manifest.json, which says what loaders must make of each.

    Every mutant has an id, name@path:seed; --only ID -o NEW makes the same bytes again.
    """
    if (out is None) == (only is None) or (only is None) != (output is None):
        complain("either --out DIR, or --only ID with -o NEW")
        raise typer.Exit(USAGE)
    files = _once(files)
    if only is not None and output is not None:
        see_file_name(output)
        _one(files, only, output, force=force)
    elif out is not None:
        _all(files, out, seed, count, force=force)
    raise typer.Exit(SOUND)


def _once(files: list[Path]) -> list[Path]:
    """The files, without those that were named before."""
    found: dict[Path, Path] = {}
    for file in files:
        if found.setdefault(file.absolute(), file) is not file:
            complain(f"{file}: named twice, taken once")
    return list(found.values())


def _one(files: list[Path], mutation: str, output: Path, *, force: bool) -> None:
    from inspector.fuzzing.mutators import mutant
    from inspector.fuzzing.subject import NoSuchPlace
    from inspector.repair.apply import File, NotWritten, see_apart, stale_beside, write
    from inspector.repair.segments import Composed, Write

    if len(files) != 1:
        complain("--only makes a mutant of one file")
        raise typer.Exit(USAGE)
    try:
        subject, originals = _subject(files[0])
        found = mutant(subject, mutation)
        if not output.name.endswith(found.ending):
            raise NotWritten(f"{output}: the name of this mutant must end in {found.ending}")
        made, links = found.files(output), found.linked(output)
        for path in links:
            if os.path.lexists(path) and not force:
                raise NotWritten(f"{path} is there already: --force replaces it")
        hidden = [path.with_name(target) for path, target in links.items()]
        stale = [path for path in hidden if path not in made]
        see_apart([*made, *links, *stale], originals)
        stale += stale_beside(output, {*made, *links}, originals)
        new = [
            File(path, Composed((Write(data, "mutate"),), path.name), 0o644)
            for path, data in made.items()
        ]
        removed = write(new, stale, lambda places: None, force=force)
        link(links, originals, force=force)
    except (NoSuchPlace, NotWritten) as error:
        complain(str(error) if isinstance(error, NotWritten) else f"{files[0]}: {error}")
        raise typer.Exit(USAGE) from error
    say_removed(removed)
    document(
        f"{printable(str(output))}: {found.mutator.meaning}; a correct loader: {found.mutator.must}"
    )


def _all(files: list[Path], out: Path, seed: int, count: int | None, *, force: bool) -> None:
    from inspector.fuzzing.manifest import BUILDS, MUTATE_SCHEMA, entry_of_mutant
    from inspector.repair.apply import NotWritten
    from inspector.server.target import target_of

    subjects = [(file, *_subject(file)) for file in files]
    names = Counter(file.name for file in files)
    originals = [path for _, _, read in subjects for path in read] if force else []
    ready(out, _BEGINS, originals, force=force)
    entries: list[dict[str, Any]] = []
    with stoppable(out), ExitStack() as stack:
        targets = [stack.enter_context(target_of(build=build)) for build in BUILDS]
        for file, subject, _ in subjects:
            of = file.name if names[file.name] == 1 else str(file)
            for found in _mutants(subject, seed, count):
                name = f"{len(entries):05}-{found.mutator.name}{file.suffix}{found.ending}"
                try:
                    link(found.linked(out / name), originals, force=force)
                except NotWritten as error:
                    complain(f"{error}: left out")
                    continue
                for path, data in found.files(out / name).items():
                    put(path, data, originals)
                entries.append(entry_of_mutant(found, of, name, out / name, targets))
    manifest(out, {"schema": MUTATE_SCHEMA, "seed": seed, "files": entries}, originals)
    kinds = len({entry["mutator"] for entry in entries})
    document(f"{printable(str(out))}: {len(entries):,} mutants of {kinds} kinds")


def _mutants(subject: Subject, seed: int, count: int | None) -> Iterator[Mutant]:
    """Mutants in random order, kind by kind in turn; those that change nothing are left out."""
    import random

    from inspector.fuzzing.mutators import mutant, mutations
    from inspector.fuzzing.subject import NoSuchPlace

    dice, kinds = random.Random(seed), dict[str, list[str]]()
    for mutator, path in mutations(subject):
        kinds.setdefault(mutator.name, []).append(f"{mutator.name}@{path}:{seed}")
    for ids in kinds.values():
        dice.shuffle(ids)
    queues, made = [iter(ids) for ids in kinds.values()], 0
    while queues:
        for queue in list(queues):
            if (mutation := next(queue, None)) is None:
                queues.remove(queue)
                continue
            try:
                found = mutant(subject, mutation)
            except NoSuchPlace:
                continue
            named = found.ending or found.links
            if not named and (found.data, found.companions) == (subject.data, subject.companions):
                continue
            yield found
            made += 1
            if made == count:
                return


def _subject(file: Path) -> tuple[Subject, list[Path]]:
    """The file and the companions beside it, and where all of that is."""
    from inspector.bundle import bundle
    from inspector.fuzzing.subject import Subject
    from inspector.source import Unreadable, opened

    held, path = dict[str, bytes](), file
    originals = [file]
    try:
        companions = bundle(file).companions
        originals += [Path(one.file.path) for one in companions]
        for suffix, path in zip(("", *(one.suffix for one in companions)), originals, strict=True):
            with opened(path) as source:
                if source.size > _LARGEST:
                    raise Unreadable(f"larger than {_LARGEST >> 20} MiB")
                held[suffix] = source.read_at(0, source.size)
    except Unreadable as error:
        complain(f"{path}: {error}")
        raise typer.Exit(USAGE) from error
    return Subject(held.pop(""), held), originals
