"""Rows as tables in files: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


class NoTable(Exception):
    """A table that cannot be written; the message says why. Nothing of it is left."""


@contextmanager
def tables(csv: Path | None, parquet: Path | None, *, force: bool) -> Iterator[Take]:
    """What writes a row to the tables that are asked for, which get their names at the end.

    A table that cannot be written any more takes rows in silence, and is told at the end.

    Args:
        csv: where to write one.
        parquet: where to write the other.
        force: whether files that are there may be replaced.

    Raises:
        NoTable: if one cannot be written.
    """
    with ExitStack() as stack:
        writers: list[Take] = []
        if csv is not None:
            writers.append(stack.enter_context(_table(csv, _csv, force=force)))
        if parquet is not None:
            writers.append(stack.enter_context(_table(parquet, _parquet, force=force)))

        def take(row: Row) -> None:
            for write in writers:
                write(row)

        yield take


@contextmanager
def _table(
    path: Path, form: Callable[[int], AbstractContextManager[Take]], *, force: bool
) -> Iterator[Take]:
    from inspector.repair.apply import NotWritten, growing

    try:
        if str(path) == "-" or (path.exists() and not path.is_file()):
            raise NoTable(f"{path}: a table goes into a file; standard output has the lines")
        with growing(path, force=force) as descriptor, form(descriptor) as write:
            failed: OSError | None = None

            def take(row: Row) -> None:
                nonlocal failed
                if failed is None:
                    try:
                        write(row)
                    except OSError as error:
                        failed = error

            yield take
            if failed is not None:
                raise failed
    except OSError as error:
        raise NoTable(f"{path}: {error.strerror or error}: no table was written") from error
    except NotWritten as error:
        raise NoTable(str(error)) from error


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
