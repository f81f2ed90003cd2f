"""Files of real ik_llama.cpp builds, and of llama-cpp-python, against what their cards say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.envelopes import context, ggsn, ggsq, ik
from formats.layout import Layout
from formats.sidecars import ik as checkpoints
from formats.spans import StopReason
from inspector.containers import Container, Inner, recognise
from inspector.decode import Decoding, decode
from inspector.node import Node, Rows, find, leaves, walk
from inspector.source import Source, opened
from inspector.span import Span

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus-ik"
MANIFEST: dict[str, Any] = (
    json.loads((CORPUS / "manifest.json").read_text())
    if CORPUS.is_dir()
    else {"files": [], "other": []}
)
CARDS: list[dict[str, Any]] = MANIFEST["files"]
INTACT = [card for card in CARDS if "structure" in card]
OWN = (*ik.ROWS, *checkpoints.ROWS)
BY_ID = {layout.id: layout for layout in OWN}
MARKED = (*OWN, *ggsq.ROWS, *ggsn.ROWS)


def name(card: dict[str, Any]) -> str:
    return str(card["file"])


def candidates(source: Source, kind: str) -> list[Layout]:
    """The layouts with the file's magic and version; for a blob those without a magic."""
    head = source.read_at(0, 8)
    if kind.startswith("blob"):
        return [layout for layout in OWN if not layout.magic]
    version = int.from_bytes(head[4:8], "little")
    return [row for row in MARKED if head[:4] == row.magic and row.version == version]


def tiles(decoding: Decoding) -> bool:
    at = decoding.root.span.start
    for leaf in leaves(decoding.root):
        if leaf.span.start != at:
            return False
        at = leaf.span.stop
    return at == decoding.root.span.stop


LAYOUT_OF = {
    ("seq", 3): "ik3",
    ("seq", 4): "ik4",
    ("slot", 4): "ik4",
    ("session", 9): "ik9.session",
    ("session", 10): "ik10.session",
    ("blob-full", 3): "ik3.blob",
    ("blob-partial", 3): "ik3.blob",
    ("blob-partial", 4): "ik4.blob",
    ("seq", 2): "ggsq2.kv.anonymous",
    ("session", 8): "ggsn8.kv",
}
"""Version 2 with values has the very bytes of upstream's."""


@pytest.mark.parametrize("card", INTACT, ids=name)
def test_one_layout_explains_every_byte(card: dict[str, Any]) -> None:
    with opened(CORPUS / card["file"]) as source:
        decodings = [
            decode(source, row, source.whole()) for row in candidates(source, card["kind"])
        ]
        assert all(tiles(decoding) for decoding in decodings)
        explaining = {decoding.layout.id for decoding in decodings if decoding.complete}
    # of an F32 recurrent state, version 2 has only the number of blocks to show
    explaining -= {"ggsq2.recurrent", "ggsn8.recurrent"}
    assert explaining == {LAYOUT_OF[card["kind"], card["version"]]}


def number(root: Node, path: str) -> int | None:
    node = find(root, path)
    return node.value if node is not None and isinstance(node.value, int) else None


def blocks(root: Node, path: str, *fields: str) -> list[list[int]]:
    series = find(root, path)
    return [[item.number(field) for field in fields] for item in series.children] if series else []


@pytest.mark.parametrize(
    "card", [card for card in INTACT if card["version"] not in (2, 8)], ids=name
)
def test_values_are_those_of_the_card(card: dict[str, Any]) -> None:
    structure = card["structure"]
    with opened(CORPUS / card["file"]) as source:
        layout = BY_ID[LAYOUT_OF[card["kind"], card["version"]]]
        root = decode(source, layout, source.whole()).root
        cells = find(root, "attn.cells")
        assert cells is not None
        assert isinstance(cells.value, Rows)
        pos = cells.value.column("pos")
        assert len(cells.value) == number(root, "attn.cell_count") == structure["cells"]
        if structure["cells"]:
            assert [pos.min(), pos.max()] == structure["positions"]
            contiguous = np.array_equal(pos, np.arange(pos[0], pos[0] + len(pos)))
            assert contiguous == structure.get("positions_contiguous", True)
        if card["kind"] != "session":
            assert not cells.value.column("n_seq_id").any()
        tokens = root.rows("tokens")
        if tokens is not None and "prompt_tokens" in card:
            prompt = card["prompt_tokens"]
            assert tokens.table["value"][: len(prompt)].tolist() == prompt
    head = {"arch": "arch", "rng_bytes": "rng_size", "n_outputs": "n_outputs"}
    head |= {"n_logits": "logits_size", "n_embd": "embd_size"}
    for entry, field in head.items():
        if entry in structure:
            node = root.get(field)
            assert node is not None
            assert node.value == structure[entry], entry
    for word in ("v_state", "n_layer"):
        assert number(root, f"attn.{word}") == structure[word]
    for word in ("qnext_state", "dsa_indexer_state"):
        assert number(root, word) == structure.get(word)
    assert blocks(root, "attn.k", "k_type", "k_size_row") == structure["k"]
    if structure["v_state"] == 1:
        found = blocks(root, "attn.v", "v_type", "v_size_el", "n_embd_v_gqa")
    else:
        found = blocks(root, "attn.v", "v_type", "v_size_row")
    assert found == structure.get("v", [])
    found = blocks(root, "recr.s", "s_type", "s_size_row", "s_rows")
    assert found == structure.get("recurrent", [])
    assert blocks(root, "indexer.k", "k_type", "k_size_row") == structure.get("indexer", [])
    payload = find(root, "attn")
    assert payload is not None
    assert payload.span.start == structure.get("payload_at", 0)


BASE = "llama-gqa.ik-2026-09.plain.broken-"
PLAIN_END = 18820
"""Bytes of the sound file behind all of these."""

STOPS = {
    "cut-last-byte": (StopReason.SHORT_READ, "qnext_state", PLAIN_END - 4),
    "cut-half": (StopReason.PAYLOAD_EXCEEDS_FILE, "attn.k[2].data", 6492),
    "cut-tokens": (StopReason.COUNT_EXCEEDS_FILE, "tokens", 12),
    "cell_count-max": (StopReason.COUNT_EXCEEDS_FILE, "attn.cells", 112),
    # v_state and n_layer become a cell, the header of the first keys becomes those words
    "cell_count-plus-1": (StopReason.PAYLOAD_EXCEEDS_FILE, "attn.k[0].data", 332),
    # the type word of a block of values, 1, becomes qnext_state
    "v_state-2": (StopReason.PAYLOAD_EXCEEDS_FILE, "recr.s[0].data", 9584),
    "n_layer-2": (StopReason.PAYLOAD_EXCEEDS_FILE, "recr.s[0].data", 12668),
    "qnext-1": (StopReason.COUNT_EXCEEDS_FILE, "recr.s", PLAIN_END),
    "version-4": (StopReason.SHORT_READ, "dsa_indexer_state", PLAIN_END),
    "trailing-zeros": (None, "", PLAIN_END),
}


@pytest.mark.parametrize("card", [card for card in CARDS if "damage" in card], ids=name)
def test_damage_stops_where_it_is(card: dict[str, Any]) -> None:
    damage = card["file"].removeprefix(BASE).removesuffix(".seq.bin")
    with opened(CORPUS / card["file"]) as source:
        version = int.from_bytes(source.read_at(4, 4), "little")
        decoding = decode(source, BY_ID[f"ik{version}"], source.whole())
        assert tiles(decoding)
        cells = find(decoding.root, "attn.cells")
        if damage == "n_seq_id-1":
            assert decoding.complete
            assert cells is not None
            assert isinstance(cells.value, Rows)
            assert cells.value.column("n_seq_id").tolist() == [1] + [0] * 23
        elif damage == "dup-pos":
            assert decoding.complete
            assert cells is not None
            assert isinstance(cells.value, Rows)
            assert cells.value.column("pos").tolist().count(4) == 2
        else:
            reason, path, offset = STOPS[damage]
            assert not decoding.complete
            assert [(stop.reason, stop.path) for stop in decoding.stops] == (
                [(reason, path)] if reason else []
            )
            assert decoding.end == offset


@pytest.mark.parametrize(
    "card", [card for card in CARDS if card["kind"] == "ik-checkpoints"], ids=name
)
def test_checkpoints_and_their_blobs(card: dict[str, Any]) -> None:
    with opened(CORPUS / card["file"]) as source:
        decoding = decode(source, BY_ID[f"ik-checkpoints{card['version']}"], source.whole())
        assert decoding.complete
        records = find(decoding.root, "records")
        assert records is not None
        assert len(records.children) == len(card["records"])
        for record, expected in zip(records.children, card["records"], strict=True):
            for field in ("pos_min", "pos_max", "pos_min_prompt", "pos_max_prompt"):
                assert record.number(field) == expected[field]
            assert record.number("n_tgt") == expected["size"]
            blob = record.get("data_tgt")
            assert blob is not None
            assert blob.role == "blob"
            inner = decode(source, BY_ID["ik4.blob"], blob.span)
            assert inner.complete
            assert not decode(source, BY_ID["ik3.blob"], blob.span).complete
            structure = expected["structure"]
            assert number(inner.root, "attn.cell_count") == structure["cells"]
            assert number(inner.root, "qnext_state") == structure["qnext_state"]
            assert number(inner.root, "dsa_indexer_state") == structure["dsa_indexer_state"]
            cells = find(inner.root, "attn.cells")
            assert cells is not None
            assert isinstance(cells.value, Rows)
            pos = cells.value.column("pos")
            assert [pos.min(), pos.max()] == structure["positions"]
            assert all(
                node.value == -1
                for _, node in walk(inner.root)
                if node.name in ("k_type", "v_type")
            )


def container(file: str) -> Container:
    with opened(CORPUS / file) as source:
        found = recognise(source)
    assert found is not None
    assert not found.problems
    return found


@pytest.mark.parametrize("card", [card for card in CARDS if card["kind"] == "ik-tokens"], ids=name)
def test_tokens_json_lists_the_tokens_of_its_state(card: dict[str, Any]) -> None:
    found = container(card["file"])
    with opened(CORPUS / card["file"].removesuffix(".tokens.json")) as source:
        tokens = decode(source, BY_ID["ik4"], source.whole()).root.rows("tokens")
        assert tokens is not None
        assert found.tokens is not None
        assert found.tokens.tolist() == tokens.table["value"].tolist()
    assert found.format == "ik-tokens"
    assert found.fact("magic") == 1819112310
    assert found.fact("has_mtmd") is False


@pytest.mark.parametrize(
    "card", [card for card in MANIFEST["other"] if card["kind"] == "lcp-pickle"], ids=name
)
def test_pickles_hold_the_state_of_a_whole_context(card: dict[str, Any]) -> None:
    found = container(card["file"])
    assert found.format == "llama-cpp-python"
    assert found.fact("n_tokens") == card["n_tokens"]
    assert found.tokens is not None
    assert found.tokens.tolist() == card["tokens"]
    (inner,) = found.inner
    assert (inner.path, inner.holds, len(inner.span)) == (
        "llama_state",
        "context",
        card["state_bytes"],
    )
    with opened(CORPUS / card["file"]) as source:
        explaining = {
            row.id for row in context.ROWS if decode(source, row, inner.span).complete
        } - {"context.recurrent"}
        assert explaining == {"context.kv"}
        flag = find(
            decode(source, row_of("context.kv"), inner.span).root, "attn.streams[0].v_trans"
        )
        assert flag is not None
        assert flag.value == 1


def row_of(layout_id: str) -> Layout:
    return next(row for row in context.ROWS if row.id == layout_id)


def test_disk_cache_names_the_pickle_that_it_holds() -> None:
    if not MANIFEST["other"]:
        pytest.skip("no collection of real state files beside the checkout")
    folder = "other/diskcache"
    found = container(f"{folder}/cache.db")
    assert found.format == "diskcache"
    filename = found.fact("entries[0].filename")
    pickled = container(f"{folder}/{filename}")
    assert found.fact("entries[0].size") == (CORPUS / folder / str(filename)).stat().st_size
    assert pickled.inner == (Inner("llama_state", Span(37656, 53353), "context"),)


def test_a_file_of_node_llama_cpp_is_a_plain_slot_file() -> None:
    cards = [card for card in MANIFEST["other"] if card["kind"] == "seq"]
    if not cards:
        pytest.skip("no collection of real state files beside the checkout")
    with opened(CORPUS / cards[0]["file"]) as source:
        assert recognise(source) is None
        rows = candidates(source, "seq")
        explaining = {row.id for row in rows if decode(source, row, source.whole()).complete}
    assert explaining - {"ggsq3.recurrent"} == {"ggsq3.kv"}
