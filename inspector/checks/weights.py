"""A model file against its own directory of tensors."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.model.gguf import cut_of, tensors_in
from inspector.span import Span

register(
    Code(
        "gguf.truncated",
        Severity.ERROR,
        "The model file ends before its tensors do",
        'no server starts with it: "data is not within the file bounds, model is corrupted or '
        'incomplete"',
        RemedyKind.NONE,
        "download or copy it again",
        "llama.cpp, src/llama-model-loader.h llama_tensor_weight; measured on b10229 and b11549",
    )
)


def check_weights(subject: Subject) -> Iterator[Finding]:
    """Whether all bytes that the directory names are there; none are read."""
    reading = subject.reading
    if reading.layout.format != "gguf" or not reading.decoding.complete:
        return
    cut = cut_of(tensors_in(subject.root, subject.size), subject.size)
    if cut is not None:
        yield Finding(
            "gguf.truncated",
            "tensor_data",
            Span(min(cut.first.offset, cut.actual), cut.actual),
            str(cut),
            f"at least {cut.size:,} bytes",
            f"{cut.actual:,} bytes",
        )
