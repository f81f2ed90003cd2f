"""A server as the user names it: program, build, model and the options that decide about a state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inspector.geometry import MemoryExpectation
from inspector.gguf import ModelFile

UPSTREAM = "llama.cpp"
IK = "ik_llama.cpp"
TURBOQUANT = "turboquant"


class FlashAttention(StrEnum):
    """`--flash-attn`."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Build:
    """A build of a server program.

    Attributes:
        server: `llama.cpp`, `ik_llama.cpp` or `turboquant`.
        label: as people name it: `b11549`, `turboquant@b9079`, `ik@2026-08-15`.
        number: the upstream build whose behaviour it has; None for ik_llama.cpp.
        date: of an ik_llama.cpp build, ISO; None for others.
    """

    server: str
    label: str
    number: int | None
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The server that will load a file.

    What the user did not say has the default of the build, and is named in `assumed`.

    Attributes:
        build: which program.
        model_name: file name of the model, None if none was named.
        model: its header, None if none was named.
        memory: what that model stores, None if unknown.
        n_ctx: `--ctx-size` in tokens; 0 for the model's own; None if unknown.
        n_parallel: `--parallel`, slots.
        kv_unified: `--kv-unified`: one cell array for all slots.
        type_k: `--cache-type-k`.
        type_v: `--cache-type-v`.
        flash_attention: `--flash-attn`.
        swa_full: `--swa-full`.
        n_ctx_checkpoints: `--ctx-checkpoints`.
        n_batch: `--batch-size`.
        n_ubatch: `--ubatch-size`.
        cache_ram: `--cache-ram` in MiB, 0 for no host prompt cache, None for the default.
        mmproj: whether a multimodal projector is loaded.
        rotation: whether quantized caches are rotated where the build can (LLAMA_ATTN_ROT_DISABLE unset).
        said: the options that the user gave, by attribute name.
        assumed: what had to be guessed, in words.
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
    n_batch: int = 2048
    n_ubatch: int = 512
    cache_ram: int | None = None
    mmproj: bool = False
    rotation: bool = True
    said: frozenset[str] = frozenset()
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def n_stream(self) -> int:
        """Cell arrays of an attention cache."""
        return 1 if self.kv_unified else self.n_parallel

    @property
    def n_ctx_slot(self) -> int | None:
        """Tokens that one slot can hold; None if unknown."""
        if not self.n_ctx:
            return None
        return self.n_ctx if self.kv_unified else self.n_ctx // self.n_parallel
