"""Rows as tables in files: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
    """A table that cannot be written; the message says why."""


@contextmanager
def tables(csv: Path | None, parquet: Path | None) -> Iterator[Take]:
    """What writes a row to the tables that are asked for, which must be new files.

    Raises:
        NoTable: if one cannot be written.
    """
    with ExitStack() as stack:
        writers: list[Take] = []
        if csv is not None:
            writers.append(stack.enter_context(_csv(csv)))
        if parquet is not None:
            writers.append(stack.enter_context(_parquet(parquet)))

        def take(row: Row) -> None:
            for write in writers:
                write(row)

        yield take


@contextmanager
def _csv(path: Path) -> Iterator[Take]:
    from csv import DictWriter

    from inspector.render.scan_json import COLUMNS, record

    try:
        with path.open("x", newline="", encoding="utf-8", errors="backslashreplace") as out:
            writer = DictWriter(out, COLUMNS)
            writer.writeheader()
            yield lambda row: writer.writerow(record(row))
    except OSError as error:
        raise NoTable(f"{path}: {error.strerror}") from error


@contextmanager
def _parquet(path: Path) -> Iterator[Take]:
    from inspector.render.scan_json import COLUMNS, record

    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise NoTable("--parquet needs the package pyarrow") from error
    kinds = [(name, pyarrow.int64() if name in _NUMBERS else pyarrow.string()) for name in COLUMNS]
    schema, waiting = pyarrow.schema(kinds), list[dict[str, Any]]()
    try:
        with path.open("xb") as out, ParquetWriter(out, schema) as writer:

            def flush() -> None:
                writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
                waiting.clear()

            def take(row: Row) -> None:
                waiting.append({k: _words(v) for k, v in record(row).items()})
                if len(waiting) == _GROUP:
                    flush()

            yield take
            flush()
    except OSError as error:
        raise NoTable(f"{path}: {error.strerror or error}") from error


def _words(value: Any) -> Any:
    """A value as Parquet takes it: names that are no text are escaped."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value
