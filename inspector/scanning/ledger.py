"""What is kept of every row of a scan: on disk, so that memory does not grow with the files."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby

from inspector.scanning.scan import Kind, Row

MOST_NAMES = 100
"""Files of one group that are named, unless one of them can be deleted for another."""

_TABLES = """
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT, link INTEGER, size INTEGER,
                   n_tokens INTEGER, tokens TEXT, contents TEXT, identity TEXT, again INTEGER,
                   differs INTEGER);
CREATE UNIQUE INDEX first ON file (identity) WHERE again = 0;
CREATE TABLE list (tokens TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE prefix (n INTEGER, digest INTEGER, id INTEGER);
CREATE TABLE row (key, id INTEGER, row BLOB);
CREATE TABLE apart (kind TEXT, row BLOB);
PRAGMA cache_size = -8192;
"""
_EQUAL = """
SELECT {column}, path, link, size, n_tokens FROM file WHERE {which} AND {column} IN
  (SELECT {column} FROM file WHERE {which} AND {column} != '' GROUP BY {column} HAVING COUNT(*) > 1)
ORDER BY {column}, id
"""
_OTHERS = """id IN
  (SELECT MIN(id) FROM file WHERE NOT again
   GROUP BY CASE contents WHEN '' THEN id ELSE contents END)
"""
"""Of files with equal bytes the first."""
_UNDECIDED = """
CREATE TEMPORARY TABLE undecided AS
SELECT id, path, size, file.tokens FROM file JOIN
  (SELECT size, tokens FROM file WHERE NOT again AND tokens != ''
   GROUP BY size, tokens HAVING COUNT(*) > 1 AND MIN(contents) = '') AS several USING (size, tokens)
WHERE NOT again AND contents = ''
ORDER BY size, tokens, id
"""
_UNSURE = """tokens IN
  (SELECT tokens FROM file WHERE NOT again AND tokens != ''
   GROUP BY size, tokens HAVING COUNT(*) > 1 AND MIN(contents != '' OR differs) = 0)
"""
"""Of token lists those of files that may be equal, for all that was read of them."""
_ALIKE = """
WITH shared AS
  (SELECT n, digest, COUNT(*) AS members FROM prefix GROUP BY n, digest HAVING members > 1),
deepest AS
  (SELECT id, MAX(n) AS n FROM prefix JOIN shared USING (n, digest) GROUP BY id)
SELECT deepest.n, prefix.digest, members, path, link, size, n_tokens
FROM deepest JOIN prefix USING (id, n) JOIN shared USING (n, digest) JOIN file USING (id)
ORDER BY deepest.n DESC, prefix.digest, id
"""


@dataclass(frozen=True, slots=True)
class Group:
    """States that have something in common.

    Attributes:
        shared: `file` for the names of one file, which are links; or `contents`, `tokens`,
            `prefix`, for which a file counts once; for the last two so do equal files.
        n_tokens: how many tokens they share; None if no list of them is left.
        paths: the first of them.
        n_files: all of them.
        n_closer: further ones that share as much, and are in a group that shares more.
        bytes: of all but one of them; names of one file have none to spare.
        compared: whether the bytes of its files were; else those of equal tokens may be equal.
        links: those of `paths` that are symbolic links.
    """

    shared: str
    n_tokens: int | None
    paths: tuple[str, ...]
    n_files: int
    n_closer: int = 0
    bytes: int = 0
    links: tuple[str, ...] = ()
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Like:
    """A state of which another one has the size and the tokens, and whose bytes were not read."""

    id: int
    path: str
    size: int
    tokens: str

    @property
    def remote(self) -> bool:
        """Whether it is an object in a store."""
        return "://" in self.path


@dataclass(slots=True)
class Totals:
    """Numbers of a scan.

    Attributes:
        files: all that were looked at.
        lines: those that have one.
        states: each once, however many names it has.
        links: further names of states.
        bytes: of the states and their companions.
        by_kind, by_restore, by_worst, by_seal: how many of each; further names have a kind alone.
        bytes_read: from all of them.
        bugs: files that we failed on.
    """

    files: int = 0
    lines: int = 0
    states: int = 0
    links: int = 0
    bytes: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    by_restore: dict[str, int] = field(default_factory=dict)
    by_worst: dict[str, int] = field(default_factory=dict)
    by_seal: dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bugs: int = 0

    def add(self, row: Row, *, again: bool = False) -> None:
        """Count a row.

        Args:
            row: of a file.
            again: whether it is another name of a state that was counted.
        """
        self.files += 1
        self.bytes_read += row.bytes_read
        self.bugs += row.bug
        self.lines += row.listed
        self.links += again
        _count(self.by_kind, row.kind)
        if again:
            return
        if row.kind is Kind.STATE:
            self.states += 1
            self.bytes += row.size + row.companion_bytes
            _count(self.by_restore, row.restore)
        if row.sealed or row.kind is Kind.STATE:
            _count(self.by_seal, row.sealed or "none")
        if row.listed:
            _count(self.by_worst, row.worst or ("error" if row.problem else "sound"))


def _count(numbers: dict[str, int], what: str) -> None:
    numbers[what] = numbers.get(what, 0) + 1


class Ledger:
    """The rows of a scan, for what can be said only at its end."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._n = 0

    def note(self, row: Row) -> bool:
        """Remember what tells whether another state is like this one.

        Returns:
            Whether it is another name of a state that was noted before.
        """
        self._n += 1
        if row.kind is not Kind.STATE:
            return False
        held = (row.size, row.n_tokens, row.tokens, row.contents, row.identity)
        values = (self._n, _text(row.path), row.link, *held)
        add = "INSERT OR IGNORE INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
        if not self._database.execute(add, (*values, 0)).rowcount:
            self._database.execute(add, (*values, 1))
            return True
        if not row.tokens:
            return False
        known = self._database.execute("INSERT OR IGNORE INTO list VALUES (?)", (row.tokens,))
        if known.rowcount:  # of equal lists the first is enough
            self._database.executemany(
                "INSERT INTO prefix VALUES (?, ?, ?)",
                [(n, digest - (1 << 63), self._n) for n, digest in row.prefixes],
            )
        return False

    def keep(self, row: Row, key: float | str | None) -> None:
        """Keep a row for `ordered`."""
        value = _text(key) if isinstance(key, str) else key
        values = (value, self._n, pickle.dumps(row))
        self._database.execute("INSERT INTO row VALUES (?, ?, ?)", values)

    def ordered(self, *, descending: bool) -> Iterator[Row]:
        """The rows by their keys, those without one last; of equal keys in the order of paths."""
        order = "DESC" if descending else "ASC"
        for (row,) in self._database.execute(
            f"SELECT row FROM row ORDER BY key IS NULL, key {order}, id"
        ):
            yield pickle.loads(row)

    def set_apart(self, row: Row) -> None:
        """Keep a row that is listed at the end."""
        self._database.execute("INSERT INTO apart VALUES (?, ?)", (row.kind, pickle.dumps(row)))

    def apart(self) -> Iterator[Row]:
        """The rows that were set apart, by kind."""
        for (row,) in self._database.execute("SELECT row FROM apart ORDER BY kind, rowid"):
            yield pickle.loads(row)

    def undecided(self) -> Iterator[Like]:
        """States that may be equal to others, the smallest first, those that may be side by side.

        What is found of them may be noted at once.
        """
        self._database.execute("DROP TABLE IF EXISTS undecided")
        self._database.execute(_UNDECIDED)
        for id_, path, *held in self._database.execute("SELECT * FROM undecided ORDER BY rowid"):
            yield Like(id_, path.decode(errors="surrogateescape"), *held)

    def holds(self, one: Like, contents: str) -> None:
        """Note the digest of all bytes of a state, empty if they could not be read."""
        self._database.execute("UPDATE file SET contents = ? WHERE id = ?", (contents, one.id))

    def differs(self, one: Like) -> None:
        """Note that a state is not equal to any of those that it was compared with."""
        self._database.execute("UPDATE file SET differs = 1 WHERE id = ?", (one.id,))

    def groups(self) -> Iterator[Group]:
        """States that are one, that are equal, that hold the same tokens, or begin with them."""
        for shared, column, which, compared in (
            ("file", "identity", "TRUE", True),
            ("contents", "contents", "NOT again", True),
            ("tokens", "tokens", f"{_OTHERS} AND NOT {_UNSURE}", True),
            ("tokens", "tokens", f"{_OTHERS} AND {_UNSURE}", False),
        ):
            words = _EQUAL.format(column=column, which=which)
            for _, members in groupby(self._database.execute(words), key=lambda one: one[0]):
                group = _group(shared, (one[1:] for one in members))
                yield replace(group, compared=compared)
        found = self._database.execute(_ALIKE)
        for (n, _, all_), members in groupby(found, key=lambda one: one[:3]):
            group = _group("prefix", (one[3:] for one in members))
            yield replace(group, n_tokens=n, n_closer=all_ - group.n_files, compared=False)


def _group(shared: str, members: Iterator[tuple[bytes, int, int, int | None]]) -> Group:
    paths, links, sizes, n = list[str](), list[str](), 0, 0
    n_tokens: int | None = None
    deletable = shared in ("file", "contents")
    for name, link, size, held in members:
        if n < MOST_NAMES or deletable:
            paths.append(name.decode(errors="surrogateescape"))
            links += paths[-1:] if link else []
        n_tokens, sizes = held, sizes + (size if n and shared != "file" else 0)
        n += 1
    return Group(shared, n_tokens, tuple(paths), n, bytes=sizes, links=tuple(links))


def _text(path: str) -> bytes:
    """A path as its bytes: not all names are UTF-8."""
    return path.encode(errors="surrogateescape")


@contextmanager
def ledger() -> Iterator[Ledger]:
    """A ledger in a temporary file that nobody else sees."""
    database = sqlite3.connect("", isolation_level=None)
    try:
        database.executescript(_TABLES)
        database.execute("BEGIN")
        yield Ledger(database)
    finally:
        database.close()
