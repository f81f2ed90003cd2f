"""Loads a state into the ik_llama.cpp of an unpacked `ik-llama-cpp-python` wheel and goes on.

    python ik.py WHEEL MODEL '{"load": …, "tokens": …, "next": …, "n_predict": …}'

Prints one JSON document: bytes that were read, tokens of the file, and what it generates greedily.
It runs in a process of its own: what it is asked to load can end it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

FIRST_TOKEN = 259
"""Ids below are bytes and control tokens, which servers under test do not generate either."""
N_VOCAB_AT_MOST = 1 << 20


class Ik:
    """A context of the library."""

    def __init__(self, wheel: str, model: str, asked: dict[str, Any]) -> None:
        sys.path.insert(0, wheel)
        from ik_llama_cpp import _ctypes_api as api

        self.api, self.lib = api, api._lib
        api.llama_backend_init()
        model_params = api.llama_model_default_params()
        model_params.use_mmap = True
        for name, value in asked.get("model", {}).items():
            setattr(model_params, name, value)
        self.model = api.llama_model_load_from_file(model.encode(), model_params)
        assert self.model
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 512, 128, 64, 1
        params.n_threads = params.n_threads_batch = 1
        for name, value in asked.get("context", {}).items():
            setattr(params, name, value)
        self.context = api.llama_init_from_model(self.model, params)
        assert self.context
        self.n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self.load_file = self.lib.llama_state_seq_load_file
        self.load_file.restype = size
        self.load_file.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int32, pointer, size, pointer]
        self.save_file = self.lib.llama_state_seq_save_file
        self.save_file.restype = size
        self.save_file.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int32, pointer, size]

    def load(self, path: str) -> tuple[int, list[int]]:
        ids, count = (ctypes.c_int32 * 4096)(), ctypes.c_size_t()
        n = self.load_file(self.context, path.encode(), 0, ids, 4096, ctypes.byref(count))
        return n, list(ids[: count.value])

    def save(self, path: str, tokens: list[int]) -> int:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        return int(self.save_file(self.context, path.encode(), 0, ids, len(tokens)))

    def feed(self, tokens: list[int], start: int, *, singly: bool) -> int:
        """Evaluate tokens; gives the likeliest next one."""
        step = 1 if singly else 64
        for at in range(0, len(tokens), step):
            some = tokens[at : at + step]
            batch = self.api.llama_batch_init(len(some), 0, 1)
            batch.n_tokens = len(some)
            for i, token in enumerate(some):
                batch.token[i], batch.pos[i] = token, start + at + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = i == len(some) - 1
            assert self.api.llama_decode(self.context, batch) == 0
            self.api.llama_batch_free(batch)
        logits = self.api.llama_get_logits_ith(self.context, len(some) - 1)
        return max(range(FIRST_TOKEN, self.n_vocab), key=lambda token: logits[token])


def main() -> None:
    wheel, model, text = sys.argv[1:]
    asked = json.loads(text)
    ik, told = Ik(wheel, model, asked), {}
    held: list[int] = []
    if "load" in asked:
        told["read"], held = ik.load(asked["load"])
        told["tokens"] = held
    if "save" in asked:
        if "prompt" in asked and "load" not in asked:
            held = asked["prompt"]
            ik.feed(held, 0, singly=asked["singly"])
        told["saved"] = ik.save(asked["save"], held)
    if "keep" in asked:
        held = held[: asked["keep"]]
        assert ik.lib.llama_kv_cache_seq_rm(ctypes.c_void_p(ik.context), 0, len(held), -1)
    if "next" in asked:
        fed = asked["next"]
        generated = []
        for _ in range(asked["n_predict"]):
            token = ik.feed(fed, len(held), singly=asked["singly"])
            held = [*held, *fed]
            generated.append(token)
            fed = [token]
        told["generated"] = generated
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
