"""The programs that read checkpoint lists, and what each insists on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reader:
    """What the program that reads a family insists on.

    Attributes:
        name: the program, for people.
        count_limit: records that it takes at most; None for any number.
        length_limit: bytes of a blob that it takes at most; None for any length.
        checks_sizes: whether it tests counts and lengths before it believes them.
        checks_numbers: whether it rejects the list if n_tokens or positions of a record are absurd.
        insists_on_end: whether bytes behind the last record make it reject the list.
        keeps_whole: whether records in front of a cut survive the cut.
        leaves_stale: whether a save without checkpoints leaves an older list in place.
    """

    name: str
    count_limit: int | None = None
    length_limit: int | None = None
    checks_sizes: bool = True
    checks_numbers: bool = False
    insists_on_end: bool = False
    keeps_whole: bool = False
    leaves_stale: bool = False


_UPSTREAM_PR = "builds with llama.cpp PR #20819"
READERS: dict[tuple[str, int | None], Reader] = {
    ("pkcl", 1): Reader("the turboquant fork", 1024, 1 << 34, leaves_stale=True),
    ("pkcl", 2): Reader("a fork with PKCL 2", insists_on_end=True),
    ("llcp", 1): Reader(_UPSTREAM_PR, checks_sizes=False, leaves_stale=True),
    ("llcp", 2): Reader("the gfx906 fork", checks_sizes=False, leaves_stale=True),
    ("lsckpt2", None): Reader("llama-hdd", checks_sizes=False),
    ("sckp", 1): Reader("llama.cpp from b11549 on"),
    ("stck", 2): Reader("the STCK fork", 64, 1 << 32, checks_numbers=True, insists_on_end=True),
    ("bkcp", 1): Reader("bongo", checks_sizes=False, keeps_whole=True, leaves_stale=True),
    ("slck", 1): Reader("siliang-engine", 4096, 1 << 34, checks_numbers=True),
    ("ik-checkpoints", 3): Reader("ik_llama.cpp", checks_sizes=False, leaves_stale=True),
    ("ik-checkpoints", 4): Reader("ik_llama.cpp", checks_sizes=False, leaves_stale=True),
}
"""Family and version -> its reader. Source: the loaders that `formats.sidecars` cites."""
