"""Formats of before July 2024, against files packed here field by field.

Sizes and offsets of the hyper-parameters are those of compilers, not of the declarations; where
real files exist, `tests/corpus/test_whole_context.py` reads them.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from formats.bodies.hparams import HPARAMS
from formats.envelopes import ggsn_historic, ggsq1
from formats.layout import Layout
from inspector.decode import Decoding, decode
from inspector.node import Kind, Node, Rows, find, leaves
from inspector.source import opened

ROWS: dict[str, Layout] = {row.id: row for row in (*ggsn_historic.ROWS, *ggsq1.ROWS)}
FILES = [row for row in ggsn_historic.ROWS if row.format == "ggsn"]

# -- the struct: its size, and where the members lie that say how large rows are -------------------

FLAT = {"n_vocab": 0, "n_embd": 8, "n_head": 16, "n_layer": 20}
GROUPED = {"n_vocab": 0, "n_embd": 8, "n_head": 16, "n_head_kv": 20, "n_layer": 24}
GGUF = {"n_vocab": 0, "n_embd": 12, "n_head": 16, "n_head_kv": 20, "n_layer": 24}
VOCAB_ONLY = GGUF | {"n_vocab": 4}
HEADS = VOCAB_ONLY | {"n_embd_head_k": 32, "n_embd_head_v": 36}
ARRAYS = {"n_vocab": 4, "n_embd": 12, "n_layer": 16, "n_embd_head_k": 28, "n_embd_head_v": 32}


def mamba(first: int) -> dict[str, int]:
    names = ("ssm_d_conv", "ssm_d_inner", "ssm_d_state", "ssm_dt_rank")
    return {name: first + 4 * i for i, name in enumerate(names)}


STRUCTS: dict[str, tuple[int, dict[str, int]]] = {
    "b451": (32, FLAT),
    "b843": (40, FLAT),
    "b888": (48, GROUPED),
    "b899": (52, GROUPED),
    "b1012": (48, GGUF),
    "b1041": (52, GGUF),
    "b1289": (52, VOCAB_ONLY),
    "b1359": (60, VOCAB_ONLY),
    "b1462": (68, VOCAB_ONLY),
    "b1629": (76, VOCAB_ONLY),
    "b1748": (84, HEADS),
    "b2127": (92, HEADS),
    "b2158": (96, HEADS),
    "b2264": (100, HEADS),
    "b2366": (116, HEADS | mamba(76)),
    "b2440": (120, HEADS | mamba(76)),
    "b2961": (124, HEADS | mamba(80)),
    "b3023": (152, HEADS | mamba(108)),
    "b3173": (156, HEADS | mamba(112)),
    "b3266": (164, HEADS | mamba(120)),
    "b3274": (168, HEADS | {"n_swa": 32, "n_embd_head_k": 36, "n_embd_head_v": 40} | mamba(124)),
    "b3295": (176, HEADS | {"n_swa": 32, "n_embd_head_k": 36, "n_embd_head_v": 40} | mamba(128)),
    "b3305": (3236, ARRAYS | {"n_head": 52, "n_head_kv": 52 + 4 * 256} | mamba(3188)),
    "b3421": (6308, ARRAYS | {"n_head": 52, "n_head_kv": 52 + 4 * 512} | mamba(6260)),
}
PER_LAYER = ("b3305", "b3421")

RNG = " ".join(str((i * 2654435761) % 2**32) for i in range(625)).encode()
WIDTH = 32
"""Elements of a head: one block of every quantized type."""
F16, F32, Q8_0, Q4_0 = (2 * WIDTH, 4 * WIDTH, 34, 18)
"""Bytes of a head in a cache type."""


@dataclass(frozen=True)
class State:
    """A state of `n_rows` cells in a cache of `kv_size`, for a model of two layers."""

    version: int
    hparams: str
    k: int = F16
    v: int = F16
    v_trans: int = 1
    n_head_kv: tuple[int, ...] = (2, 2)
    n_rows: int = 3
    kv_size: int = 5
    all_cells: bool = True
    mamba: tuple[int, int, int] | None = None
    seq_ids: tuple[tuple[int, ...], ...] = ((0,), (0, 1), (1,))
    tokens: tuple[int, ...] = (1, 15043, 3186)
    n_vocab: int = 7
    edits: dict[str, int] = field(default_factory=dict)

    def struct(self) -> bytes:
        """The hyper-parameters; members without an offset above are 0xee bytes."""
        size, offsets = STRUCTS[self.hparams]
        n_head = 4
        numbers = {
            "n_vocab": self.n_vocab,
            "n_embd": n_head * WIDTH,
            "n_head": n_head,
            "n_head_kv": self.n_head_kv[0],
            "n_layer": len(self.n_head_kv),
            "n_embd_head_k": WIDTH,
            "n_embd_head_v": WIDTH,
            "n_swa": 0,
        } | dict.fromkeys(mamba(0), 0)
        if self.mamba:
            conv, inner, state = self.mamba
            numbers |= {"ssm_d_conv": conv, "ssm_d_inner": inner, "ssm_d_state": state}
        out = bytearray(b"\xee" * size)
        for name, offset in offsets.items():
            per_layer = self.n_head_kv if name == "n_head_kv" else (n_head,) * len(self.n_head_kv)
            many = self.hparams in PER_LAYER and name in ("n_head", "n_head_kv")
            values = per_layer if many else (numbers[name],)
            struct.pack_into(f"<{len(values)}I", out, offset, *values)
        return bytes(out)

    def sizes(self) -> list[tuple[int, int]]:
        """Bytes of keys and of values of each layer."""
        heads = self.n_head_kv if self.hparams not in ("b451", "b843") else (4, 4)
        if self.mamba:
            conv, inner, state = self.mamba
            row = 4 * (conv - 1) * inner, 4 * state * inner
            return [(self.n_rows * row[0], self.n_rows * row[1])] * len(heads)
        return [(self.n_rows * n * self.k, self.n_rows * n * self.v) for n in heads]

    def data(self, layer: int, part: str) -> bytes:
        """The keys or values of a layer, recognisable by a byte of their own."""
        return bytes([0x10 * (layer + 1) + "kv".index(part)]) * self.sizes()[layer][part == "v"]

    def cells(self) -> bytes:
        out = b""
        for pos, ids in enumerate(self.seq_ids[: self.n_rows]):
            out += struct.pack("<iQ", pos, len(ids)) + struct.pack(f"<{len(ids)}i", *ids)
        n_empty = self.kv_size - self.n_rows if self.all_cells else 0
        return out + n_empty * struct.pack("<iQ", -1, 0)

    def head(self) -> bytes:
        """Random generator, logits, embedding."""
        logits, embedding = b"L" * 4 * self.n_vocab, b"E" * 8
        rng = struct.pack("<Q", len(RNG)) + RNG
        if self.version <= 3:
            room = struct.pack("<QQ", 2 * self.n_vocab, self.n_vocab) + logits + b"U" * len(logits)
            return rng + bytes(65536 - len(RNG)) + room + struct.pack("<Q", 2) + embedding
        head = rng
        if self.version >= 5:
            head += struct.pack("<Qi", 1, 2)
        return head + struct.pack("<Q", self.n_vocab) + logits + struct.pack("<Q", 2) + embedding

    def kv(self) -> bytes:
        """The counts, keys and values, and cells."""
        layers = range(len(self.n_head_kv))
        in_order = [(layer, part) for layer in layers for part in "kv"]
        if self.version <= 2:
            in_order.sort(key=lambda at: at[1])
        data = b"".join(self.data(layer, part) for layer, part in in_order)
        allocated = 1 << 20
        if self.version == 0:
            return struct.pack("<Qi", len(data) + 2048, self.n_rows) + data + bytes(2048)
        if self.version == 1:
            return struct.pack("<Qi", allocated, self.n_rows) + data
        size = len(data) if self.version >= 5 else allocated
        counts = struct.pack("<QII", size, self.n_rows, self.kv_size)
        if self.version >= 3:
            counts += struct.pack("<I", self.n_rows)
        if self.version >= 6:
            counts += struct.pack("<I", self.v_trans)
        return counts + data + self.cells()

    def raw(self) -> bytes:
        """What the library hands out; programs without a file format of llama.cpp keep this."""
        return self.head() + self.kv()

    def file(self) -> bytes:
        tokens = struct.pack(f"<I{len(self.tokens)}i", len(self.tokens), *self.tokens)
        return struct.pack("<II", 0x6767736E, self.version) + self.struct() + tokens + self.raw()


def state_for(row: Layout) -> State:
    """A state as the builds of this row wrote it."""
    version = row.version
    assert version is not None
    hparams = row.id.split("hparams-")[1].split(".")[0]
    used = version >= 5 or row.id.endswith("used-cells")
    return State(version, hparams, all_cells=not used)


def decoded(directory: Path, layout: Layout, data: bytes) -> Decoding:
    path = directory / "state"
    path.write_bytes(data)
    with opened(path) as source:
        decoding = decode(source, layout, source.whole())
        at = 0
        for leaf in leaves(decoding.root):
            assert leaf.span.start == at
            at = leaf.span.stop
            if isinstance(leaf.value, Rows):
                leaf.value.table  # noqa: B018 - read while the file is open
        assert at == len(data)
    return decoding


def node(decoding: Decoding, path: str) -> Node:
    found = find(decoding.root, path)
    assert found is not None, path
    return found


def bytes_of(decoding: Decoding, data: bytes, path: str) -> bytes:
    span = node(decoding, path).span
    return data[span.start : span.stop]


def layer_path(state: State, layer: int, part: str) -> str:
    if state.version <= 2:
        return f"kv_self.{part}[{layer}]"
    return f"kv_self.layers[{layer}].{part}"


def check_layers(state: State, decoding: Decoding, data: bytes) -> None:
    for layer in range(len(state.n_head_kv)):
        for part in "kv":
            found = bytes_of(decoding, data, layer_path(state, layer, part))
            assert found == state.data(layer, part), (layer, part)


# -- hyper-parameters ------------------------------------------------------------------------------


def test_every_struct_is_written_by_some_row() -> None:
    assert {state_for(row).hparams for row in FILES} == set(STRUCTS) == set(HPARAMS)


@pytest.mark.parametrize("hparams", STRUCTS)
def test_struct_has_the_size_and_the_offsets_of_the_compiler(hparams: str) -> None:
    size, offsets = STRUCTS[hparams]
    at, found = 0, {}
    for member in HPARAMS[hparams].members:
        found[member.name.removesuffix("_arr")] = at
        at += member.con.smallest
    assert at == size
    assert {name: found[name] for name in offsets} == offsets


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.id)
def test_every_part_is_where_the_writer_put_it(row: Layout, tmp_path: Path) -> None:
    state = state_for(row)
    data = state.file()
    decoding = decoded(tmp_path, row, data)
    assert decoding.complete
    assert node(decoding, "hparams.n_layer").value == 2
    assert node(decoding, "hparams.n_vocab").value == 7
    tokens = node(decoding, "tokens").value
    assert isinstance(tokens, Rows)
    assert tokens.column("value").tolist() == list(state.tokens)
    rng = "rng.text" if state.version <= 3 else "rng"
    assert bytes_of(decoding, data, rng) == RNG
    assert set(bytes_of(decoding, data, "logits")) == {ord("L")}
    if state.version == 0:
        assert len(node(decoding, "kv_self.data").span) == 2048 + sum(map(sum, state.sizes()))
        return
    check_layers(state, decoding, data)
    if state.version == 1:
        return
    cells = node(decoding, "kv_self.cells").value
    assert isinstance(cells, Rows)
    n_empty = 2 if state.all_cells else 0
    assert cells.column("pos").tolist() == [0, 1, 2] + [-1] * n_empty
    assert cells.items().tolist() == [0, 0, 1, 1]


def twins(row: Layout) -> set[str]:
    """Rows that read each other's files: the members that count lie at the same offsets."""
    same = {"ggsn1.hparams-b1041", "ggsn1.hparams-b1289"}
    return same if row.id in same else {row.id}


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.id)
def test_no_other_row_of_the_version_reads_the_file(row: Layout, tmp_path: Path) -> None:
    data = state_for(row).file()
    complete = {
        other.id
        for other in FILES
        if other.version == row.version and decoded(tmp_path, other, data).complete
    }
    assert complete == twins(row)


def test_only_the_padding_tells_the_twins_apart(tmp_path: Path) -> None:
    state = replace(state_for(ROWS["ggsn1.hparams-b1041"]), n_vocab=32000)
    decoding = decoded(tmp_path, ROWS["ggsn1.hparams-b1289"], state.file())
    assert decoding.complete
    assert node(decoding, "hparams.vocab_only").value == 0
    assert node(decoding, "hparams.pad_1").value == 32000 >> 8


# -- the bytes of an element -----------------------------------------------------------------------

EXPLAINED = [
    State(1, "b451", k=F32, v=F32),
    State(2, "b1462", k=F32, v=F32),
    State(3, "b1748", k=Q8_0),
    State(4, "b2440", k=Q4_0, all_cells=False),
    State(5, "b2440", k=Q8_0, all_cells=False),
    State(6, "b2440", k=F32, v=F32, v_trans=0, all_cells=False),
    State(6, "b2440", k=Q8_0, v=Q8_0, v_trans=0, all_cells=False),
    State(6, "b2440", k=Q8_0, v_trans=1, all_cells=False),
    State(6, "b3305", n_head_kv=(4, 1), all_cells=False),
    State(7, "b3421", n_head_kv=(1, 2), all_cells=False),
    State(5, "b2440", mamba=(4, 16, 8), n_head_kv=(0, 0), all_cells=False),
    State(6, "b3266", mamba=(4, 16, 8), n_head_kv=(0, 0), v_trans=0, all_cells=False),
    State(6, "b2440", n_rows=0, all_cells=False),
    State(2, "b1462", n_rows=0),
    State(3, "b1748", n_rows=5, seq_ids=((0,),) * 5),
    State(4, "b2440", n_rows=0, all_cells=False),
]


def row_of(state: State) -> Layout:
    return next(
        row
        for row in FILES
        if replace(state_for(row), all_cells=state.all_cells) == state_for(row)
        and (row.version, state_for(row).hparams) == (state.version, state.hparams)
    )


@pytest.mark.parametrize("state", EXPLAINED, ids=str)
def test_one_choice_of_types_explains_the_bytes(state: State, tmp_path: Path) -> None:
    data = state.file()
    decoding = decoded(tmp_path, row_of(state), data)
    assert decoding.complete
    if state.n_rows:
        check_layers(state, decoding, data)


def test_types_that_can_be_swapped_stay_undivided(tmp_path: Path) -> None:
    """Keys of f16 with values of q8_0 take as many bytes as the reverse."""
    state = State(6, "b2440", k=F16, v=Q8_0, v_trans=0, all_cells=False)
    decoding = decoded(tmp_path, row_of(state), state.file())
    assert decoding.complete
    layers = node(decoding, "kv_self.layers")
    assert layers.kind is Kind.PAYLOAD
    assert len(layers.span) == sum(map(sum, state.sizes()))


# -- raw states ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout_id", "state"),
    [
        ("context.b451", State(1, "b451")),
        ("context.b451", State(3, "b1748")),
        ("context.b1857", State(4, "b2440", all_cells=False)),
        ("context.b2540", State(5, "b2440", all_cells=False)),
        ("context.b2771", State(6, "b2440", all_cells=False)),
    ],
)
def test_raw_state_ends_at_its_end(layout_id: str, state: State, tmp_path: Path) -> None:
    data = state.raw()
    decoding = decoded(tmp_path, ROWS[layout_id], data)
    assert decoding.complete
    if state.version >= 5:
        assert len(node(decoding, "kv_self.data").span) == sum(map(sum, state.sizes()))
        cells = node(decoding, "kv_self.cells").value
        assert isinstance(cells, Rows)
        assert cells.column("pos").tolist() == [0, 1, 2]
    for row in ggsn_historic.ROWS:
        if row.format == "context" and row.id != layout_id:
            other = decoded(tmp_path, row, data)
            assert not other.complete or node(other, "kv_self.v_trans").value not in (0, 1)


# -- slot files of version 1 -----------------------------------------------------------------------


def first_slot(size_t: str, v_trans: bool, widths: tuple[int, ...] = (8, 8)) -> bytes:
    """Four cells of f16 rows; keys and values are as wide as each other."""
    tokens, n_cells = (1, 2, 3, 4), 4
    out = struct.pack("<II", 0x67677371, 1) + struct.pack("<I4i", 4, *tokens)
    out += struct.pack("<I", struct.calcsize(f"<{size_t}"))
    out += struct.pack("<III4i", n_cells, len(widths), widths[0], 10, 11, 12, 13)
    for layer, width in enumerate(widths):
        out += struct.pack(f"<i{size_t}", 1, 2 * width)
        out += bytes([0x10 + layer]) * (n_cells * 2 * width)
    for layer, width in enumerate(widths):
        out += struct.pack(f"<i{size_t}", 1, 2 if v_trans else 2 * width)
        out += bytes([0x20 + layer]) * (n_cells * 2 * width)
    return out


@pytest.mark.parametrize("v_trans", [False, True])
@pytest.mark.parametrize(("size_t", "layout_id"), [("Q", "ggsq1.kv"), ("I", "ggsq1.kv.size_t-4")])
def test_slot_of_either_width(size_t: str, layout_id: str, v_trans: bool, tmp_path: Path) -> None:
    data = first_slot(size_t, v_trans)
    complete = [row.id for row in ggsq1.ROWS if decoded(tmp_path, row, data).complete]
    assert complete == [layout_id]
    decoding = decoded(tmp_path, ROWS[layout_id], data)
    for layer in range(2):
        assert set(bytes_of(decoding, data, f"attn.k[{layer}].data")) == {0x10 + layer}
        assert set(bytes_of(decoding, data, f"attn.v[{layer}].data")) == {0x20 + layer}
        assert len(node(decoding, f"attn.v[{layer}].data").span) == 4 * 16
    assert node(decoding, "attn").role == "attention"
    cells = node(decoding, "attn.cells").value
    assert isinstance(cells, Rows)
    assert cells.column("pos").tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("v_trans", [False, True])
def test_slot_of_layers_with_unequal_heads(v_trans: bool, tmp_path: Path) -> None:
    """b3305 to b3482 stored the width of layer 0 only (OpenELM)."""
    data = first_slot("Q", v_trans, widths=(8, 24, 16))
    decoding = decoded(tmp_path, ROWS["ggsq1.kv"], data)
    assert decoding.complete
    sizes = [len(node(decoding, f"attn.v[{layer}].data").span) for layer in range(3)]
    assert sizes == [4 * 16, 4 * 48, 4 * 32]


# -- damage ----------------------------------------------------------------------------------------

WHOLE = [(row.id, state_for(row).file()) for row in FILES] + [
    ("ggsq1.kv", first_slot("Q", v_trans=True)),
    ("ggsq1.kv.size_t-4", first_slot("I", v_trans=False)),
]


@pytest.mark.parametrize(("layout_id", "data"), WHOLE, ids=[layout_id for layout_id, _ in WHOLE])
def test_cut_anywhere(layout_id: str, data: bytes, tmp_path: Path) -> None:
    chance = random.Random(layout_id)
    for cut in [0, 7, len(data) - 1, *chance.sample(range(len(data)), 12)]:
        decoding = decoded(tmp_path, ROWS[layout_id], data[:cut])
        assert not decoding.complete
        assert decoding.end <= cut


@pytest.mark.parametrize(("layout_id", "data"), WHOLE, ids=[layout_id for layout_id, _ in WHOLE])
def test_damaged_words(layout_id: str, data: bytes, tmp_path: Path) -> None:
    chance = random.Random(layout_id)
    size = len(data) - len(data) % 4
    for _ in range(12):
        damaged = bytearray(data)
        for at in chance.sample(range(8, min(size, 600), 4), 2) + chance.sample(range(8, size), 1):
            word = chance.choice([0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF])
            damaged[at : at + 4] = word.to_bytes(4, "little")
        decoded(tmp_path, ROWS[layout_id], bytes(damaged))
