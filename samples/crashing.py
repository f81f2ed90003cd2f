"""Small files that harm a server: what `fuzz mutate`, `fuzz run` and `fuzz minimize` found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from samples.sample import Expected, Sample, part
from tests.support.damage import Damaged, cut, overwrite
from tests.support.writer import (
    DIALECTS,
    F16,
    F32,
    Cache,
    Cell,
    Memory,
    Packed,
    Recurrent,
    Row,
    Slot,
    Tokens,
    pack,
)

BUILDS = "b10229 and b10809 of files of their versions, b11549"
"""Those on which the tests try them."""
LAST = (1 << 31) - 1
NAN = b"\xff\xff\xff\x7f"
ONE = Tokens((300,), packed=True)
CELL = Cell(0, tok=300)
CELLS = "attn.streams[0].cells"


@dataclass(frozen=True)
class Crash:
    """A file that harms a server.

    Attributes:
        memory: of the layout that it is written in.
        name: what it shows.
        about: what is wrong with it, and what builds do.
        does: what `fuzz run` calls that, and where the server died.
        model: that the server serves.
        slots: of the server.
        data: its bytes.
        findings: everything that is found in it.
    """

    memory: str
    name: str
    about: str
    does: str
    model: str
    slots: int
    data: bytes
    findings: tuple[Expected, ...]


def attention(version: int, cells: tuple[Cell, ...], tokens: Tokens) -> Packed:
    """A state of `llama-gqa`: three layers of two heads."""
    rows = (Row(F16, 128),) * 3
    return _packed(version, tokens, {"attn": Cache((cells,), rows, rows)})


def hybrid(
    version: int, cells: tuple[Cell, ...], states: tuple[Cell, ...], tokens: Tokens
) -> Packed:
    """A state of `lfm2`: two layers of attention, two of short convolutions."""
    rows = (Row(F16, 64),) * 2
    recr = Recurrent(states, 4, (Row(F32, 512),) * 2, (Row(F32, 0),) * 2)
    return _packed(version, tokens, {"attn": Cache((cells,), rows, rows), "recr": recr})


def _packed(version: int, tokens: Tokens, sections: dict[str, Cache | Recurrent]) -> Packed:
    dialect = DIALECTS["rotated" if version == 4 else ""]
    own = tokens if version > 2 else Tokens(tokens.ids)
    return pack(Slot(version, own, Memory(dict(sections), dialect)))


def crashes(version: int) -> Iterator[Crash]:
    """One file of every kind for builds that read slot files of a version."""

    def of_attention(
        name: str, about: str, does: str, made: Packed | Damaged, *findings: Expected
    ) -> Crash:
        return Crash("kv", name, about, does, "llama-gqa", 1, made.data, findings)

    def of_hybrid(
        name: str,
        about: str,
        does: str,
        made: Packed | Damaged,
        *findings: Expected,
        slots: int = 1,
    ) -> Crash:
        return Crash("hybrid", name, about, does, "lfm2", slots, made.data, findings)

    whole = attention(version, (CELL,), ONE)
    stop = len(whole.data) - 1
    yield of_attention(
        "cut",
        "The last byte is missing. From b7725 on a read beyond the end succeeds, and the bytes "
        "that were read are compared with those of the file by an assertion.",
        "crash",
        cut(whole.data, stop),
        Expected("file.truncated", part(whole, "attn.streams[0].v[2].data")[0], stop),
    )
    none = attention(version, (), ONE)
    yield of_attention(
        "tokens-without-cells",
        "A token and no cell. The restore does not touch the cells of the slot: the next prompt "
        "that shares the token kills a server whose slot was empty, and is answered from the "
        "cells of the conversation before it in a slot that was in use.",
        "crash in /completion",
        none,
        Expected("tokens.no-cells", *part(none, "attn")),
    )
    for name, pos, code, does, about in (
        (
            "cell-marked-as-empty",
            -1,
            "cells.pos-empty",
            "crash in /completion",
            "A cell at position -1, which counts as the lowest: the next prompt that shares a "
            "token kills the server.",
        ),
        (
            "cell-below-all-positions",
            -5,
            "cells.pos-unerasable",
            "spoilt",
            "A cell at position -5. Erasing begins at 0, so that it stays in the slot, and all "
            "later prompts see it, also after another restore; nothing is logged.",
        ),
        (
            "cell-at-the-last-position",
            LAST,
            "cells.pos-unerasable",
            "spoilt",
            "A cell at position 2147483647. Erasing ends before it, so that it stays in the slot, "
            "and every later prompt gets HTTP 500: Invalid input batch.",
        ),
    ):
        place = part(whole, CELLS)[0]
        made = overwrite(whole.data, place, (pos % (1 << 32)).to_bytes(4, "little"))
        yield of_attention(name, about, does, made, Expected(code, place, place + 4))
    none = hybrid(version, (), (Cell(LAST),), ONE)
    place = part(none, "recr.cells")[0]
    yield of_hybrid(
        "state-at-the-last-position",
        "A recurrent state at position 2147483647, where the search for the lowest position "
        "begins: it counts as none, and the next prompt that shares a token kills the server. So "
        "it is of models without attention, however many tokens there are.",
        "crash in /completion",
        none,
        Expected("cells.pos-empty", place, place + 4),
        Expected("layout.ambiguous", 0, len(none.data)),
        Expected("tokens.no-cells", *part(none, "attn")),
    )
    made = hybrid(version, (CELL,), (Cell(0),), ONE)
    place = part(made, "recr.blocks[0].data")[0]
    yield of_hybrid(
        "state-not-a-number",
        "NaN in a recurrent state. Erasing multiplies it by 0, which leaves NaN: the answers to "
        "all later prompts are noise; nothing is logged.",
        "spoilt",
        overwrite(made.data, place, NAN * 128),
        Expected("tensors.non-finite", place, place + 4),
        Expected("reuse.needs-exact-append", *part(made, "recr")),
    )
    twice = hybrid(version, (CELL,), (Cell(0), Cell(0)), ONE)
    yield of_hybrid(
        "two-states",
        "Two recurrent cells in one sequence, for a server of two slots: they are looked for side "
        "by side, and an assertion fails. From b11193 on a server of one slot refuses them.",
        "crash",
        twice,
        Expected("recurrent.several-cells", *part(twice, "recr.cells")),
        slots=2,
    )


def crashing() -> Iterator[Sample]:
    """Those for the newest builds, as samples."""
    for one in crashes(4):
        server = (
            ("builds", BUILDS),
            ("command", f"llama-server -m {one.model}.gguf -np {one.slots}"),
            ("fuzz_run_says", one.does),
        )
        sample = Sample(f"ggsq4.{one.memory}", one.name, one.about, one.data, (), one.findings)
        yield replace(sample, folder="crashes", server=server)
