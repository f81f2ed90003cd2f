"""Servers as people name them: programs and builds, and what each build does otherwise.

Bounds of upstream changes between b10588 and b11549 are intervals: the change is absent in the
build before `since` and surely there from `sure` on.

Source: ggml-org/llama.cpp b451 to b11549, src/llama-context.cpp, src/llama-kv-cache.cpp,
src/llama-memory-recurrent.cpp, tools/server; ikawrakow/ik_llama.cpp to 8337e4cd3, src/llama.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date

from formats.ggml_types import IK, TURBOQUANT, UPSTREAM

NEWEST = 11549
"""The newest upstream build whose behaviour is known."""
NEWEST_IK = "2026-08-15"
"""The day of the newest ik_llama.cpp whose behaviour is known."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build of a server program.

    Attributes:
        server: `llama.cpp`, `ik_llama.cpp`, or the name of a fork.
        label: as people name it: `b11549`, `turboquant@b9079`, `ik@2026-08-15`.
        number: the upstream build whose behaviour it has; None for ik_llama.cpp.
        date: of an ik_llama.cpp build, ISO; None for others.
        adds: changes that it has whatever its number.
        lacks: changes that it has not, whatever its number.
        assumed: what had to be guessed to get there, in words.
    """

    server: str
    label: str
    number: int | None
    date: str | None = None
    adds: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    assumed: tuple[str, ...] = ()

    def has(self, change: str) -> bool:
        """Whether it has a change, named as in `CHANGES`."""
        if change in self.adds or change in self.lacks:
            return change in self.adds
        return CHANGES[change].holds(self)


NEWEST_BUILD = Build(UPSTREAM, f"b{NEWEST}", NEWEST)


@dataclass(frozen=True, slots=True)
class Change:
    """What some builds do and others do not.

    Attributes:
        name: of the change.
        says: what such a build does.
        since: first upstream build that may have it; None if no upstream build has.
        source: where that comes from.
        sure: first upstream build that surely has it, if that is not `since`.
        until: last upstream build that has it; None if the newest does.
        ik: day from which on ik_llama.cpp has it too, ISO; None if it has not.
        ik_until: last day on which ik_llama.cpp has it.
    """

    name: str
    says: str
    since: int | None
    source: str
    sure: int | None = None
    until: int | None = None
    ik: str | None = None
    ik_until: str | None = None

    def holds(self, build: Build) -> bool:
        """Whether a build of this number or day has it, forks aside."""
        if build.server == IK:
            day = build.date or NEWEST_IK
            return self.ik is not None and self.ik <= day <= (self.ik_until or day)
        if self.since is None or build.number is None:
            return False
        return self.since <= build.number <= (self.until or build.number)


_ALWAYS = "2023-01-01"
# fmt: off
_TABLE = (
    # versions of the envelopes
    Change("ggsq-1", "reads ggsq 1", 2630, "PR #6341", until=3482,
           ik=_ALWAYS, ik_until="2024-08-11"),
    Change("ggsq-2", "reads ggsq 2", 3483, "PR #8699; ik_llama.cpp 1a4cfbcc5", until=10635,
           ik="2024-08-12", ik_until="2026-02-15"),
    Change("ggsq-3", "reads ggsq 3", 10636, "PR #27762; ik_llama.cpp e30198a55",
           sure=10644, until=11401, ik="2026-02-16", ik_until="2026-07-17"),
    Change("ggsq-4", "reads ggsq 4", 11402, "PR #28498; ik_llama.cpp 65891dcdb",
           sure=11429, ik="2026-07-18"),
    Change("ggsn-9", "reads ggsn 9", 3681, "PR #9294", until=10635),
    Change("ggsn-10", "reads ggsn 10", 10636, "PR #27762", sure=10644, until=11401),
    Change("ggsn-11", "reads ggsn 11", 11402, "PR #28498", sure=11429),
    # what a state is made of
    Change("swa-split", "windowed layers have a cache of their own", 5429, "PR #13194"),
    Change("seq-id", "a cell of a slot file carries one sequence id", 5485, "PR #13706"),
    Change("n-stream", "an attention section begins with n_stream", 5913, "PR #14363"),
    Change("mla-latent-first", "an MLA key is latent part, then rope part", 7812, "PR #18986"),
    Change("mla-without-values", "MLA caches store no values", 7832, "PR #19067"),
    Change("outputs-dropped", "ggsn 9 goes without outputs and logits", 8133, "PR #18862"),
    Change("mrope-ext", "cells of M-RoPE models carry x and y", 8215, "PR #20132"),
    Change("mrope-ext-full-read", "whole-context restores read them", 8353, "PR #20273"),
    Change("mrope-ext-token", "and the token id", 10636, "PR #27762", sure=10644),
    Change("delta-net-transposed", "blocks of gated delta-net states are transposed",
           8157, "measured between b8156 and b8390", sure=8390),
    Change("rotation", "quantized caches are stored rotated", 8619, "PR #21038"),
    Change("rotation-by-cache", "heads need be alike within a cache only", 8699, "PR #21513"),
    Change("rotation-words", "the rotation is stored and compared", 11402, "PR #28498",
           sure=11429),
    Change("masked-cells-left-out", "only cells in the window are saved", 9473, "PR #23981"),
    Change("recurrent-n-layer", "n_layer of recurrent sections without next-token layers",
           9523, "PR #24060"),
    Change("nextn-cached", "next-token layers are in the main cache",
           9523, "PR #24060; b8672 and b9538 measured", ik=_ALWAYS),
    Change("dsv4-rows-trimmed", "compressed rows end at the last position", 10073, "PR #25325"),
    Change("full-indexer-layers", "only full indexers of glm-dsa have keys", 10243, "PR #26474"),
    Change("minimax-two-sections", "minimax-m3 has an indexer section", 10244, "PR #26338"),
    Change("ple-history-separate", "n-gram history stands behind R blocks", 10645, "PR #27941",
           sure=10662),
    Change("indexer-without-values", "indexers of hybrid models keep keys only",
           10866, "PR #28330", sure=10909),
    Change("nextn-left-out", "no next-token layer is in the main cache", 10866,
           "PR #28330; ik_llama.cpp b40d11b22", sure=10909, ik="2025-11-15"),
    Change("pooled-indexer-keys", "a row of such an indexer holds several keys",
           11237, "src/models/qwen4exp.cpp, glm5-next.cpp", sure=11334),
    Change("media-chunks-1", "reads media chunks of version 1", 10298, "PR #26645", until=10683),
    Change("media-chunks-2", "reads media chunks of version 2", 10684, "tools/mtmd", sure=10816),
    Change("packed-tokens", "the server packs its tokens", 10388, "PR #26640"),
    Change("sckp", "checkpoints are appended to a slot file", 11435, "PR #26004", sure=11549),
    Change("blob-prefix", "blobs begin with 0xaf143cd8 and a slot number", 9028, "PR #22679"),
    Change("blob-seq-id-checked", "which must be that of the slot", 9028, "PR #22679",
           until=9057),
    # memory types
    Change("hybrid-saves", "states of hybrid models can be saved", 5968, "PR #14675"),
    Change("hybrid-iswa", "hybrid models may have a window", 7789, "llama_memory_hybrid_iswa"),
    Change("dsa", "sparse attention with a lightning indexer", 9411, "llama_kv_cache_dsa"),
    Change("dsv4", "compressed attention of DeepSeek-V4", 9840, "llama_kv_cache_dsv4"),
    Change("dsa-iswa", "sparse attention and a window", 10569, "llama_kv_cache_dsa_iswa"),
    Change("hybrid-idx", "hybrid models with an indexer", 10645, "PR #27742", sure=10662),
    # how a loader goes about it
    Change("slot-is-seq-id", "the sequence of a slot has its number", 4038, "PR #10187"),
    Change("bounded-reads", "a short state is not read beyond its end", 3483, "PR #8699",
           ik=_ALWAYS),
    Change("scattered-cells", "free cells need not be adjacent", 7413, "PR #17982"),
    Change("truncation-aborts", "a short file kills the server", 7725, "PR #18801"),
    Change("cell-count-first", "more cells than the cache has are refused first",
           11193, "PR #27530", sure=11200, ik="2026-08-06"),
    Change("failed-rows-zeroed", "rows of a failed restore are zeroed", 11193, "PR #27530",
           sure=11200),
    Change("zero-recurrent-cells", "recurrent sections may be empty", 6711, "PR #16440"),
    Change("recurrent-seq-id-bound", "sequence ids of recurrent sections are bounded",
           8487, "PR #20887"),
    Change("exceptions-cleaned", "a failed read removes the sequence", 10116, "PR #26051"),
    Change("streams-restored-once", "all streams of a whole context survive",
           10645, "llama_kv_cache::state_read", sure=10662),
    Change("mirrored-indexer", "indexer and attention must have the same cells",
           10645, "PR #27941", sure=10662),
    Change("failed-restore-clears-slot", "a failed restore empties the slot", 10388, "PR #26640"),
    Change("tokens-validated", "token ids must be in the vocabulary", 10388, "PR #26640"),
    Change("no-slots-with-mmproj", "no slot files with a projector", 5331,
           "tools/server", until=10044),
    Change("text-slots-with-mmproj", "with a projector slot files of text only", 10045,
           "PR #25076", until=10387),
    Change("256-sequences", "up to 256 sequences, 64 before", 6507, "LLAMA_MAX_SEQ"),
    # what a server does with a prompt
    Change("pos-min-asserted", "cached tokens without cells: abort", 5554, "PR #13833"),
    Change("checkpoints", "windowed models have context checkpoints", 6160, "PR #15293"),
    Change("recurrent-checkpoints", "recurrent and hybrid models have them too",
           6685, "PR #16382", ik="2026-04-05"),
    Change("no-checkpoints-with-mmproj", "none with a projector", 6967, "PR #17045", until=8151),
    Change("token-skipped", "a token is lost behind a checkpoint", 8152, "PR #19849", until=8165),
    Change("zero-pos-min", "a checkpoint from position 0 fits always", 8693, "PR #21510"),
    Change("checkpoint-past-prefix", "even if it ends behind the common prefix",
           8693, "PR #21510", until=9592),
    Change("swa-full-unwindowed", "--swa-full counts as no window", 8916, "PR #22288"),
    Change("unloadable-checkpoint-aborts", "a checkpoint that does not load: abort",
           9109, "PR #22838"),
    Change("removal-aborts", "a tail that cannot be removed: abort", 9180, "PR #22673"),
    Change("host-prompt-cache", "replaced prompts are kept in host memory", 6723, "PR #16391"),
    Change("idle-slots-parked", "idle slots are moved there", 8658, "PR #20993"),
    Change("idle-split-slots-parked", "of split caches a copy", 9574, "PR #24190"),
    Change("named-slots-cached", "it serves requests that name a slot", 9718, "PR #24755"),
    # what a command line means
    Change("flash-attention-auto", "flash attention is on where it can be", 6325, "PR #15434"),
    Change("four-slots", "four slots share one cache unless more are asked for", 6925,
           "PR #16736"),
    Change("slots-as-asked", "-np 1 means one slot, not four", 7433, "PR #17997"),
    Change("context-fitted", "the context is the model's, or what fits", 7406, "PR #16653",
           sure=7539),
    Change("context-capped", "a slot holds no more than the model was trained for", 6925,
           "tools/server/server-context.cpp, issue #22140", sure=8850),
    Change("context-padded", "contexts are multiples of 256 tokens", 6925,
           "measured b8929, b10229, b11549", sure=8929),
    # ik_llama.cpp alone
    Change("ik-flash-attention-on", "flash attention is on", None, "PR #863", ik="2025-10-25"),
    Change("ik-empty-layers", "layers without cache are stored as such", None, "e30198a55",
           ik="2026-02-16"),
    Change("ik-no-values", "caches may store no values", None, "b3d223911", ik="2025-05-30"),
    Change("ik-own-mla-loads", "MLA states without flash attention load", None, "8ba790e8a",
           ik="2026-08-01"),
    Change("ik-companions", ".tokens.json and .checkpoints are read", None, "5e8bb724c",
           ik="2026-04-05"),
    # forks alone
    Change("tip-fallback", "a restore without checkpoints makes one of its end", None,
           "TheTom/llama-cpp-turboquant PR #206"),
    Change("tip-fallback-crashes", "and crashes on it", None,
           "TheTom/llama-cpp-turboquant cff2ea367, issue #304"),
    Change("padded-heads", "heads of turbo types are padded to 128 elements", None,
           "TheTom/llama-cpp-turboquant, 2026-03-29"),
)
# fmt: on

CHANGES: dict[str, Change] = {change.name: change for change in _TABLE}
"""Every change by name."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """A kind of checkpoint list that a server reads.

    Attributes:
        format: the family: `sckp`, `pkcl`, `llcp`, `lsckpt2`, `ik-checkpoints`, …
        version: the only one it takes; None where the format has none.
        suffix: of the companion file; empty for what is inside the state file.
    """

    format: str
    version: int | None
    suffix: str


SCKP = Carrier("sckp", 1, "")


@dataclass(frozen=True, slots=True)
class Fork:
    """A program that descends from upstream.

    Attributes:
        name: in front of the `@`.
        title: what it is.
        source: repository or pull request, and commit.
        follows: its own builds and commits that are known, and the upstream builds they follow.
        otherwise: the upstream build that is assumed if none is named.
        numbered: whether it numbers its own builds, so that a number is none of upstream's.
        carriers: checkpoint lists that it reads besides upstream's.
        adds: changes that it has whatever its number.
        lacks: changes that it has not.
        at: changes that one of its commits adds to them.
        assumed: what is taken for granted of every build, in words.
    """

    name: str
    title: str
    source: str
    follows: dict[str, int]
    otherwise: int
    numbered: bool = False
    carriers: tuple[Carrier, ...] = ()
    adds: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    at: dict[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


FORKS = {
    fork.name: fork
    for fork in (
        Fork(
            TURBOQUANT,
            "llama.cpp with turbo cache types",
            "TheTom/llama-cpp-turboquant 69d8e4be4 with PR #206",
            {"b9079": 8871, "69d8e4be4": 8871},
            8871,
            numbered=True,
            carriers=(Carrier("pkcl", 1, ".ckpt"),),
            adds=frozenset({"tip-fallback", "padded-heads"}),
            lacks=frozenset({"rotation", "rotation-by-cache"}),
            at={"cff2ea367": "tip-fallback-crashes"},
            assumed=("it has pull request 206, which reads .ckpt companions",),
        ),
        Fork(
            "pr20819",
            "llama.cpp with checkpoints beside slot files",
            "ggml-org/llama.cpp PR #20819, d5c325051",
            {"d5c325051": 8450},
            8450,
            carriers=(Carrier("llcp", 1, ".checkpoints"),),
        ),
        Fork(
            "gfx906",
            "llama.cpp for gfx906 with automatic slot saves",
            "362132718/llamacpp-gfx906-slot-save daddd3beb",
            {"daddd3beb": 9765},
            9765,
            carriers=(Carrier("llcp", 2, ".checkpoints"),),
        ),
        Fork(
            "llama-hdd",
            "llama.cpp with checkpoints on disk",
            "LuminaNAO/llama-hdd.cpp, ggml-org/llama.cpp PR #24028",
            {},
            9473,
            carriers=(Carrier("lsckpt2", None, ".ckpt"),),
        ),
        Fork(
            "bongo",
            "llama.cpp with a patch for checkpoints beside slot files",
            "03c/bongo 8e1c77c7e",
            {"8e1c77c7e": 11223},
            11223,
            carriers=(Carrier("bkcp", 1, ".ckpt"),),
        ),
        Fork(
            "siliang",
            "siliang-engine",
            "SpeederX/siliang-engine d1fdc489",
            {},
            NEWEST,
            carriers=(Carrier("slck", 1, ".ckpt"),),
        ),
    )
}
"""Programs that descend from upstream, by name."""


def uncertain(build: Build, change: str) -> bool:
    """Whether it is not known if a build has a change: it came at about that time."""
    row = CHANGES[change]
    if build.number is None or row.since is None or row.sure is None:
        return False
    return row.since <= build.number < row.sure


def ggsq_version(build: Build) -> int | None:
    """The one version of slot files that a build reads; None before there were any."""
    return next((n for n in (4, 3, 2, 1) if build.has(f"ggsq-{n}")), None)


def carriers(build: Build) -> tuple[Carrier, ...]:
    """The checkpoint lists that a build reads."""
    if build.server == IK:
        if not build.has("ik-companions"):
            return ()
        return (Carrier("ik-checkpoints", ggsq_version(build), ".checkpoints"),)
    fork = FORKS.get(build.server)
    own = fork.carriers if fork is not None else ()
    return (*own, SCKP) if build.has("sckp") else own


IK_COMMITS = {
    "528cadb07": "2026-02-15",
    "e30198a55": "2026-02-16",
    "5e8bb724c": "2026-04-05",
    "65891dcdb": "2026-07-18",
    "8ba790e8a": "2026-08-01",
    "8337e4cd3": "2026-08-15",
}
"""Commits of ik_llama.cpp that matter here, and their days."""

RELEASES = {"0.3.0": 10621, "0.4.0": 10809, "0.4.1": 10964, "0.5.0": 11146, "0.6.0": 11429}
"""Upstream's releases, and the builds that they are.

Source: `build_info` of the released servers (b11429-d81235049, b11146-7fe450e19, …).
"""

_NUMBER = re.compile(r"b?([1-9]\d{0,5})(?:-[0-9a-f]{7,40})?")
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+)")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_SHORTEST_COMMIT = 7


def build_named(text: str | None = None) -> Build | str:
    """The build that people mean.

    Args:
        text: `b11549`, `11549`, `v0.6.0`, `turboquant@b9079`, `ik@2026-08-15`, …; None for the
            newest known one.

    Returns:
        The build; or why there is none of that name, in words.
    """
    if text is None:
        return NEWEST_BUILD
    name, at, which = text.strip().partition("@")
    if at and name and not which:
        return f"{text!r} names no build of {name}: name one as in turboquant@b9079"
    if name in ("ik", IK):
        return _ik_build(which)
    if name in FORKS:
        return _fork_build(FORKS[name], which)
    if name == UPSTREAM or not at:
        return _upstream_build(which if at else name)
    return f"no server is called {name!r}; there are {', '.join((UPSTREAM, 'ik', *FORKS))}"


def _upstream_build(which: str) -> Build | str:
    if match := _RELEASE.fullmatch(which):
        number = RELEASES.get(match[1])
        if number is None:
            return f"the build of release v{match[1]} is not known: name it as bNNNN"
        return Build(UPSTREAM, f"b{number}", number)
    if match := _NUMBER.fullmatch(which):
        number = int(match[1])
        newer = f"it does what b{NEWEST} does, the newest known build"
        return Build(UPSTREAM, f"b{number}", number, assumed=(newer,) if number > NEWEST else ())
    return f"{which!r} is no build: there are b{NEWEST}, v0.6.0, turboquant@b9079, ik@{NEWEST_IK} …"


def _fork_build(fork: Fork, which: str) -> Build | str:
    label = f"{fork.name}@{which}" if which else fork.name
    adds = fork.adds | {change for own, change in fork.at.items() if _same(own, which)}
    known = next((number for own, number in fork.follows.items() if _same(own, which)), None)
    assumed = fork.assumed
    number = fork.otherwise if known is None else known
    if known is None:
        named = _NUMBER.fullmatch(which)
        if named and not fork.numbered:
            number = int(named[1])
        elif which and not named and not _COMMIT.fullmatch(which):
            return f"{which!r} is no build of {fork.name}: name one as {fork.name}@bNNNN"
        assumed = (f"it does what b{number} does, besides its own", *assumed)
    return Build(fork.name, label, number, None, adds, fork.lacks, assumed)


def _ik_build(which: str) -> Build | str:
    day = next((day for commit, day in IK_COMMITS.items() if _same(commit, which)), which)
    try:
        day = date.fromisoformat(day or NEWEST_IK).isoformat()
    except ValueError:
        return f"{which!r} is no day of {IK}: name it as ik@{NEWEST_IK}"
    newer = f"it does what {IK} of {NEWEST_IK} does, the newest known"
    label = f"ik@{which or day}"
    return Build(IK, label, None, day, assumed=(newer,) if day > NEWEST_IK else ())


def _same(known: str, named: str) -> bool:
    """Whether a name is that of a known build or commit, which may be cut short."""
    short = min(len(known), len(named))
    return known == named or (short >= _SHORTEST_COMMIT and known[:short] == named[:short])
