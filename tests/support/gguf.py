"""Model files with metadata and no tensors, packed without the project's own declarations."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

_U32, _F32, _STRING, _ARRAY, _BOOL = 4, 6, 8, 9, 7


def model_file(path: Path, architecture: str, keys: dict[str, Any]) -> Path:
    """Write the header of a model.

    Args:
        path: where to.
        architecture: `general.architecture`.
        keys: metadata, without the architecture in front: numbers, or lists of numbers.
    """
    entries = [_text("general.architecture") + struct.pack("<I", _STRING) + _text(architecture)]
    entries += [_text(f"{architecture}.{key}") + _value(value) for key, value in keys.items()]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    path.write_bytes(head + b"".join(entries) + bytes(64))
    return path


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        return struct.pack("<IIQ", _ARRAY, _code(value[0]), len(value)) + b"".join(
            map(_packed, value)
        )
    return struct.pack("<I", _code(value)) + _packed(value)


def _code(value: Any) -> int:
    return _BOOL if isinstance(value, bool) else _F32 if isinstance(value, float) else _U32


def _packed(value: Any) -> bytes:
    return struct.pack({_BOOL: "<?", _F32: "<f", _U32: "<I"}[_code(value)], value)
