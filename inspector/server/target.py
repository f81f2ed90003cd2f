"""A server as the user names it: program, build, model, and options that decide about a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from formats.ggml_types import IK, TYPES, UPSTREAM, GgmlType
from inspector.server.command import BadCommand, Command, parsed
from inspector.server.servers import Build, build_named
from inspector.source import Unreadable, opened

if TYPE_CHECKING:
    from inspector.model.geometry import MemoryExpectation
    from inspector.model.gguf import ModelFile


UNREAD = "the server's model cannot be read here"


class BadTarget(Exception):
    """A server that there is not or that does not answer, or a model that cannot be read."""


class FlashAttention(StrEnum):
    """`--flash-attn`."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Target:
    """The server that will load a file.

    What the user did not say has the default of the build, and is named in `assumed`.

    Attributes:
        build: which program.
        model_name: file name of the model, None if none was named.
        model: its header, None if it was not read.
        memory: what that build stores of that model, None if unknown.
        n_ctx: `--ctx-size` in tokens; 0 for the model's own; None if unknown.
        n_parallel: `--parallel`, slots.
        kv_unified: `--kv-unified`: one cell array for all slots.
        type_k: `--cache-type-k`.
        type_v: `--cache-type-v`.
        flash_attention: `--flash-attn`.
        swa_full: `--swa-full`.
        n_ctx_checkpoints: `--ctx-checkpoints`.
        checkpoint_min_step: `--checkpoint-min-step`, tokens.
        n_batch: `--batch-size`.
        n_ubatch: `--ubatch-size`.
        cache_ram: `--cache-ram` in MiB, 0 for no host prompt cache, None for the default.
        cache_reuse: `--cache-reuse`, tokens.
        cache_idle_slots: `--cache-idle-slots`.
        context_shift: `--context-shift`.
        mmproj: whether a multimodal projector is loaded.
        slot_save_path: `--slot-save-path`, None without slot files.
        rotation: whether quantized caches are rotated where the build can (LLAMA_ATTN_ROT_DISABLE
            unset).
        mla: `-mla` of ik_llama.cpp.
        k_hadamard: `-khad` of ik_llama.cpp: quantized keys are rotated.
        v_hadamard: `-vhad` of ik_llama.cpp: quantized values are rotated.
        type_indexer: `-ictk` of ik_llama.cpp.
        changing: options that change what the model computes, and their values.
        said: the options that the user gave or a running server told, by attribute name.
        caches_as_saved: whether neither a command line nor a running server says what the caches
            are like: a state is then judged with caches like those that it was saved from.
        assumed: what had to be guessed, in words.
        defaults: of that what is about the caches.
        notes: what else is to be said of the command line, such as options that no build has.
    """

    build: Build
    model_name: str | None = None
    model: ModelFile | None = None
    memory: MemoryExpectation | None = None
    n_ctx: int | None = None
    n_parallel: int = 1
    kv_unified: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attention: FlashAttention = FlashAttention.AUTO
    swa_full: bool = False
    n_ctx_checkpoints: int = 32
    checkpoint_min_step: int = 8192
    n_batch: int = 2048
    n_ubatch: int = 512
    cache_ram: int | None = None
    cache_reuse: int = 0
    cache_idle_slots: bool = True
    context_shift: bool = False
    mmproj: bool = False
    slot_save_path: str | None = None
    rotation: bool = True
    mla: int = 3
    k_hadamard: bool = False
    v_hadamard: bool = False
    type_indexer: str = "f16"
    changing: tuple[tuple[str, str], ...] = ()
    said: frozenset[str] = frozenset()
    caches_as_saved: bool = False
    assumed: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def assumed_of_states(self) -> tuple[str, ...]:
        """What had to be guessed to judge a state, in words."""
        if not self.caches_as_saved:
            return self.assumed
        return (*(line for line in self.assumed if line not in self.defaults), _AS_SAVED)

    @property
    def n_stream(self) -> int:
        """Cell arrays of an attention cache."""
        return 1 if self.kv_unified else self.n_parallel

    @property
    def n_ctx_train(self) -> int | None:
        """Tokens of context that the model was trained for; None if unknown."""
        if self.model is None:
            return None
        value = self.model.metadata.get(f"{self.model.architecture}.context_length")
        return value if isinstance(value, int) and value > 0 else None

    @property
    def n_ctx_seq(self) -> int | None:
        """Cells that one sequence can have; None if unknown."""
        n_ctx = self.n_ctx or (self.n_ctx_train if self.n_ctx == 0 else None)
        if not n_ctx:
            return None
        own = n_ctx // self.n_stream if self.build.has("n-stream") else n_ctx
        return padded(own, PADDING) if self.build.has("context-padded") else own

    @property
    def n_ctx_slot(self) -> int | None:
        """Tokens that one slot can hold; None if unknown."""
        own = self.n_ctx_seq
        if own is None:
            return None
        if not self.build.has("n-stream"):
            return own // self.n_parallel
        scaled = any(name.startswith(("--rope", "--yarn")) for name, _ in self.changing)
        if self.n_ctx_train and self.build.has("context-capped") and not scaled:
            return min(own, self.n_ctx_train)
        return own

    @property
    def v_trans(self) -> bool | None:
        """Whether values are stored transposed; None if the server decides when it starts."""
        if self.flash_attention is FlashAttention.AUTO:
            kind = cache_type(self.type_v, self.build)
            return False if kind is not None and kind.block_elements > 1 else None
        return self.flash_attention is FlashAttention.OFF


PADDING = 256
"""Cells of a cache are a multiple of it. Source: `GGML_PAD` in src/llama-context.cpp."""


def padded(n: int, to: int) -> int:
    """The next multiple."""
    return -(-n // to) * to


def cache_type(name: str, build: Build) -> GgmlType | None:
    """The type that a build means by `--cache-type-k NAME`; None if it has none of that name."""
    found = [kind for kind in _cache_types(build) if kind.name == name]
    return min(found, key=lambda kind: kind.writer == UPSTREAM, default=None)


def _cache_types(build: Build) -> Iterator[GgmlType]:
    return (kind for kind in TYPES if kind.cache and kind.writer in (build.server, UPSTREAM))


@contextmanager
def target_of(
    command: str | None = None,
    build: str | None = None,
    model: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    url: str | None = None,
    timeout: float = 5.0,
) -> Iterator[Target]:
    """The server that the user names; the model stays open within the context.

    Args:
        command: a `llama-server` command line.
        build: a build by name; without it that of the running server, or the newest known.
        model: a model file, in place of the one in the command line.
        environment: variables that the server would see.
        url: a running server to ask.
        timeout: seconds to wait for it.

    Raises:
        BadTarget: with the reason for people.
    """
    its_build, values, told = None, dict[str, Any](), tuple[str, ...]()
    if url is not None:
        from inspector.server.running import Unreachable, asked

        try:
            running = asked(url, timeout)
        except Unreachable as error:
            raise BadTarget(str(error)) from error
        its_build, values, told = running.build, running.values, running.notes
    program = build_named(its_build if build is None else build)
    if isinstance(program, str):
        raise BadTarget(program)
    try:
        words = parsed(
            command or "", environment, bare_flash_attention=_bare_flash_attention(program)
        )
    except BadCommand as error:
        raise BadTarget(str(error)) from error
    said = {**values, **words.values}
    target = _settled(program, said, words)
    notes, assumed = [*target.notes, *told], [*program.assumed, *target.assumed]
    if build is None and its_build is None:
        assumed.insert(0, f"build {program.label}, the newest known")
    path = model or (Path(said["model"]) if "model" in said else None)
    with ExitStack() as stack:
        if path is None:
            assumed.append("no model is named: what follows from it is not known")
        elif model is not None or "model" in words.values:
            target = with_model(target, stack, path)
        else:
            try:
                target = with_model(target, stack, path)
            except BadTarget as error:  # it is a file of the machine that the server runs on
                notes.append(f"{UNREAD}: {error}")
                target = replace(target, model_name=_name(str(path)))
        yield replace(
            target,
            caches_as_saved=command is None and url is None,
            assumed=tuple(assumed),
            notes=tuple(notes),
        )


def _name(path: str) -> str:
    return (PureWindowsPath(path) if "\\" in path else PurePosixPath(path)).name


def with_model(target: Target, stack: ExitStack, path: Path) -> Target:
    """The server with the model at `path`, which stays open as long as the stack.

    Raises:
        BadTarget: if it cannot be read.
    """
    from inspector.model.geometry import memory_of
    from inspector.model.gguf import Unusable, read_model

    try:
        source = stack.enter_context(opened(path))
        model = read_model(source)
    except (Unreadable, ValueError) as error:  # a ValueError for names that no file can have
        raise BadTarget(f"{path}: {error}") from error
    if isinstance(model, Unusable):
        raise BadTarget(f"{path}: {model.reason}")
    memory = memory_of(model, target.build)
    if memory is None:
        raise BadTarget(f"{path}: its metadata name no architecture with layers")
    return replace(target, model_name=path.name, model=model, memory=memory)


def _bare_flash_attention(build: Build) -> bool:
    """Whether `-fa` is a switch."""
    if build.server == IK:
        return (build.date or "") < "2025-11-12"  # PR #944
    return not build.has("flash-attention-auto")


N_CTX_CHECKPOINTS = ((8218, 32), (6723, 8), (6160, 3))
"""Upstream builds from which on a slot has so many checkpoints at most."""
CHECKPOINT_MIN_STEP = ((9765, 8192), (9310, 256), (0, 64))
"""Upstream builds from which on checkpoints are so many tokens apart."""
N_CTX = 4096
"""Tokens of context from November 2024 (PR #10136) until it is the model's."""
_AS_SAVED = "cache types, flash attention, slots: those that the file was saved with"
_FOUR = 4
_SIDES = {"type_k": "keys", "type_v": "values"}


def _settled(build: Build, said: dict[str, Any], words: Command) -> Target:
    """The target that was described, with the build's defaults for what was not said."""
    of_slots: list[str] = []
    of_context: list[str] = []
    of_rows: list[str] = []
    notes = list(words.notes)
    n_parallel, kv_unified = _slots(build, said, of_slots, notes)
    target = Target(
        build,
        n_ctx=_n_ctx(build, said, of_context, n_parallel, kv_unified=kv_unified),
        n_parallel=n_parallel,
        kv_unified=kv_unified,
        type_k=said.get("type_k", "f16"),
        type_v=said.get("type_v", "f16"),
        flash_attention=_flash_attention(build, said, of_rows),
        swa_full=said.get("swa_full", False),
        n_ctx_checkpoints=said.get("n_ctx_checkpoints", _n_ctx_checkpoints(build)),
        checkpoint_min_step=said.get(
            "checkpoint_min_step", _since(CHECKPOINT_MIN_STEP, build.number)
        ),
        n_batch=said.get("n_batch", 2048),
        n_ubatch=said.get("n_ubatch", 512),
        cache_ram=said.get("cache_ram"),
        cache_reuse=said.get("cache_reuse", 0),
        cache_idle_slots=said.get("cache_idle_slots", True),
        context_shift=said.get("context_shift", False),
        mmproj=bool(said.get("mmproj")),
        slot_save_path=said.get("slot_save_path"),
        rotation=said.get("rotation", True),
        k_hadamard=said.get("k_hadamard", False),
        v_hadamard=said.get("v_hadamard", False),
        mla=said.get("mla", 3),
        type_indexer=said.get("type_indexer", "f16"),
        changing=words.changing,
        said=frozenset(said),
    )
    _check_types(target)
    sides = [what for type_, what in _SIDES.items() if type_ not in said]
    if sides:
        of_rows.append(f"{' and '.join(sides)} in f16")
    notes += [
        f"{name} {value} changes what the model computes: a state made otherwise is wrong here, "
        "and no server notices"
        for name, value in words.changing
    ]
    return replace(
        target,
        assumed=(*of_slots, *of_context, *of_rows),
        defaults=(*of_slots, *of_rows),
        notes=tuple(notes),
    )


def _since(table: tuple[tuple[int, int], ...], number: int | None) -> int:
    """The value of the last row whose build a build is not older than."""
    return next((value for since, value in table if (number or 0) >= since), 0)


def _n_ctx_checkpoints(build: Build) -> int:
    if build.server == IK:
        return 32 if build.has("ik-companions") else 0
    return _since(N_CTX_CHECKPOINTS, build.number)


def _slots(
    build: Build, said: dict[str, Any], assumed: list[str], notes: list[str]
) -> tuple[int, bool]:
    """Slots, and whether they share one cell array."""
    slots: int = said.get("n_parallel", -1)
    unified: bool = said.get("kv_unified", False)
    if slots < 0 and said.get("n_slots", _FOUR) != _FOUR:
        slots = said["n_slots"]
    if not build.has("n-stream"):
        if slots < 0:
            assumed.append(f"one slot, the default of {build.label}")
        return max(1, slots), True
    as_asked = build.has("slots-as-asked")
    if build.has("four-slots") and (slots < 0 or (slots == 1 and not unified and not as_asked)):
        if slots == 1:
            notes.append(f"{build.label} makes four slots with one cell array of -np 1")
        else:
            assumed.append(f"four slots with one cell array, the default of {build.label}")
        return _FOUR, unified if as_asked and "kv_unified" in said else True
    if slots < 0:
        assumed.append(f"one slot, the default of {build.label}")
    elif slots > 1 and "kv_unified" not in said:
        assumed.append("a cell array for each slot, the default where -np is given")
    return max(1, slots), unified


def _n_ctx(
    build: Build, said: dict[str, Any], assumed: list[str], n_parallel: int, *, kv_unified: bool
) -> int | None:
    if "n_ctx" in said:
        return int(said["n_ctx"])
    if "n_ctx_slot" in said:
        return int(said["n_ctx_slot"]) * (1 if kv_unified else n_parallel)
    if build.server == IK:
        assumed.append("a context as long as the model's")
        return 0
    if build.number is not None and build.number >= 4010 and not build.has("context-fitted"):
        assumed.append(f"a context of {N_CTX} tokens, the default of {build.label}")
        return N_CTX
    assumed.append("a context that is long enough: its size is not given")
    return None


def _flash_attention(build: Build, said: dict[str, Any], assumed: list[str]) -> FlashAttention:
    if "flash_attention" in said:
        return FlashAttention(said["flash_attention"])
    if build.server == IK:
        default = FlashAttention.OFF
        if build.has("ik-flash-attention-on"):
            default = FlashAttention.ON
    elif build.has("flash-attention-auto"):
        assumed.append("flash attention wherever the machine can: auto, the default")
        return FlashAttention.AUTO
    else:
        default = FlashAttention.OFF
    assumed.append(f"flash attention {default}, the default of {build.label}")
    return default


def _check_types(target: Target) -> None:
    """Refuse cache types with which no server starts."""
    types = {
        "--cache-type-k": target.type_k,
        "--cache-type-v": target.type_v,
        "--indexer-cache-type-k": target.type_indexer,
    }
    for option, name in types.items():
        if cache_type(name, target.build) is None:
            known = dict.fromkeys(kind.name for kind in _cache_types(target.build))
            raise BadTarget(f"{option} {name}: {target.build.label} has {', '.join(known)}")
    kind = cache_type(target.type_v, target.build)
    off = target.flash_attention is FlashAttention.OFF
    if off and kind is not None and kind.block_elements > 1:
        raise BadTarget(f"no server starts with {target.type_v} values without flash attention")
