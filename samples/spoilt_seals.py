"""Files that are not what was sealed: one for every finding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from xxhash import xxh3_128_hexdigest

from samples.sample import Companion, Expected, Sample, part
from samples.small import TEXT, memory
from samples.spoilt_lists import SLCK, STATE, record, sidecar
from tests.support.damage import overwrite
from tests.support.writer import DIALECTS, Slot, pack

RECORD = ".slotscope.json"
SAVED_NS = 1_000_000_000 * 10**9
LATER_NS = SAVED_NS + 60 * 10**9
PLAIN = pack(Slot(2, TEXT, memory("kv", DIALECTS[""])))
CHANGED = "attn.streams[0].v[1].data"


def seal(
    data: bytes,
    stops: Sequence[tuple[str, int]],
    *,
    mtime_ns: int = SAVED_NS,
    companions: Sequence[tuple[str, bytes]] = (),
) -> Companion:
    """The record of a file with these bytes, in sections that end there."""
    starts = [0, *(stop for _, stop in stops)]
    ids = b"".join(one.to_bytes(4, "little") for one in TEXT.ids)
    document = {
        "schema": "slotscope.record/1",
        "seal": {
            "tool": "slotscope 0.1.0",
            "sealed_ns": LATER_NS,
            "bytes": len(data),
            "mtime_ns": mtime_ns,
            "sha256": hashlib.sha256(data).hexdigest(),
            "tokens": {"count": len(TEXT.ids), "xxh3": xxh3_128_hexdigest(ids)},
            "model": None,
            "target": None,
            "companions": [
                {"name": name, "bytes": len(held), "xxh3": xxh3_128_hexdigest(held)}
                for name, held in companions
            ],
            "sections": [
                {"path": path, "start": a, "stop": z, "xxh3": xxh3_128_hexdigest(data[a:z])}
                for a, (path, z) in zip(starts, stops, strict=False)
            ],
        },
    }
    return Companion(RECORD, "", (json.dumps(document, indent=1) + "\n").encode())


def spoilt_seals() -> Iterator[Sample]:
    """Sealed states that have changed since."""
    data = PLAIN.data
    start, stop = part(PLAIN, CHANGED)
    sections = [("attn.streams[0].k[0].data", start), (CHANGED, stop)]
    made = overwrite(data, start, bytes([data[start] ^ 1])).data

    def sample(
        code: str, about: str, held: bytes, companion: Companion, *place: Expected
    ) -> Sample:
        return Sample("ggsq2.kv", code, about, held, (companion,), place, "damaged")

    code = "seal.section-differs"
    about = "One bit of the last layer has changed since the file was sealed."
    yield sample(code, about, made, seal(data, sections), Expected(code, start, stop))
    code = "seal.length-differs"
    about = "The file had 64 more bytes when it was sealed."
    longer = [*sections, ("gap", len(data) + 64)]
    size = len(data)
    yield sample(code, about, data, seal(data + bytes(64), longer), Expected(code, size, size))
    code = "seal.saved-anew"
    about = "The seal is of an earlier save under the same name, which was longer."
    other = bytes(255 - byte for byte in data) + bytes(64)
    before = seal(other, longer, mtime_ns=SAVED_NS - 10**9)
    yield sample(code, about, data, before, Expected(code, 0, size))
    code = "seal.unreadable"
    about = "The record beside the file is cut."
    cut = Companion(RECORD, "", seal(data, sections).data[:100])
    yield sample(code, about, data, cut, Expected(code, 0, 0, RECORD))
    code = "seal.companion-differs"
    about = "The list of checkpoints is not the one that was sealed together with the state."
    layout = "ggsq2.hybrid"
    listed = Companion(".ckpt", SLCK, sidecar(record(4), record(8)).data)
    name = f"{layout}--{code}.slot.ckpt"
    old = (name, listed.data[:-1] + b"\1")
    whole = seal(STATE.data, [("recr.blocks[3].data", len(STATE.data))], companions=[old])
    yield Sample(
        layout,
        code,
        about,
        STATE.data,
        (listed, whole),
        (Expected(code, 0, len(listed.data), ".ckpt"),),
        "damaged",
    )
