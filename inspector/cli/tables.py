"""Rows as tables in files: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.cli.output import complain

if TYPE_CHECKING:
    from inspector.scanning.scan import Row

Take = Callable[["Row"], None]

_GROUP = 4096
"""Rows that are written to Parquet at once."""
_NUMBERS = (
    "bytes",
    "mtime_ns",
    "version",
    "tokens",
    "checkpoints_usable",
    "checkpoints",
    "companions",
    "companion_bytes",
    "reused_append",
)


_HEADS = (b"path,kind,bytes,", b"PAR1")
"""How tables begin, CSV and Parquet."""


class NoTable(Exception):
    """A table that cannot be written; the message says why. Nothing of it is left."""


class _Kept(Exception):
    """A table that gets no name: what is there is worth more."""


class Tables:
    """The tables that are asked for.

    Attributes:
        interrupted: whether rows are missing: then a table replaces none.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.takers = list[Take]()

    def take(self, row: Row) -> None:
        """Write a row to all of them."""
        for take in self.takers:
            take(row)


@contextmanager
def tables(csv: Path | None, parquet: Path | None, *, force: bool) -> Iterator[Tables]:
    """What writes a row to the tables that are asked for, which get their names at the end.

    A table that cannot be written any more takes rows in silence, and is told at the end.

    Args:
        csv: where to write one.
        parquet: where to write the other.
        force: whether tables that are there may be replaced; other files never are.

    Raises:
        NoTable: if one cannot be written.
    """
    with ExitStack() as stack:
        all_ = Tables()
        for path, form in ((csv, _csv), (parquet, _parquet)):
            if path is not None:
                all_.takers.append(stack.enter_context(_table(path, form, all_, force=force)))
        yield all_


@contextmanager
def _table(
    path: Path,
    form: Callable[[int], AbstractContextManager[Take]],
    all_: Tables,
    *,
    force: bool,
) -> Iterator[Take]:
    from inspector.repair.apply import NotWritten, growing

    try:
        if str(path) == "-" or (path.exists() and not path.is_file()):
            raise NoTable(f"{path}: a table goes into a file; standard output has the lines")
        replaces, n_rows = _found(path), 0
        with (
            suppress(_Kept),
            growing(path, force=force) as descriptor,
            form(descriptor) as write,
        ):
            failed: OSError | None = None

            def take(row: Row) -> None:
                nonlocal failed, n_rows
                if failed is None:
                    try:
                        write(row)
                        n_rows += 1
                    except OSError as error:
                        failed = error

            yield take
            if failed is not None:
                raise failed
            if all_.interrupted and (replaces or not n_rows):
                raise _Kept
        if all_.interrupted:
            complain(f"{path}: {_until_then(n_rows, replaces=replaces)}")
    except OSError as error:
        raise NoTable(f"{path}: {error.strerror or error}: no table was written") from error
    except NotWritten as error:
        raise NoTable(str(error)) from error


def _found(path: Path) -> bool:
    """Whether there is a table already.

    Raises:
        NoTable: if something else is there.
    """
    try:
        with path.open("rb") as file:
            head = file.read(max(map(len, _HEADS)))
    except FileNotFoundError:
        return False
    if head and not head.startswith(_HEADS):
        raise NoTable(f"{path} is no table of a scan: it is never written")
    return True


def _until_then(n_rows: int, *, replaces: bool) -> str:
    if replaces:
        return "the table that is there stays as it is"
    return f"a table of the {n_rows:,} lines until then" if n_rows else "no table was written"


@contextmanager
def _csv(descriptor: int) -> Iterator[Take]:
    """A cell that begins with = is left so: it is a path, and programs open it."""
    from csv import DictWriter

    from inspector.render.scan_json import COLUMNS, record

    with open(
        descriptor, "w", newline="", encoding="utf-8", errors="backslashreplace", closefd=False
    ) as out:
        writer = DictWriter(out, COLUMNS)
        writer.writeheader()
        yield lambda row: writer.writerow(record(row))


@contextmanager
def _parquet(descriptor: int) -> Iterator[Take]:
    from inspector.render.scan_json import COLUMNS, record

    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise NoTable("--parquet needs the package pyarrow") from error
    kinds = [(name, pyarrow.int64() if name in _NUMBERS else pyarrow.string()) for name in COLUMNS]
    schema, waiting = pyarrow.schema(kinds), list[dict[str, Any]]()
    with open(descriptor, "wb", closefd=False) as out, ParquetWriter(out, schema) as writer:

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
            waiting.clear()

        def take(row: Row) -> None:
            waiting.append({k: _words(v) for k, v in record(row).items()})
            if len(waiting) == _GROUP:
                flush()

        yield take
        flush()


def _words(value: Any) -> Any:
    """A value as Parquet takes it: names that are no text are escaped."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value
