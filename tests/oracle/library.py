"""Loads a whole-context file with the library inside an unpacked `xllamacpp` wheel and goes on.

    python library.py WHEEL MODEL '{"load": …, "next": …, "n_predict": …}'

Prints one JSON document: whether it was loaded, its tokens, and what is generated greedily behind
them and `next`. It runs in a process of its own: what it is asked to load can end it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

FIRST_TOKEN = 259
"""Ids below are bytes and control tokens, which servers under test do not generate either."""
MOST_TOKENS = 4096


class Parameters(ctypes.Structure):
    """Room for parameters of any build: structures of this size are passed in memory."""

    _fields_ = [("bytes", ctypes.c_ubyte * 1024)]


class Batch(ctypes.Structure):
    """`llama_batch`: how many tokens, and six arrays."""

    _fields_ = [("n_tokens", ctypes.c_int32), *((f"array_{i}", ctypes.c_void_p) for i in range(6))]


class Library:
    """A context of 512 tokens with all that is default."""

    def __init__(self, wheel: str, model: str) -> None:
        (path,) = Path(wheel, "xllamacpp").glob("*.so")
        self.library = ctypes.CDLL(str(path))
        self.call("llama_backend_init", None)
        defaults = self.call("llama_model_default_params", Parameters)
        self.model = self.pointer("llama_model_load_from_file", model.encode(), defaults)
        defaults = self.call("llama_context_default_params", Parameters)
        self.context = self.pointer("llama_init_from_model", self.model, defaults)
        vocabulary = self.pointer("llama_model_get_vocab", self.model)
        self.n_vocab: int = self.call("llama_vocab_n_tokens", ctypes.c_int32, vocabulary)

    def call(self, name: str, result: Any, *words: Any) -> Any:
        function = getattr(self.library, name)
        function.restype = result
        return function(*words)

    def pointer(self, name: str, *words: Any) -> ctypes.c_void_p:
        found = self.call(name, ctypes.c_void_p, *words)
        assert found, name
        return ctypes.c_void_p(found)

    def load(self, path: str) -> tuple[bool, list[int]]:
        ids, count = (ctypes.c_int32 * MOST_TOKENS)(), ctypes.c_size_t()
        room = ctypes.c_size_t(MOST_TOKENS)
        words = (self.context, path.encode(), ids, room, ctypes.byref(count))
        done = self.call("llama_state_load_file", ctypes.c_bool, *words)
        return done, list(ids[: count.value])

    def feed(self, tokens: list[int]) -> int:
        """Evaluate tokens behind what is in memory; gives the likeliest next one."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self.call("llama_batch_get_one", Batch, ids, len(tokens))
        assert self.call("llama_decode", ctypes.c_int32, self.context, batch) == 0
        logits = self.call("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), self.context, -1)
        return max(range(FIRST_TOKEN, self.n_vocab), key=lambda token: logits[token])


def main() -> None:
    wheel, model, text = sys.argv[1:]
    asked = json.loads(text)
    library, told = Library(wheel, model), dict[str, Any]()
    if "load" in asked:
        told["loaded"], told["tokens"] = library.load(asked["load"])
    if told.get("loaded", True):
        token, told["generated"] = library.feed(asked["next"]), list[int]()
        for _ in range(asked["n_predict"]):
            told["generated"].append(token)
            token = library.feed([token])
    print(json.dumps(told), flush=True)
    os._exit(0)  # destructors of some builds crash


if __name__ == "__main__":
    main()
