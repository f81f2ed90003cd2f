"""Serves a model with the server inside an unpacked `xllamacpp` wheel, until its stdin closes.

    python serve.py WHEEL MODEL PORT SLOTS [FLAGS]

FLAGS are those of llama-server, as far as the files on trial were saved with them. It runs in a
process of its own: what it is asked to restore can end it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys

ADDRESS_SPACE_BYTES = 6 << 30
"""A broken count makes some builds ask for 90 GB: that shall fail there and then."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel")
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("slots")
    parser.add_argument("-c", type=int, default=512)
    parser.add_argument("-ub", type=int, default=512)
    parser.add_argument("-np", type=int, default=1)
    parser.add_argument("-t", type=int, default=1)
    parser.add_argument("-fa", choices=("on", "off", "auto"), default="auto")
    parser.add_argument("-ctk", default="f16")
    parser.add_argument("-ctv", default="f16")
    parser.add_argument("--cache-ram", type=int, default=0)
    parser.add_argument("--ctx-checkpoints", type=int)
    parser.add_argument("--swa-full", action="store_true")
    parser.add_argument("--kv-unified", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, asked.wheel)
    import xllamacpp

    attention = {
        "on": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "auto": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
    }
    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.n_ctx = asked.c
    params.n_ubatch = asked.ub
    params.n_parallel = asked.np
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked.t
    params.flash_attn_type = attention[asked.fa]
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{asked.ctk.upper()}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{asked.ctv.upper()}")
    params.kv_unified = asked.kv_unified
    params.swa_full = asked.swa_full
    params.cache_ram_mib = asked.cache_ram
    if asked.ctx_checkpoints is not None:
        params.n_ctx_checkpoints = asked.ctx_checkpoints
    params.slot_save_path = asked.slots.rstrip("/") + "/"
    params.endpoint_slots = True
    params.verbosity = 4
    params.warmup = False
    params.port = asked.port
    if hasattr(params, "hostnames"):
        params.hostnames = ["127.0.0.1"]
    else:
        params.hostname = "127.0.0.1"
    server = xllamacpp.Server(params)
    print("serving at", server.listening_address, file=sys.stderr, flush=True)
    sys.stdin.read()
    os._exit(0)  # destructors of some builds crash


if __name__ == "__main__":
    main()
