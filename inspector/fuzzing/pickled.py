"""A pickle as llama-cpp-python writes it, put together opcode by opcode: nothing is imported.

Source: abetlen/llama-cpp-python 0.3.34, llama_cpp/llama.py `LlamaState`; protocol 4 of Python's
`pickle`, with the names of numpy 1, which numpy 2 reads too.
"""

from __future__ import annotations

import struct

_MEMOIZE, _REDUCE, _BUILD, _TUPLE3 = b"\x94", b"R", b"b", b"\x87"
_N_FREE = 8
"""Places of the context behind the tokens; at least one keeps the array from being empty."""


def llama_state(ids: bytes, state: bytes) -> bytes:
    """A pickled `LlamaState`, without scores.

    Args:
        ids: of its tokens, 32 bits each, little-endian.
        state: what the library copied of its context.
    """
    n_tokens = len(ids) // 4
    held = {
        "input_ids": _array(b"i4", ids + bytes(4 * _N_FREE), _integer(n_tokens + _N_FREE)),
        "scores": _array(b"f4", b"", _integer(0)),
        "n_tokens": _integer(n_tokens),
        "llama_state": _bytes(state),
        "llama_state_size": _integer(len(state)),
        "seed": _integer(0),
    }
    items = b"".join(_text(name.encode()) + value for name, value in held.items())
    made = _global(b"llama_cpp.llama", b"LlamaState") + b")\x81" + _MEMOIZE
    return b"\x80\x04" + made + b"}" + _MEMOIZE + b"(" + items + b"u" + _BUILD + b"."


def _array(kind: bytes, data: bytes, size: bytes) -> bytes:
    """An array of one dimension."""
    empty = _global(b"numpy", b"ndarray") + _integer(0) + b"\x85" + _bytes(b"b") + _TUPLE3
    made = _global(b"numpy.core.multiarray", b"_reconstruct") + empty + _REDUCE + _MEMOIZE
    dtype = _global(b"numpy", b"dtype") + _text(kind) + b"\x89\x88" + _TUPLE3 + _REDUCE + _MEMOIZE
    order = b"(" + _integer(3) + _text(b"<") + b"NNN" + 2 * _integer(-1) + _integer(0) + b"t"
    whole = b"(" + _integer(1) + size + b"\x85" + dtype + order + _BUILD + b"\x89" + _bytes(data)
    return made + whole + b"t" + _BUILD


def _global(module: bytes, name: bytes) -> bytes:
    return _text(module) + _text(name) + b"\x93" + _MEMOIZE


def _text(text: bytes) -> bytes:
    return b"\x8c" + bytes((len(text),)) + text + _MEMOIZE


def _bytes(data: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(data)) + data + _MEMOIZE


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)
