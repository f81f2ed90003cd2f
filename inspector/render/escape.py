"""Names and texts from outside, made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text in which nothing can move a terminal's cursor: such characters become escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
