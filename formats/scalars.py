"""The numbers that state files are made of, and upstream's typedefs for them."""

from __future__ import annotations

from formats.ggml_types import GGML_TYPE_NAMES
from formats.spans import Scalar

U8 = Scalar("B")
U16 = Scalar("H")
U32 = Scalar("I")
U64 = Scalar("Q")
I8 = Scalar("b")
I16 = Scalar("h")
I32 = Scalar("i")
I64 = Scalar("q")
F32 = Scalar("f")
F64 = Scalar("d")

LLAMA_TOKEN = Scalar("i")
LLAMA_POS = Scalar("i")
LLAMA_SEQ_ID = Scalar("i")
GGML_TYPE = Scalar("i", GGML_TYPE_NAMES)
FLAG = Scalar("I", {0: "no", 1: "yes"})
"""A u32 that upstream writes as 0 or 1."""
