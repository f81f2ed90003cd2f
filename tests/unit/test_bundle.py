"""Companions are found by name, and lists in them are seen alike whatever their family."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from formats.layout import Layout
from formats.sidecars import bkcp, ik, llcp, lsckpt2, pkcl, sckp, slck, stck
from inspector.bundle import Role, bundle
from inspector.checkpoints import CheckpointRecord, checkpoint_list, fnv1a, records
from inspector.decode import decode
from inspector.source import Unreadable, opened
from inspector.span import Span
from tests.support.writer import Checkpoint, CheckpointList, Packed, pack

FAMILIES: dict[str, Layout] = {
    layout.id: layout
    for module in (pkcl, llcp, lsckpt2, sckp, stck, bkcp, slck, ik)
    for layout in module.ROWS
    if layout.id not in ("stck-gen", "ik-checkpoints4")
}
SPELLING = {"ik-checkpoints3": "ik"}
HEAD = {"version": 3, "state_hash": 7, "prompt_size": 5, "prompt_tokens": 9, "prompt_hash": 1}

RECORDS = (
    Checkpoint(64, 63, 63, b"first target", b"draft", b"spec"),
    Checkpoint(128, 127, 127, b"second"),
)


def touch(path: Path, size: int = 1) -> Path:
    path.write_bytes(bytes(size))
    return path


def seen(directory: Path, layout: Layout, data: bytes) -> tuple[CheckpointRecord, ...]:
    path = directory / "list"
    path.write_bytes(data)
    with opened(path) as source:
        root = decode(source, layout, source.whole()).root
        return records(root, "list", layout.format, layout.version)


def extent(packed: Packed, path: str) -> Span | None:
    marks = [mark for mark in packed.marks if mark.path.startswith(path)]
    return Span(marks[0].start, marks[-1].stop) if marks else None


def test_companions_of_a_state(tmp_path: Path) -> None:
    state = touch(tmp_path / "slot.bin")
    names = {
        "slot.bin.ckpt": Role.CHECKPOINTS,
        "slot.bin.checkpoints": Role.CHECKPOINTS,
        "slot.bin.tokens.json": Role.TOKENS,
        "slot.bin.gen": Role.MARKER,
        "slot.bin.hbnd": Role.HIDDEN,
        "slot.bin.drft": Role.DRAFT,
        "slot.bin.dft": Role.DRAFT,
        "slot.bin.tmp": Role.LEFTOVER,
        "slot.bin.tmp.checkpoints": Role.LEFTOVER,
    }
    for size, name in enumerate(names, 2):
        touch(tmp_path / name, size)
    for stranger in ("slot.json", "slot.ckpt", "other.bin.ckpt", "slot.bin.ckpt2"):
        touch(tmp_path / stranger)
    (tmp_path / "slot.bin.gen").unlink()
    (tmp_path / "slot.bin.gen").mkdir()
    found = bundle(state)
    del names["slot.bin.gen"]
    assert {other.file.name: other.role for other in found.companions} == names
    assert all(other.file.name == "slot.bin" + other.suffix for other in found.companions)
    assert {other.file.size for other in found.companions} == {2, 3, 4, 6, 7, 8, 9, 10}
    assert (found.subject.name, found.subject.size, found.role, found.state) == (
        "slot.bin",
        1,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("slot.bin.ckpt", Role.CHECKPOINTS),
        ("slot.bin.tokens.json", Role.TOKENS),
        ("slot.bin.tmp", Role.LEFTOVER),
        ("slot.bin.tmp.checkpoints", Role.LEFTOVER),
    ],
)
def test_state_of_a_companion(name: str, role: Role, tmp_path: Path) -> None:
    companion = touch(tmp_path / name)
    assert bundle(companion).state is None
    state, sibling = touch(tmp_path / "slot.bin", 9), touch(tmp_path / "slot.bin.checkpoints")
    found = bundle(companion)
    assert found.role is role
    assert found.state is not None
    assert (found.state.path, found.state.size) == (state, 9)
    assert [other.file.path for other in found.siblings] == [sibling]


def test_a_state_named_like_a_companion_keeps_its_own(tmp_path: Path) -> None:
    state = touch(tmp_path / "slot.ckpt")
    touch(tmp_path / "slot.ckpt.ckpt")
    found = bundle(state)
    assert [other.file.name for other in found.companions] == ["slot.ckpt.ckpt"]
    assert found.role is Role.CHECKPOINTS


def test_settings_of_jan_lie_beside_hashed_names_only(tmp_path: Path) -> None:
    stem = "0123456789abcdef0123456789abcdef"
    state, settings = touch(tmp_path / f"{stem}.bin"), touch(tmp_path / f"{stem}.json")
    touch(tmp_path / "slot.bin")
    touch(tmp_path / "slot.json")
    assert [other.role for other in bundle(state).companions] == [Role.SETTINGS]
    back = bundle(settings).state
    assert back is not None
    assert back.path == state
    assert bundle(tmp_path / "slot.bin").companions == ()
    assert bundle(tmp_path / "slot.json").role is None


def test_links_are_said(tmp_path: Path) -> None:
    state = touch(tmp_path / "slot.bin")
    (tmp_path / "slot.bin.ckpt").symlink_to(touch(tmp_path / "elsewhere", 5))
    os.link(tmp_path / "elsewhere", tmp_path / "slot.bin.checkpoints")
    (tmp_path / "slot.bin.gen").symlink_to(tmp_path / "nowhere")
    by_link, by_name = bundle(state).companions
    assert (by_link.file.link, by_link.file.size) == (True, 5)
    assert (by_name.file.link, by_name.file.n_links) == (False, 2)
    assert by_link.file.identity == by_name.file.identity


def test_no_regular_file_is_no_subject(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises(Unreadable):
            bundle(path)


@pytest.mark.parametrize("layout_id", FAMILIES)
def test_records_look_alike(layout_id: str, tmp_path: Path) -> None:
    layout = FAMILIES[layout_id]
    packed = pack(CheckpointList(SPELLING.get(layout_id, layout_id), RECORDS, HEAD))
    first, second = seen(tmp_path, layout, packed.data)
    assert [(r.index, r.n_tokens, r.pos_min, r.pos_max) for r in (first, second)] == [
        (0, 64, 63, 63),
        (1, 128, 127, 127),
    ]
    for record, wrote in ((first, RECORDS[0]), (second, RECORDS[1])):
        assert record.complete
        assert record.path == f"records[{record.index}]"
        assert record.blob is None
        for name, blob in (("tgt", wrote.tgt), ("dft", wrote.dft), ("spec", wrote.spec)):
            span, size = getattr(record, f"data_{name}"), getattr(record, f"n_{name}")
            written = extent(packed, f"records[{record.index}].data_{name}")
            assert span == written
            assert size == (None if written is None else len(blob))
    assert first.stores_n_tokens is (layout_id != "ik-checkpoints3")


@pytest.mark.parametrize("layout_id", FAMILIES)
def test_a_cut_record_is_not_complete(layout_id: str, tmp_path: Path) -> None:
    layout = FAMILIES[layout_id]
    packed = pack(CheckpointList(SPELLING.get(layout_id, layout_id), RECORDS, HEAD))
    begins = min(mark.start for mark in packed.marks if mark.path.startswith("records[1]"))
    for cut in range(begins, len(packed.data)):
        found = seen(tmp_path, layout, packed.data[:cut])
        assert found[0].complete
        assert not any(record.complete for record in found[1:])
    (tmp_path / "list").write_bytes(packed.data[: begins - 1])
    with opened(tmp_path / "list") as source:
        root = decode(source, layout, source.whole()).root
        listing = checkpoint_list(root, "list", layout.format, layout.version)
    assert listing is not None
    assert (listing.count, len(listing.whole), listing.cut) == (2, 0, True)


def test_positions_of_a_shifted_prompt_count_its_tokens(tmp_path: Path) -> None:
    data = bytearray(pack(CheckpointList("ik", RECORDS, HEAD)).data)
    data[16 + 12 : 16 + 16] = (163).to_bytes(4, "little")  # pos_max_prompt of the first record
    first, second = seen(tmp_path, FAMILIES["ik-checkpoints3"], bytes(data))
    assert (first.pos_max, first.n_tokens, second.n_tokens) == (63, 164, 128)


def test_hash_is_the_standard_one() -> None:
    assert fnv1a(b"state") == 0xEE63AAAD45B1B116
    assert fnv1a(b"state", 1469598103934665603) == 0x78EE236DF07E8E94


def test_what_a_link_says_is_kept_as_it_is(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere", 5)
    (tmp_path / "slot.bin").symlink_to("elsewhere")
    assert bundle(tmp_path / "slot.bin").subject.target == "elsewhere"
    assert bundle(tmp_path / "elsewhere").subject.target == ""
