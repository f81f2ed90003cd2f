"""A `llama-server` command line, read as the server reads it.

Source: ggml-org/llama.cpp b11549, common/arg.cpp `common_params_parse_ex` and
tools/server/README.md; ikawrakow/ik_llama.cpp 8337e4cd3, docs/parameters.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any


class BadCommand(Exception):
    """Words that no server would start with; the message says which."""


def _number(value: str) -> int:
    """What `std::stoi` makes of it: the digits in front."""
    match = re.match(r"\s*[+-]?[0-9]+", value)
    if match is None or len(match[0]) > _DIGITS or not -_INT <= int(match[0]) < _INT:
        raise ValueError("a number of 32 bits is wanted")
    return int(match[0])


_INT = 1 << 31
_DIGITS = 40
MOST_SLOTS = 256
"""Slots that any server can have. Source: LLAMA_MAX_SEQ."""


def _slots(value: str) -> int:
    number = _number(value)
    if number == 0 or number > MOST_SLOTS:
        raise ValueError(f"1 to {MOST_SLOTS} slots are wanted, or -1 for the default")
    return number


def _context(value: str) -> int:
    number = _number(value)
    if number < 0:
        raise ValueError("a number of tokens is wanted, or 0 for the model's own")
    return number


def _flash_attention(value: str) -> str:
    for meaning, spellings in _FLASH_ATTENTION.items():
        if value in spellings:
            return meaning
    raise ValueError("on, off or auto is wanted")


def _truth(value: str) -> bool:
    if value in _ON:
        return True
    if value in _OFF:
        return False
    raise ValueError("on or off is wanted")


_ON = ("on", "enabled", "true", "1")
_OFF = ("off", "disabled", "false", "0")
_FLASH_ATTENTION = {"on": _ON, "off": _OFF, "auto": ("auto", "-1")}


@dataclass(frozen=True, slots=True)
class Option:
    """An option that decides about a state.

    Attributes:
        attribute: what it sets.
        names: its spellings.
        environment: the variables that do the same, newest first.
        read: value as text -> value; raises ValueError with what is wanted.
        negations: spellings of the opposite, which have no value.
        switch: whether it has no value.
    """

    attribute: str
    names: tuple[str, ...]
    environment: tuple[str, ...] = ()
    read: Callable[[str], Any] = str
    negations: tuple[str, ...] = ()
    switch: bool = False


def _numeric(attribute: str, names: str, environment: str) -> Option:
    return Option(attribute, tuple(names.split()), tuple(environment.split()), _number)


def _text(attribute: str, names: str, environment: str = "") -> Option:
    return Option(attribute, tuple(names.split()), tuple(environment.split()))


def _switch(attribute: str, names: str, environment: str = "", negations: str = "") -> Option:
    return Option(
        attribute,
        tuple(names.split()),
        tuple(environment.split()),
        _truth,
        tuple(negations.split()),
        switch=True,
    )


OPTIONS = (
    _text("model", "-m --model", "LLAMA_ARG_MODEL"),
    Option("n_ctx", ("-c", "--ctx-size"), ("LLAMA_ARG_CTX_SIZE",), _context),
    Option("n_parallel", ("-np", "--parallel"), ("LLAMA_ARG_N_PARALLEL",), _slots),
    _switch("kv_unified", "-kvu --kv-unified", "LLAMA_ARG_KV_UNIFIED", "-no-kvu --no-kv-unified"),
    _text("type_k", "-ctk --cache-type-k", "LLAMA_ARG_CACHE_TYPE_K"),
    _text("type_v", "-ctv --cache-type-v", "LLAMA_ARG_CACHE_TYPE_V"),
    _switch("swa_full", "--swa-full", "LLAMA_ARG_SWA_FULL"),
    _numeric(
        "n_ctx_checkpoints",
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "LLAMA_ARG_CTX_CHECKPOINTS LLAMA_ARG_SWA_CHECKPOINTS",
    ),
    _numeric(
        "checkpoint_min_step",
        "-cms --checkpoint-min-step",
        "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
    ),
    _numeric("n_batch", "-b --batch-size", "LLAMA_ARG_BATCH"),
    _numeric("n_ubatch", "-ub --ubatch-size", "LLAMA_ARG_UBATCH"),
    _numeric("cache_ram", "-cram --cache-ram", "LLAMA_ARG_CACHE_RAM"),
    _numeric("cache_reuse", "--cache-reuse", "LLAMA_ARG_CACHE_REUSE"),
    _switch(
        "cache_idle_slots",
        "--cache-idle-slots",
        "LLAMA_ARG_CACHE_IDLE_SLOTS",
        "--no-cache-idle-slots",
    ),
    _switch(
        "context_shift", "--context-shift --ctx-shift", "LLAMA_ARG_CONTEXT_SHIFT",
        "--no-context-shift",
    ),
    Option(
        "mmproj",
        ("-mm", "--mmproj", "-mmu", "--mmproj-url"),
        ("LLAMA_ARG_MMPROJ", "LLAMA_ARG_MMPROJ_URL"),
        negations=("--no-mmproj",),
    ),
    _text("slot_save_path", "--slot-save-path", "LLAMA_ARG_SLOT_SAVE_PATH"),
    _numeric("mla", "-mla --mla-use", ""),
    _switch("k_hadamard", "-khad --k-cache-hadamard"),
    _switch("v_hadamard", "-vhad --v-cache-hadamard"),
    _text("type_indexer", "-ictk --indexer-cache-type-k"),
)  # fmt: skip
"""Options of `llama-server` and, the last four, of ik_llama.cpp's."""

FLASH_ATTENTION = Option(
    "flash_attention", ("-fa", "--flash-attn"), ("LLAMA_ARG_FLASH_ATTN",), _flash_attention
)
"""A switch before b6325, and in ik_llama.cpp before November 2025."""

WITHOUT_FLASH_ATTENTION = ("-no-fa", "--no-fa", "--no-flash-attn")

CHANGING = frozenset(
    {
        *("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"),
        *("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor"),
        *("--yarn-beta-slow", "--yarn-beta-fast", "--override-kv", "-gan", "--grp-attn-n"),
        *("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled"),
    }
)
"""Options that change the numbers a model computes; a state does not say with which it was made."""

REMOTE = frozenset(
    {
        *("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url"),
        *("-dr", "--docker-repo", "--models-dir", "--models-preset"),
    }
)
"""Options that name a model elsewhere than in a file here."""

_SAVE = "POST /slots/ID?action=save, with --slot-save-path DIR"
_RESTORE = "POST /slots/ID?action=restore, with --slot-save-path DIR"

PHANTOMS = {
    "--kv-cache-file": f"no llama.cpp has it (mlx-lm does): use {_SAVE}",
    "--kv-cache-path": f"no llama.cpp has it: use {_SAVE}",
    "--slot-load-path": f"no llama.cpp has it: use {_RESTORE}",
    "--slot-restore": f"no llama.cpp has it: use {_RESTORE}",
    "--slot-restore-path": f"no llama.cpp has it: use {_RESTORE}",
    "--slot-load": f"no llama.cpp has it: use {_RESTORE}",
    "--slot-autosave": f"no llama.cpp has it: use {_SAVE} before the server stops",
    "--slot-save-auto": f"only forks with PR #24004 have it: use {_SAVE}",
    "--save-slot-checkpoints": "only bongo has it; llama.cpp from b11549 on saves them always",
    "--slot-persist": f"only a fork has it: use {_SAVE}",
    "--cache-disk": f"only forks with PR #28092 have it: use {_SAVE}",
    "--prompt-cache": f"llama-cli has it, llama-server has not: use {_SAVE}",
    "--prompt-cache-all": f"llama-cli has it, llama-server has not: use {_SAVE}",
    "--prompt-cache-ro": f"llama-cli has it, llama-server has not: use {_RESTORE}",
    "--session": f"no llama-server has it: use {_SAVE}",
}
"""Options that circulate in guides, and what to do instead.

Source: none of them is in ggml-org/llama.cpp 00dc8057a, tools/server/README.md.
"""

_SERVERS = ("llama-server", "server")
_OF_SERVERS = ("llama", "server")
"""What the name of a program has in it that is taken for a server."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NUMERAL = re.compile(r"-\d*\.?\d+")
_WINDOWS_PATH = re.compile(r"(?<![A-Za-z])[A-Za-z]:\\")


@dataclass(frozen=True, slots=True)
class Command:
    """What a command line says.

    Attributes:
        values: what was set, by attribute.
        changing: options that change what the model computes, and their values, in order.
        notes: what else is to be said of it, in words.
    """

    values: dict[str, Any] = field(default_factory=dict)
    changing: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def parsed(
    text: str, environment: Mapping[str, str] | None = None, *, bare_flash_attention: bool = False
) -> Command:
    """Read a command line.

    Args:
        text: as a shell takes it: a program or none, then options.
        environment: variables that the server would see; what the text assigns comes on top.
        bare_flash_attention: whether `-fa` is a switch.

    Raises:
        BadCommand: no server would start with it.
    """
    notes: list[str] = []
    assigned, words = _after_program(_split(text), notes)
    reader = _Reader(words, notes, bare_flash_attention=bare_flash_attention)
    reader.environment({**(environment or {}), **assigned})
    reader.options()
    return Command(reader.values, tuple(reader.changing), tuple(notes))


def _split(text: str) -> list[str]:
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    if _WINDOWS_PATH.search(text):
        lexer.escape = ""
    try:
        return list(lexer)
    except ValueError as error:
        raise BadCommand(f"the command line is not complete: {error}".lower()) from error


def _after_program(words: list[str], notes: list[str]) -> tuple[dict[str, str], list[str]]:
    """Variables assigned in front of the program, and the words behind it."""
    assigned: dict[str, str] = {}
    for at, word in enumerate(words):
        if _program(word) in _SERVERS:
            before = [word for word in words[:at] if not _ASSIGNMENT.fullmatch(word)]
            if before:
                notes.append(f"not looked at, in front of the server: {' '.join(before)}")
            return assigned, words[at + 1 :]
        if word.startswith("-"):
            break
        if match := _ASSIGNMENT.fullmatch(word):
            assigned[match[1]] = match[2]
    rest = words[len(assigned) :]
    if not rest or rest[0].startswith("-"):
        return assigned, rest
    return assigned, _behind_another(rest, notes)


def _behind_another(words: list[str], notes: list[str]) -> list[str]:
    """The words behind a program that is no `llama-server`, but may run one."""
    for at, word in enumerate(words):
        if _program(word) in _SERVERS or "llama.cpp:" in word or "llama-server" in word:
            notes.append(f"not looked at, in front of the server: {' '.join(words[:at])}")
            return words[at + 1 :]
    if _program(words[0]) in ("docker", "podman"):
        notes.append(f"{words[0]} is not understood: give the llama-server command in it")
        return []
    name = _program(words[0])
    if name.endswith(".gguf") or not any(part in name for part in _OF_SERVERS):
        raise BadCommand(
            f"{words[0]!r} is no llama-server: name one, as in 'llama-server -m M.gguf -c 8192'"
        )
    notes.append(f"{words[0]} is taken for a llama-server")
    return words[1:]


def _program(word: str) -> str:
    path = PureWindowsPath(word) if "\\" in word else PurePosixPath(word)
    return path.name.lower().removesuffix(".exe")


class _Reader:
    """Words, as they are read from the front.

    Args:
        words: behind the program.
        notes: where to leave remarks.
        bare_flash_attention: whether `-fa` is a switch.
    """

    def __init__(self, words: list[str], notes: list[str], *, bare_flash_attention: bool) -> None:
        self.values: dict[str, Any] = {}
        self.changing: list[tuple[str, str]] = []
        self._words = list(reversed(words))
        self._notes = notes
        self._bare = bare_flash_attention

    def environment(self, variables: Mapping[str, str]) -> None:
        """Take what the variables say; options come later and win."""
        for option in (*OPTIONS, FLASH_ATTENTION):
            for name in reversed(option.environment):
                if name in variables:
                    self._set(option, variables[name], name)
        disabled = variables.get("LLAMA_ATTN_ROT_DISABLE", "")
        if re.match(r"\s*[+-]?0*[1-9]", disabled):
            self.values["rotation"] = False

    def options(self) -> None:
        """Take all words."""
        known = {name: (option, True) for option in OPTIONS for name in option.names}
        known |= {name: (option, False) for option in OPTIONS for name in option.negations}
        ignored: list[str] = []
        while self._words:
            name, value = self._next_name()
            if name in known:
                self._option(*known[name], name, value)
            elif name in FLASH_ATTENTION.names:
                self._flash_attention(name, value)
            elif name in WITHOUT_FLASH_ATTENTION:
                self.values["flash_attention"] = "off"
            elif name in CHANGING:
                self.changing.append((name, " ".join(self._values(value))))
            elif name in REMOTE:
                self._notes.append(
                    f"{name} {' '.join(self._values(value))}: name the model's file to have it read"
                )
            elif name in PHANTOMS:
                self._notes.append(f"{name}: {PHANTOMS[name]}")
                self._values(value)
            elif name.startswith("-"):
                ignored.append(name)
                self._values(value)
            else:
                raise BadCommand(f"{name!r} belongs to no option")
        if ignored:
            self._notes.append(f"ignored: {', '.join(dict.fromkeys(ignored))}")

    def _next_name(self) -> tuple[str, str | None]:
        """An option, and its value if it is written with `=`, which no llama-server takes."""
        word = self._words.pop()
        if not word.startswith("--"):
            return word, None
        name, equals, value = word.partition("=")
        if equals:
            self._notes.append(f"{name}={value}: llama-server wants a blank, not =")
        return name.replace("_", "-"), value if equals else None

    def _values(self, value: str | None) -> list[str]:
        """The words up to the next option."""
        found = [] if value is None else [value]
        while self._words and (
            not self._words[-1].startswith("-") or _NUMERAL.fullmatch(self._words[-1])
        ):
            found.append(self._words.pop())
        return found

    def _option(self, option: Option, positive: bool, name: str, value: str | None) -> None:
        if option.switch:
            if value is None and self._words and self._words[-1] in (*_ON, *_OFF):
                value = self._words.pop()
            said = value is None or self._read(option, value, name)
            self.values[option.attribute] = said == positive
            return
        if not positive:
            self.values.pop(option.attribute, None)
            return
        if value is None:
            if not self._words:
                raise BadCommand(f"{name} wants a value")
            value = self._words.pop()
        self._set(option, value, name)

    def _flash_attention(self, name: str, value: str | None) -> None:
        if value is None and self._words:
            candidate = self._words[-1]
            known = any(candidate in spellings for spellings in _FLASH_ATTENTION.values())
            if known or not (self._bare or candidate.startswith("-")):
                value = self._words.pop()
        if (value is None) != self._bare:
            wants = "takes no value" if self._bare else "wants on, off or auto"
            self._notes.append(f"{name} {wants} in this build")
        self._set(FLASH_ATTENTION, "on" if value is None else value, name)

    def _set(self, option: Option, value: str, name: str) -> None:
        self.values[option.attribute] = self._read(option, value, name)

    def _read(self, option: Option, value: str, name: str) -> Any:
        try:
            return option.read(value)
        except ValueError as error:
            raise BadCommand(f"{name} {value}: {error}") from error
