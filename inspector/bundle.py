"""A state file and the companion files beside it, as one subject: found by name, not opened."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from inspector.identify import Identification, identify
from inspector.source import Source, Unreadable, opened

if TYPE_CHECKING:
    from inspector.checkpoints import CheckpointList
    from inspector.containers import Container


class Role(StrEnum):
    """What a companion is for, going by its name."""

    CHECKPOINTS = "checkpoints"
    TOKENS = "tokens"
    MARKER = "marker"
    HIDDEN = "hidden states"
    DRAFT = "draft"
    SETTINGS = "settings"
    LEFTOVER = "leftover"


SUFFIXES = {
    ".ckpt": Role.CHECKPOINTS,
    ".checkpoints": Role.CHECKPOINTS,
    ".tokens.json": Role.TOKENS,
    ".gen": Role.MARKER,
    ".hbnd": Role.HIDDEN,
    ".drft": Role.DRAFT,
    ".dft": Role.DRAFT,
    ".tmp": Role.LEFTOVER,
    ".tmp.checkpoints": Role.LEFTOVER,
}
"""What writers append to the name of the state, its extension included.

Source: TheTom/llama-cpp-turboquant PR #206 and others (`.ckpt`); ggml-org/llama.cpp PR #20819 and
ikawrakow/ik_llama.cpp PR #1584 (`.checkpoints`, `.tokens.json`); dgabehar/llama.cpp (`.dft`);
362132718/llamacpp-gfx906-slot-save (`.tmp`, `.tmp.checkpoints`); the fork that
`formats.sidecars.stck` describes (`.gen`, `.hbnd`, `.drft`).
"""

RECORD = ".slotscope.json"
"""What the name of slotscope's own record of a file adds to that of the file.

It is one document: `repair` says in it how the file was made, `seal` what its bytes are.
"""

_BY_LENGTH = sorted(SUFFIXES, key=len, reverse=True)

_JAN = re.compile(r"[0-9a-f]{32}")
"""The stem of a state that Jan keeps, with `.bin` behind it; its settings lie in `<stem>.json`.

Source: Jan (2026), thread cache: the first 16 bytes of SHA-256(model id, 00, thread id).
"""


@dataclass(frozen=True, slots=True)
class File:
    """A regular file as the directory shows it.

    Attributes:
        path: to open it; the address of an object in a store.
        name: without directories.
        size: bytes.
        mtime_ns: last change of the content, nanoseconds since 1970.
        link: whether the name is a symbolic link.
        n_links: names that the file itself has.
        identity: device and inode; equal for two names of one file.
        target: what the link says; empty without one.
    """

    path: Path | str
    name: str
    size: int
    mtime_ns: int
    link: bool
    n_links: int
    identity: tuple[int, int]
    target: str = ""


@dataclass(frozen=True, slots=True)
class Companion:
    """A file that belongs to a state by its name.

    Attributes:
        file: what the directory shows of it.
        role: what it is for.
        suffix: what its name adds to that of the state.
    """

    file: File
    role: Role
    suffix: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A file with what lies beside it.

    Names prove nothing: a file called `slot.ckpt` can be a state with companions of its own and at
    the same time look like the companion of `slot`. So both are said, and the content decides.

    Attributes:
        subject: the file that was asked for.
        companions: files that belong to it if it is a state.
        role: what it is for if it is a companion itself, else None.
        state: the file that it belongs to in that case, if there is one.
        siblings: the other companions of that file.
        record: whether slotscope's own record of the file lies beside it.
        barred: names of companions that cannot be read, and why.
    """

    subject: File
    companions: tuple[Companion, ...]
    role: Role | None
    state: File | None
    siblings: tuple[Companion, ...]
    record: bool = False
    barred: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Beside:
    """A companion that was looked into.

    Attributes:
        companion: the file.
        source: the file, open.
        identification: what it is; None for `.tokens.json`.
        listing: the checkpoint list in it.
        container: what a `.tokens.json` holds.
    """

    companion: Companion
    source: Source
    identification: Identification | None = None
    listing: CheckpointList | None = None
    container: Container | None = None


NOT_OPENED = (Role.LEFTOVER, Role.HIDDEN, Role.DRAFT, Role.SETTINGS)
"""Of no known layout, or read by others."""


@contextmanager
def looked_into(companions: tuple[Companion, ...]) -> Iterator[tuple[Beside, ...]]:
    """Open the companions whose contents checks need, for as long as the context lasts.

    Those that the system does not give us are left out.
    """
    with ExitStack() as stack:
        found = []
        for companion in companions:
            if companion.role not in NOT_OPENED:
                with suppress(Unreadable):
                    source = stack.enter_context(opened(companion.file.path))
                    found.append(look_into(companion, source))
        yield tuple(found)


def look_into(companion: Companion, source: Source) -> Beside:
    if companion.role is Role.TOKENS:
        from inspector.containers import ik_tokens

        return Beside(companion, source, container=ik_tokens(source))
    from inspector.checkpoints import checkpoint_list, ik_list_of

    identification, name = identify(source), companion.file.name
    listing = None
    if identification.reading is not None:
        layout = identification.reading.layout
        root = identification.reading.decoding.root
        listing = checkpoint_list(root, name, layout.format, layout.version)
    if listing is None and companion.suffix == ".checkpoints":
        listing = ik_list_of(source, name)
    return Beside(companion, source, identification, listing)


def bundle(path: str | Path) -> Bundle:
    """The file at `path` and what lies beside it: a few names are probed, nothing is listed.

    Raises:
        Unreadable: if there is no regular file at `path`.
    """
    path = Path(path)
    subject = _file(path)
    if subject is None:
        raise Unreadable(_why_none(path))
    role, owner = belongs_to(path)
    state = _file(owner) if owner is not None else None
    siblings = () if owner is None else _companions(owner)
    return Bundle(
        subject=subject,
        companions=_companions(path),
        role=role,
        state=state,
        siblings=tuple(other for other in siblings if other.file.path != path),
        record=os.path.lexists(path.with_name(path.name + RECORD)),
        barred=tuple(_barred(path)),
    )


def _why_none(path: Path) -> str:
    """Why there is no regular file at `path`."""
    try:
        path.stat()
    except FileNotFoundError:
        return "the link leads nowhere" if path.is_symlink() else "there is no such file"
    except OSError as error:
        circle = error.errno == errno.ELOOP
        return "the link leads in a circle" if circle else error.strerror or str(error)
    except ValueError:
        return "no file can have that name"
    return "a directory" if path.is_dir() else "not a regular file"


def bundle_among(name: str, files: Mapping[str, File]) -> Bundle:
    """The file of that name and what belongs to it among the files of a folder.

    Args:
        name: of the file.
        files: those of the folder, by name.
    """
    role, owner = belongs_to(Path(name))
    if name.endswith(RECORD):
        owner = Path(name.removesuffix(RECORD))
    state = files.get(owner.name) if owner is not None else None
    siblings = () if owner is None else _among(owner, files)
    return Bundle(
        subject=files[name],
        companions=_among(Path(name), files),
        role=role,
        state=state,
        siblings=tuple(other for other in siblings if other.file.name != name),
        record=name + RECORD in files,
    )


def _companions(state: Path) -> tuple[Companion, ...]:
    found = ((_file(state.with_name(n)), role, suffix) for n, role, suffix in _names(state))
    return tuple(Companion(file, role, suffix) for file, role, suffix in found if file is not None)


def _barred(state: Path) -> Iterator[tuple[str, str]]:
    """What is named like a companion of a state, and cannot be read as one."""
    for name, role, _ in _names(state):
        path = state.with_name(name)
        if role in (Role.LEFTOVER, Role.SETTINGS) or not os.path.lexists(path):
            continue
        if not path.exists():
            yield name, "the link leads nowhere" if path.is_symlink() else "Permission denied"
        elif not path.is_file():
            yield name, "it is a directory" if path.is_dir() else "it is no regular file"
        elif not os.access(path, os.R_OK):
            yield name, "Permission denied"


def _among(state: Path, files: Mapping[str, File]) -> tuple[Companion, ...]:
    names = _names(state)
    return tuple(Companion(files[n], role, suffix) for n, role, suffix in names if n in files)


def _names(state: Path) -> list[tuple[str, Role, str]]:
    """Names of companions, what they are for, and what they add to that of the state."""
    names = [(state.name + suffix, role, suffix) for suffix, role in SUFFIXES.items()]
    if state.suffix == ".bin" and _JAN.fullmatch(state.stem):
        names.append((state.stem + ".json", Role.SETTINGS, ".json"))
    return names


def belongs_to(path: Path) -> tuple[Role | None, Path | None]:
    """What a file of this name is for, and the state it would belong to."""
    for suffix in _BY_LENGTH:
        stem = path.name.removesuffix(suffix)
        if stem and stem != path.name:
            return SUFFIXES[suffix], path.with_name(stem)
    if path.suffix == ".json" and _JAN.fullmatch(path.stem):
        return Role.SETTINGS, path.with_suffix(".bin")
    return None, None


def _file(path: Path) -> File | None:
    """What the directory shows of a regular file; None if there is none, or we may not know."""
    try:
        status, own = path.stat(), path.lstat()
        target = str(path.readlink()) if stat.S_ISLNK(own.st_mode) else ""
    except (OSError, ValueError):  # a ValueError for a name with a zero byte
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return File(
        path=path,
        name=path.name,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        link=stat.S_ISLNK(own.st_mode),
        n_links=status.st_nlink,
        identity=(status.st_dev, status.st_ino),
        target=target,
    )
