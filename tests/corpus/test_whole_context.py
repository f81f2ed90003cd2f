"""Whole contexts, first slot files and in-memory states of real builds, against their manifest."""

from __future__ import annotations

import json
import pickletools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from formats.bodies.compositions import PARTIAL
from formats.envelopes import blobs, context, ggsn, ggsn_historic, ggsq1
from formats.layout import Layout
from inspector.builds import build_number
from inspector.decode import Decoding, decode
from inspector.node import Node, Rows, find, leaves
from inspector.sections import Section, sections
from inspector.source import Source, opened
from inspector.span import Span

SHARED = Path(__file__).resolve().parents[3] / "shared"
CORPUS = SHARED / "corpus"
FILES_WITH_HEAD = (*ggsn.ROWS, *ggsn_historic.ROWS, *ggsq1.ROWS, *blobs.ROWS)
RAW = tuple(row for row in (*context.ROWS, *ggsn_historic.ROWS) if row.format == "context")

MEMORY = {"attention": "kv", "iswa": "iswa", "recurrent": "recurrent", "hybrid": "hybrid"}
BYTES = {0: 4, 1: 2}
RELEASES = {"2024-04": "b2770", "2024-06": "b3305", "2024-09": "b3600", "v0.4.0": "b11000"}
"""A build of the format's time for packages that are known by their date only."""


@cache
def manifest() -> dict[str, Any]:
    path = CORPUS / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else {"files": [], "models": {}}


def entries(*kinds: str) -> list[dict[str, Any]]:
    """The undamaged upstream files of these kinds; slot files only of the first version."""
    return [
        entry
        for entry in manifest()["files"]
        if entry["kind"] in kinds
        and entry["fork"] == "upstream"
        and not entry.get("damage")
        and (entry["kind"] != "seq" or entry["build_label"] == "2024-06")
    ]


def of_kinds(*kinds: str) -> pytest.MarkDecorator:
    found = entries(*kinds)
    return pytest.mark.parametrize("entry", found, ids=[entry["file"] for entry in found])


pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no collection of real state files")


def build_of(entry: dict[str, Any]) -> int:
    return entry["build"] or build_number(RELEASES[entry["build_label"]])


def memory_of(entry: dict[str, Any]) -> str:
    """What the model's memory is called, in this build and this kind of file."""
    memory = MEMORY[manifest()["models"][entry["model"]]["memory"]]
    since = 6685 if memory == "hybrid" else 6160
    if entry["kind"] == "blob-partial" and build_of(entry) >= since:
        return PARTIAL.get(memory, memory)
    return memory


@contextmanager
def source_of(entry: dict[str, Any]) -> Iterator[Source]:
    with opened(CORPUS / entry["file"]) as source:
        yield source


def tiles(decoding: Decoding) -> bool:
    at = decoding.root.span.start
    for leaf in leaves(decoding.root):
        if leaf.span.start != at:
            return False
        at = leaf.span.stop
    return at == decoding.root.span.stop


def complete(source: Source, rows: tuple[Layout, ...], span: Span) -> dict[str, Decoding]:
    """The readings that explain every byte."""
    head = source.read_at(span.start, 8)
    version = int.from_bytes(head[4:8], "little")
    found = {}
    for row in rows:
        if head.startswith(row.magic) and row.version in (None, version):
            decoding = decode(source, row, span)
            assert tiles(decoding), row.id
            if decoding.complete:
                found[row.id] = decoding
    return found


def written(entry: dict[str, Any], found: dict[str, Decoding]) -> Decoding:
    """The one reading of the model's memory that covers the build."""
    build = build_of(entry)
    fitting = [
        decoding
        for decoding in found.values()
        if decoding.layout.memory in ("", memory_of(entry))
        and build_number(decoding.layout.since or "b0") <= build
        and build <= build_number(decoding.layout.until or "b99999")
    ]
    assert len(fitting) == 1, sorted(found)
    return fitting[0]


def fed(entry: dict[str, Any]) -> Counter[tuple[int, tuple[int, ...]]]:
    """Position and sequences of every cell that the calls have filled."""
    cells: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for step in entry["steps"]:
        if step[0] == "decode":
            _, tokens, sequences, first = step
            cells.update((first + i, tuple(sequences)) for i in range(len(tokens)))
    assert {step[0] for step in entry["steps"]} <= {"decode", "save_session", "save_seq", "blob"}
    return cells


def rows_of(table: Rows) -> Counter[tuple[int, tuple[int, ...]]]:
    """The same of stored cells."""
    items, at, cells = table.items().tolist(), 0, Counter[tuple[int, tuple[int, ...]]]()
    for pos, n in zip(table.column("pos").tolist(), table.column("n_seq_id").tolist(), strict=True):
        cells[pos, tuple(items[at : at + n])] += 1
        at += n
    assert at == len(items)
    return cells


def cells_of(section: Section) -> Counter[tuple[int, tuple[int, ...]]]:
    return sum((rows_of(table) for table in section.tables), Counter())


def last_positions(cells: Counter[tuple[int, tuple[int, ...]]]) -> dict[int, int]:
    last: dict[int, int] = {}
    for pos, sequences in cells:
        for sequence in sequences:
            last[sequence] = max(last.get(sequence, -1), pos)
    return last


def layers_of(model: dict[str, Any], section: Section) -> list[int]:
    """The model's layers that a section holds."""
    windowed = set(model.get("windowed_layers", ()))
    layers = model["attention_layers"]
    if model["memory"] != "iswa":
        return layers
    return [layer for layer in layers if (layer in windowed) == (section.kind == "swa")]


def check_widths(model: dict[str, Any], parts: tuple[Section, ...]) -> None:
    """Every stored row is as wide as the model says."""
    for part in parts:
        if part.kind == "recurrent":
            n = len(model["recurrent_layers"])
            assert [block.row_bytes for block in part.r] == [4 * model["r_width"]] * n
            assert [block.row_bytes for block in part.s] == [4 * model["s_width"]] * n
            assert part.n_layer == model["n_layer"]
            continue
        if not part.blocks:
            assert not part.cells
            continue
        layers = layers_of(model, part)
        n_tables = len(part.tables)
        for blocks, widths in ((part.k, model["k_width"]), (part.v, model["v_width"])):
            expected = [widths[str(layer)] for layer in layers] * n_tables
            assert [block.row_bytes // BYTES[block.type_id] for block in blocks] == expected


def check_cells(entry: dict[str, Any], parts: tuple[Section, ...]) -> None:
    """Every stored cell is one that the calls have filled."""
    model, cells = manifest()["models"][entry["model"]], fed(entry)
    for part in parts:
        if part.kind == "recurrent":
            last = last_positions(cells)
            if entry["kind"] == "session":
                found = last_positions(cells_of(part))
                assert found == last
            else:
                assert part.pos.tolist() == [last[0]]
        elif part.kind == "swa" or memory_of(entry).endswith("partial"):
            positions = sorted(pos for pos, _ in cells.elements())
            kept = sorted(part.pos.tolist())
            if entry["kind"] != "session" and build_of(entry) >= 9473:
                assert kept == positions[-model["window"] :]
            else:
                assert kept == positions
        elif entry["kind"] == "session":
            assert cells_of(part) == cells
        else:
            assert sorted(part.pos.tolist()) == sorted(pos for pos, _ in cells.elements())


@of_kinds("session", "blob-full", "blob-partial")
def test_one_reading_is_of_the_writer(entry: dict[str, Any]) -> None:
    with source_of(entry) as source:
        decoding = written(entry, complete(source, FILES_WITH_HEAD, source.whole()))
        parts = sections(decoding.root)
        if decoding.layout.memory:
            assert parts
            check_widths(manifest()["models"][entry["model"]], parts)
            check_cells(entry, parts)
        tokens = decoding.root.rows("tokens")
        if tokens is not None:
            assert tokens.column("value").tolist() == entry["tokens"]


OTHER_READINGS = {
    "iswa": {"msa"},
    "hybrid": {"hybrid-iswa-partial", "hybrid-ple"},
    "kv": {"iswa-partial", "recurrent"},
    "iswa-partial": {"kv"},
    "recurrent": {"hybrid-ple-partial", "kv"},
}
"""Memory -> what else its bytes can be: the same words with another meaning."""


@of_kinds("session", "blob-full", "blob-partial")
def test_other_readings_are_those_that_cannot_be_excluded(entry: dict[str, Any]) -> None:
    with source_of(entry) as source:
        found = complete(source, FILES_WITH_HEAD, source.whole())
    own = written(entry, found).layout
    others = {decoding.layout.memory for decoding in found.values()} - {own.memory}
    assert others <= OTHER_READINGS.get(own.memory, set())


@of_kinds("session")
def test_raw_state_is_the_file_without_head_and_tokens(entry: dict[str, Any]) -> None:
    with source_of(entry) as source:
        whole = written(entry, complete(source, FILES_WITH_HEAD, source.whole()))
        tokens = find(whole.root, "tokens")
        assert tokens is not None
        raw = written(entry, complete(source, RAW, Span(tokens.span.stop, source.size)))
        expected = [node.span for node in leaves(whole.root) if node.span.start >= tokens.span.stop]
        if whole.layout.memory:
            assert [node.span for node in leaves(raw.root)] == expected
            assert raw.layout.memory == whole.layout.memory
        assert raw.root.span == Span(tokens.span.stop, source.size)


def historic_layers(root: Node, n_layer: int) -> list[tuple[int, int]]:
    found = []
    for layer in range(n_layer):
        parts = [find(root, f"kv_self.layers[{layer}].{part}") for part in "kv"]
        assert all(part is not None for part in parts)
        found.append(tuple(len(part.span) for part in parts if part is not None))
    return found


@pytest.mark.parametrize(
    ("name", "layout_id", "n_batch"),
    [
        ("llama-gqa.2024-04.lib-plain.session.bin", "ggsn5.hparams-b2440", 10),
        ("llama-gqa.2024-06.lib-plain.session.bin", "ggsn6.hparams-b3305", 10),
    ],
)
def test_hyper_parameters_explain_the_rows(name: str, layout_id: str, n_batch: int) -> None:
    entry = next(entry for entry in entries("session") if entry["file"] == name)
    model = manifest()["models"][entry["model"]]
    with source_of(entry) as source:
        found = complete(source, FILES_WITH_HEAD, source.whole())
        assert list(found) == [layout_id]
        root = found[layout_id].root
        expected = [
            (n_batch * 2 * model["k_width"][i], n_batch * 2 * model["v_width"][i]) for i in "012"
        ]
        assert historic_layers(root, model["n_layer"]) == expected
        cells = find(root, "kv_self.cells")
        assert cells is not None
        assert isinstance(cells.value, Rows)
        assert rows_of(cells.value) == fed(entry)
        hparams = root.get("hparams")
        assert hparams is not None
        assert hparams.number("n_layer") == model["n_layer"]
        assert hparams.number("vocab_only") == 0


@of_kinds("seq")
def test_first_slot_file(entry: dict[str, Any]) -> None:
    model = manifest()["models"][entry["model"]]
    with source_of(entry) as source:
        found = complete(source, FILES_WITH_HEAD, source.whole())
        assert list(found) == ["ggsq1.kv"]
        (attn,) = sections(found["ggsq1.kv"].root)
        assert attn.pos.tolist() == list(range(len(entry["tokens"])))
        widths = [2 * model["k_width"][i] for i in "012"]
        assert [block.row_bytes for block in attn.k] == widths
        assert [len(block.data) for block in attn.v if block.data] == [10 * w for w in widths]


def pickled_states(path: Path) -> Iterator[bytes]:
    """The longest bytes of a pickle of llama-cpp-python, found without executing it."""
    texts = [arg for _, arg, _ in pickletools.genops(path.read_bytes()) if isinstance(arg, bytes)]
    yield from (text for text in texts if text[4:9] == b"llama")


@pytest.mark.parametrize("protocol", [4, 5])
def test_state_kept_by_llama_cpp_python(protocol: int) -> None:
    path = SHARED / "corpus-ik" / "other" / f"llama-gqa.save_state.proto{protocol}.pkl"
    if not path.is_file():
        pytest.skip("no pickles beside the checkout")
    (state,) = pickled_states(path)
    start = path.read_bytes().index(state)
    with opened(path) as source:
        found = complete(source, RAW, Span(start, start + len(state)))
        assert list(found) == ["context.kv"]
        (attn,) = sections(found["context.kv"].root)
        assert attn.pos.tolist() == list(range(20))
        assert attn.v_trans == 1
