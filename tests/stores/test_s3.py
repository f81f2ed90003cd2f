"""Scans of objects behind a real S3 server: what is fetched, and what becomes of what fails."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inspector.node import Kind as NodeKind
from inspector.node import leaves
from inspector.report import examined
from inspector.scanning.compare import compare
from inspector.scanning.fleet import rows
from inspector.scanning.folder import items
from inspector.scanning.ledger import ledger
from inspector.scanning.scan import Job, Kind, Row, job_for, row_of
from inspector.server.target import target_of
from tests.support.store import Store, served

pytest.importorskip("moto")
s3fs = pytest.importorskip("s3fs")
pytestmark = [
    pytest.mark.stores,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

INTACT = Path(__file__).resolve().parents[2] / "samples/intact"
N_OBJECTS = int(os.environ.get("SLOTSCOPE_OBJECTS", "1000"))
MOST = 1.5
"""Times the metadata that are fetched."""
METADATA = (NodeKind.FIELD, NodeKind.TABLE)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with served() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": store.url,
            "AWS_MAX_ATTEMPTS": "1",
        }.items():
            patch.setenv(name, value)
        yield store


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    with target_of(None, "b10229") as target:
        yield job_for(target)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some saves, with their companions."""
    made = tmp_path_factory.mktemp("saves")
    for file in sorted(INTACT.glob("ggsq2.hybrid--*.slot*")):
        shutil.copyfile(file, made / file.name)
        os.utime(made / file.name, (0, 0))
    return made


def put(name: str, folder: Path) -> str:
    """A bucket with the files of a folder."""
    files: Any = s3fs.S3FileSystem(skip_instance_cache=True)
    files.mkdir(name)
    for file in folder.iterdir():
        files.pipe_file(f"{name}/deep/{file.name}", file.read_bytes())
    return f"s3://{name}"


def plain(row: Row, folder: str) -> Row:
    """A row without what stores do not tell, or what is not fetched from them."""
    path = row.path.removeprefix(folder)
    return replace(row, path=path, mtime_ns=None, identity="", contents="", bytes_read=0, model="")


def test_objects_have_the_rows_of_files(store: Store, folder: Path, job: Job) -> None:
    url = put("same", folder)
    store.whole.clear()
    found = [plain(row, f"{url}/deep/") for row in rows(items([url]), job)]
    local = [plain(row, f"{folder}/") for row in rows(items([str(folder)]), job, 1)]
    assert found == local
    assert any(row.kind is Kind.COMPANION for row in found)
    assert store.whole == []


def test_what_fails_is_a_line(store: Store, folder: Path, job: Job) -> None:
    url = put("broken", folder)
    names = sorted(file.name for file in folder.glob("*.slot"))
    for failing, name in zip((store.forbidden, store.vanished, store.dropped), names, strict=False):
        failing.add(f"broken/deep/{name}")
    problems = {row.name: row.problem for row in rows(items([url]), job) if row.kind is Kind.FAILED}
    assert problems[names[0]] == "access denied (403)"
    assert problems[names[1]] == "no such object (404)"
    assert problems[names[2]]
    (denied,) = rows(items([f"{url}/deep/{names[0]}"]), job)
    (missing,) = rows(items([f"{url}/deep/nothing.bin"]), job)
    (bucket,) = rows(items(["s3://nowhere/"]), job)
    assert {denied.kind, missing.kind, bucket.kind} == {Kind.FAILED}
    assert denied.named


def test_little_more_than_metadata_is_fetched(store: Store, tmp_path: Path, job: Job) -> None:
    files: Any = s3fs.S3FileSystem(skip_instance_cache=True)
    files.mkdir("many")
    saves = sorted(INTACT.glob("ggsq[234].*-b1*.slot"))
    metadata = 0
    for n in range(N_OBJECTS):
        save = saves[n % len(saves)]
        files.pipe_file(f"many/{n:04}.bin", save.read_bytes())
        if n < len(saves):
            with examined(save) as report:
                root = report.identification.root
                assert root is not None
                sizes = [len(leaf.span) for leaf in leaves(root) if leaf.kind in METADATA]
            metadata += sum(sizes) * len(range(n, N_OBJECTS, len(saves)))
    store.sent = 0
    store.whole.clear()
    found = list(rows(items(["s3://many"]), job))
    assert [row.kind for row in found] == [Kind.STATE] * N_OBJECTS
    assert store.whole == []
    assert sum(row.bytes_read for row in found) == store.sent
    print(f"{store.sent / metadata:.2f} times the metadata")
    assert store.sent <= MOST * metadata


def test_an_address_of_this_machine_is_a_path(folder: Path) -> None:
    assert [item.path for item in items([f"file://{folder}"])] == [
        item.path for item in items([str(folder)])
    ]


def test_a_store_that_there_is_not() -> None:
    with target_of(None, "b10229") as target:
        (item,) = items(["nostore://a/b"])
        assert "nostore" in row_of(item, target).problem


def test_copies_in_a_store_are_not_fetched_to_be_compared(
    store: Store, job: Job, tmp_path: Path
) -> None:
    """It is not known whether they are equal, and not claimed."""
    for name in ("a.slot", "b.slot"):
        shutil.copyfile(INTACT / "ggsq2.kv--twelve-tokens.slot", tmp_path / name)
    address = put("copies", tmp_path)
    with ledger() as book:
        for row in rows(items([address]), job):
            book.note(row)
        assert compare(book) == 0
        (group,) = book.groups()
    assert (group.shared, group.compared, group.n_files) == ("tokens", False, 2)
