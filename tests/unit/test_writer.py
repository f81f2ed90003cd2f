"""The writer itself, against truth that is not ours: worked examples and real files."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.damage import at_random, every_field
from tests.support.meter import write_sparse
from tests.support.writer import (
    BF16,
    F16,
    F32,
    Q8_0,
    Blob,
    Cache,
    Cell,
    Checkpoint,
    CheckpointList,
    Context,
    Dialect,
    FirstMemory,
    IkMemory,
    Memory,
    Outputs,
    Packed,
    Recurrent,
    Row,
    Section,
    Session,
    Slot,
    Tokens,
    cells_of,
    checkpoint,
    fnv1a,
    ik_checkpoints,
    ik_tokens,
    pack,
    packed_size,
    pkcl2,
    small_numbers,
    stck2,
)

# -- the worked example: two layers, one head of four f16, three cells -----------------------------

IDS = (1, 15043, 3186)
FOUR = Row(F16, 8)
STREAMED = Dialect()


def example_values(part: str, layer: int, pos: int, size: int) -> bytes:
    sign = -1 if part.endswith(".v") else 1
    return struct.pack("<4e", *(sign * (1 + 8 * layer + 2 * pos + i / 4) for i in range(4)))


def example(
    *, version: int = 2, dialect: Dialect = STREAMED, v_trans: int = 0, packed: bool = False
) -> bytes:
    cells = cells_of(Tokens(IDS))
    cache = Cache((cells,), (FOUR, FOUR), (FOUR, FOUR), v_trans)
    slot = Slot(version, Tokens(IDS, packed), Memory({"attn": cache}, dialect))
    return pack(slot, example_values).data


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_worked_example() -> None:
    data = example()
    assert len(data) == 220
    assert sha256(data) == "11abe6ba43f50de2d672734c597626d73e9df9d9819ae78239baf37e805c8423"


def test_worked_example_transposed() -> None:
    data = example(v_trans=1)
    assert len(data) == 220
    assert sha256(data) == "6933105048b18a2416fdccf2a9654304d48662524e253e8a533658e2c9f63fe0"


def test_worked_example_packed() -> None:
    plain, data = example(), example(packed=True)
    words = "07000000ffffffff010000000300000001000000c33a0000720c000000000000"
    assert data == plain[:8] + bytes.fromhex(words) + plain[24:]


@pytest.mark.parametrize(
    ("version", "dialect", "size"),
    [
        (2, Dialect(streams=False), 216),
        (2, Dialect(streams=False, ids="none"), 204),
        (2, Dialect(ext=8), 244),
        (3, Dialect(ext=12), 256),
    ],
)
def test_worked_example_in_other_dialects(version: int, dialect: Dialect, size: int) -> None:
    assert len(example(version=version, dialect=dialect)) == size


IK_EXAMPLES = {
    2: (204, "b55e23b63eff122891a082fb890815ffdd40639986ae9444dd495b719e248072"),
    3: (208, "32b3c25f1d1a5f69300e51adca7879458a84592befd1b89017c49ba353ae5b76"),
    4: (212, "074702d624629bc719f866640cde25efb6f59260a11a127e3abb69d95c59a27f"),
}
IK_PARTIAL = {
    3: (88, "2a2a92494992a2585b830896f5b483009c6d3b2a1b180ba31624c581676ea758"),
    4: (92, "2b094563a66d4c384f58086ce1a47798ca3a287e1ec145a200772e9ae01dec9c"),
}
IK_CHECKPOINTS = {
    3: (128, "2e6b4fca17e219aaf43011a381c812b739f53003e0c0a0b50e1f4909a6e0178b"),
    4: (132, "d33fc48cefcf502123ef524ec0bd881f8f76e3678e79130a55cf16f0baf503f9"),
}


def ik_example(version: int) -> IkMemory:
    return IkMemory(version, cells_of(Tokens(IDS)), (FOUR, FOUR), (FOUR, FOUR))


@pytest.mark.parametrize("version", [2, 3, 4])
def test_worked_example_of_ik(version: int) -> None:
    data = pack(Slot(version, Tokens(IDS), ik_example(version)), example_values).data
    assert (len(data), sha256(data)) == IK_EXAMPLES[version]


@pytest.mark.parametrize("version", [3, 4])
def test_worked_checkpoints_of_ik(version: int) -> None:
    blob = pack(Blob(ik_example(version).partial(), None)).data
    assert (len(blob), sha256(blob)) == IK_PARTIAL[version]
    listed = pack(ik_checkpoints([Checkpoint(3, 2, 2, blob)], version)).data
    assert (len(listed), sha256(listed)) == IK_CHECKPOINTS[version]


def test_worked_tokens_of_ik() -> None:
    data = ik_tokens(IDS)
    assert len(data) == 95
    assert sha256(data) == "90b50ecf339ce31dbe2be854b1efa0e21cc7d314e52c2c9051b9a74d51eae71d"


# -- checkpoint lists: vectors that an independent parser read to their exact end ------------------

RECORD = Checkpoint(100, 99, 99, bytes.fromhex("11223344"), b"\xaa\xbb", b"\xcc")
POSITIONS, TOKENS = "63000000 63000000", "6400000000000000"
T, D, S = "0400000000000000 11223344", "0200000000000000 aabb", "0100000000000000 cc"
LISTS = {
    "pkcl1": f"504b434c 01000000 01000000 {TOKENS} {POSITIONS} "
    "0400000000000000 0200000000000000 11223344 aabb",
    "pkcl2": f"504b434c 02000000 16b1b145adaa63ee 01000000 {TOKENS} {POSITIONS} {T} {D} {S}",
    "llcp1": f"50434c4c 01000000 01000000 {POSITIONS} {TOKENS} {T}",
    "llcp2": f"50434c4c 02000000 01000000 {POSITIONS} {TOKENS} {T} {D}",
    "lsckpt2": f"4c53434b50543200 0100000000000000 {POSITIONS} {TOKENS} "
    "0400000000000000 0200000000000000 11223344 aabb",
    "sckp1": f"53434b50 01000000 01000000 {TOKENS} {POSITIONS} {T} {D} {S}",
    "ik": f"71736767 03000000 0100000000000000 {POSITIONS} {POSITIONS} {T}",
    "bkcp1": f"424b4350 01000000 01000000 {TOKENS} ffffffff {POSITIONS} {T} {D} {S}",
    "slck1": f"534c434b 01000000 01000000 {TOKENS} {POSITIONS} {T}",
    "stck2": "5354434b 02000000 01000000 0500000000000000 6400000000000000 948e7ef06d23ee78 "
    f"{TOKENS} {POSITIONS} {T} {D} {S}",
}


@pytest.mark.parametrize("family", LISTS)
def test_checkpoint_list(family: str) -> None:
    bound = {
        "pkcl2": pkcl2([RECORD], b"state"),
        "stck2": stck2([RECORD], b"state", 100),
        "ik": ik_checkpoints([RECORD], 3),
    }
    listed = bound.get(family) or CheckpointList(family, (RECORD,))
    assert pack(listed).data.hex() == LISTS[family].replace(" ", "")


def test_fnv1a() -> None:
    assert fnv1a(b"state") == 0xEE63AAAD45B1B116
    assert fnv1a(b"state", 1469598103934665603) == 0x78EE236DF07E8E94


# -- its own promises ------------------------------------------------------------------------------


def test_numbers_are_finite_and_never_zero() -> None:
    data = small_numbers("attn.k", 0, 0, 40000)
    for code in "ef":
        values = [value for (value,) in struct.iter_unpack(f"<{code}", data)]
        assert all(0 < abs(value) < 1000 for value in values)


def test_marks_tile_the_file() -> None:
    cells = cells_of(Tokens(IDS))
    memory = Memory({"attn": Cache(((), cells), (FOUR, FOUR), (FOUR, FOUR))})
    packed = pack(Slot(2, Tokens(IDS), memory))
    at = 0
    for mark in packed.marks:
        assert mark.start == at
        at = mark.stop
    assert at == len(packed.data)


def test_a_sparse_file_lacks_nothing_but_tensors(tmp_path: Path) -> None:
    cells = cells_of(Tokens(IDS))
    memory = Memory({"attn": Cache((cells,), (FOUR,), (FOUR,), v_trans=1)})
    slot = Slot(2, Tokens(IDS), memory)
    write_sparse(tmp_path / "sparse", slot)
    packed = pack(slot)
    assert (tmp_path / "sparse").read_bytes() == without_chance(packed, packed.data)


def test_damage_is_reproducible() -> None:
    cells = cells_of(Tokens(IDS))
    packed = pack(Slot(2, Tokens(IDS), Memory({"attn": Cache((cells,), (FOUR,), (FOUR,))})))
    seeds = range(200)
    once, twice = ([at_random(packed, seed) for seed in seeds] for _ in range(2))
    assert once == twice
    assert sum(damaged.data != packed.data for damaged in once) > 150
    assert len({damaged.what.split()[0] for damaged in once}) > 5


def test_every_field_is_damaged() -> None:
    packed = pack(Slot(2, Tokens(IDS), Memory({})))
    whats = [damaged.what for damaged in every_field(packed)]
    assert {"version = 3", "version = -1", "n_token_count = 0"} <= set(whats)
    assert {what.split()[0] for what in whats} == {"magic", "version", "n_token_count"}


# -- what real programs wrote ----------------------------------------------------------------------

TYPES = {
    "f32": (F32, 1, 4),
    "f16": (F16, 1, 2),
    "bf16": (BF16, 1, 2),
    "q8_0": (Q8_0, 32, 34),
    "q4_0": (2, 32, 18),
}
RNG_BYTES = 6719
N_VOCAB = 464
WRITTEN_BY_CHANCE = ("data", "rng", "logits", "embd")
"""Fields whose bytes come from the model or from a random generator."""


def row(name: str, elements: int) -> Row:
    kind, per_block, block_bytes = TYPES[name]
    return Row(kind, elements // per_block * block_bytes)


def cells_after(steps: list[list[Any]]) -> list[Cell]:
    """The cells, in cell order, after these calls of the library: new ones go to the first free."""
    held: list[Cell | None] = []
    for call, *args in steps:
        match call, args:
            case "decode", [tokens, seq_ids, first]:
                for i, token in enumerate(tokens):
                    cell = Cell(first + i, tuple(seq_ids), tok=token)
                    if None in held:
                        held[held.index(None)] = cell
                    else:
                        held.append(cell)
            case "seq_rm", [seq_id, start, stop]:
                held = [
                    None if c and seq_id in c.seq_ids and start <= c.pos < stop else c for c in held
                ]
            case "seq_cp", [seq_id, copy, -1, -1]:
                held = [
                    c._replace(seq_ids=(*c.seq_ids, copy)) if c and seq_id in c.seq_ids else c
                    for c in held
                ]
            case "seq_add", [seq_id, start, end, delta]:
                stop = math.inf if end == -1 else end
                held = [
                    c._replace(pos=c.pos + delta)
                    if c and seq_id in c.seq_ids and start <= c.pos < stop
                    else c
                    for c in held
                ]
    return [cell for cell in held if cell is not None]


LABELS = {"2024-04": 2700, "2024-06": 3173, "2024-09": 3660, "v0.4.0": 11000}
"""Builds that the packages without a build number are about."""


class Told:
    """A description of a file from what its manifest tells and what each build is known to do."""

    def __init__(self, entry: dict[str, Any], model: dict[str, Any]) -> None:
        self.entry, self.model, self.settings = entry, model, entry["settings"]
        self.build = entry["build"] or LABELS[entry["build_label"]]
        self.full = entry["kind"] == "session"
        self.slot = entry.get("slot") or 0
        if "steps" in entry:
            self.slot = next((args[1] for call, *args in entry["steps"] if call == "save_seq"), 0)

    def known(self) -> bool:
        """Whether the manifest says enough; files from before b3483 are another format."""
        told = self.entry["tokens"] is not None or "steps" in self.entry
        return told and not (self.full and self.build < 3483)

    @property
    def version(self) -> int:
        return 4 if self.build >= 11402 else 3 if self.build >= 10644 else 2

    @property
    def dialect(self) -> Dialect:
        ids = "all" if self.full else "one" if self.build >= 5485 else "none"
        ext = 12 if self.version >= 3 else 8 if self.build >= 8215 else 0
        if not self.model.get("mrope"):
            ext = 0
        return Dialect(self.build >= 5913, ids, ext, rotation=self.version == 4)

    @property
    def v_trans(self) -> int:
        """Flash attention was off unless asked for, until b6325 made it automatic."""
        default = "on" if self.build >= 6325 else "off"
        return int(self.settings.get("flash_attn", default) in ("off", 0))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.entry["tokens"] or self.entry["steps"][0][1])

    @property
    def all_cells(self) -> list[Cell]:
        if "steps" in self.entry:
            return cells_after(self.entry["steps"])
        return [Cell(pos, (self.slot,), tok=token) for pos, token in enumerate(self.ids)]

    def cells(self, seq_id: int) -> tuple[Cell, ...]:
        """Of one sequence, as a seq save writes them."""
        own = [cell for cell in self.all_cells if seq_id in cell.seq_ids]
        return tuple(cell._replace(seq_ids=(seq_id,)) for cell in own)

    def streams(self, *, windowed: bool) -> tuple[tuple[Cell, ...], ...]:
        n = self.settings.get("n_parallel") or self.settings.get("n_seq_max") or 1
        if self.build < 5913 or self.settings.get("kv_unified"):
            n = 1
        if self.full:
            return tuple(self.cells(i) for i in range(n)) if n > 1 else (tuple(self.all_cells),)
        cells = self.cells(self.slot)
        if windowed and self.build >= 9473:
            cells = cells[-self.model["window"] :]
        return tuple(cells if i == self.slot or n == 1 else () for i in range(n))

    def cache(self, layers: list[int], *, windowed: bool = False, indexer: int = 0) -> Cache:
        k_type = self.settings.get("type_k", "f16")
        v_type = self.settings.get("type_v", "f16")
        k_width = [indexer or self.model["k_width"][str(layer)] for layer in layers]
        v_width = [self.model["v_width"][str(layer)] for layer in layers]
        return Cache(
            self.streams(windowed=windowed),
            tuple(row(k_type, width) for width in k_width),
            tuple(row(v_type, width) for width in v_width)
            if any(v_width) and not indexer
            else None,
            self.v_trans,
            (64, 0) if indexer else (self.rotation(k_type), min(64, self.rotation(v_type))),
            windowed,
        )

    def rotation(self, cache_type: str) -> int:
        """Quantized caches of heads that 64 divides are rotated; the other models' are smaller."""
        head = {"llama-hd128": 128, "gemma-3-270m-q4_k_m": 256}.get(self.entry["model"], 0)
        return head if cache_type.startswith("q") else 0

    @property
    def recurrent(self) -> Recurrent:
        n = len(self.model["recurrent_layers"])
        r, s = row("f32", self.model["r_width"]), row("f32", self.model["s_width"])
        seq_ids = range(self.settings.get("n_seq_max", 1)) if self.full else (self.slot,)
        cells = tuple(cell for seq_id in seq_ids for cell in self.cells(seq_id)[-1:])
        return Recurrent(cells, self.model["n_layer"], (r,) * n, (s,) * n)

    @property
    def memory(self) -> Memory:
        layers = self.model["attention_layers"]
        windowed = self.model.get("windowed_layers", [])
        sections: dict[str, Section] = {}
        if self.model["memory"] == "dsa":
            sections["mla"] = self.cache(layers)
            sections["lid"] = self.cache(layers, indexer=self.model["indexer_width"])
        elif self.model["memory"] == "iswa" and self.build >= 5429:
            own = [layer for layer in layers if layer in windowed]
            sections["base"] = self.cache([layer for layer in layers if layer not in windowed])
            sections["swa"] = self.cache(own, windowed=True)
        elif layers:
            sections["attn"] = self.cache(layers)
        if self.model.get("recurrent_layers"):
            sections["recr"] = self.recurrent
        return Memory(sections, self.dialect)

    @property
    def partial(self) -> Memory:
        """Hybrid memory ignored the flag until b7079."""
        hybrid = len(self.memory.sections) == 2 and "recr" in self.memory.sections
        return self.memory if hybrid and self.build < 7079 else self.memory.partial()

    def at(self, n_tokens: int) -> Memory:
        """The memory as it was after that many tokens."""
        entry = {**self.entry, "tokens": self.ids[:n_tokens]}
        return Told(entry, self.model).memory

    @property
    def description(self) -> Slot | Session | Blob:
        match self.entry["kind"]:
            case "blob-full":
                return Blob(self.memory, 0 if self.build >= 9049 else None)
            case "blob-partial":
                return Blob(self.partial, 0 if self.build >= 9049 else None)
            case "session":
                return self.session
        if self.build < 3483:
            cache = self.cache(self.model["attention_layers"])
            positions = tuple(cell.pos for cell in self.all_cells)
            first = FirstMemory(positions, cache.k, cache.v or (), v_trans=bool(self.v_trans))
            return Slot(1, Tokens(self.ids), first)
        packed = self.entry["made_by"] == "llama-server" and self.build >= 10388
        return Slot(self.version, Tokens(self.ids, packed), self.memory)

    @property
    def session(self) -> Session:
        """The outputs are those of the last batch: of its last token."""
        last = [args[0] for call, *args in self.entry["steps"] if call == "decode"][-1]
        context = Context(
            self.model["arch"].encode(),
            self.memory,
            bytes(RNG_BYTES) if self.build < 3681 else None,
            Outputs((len(last) - 1,), N_VOCAB, 0) if self.build < 8133 else None,
        )
        version = 8 if self.build < 3681 else {2: 9, 3: 10, 4: 11}[self.version]
        return Session(version, self.ids, context)


def with_appendix(told: Told, real: bytes) -> Slot | Session | Blob:
    """The description with the checkpoints of the real file; only their n_tokens is taken over."""
    plain = told.description
    at = len(pack(plain).data)
    if not isinstance(plain, Slot) or real[at : at + 4] != b"SCKP":
        return plain
    (count,) = struct.unpack_from("<I", real, at + 8)
    records: list[Checkpoint] = []
    at += 12
    for _ in range(count):
        (n_tokens,) = struct.unpack_from("<q", real, at)
        records.append(checkpoint(told.at(n_tokens), n_tokens, seq_id=told.slot))
        at += 40 + packed_size(Blob(told.at(n_tokens).partial()))
    return replace(plain, appendix=tuple(records))


def without_chance(packed: Packed, data: bytes) -> bytes:
    """The bytes with zeros in all fields of the writer that chance fills."""
    out = bytearray(data)
    for mark in packed.marks:
        if mark.path.rpartition(".")[2] in WRITTEN_BY_CHANCE:
            out[mark.start : mark.stop] = bytes(mark.stop - mark.start)
    return bytes(out)


def test_files_of_llama_cpp(shared: Path) -> None:
    manifest = json.loads((shared / "corpus/manifest.json").read_text())
    wrong, compared = [], set()
    for entry in manifest["files"]:
        if entry["fork"] != "upstream" or entry["made_by"] == "damage":
            continue
        told = Told(entry, manifest["models"][entry["model"]])
        if not told.known():
            continue
        real = (shared / "corpus" / entry["file"]).read_bytes()
        packed = pack(with_appendix(told, real))
        if without_chance(packed, packed.data) != without_chance(packed, real):
            wrong.append(entry["file"])
        compared.add((entry["kind"], told.model["memory"], told.dialect))
    assert not wrong
    assert len(compared) > 30


def ik_cells(entry: dict[str, Any]) -> tuple[Cell, ...]:
    """The cells that the calls of the library left, or those of a server's tokens."""
    if "steps" not in entry:
        return cells_of(Tokens(tuple(entry["tokens"])))
    cells = cells_after(entry["steps"])
    if entry["kind"] == "session":
        return tuple(cells)
    return tuple(cell for cell in cells if entry.get("seq", 0) in cell.seq_ids)


def ik_memory(entry: dict[str, Any]) -> IkMemory:
    """A description from the words that the manifest lists."""
    structure, full = entry["structure"], entry["kind"] == "session"

    def rows(name: str) -> tuple[Row | None, ...]:
        layers = structure.get(name, [[-1, 0]] * structure["n_layer"])
        return tuple(None if kind == -1 else Row(kind, math.prod(size)) for kind, *size in layers)

    recurrent = tuple(
        (Row(kind, size), n) if n else None for kind, size, n in structure.get("recurrent", ())
    )
    indexer = tuple(Row(kind, size) for kind, size in structure.get("indexer", ()))
    return IkMemory(
        entry["version"] - 6 if full else entry["version"],
        ik_cells(entry),
        rows("k"),
        rows("v"),
        structure["v_state"],
        recurrent,
        indexer if structure.get("dsa_indexer_state") else None,
        ids=full,
    )


def ik_description(entry: dict[str, Any], model: dict[str, Any]) -> Slot | Session | Blob:
    structure, memory = entry["structure"], ik_memory(entry)
    if entry["kind"].startswith("blob"):
        return Blob(memory, None)
    saved = [args[-1] for call, *args in entry.get("steps", ()) if call.startswith("save")]
    ids = tuple(entry["tokens"] or saved[0])
    if entry["kind"] != "session":
        return Slot(entry["version"], Tokens(ids), memory)
    last = [args[0] for call, *args in entry["steps"] if call == "decode"][-1]
    outputs = Outputs((len(last) - 1,), structure["n_logits"], 0)
    rng = bytes(structure["rng_bytes"])
    context = Context(model["arch"].encode(), memory, rng, outputs)
    return Session(entry["version"], ids, context)


def test_files_of_ik_llama_cpp(shared: Path) -> None:
    manifest = json.loads((shared / "corpus-ik/manifest.json").read_text())
    wrong, compared = [], set()
    for entry in manifest["files"]:
        if "structure" not in entry or entry["made_by"] == "damage":
            continue
        real = (shared / "corpus-ik" / entry["file"]).read_bytes()
        packed = pack(ik_description(entry, manifest["models"][entry["model"]]))
        if without_chance(packed, packed.data) != without_chance(packed, real):
            wrong.append(entry["file"])
        compared.add((entry["kind"], entry["version"], "recurrent" in entry["structure"]))
    assert not wrong
    assert len(compared) > 10


def test_companions_of_ik_llama_cpp(shared: Path) -> None:
    manifest = json.loads((shared / "corpus-ik/manifest.json").read_text())
    entries = {entry["file"]: entry for entry in manifest["files"]}
    state = entries["qwen35.ik-8337e4cd3.server.bin"]
    name = f"{state['file']}.checkpoints"
    memory = ik_memory(state)
    records = [
        checkpoint(replace(memory, cells=memory.cells[: n + 1]), n + 1, seq_id=None)
        for n in (record["pos_max"] for record in entries[name]["records"])
    ]
    packed = pack(ik_checkpoints(records, 4))
    real = (shared / "corpus-ik" / name).read_bytes()
    assert without_chance(packed, packed.data) == without_chance(packed, real)
    real = (shared / "corpus-ik" / f"{state['file']}.tokens.json").read_bytes()
    assert ik_tokens(state["tokens"]) == real


def of_the_fork(name: str, shared: Path) -> tuple[Told, dict[str, Any]]:
    """What the truth file of a case tells. The build is b9079, its blobs have no prefix."""
    truth = json.loads((shared / "corpus-fork" / name / "truth.json").read_text())
    model = truth["model"].removesuffix(".gguf")
    prompt = [(7 * i * i + 13 * i + 5) % 200 + 10 for i in range(truth["n_prompt"])]
    entry = {
        "kind": "slot",
        "made_by": "llama-server",
        "build": 9079,
        "model": model,
        "settings": {},
        "tokens": (prompt + truth["gen"])[: truth["save"]["n_saved"]],
    }
    manifest = json.loads((shared / "corpus/manifest.json").read_text())
    return Told(entry, manifest["models"][model]), truth


@pytest.mark.parametrize("name", ["qwen35-pkcl", "mamba-pkcl", "jamba-llcp"])
def test_slot_files_of_the_fork(shared: Path, name: str) -> None:
    told, _ = of_the_fork(name, shared)
    real = (shared / "corpus-fork" / name / "slot.bin").read_bytes()
    packed = pack(told.description)
    assert without_chance(packed, packed.data) == without_chance(packed, real)


@pytest.mark.parametrize(
    ("name", "family", "n_tokens"),
    [
        ("qwen35-pkcl", "pkcl1", 236),
        ("gemma3-pkcl", "pkcl1", 236),
        ("mamba-pkcl", "pkcl1", 196),
        ("jamba-llcp", "llcp1", 196),
    ],
)
def test_sidecars_of_the_fork(shared: Path, name: str, family: str, n_tokens: int) -> None:
    told, truth = of_the_fork(name, shared)
    suffix = ".checkpoints" if family == "llcp1" else ".ckpt"
    recorded = truth["files"][f"slot.bin{suffix}"]
    record = checkpoint(told.at(n_tokens), n_tokens, seq_id=None)
    packed = pack(CheckpointList(family, (record,)))
    assert len(packed.data) == recorded["size"]
    real = (shared / "corpus-fork" / name / f"slot.bin{suffix}").read_bytes()
    if sha256(real) != recorded["sha256"]:
        pytest.skip(f"{name}/slot.bin{suffix} is not the file that its truth.json records")
    assert without_chance(packed, packed.data) == without_chance(packed, real)
