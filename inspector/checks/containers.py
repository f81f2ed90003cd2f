"""Containers of other programs: what does not fit their own structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inspector.findings import Code, Finding, RemedyKind, Severity, register

if TYPE_CHECKING:
    from inspector.containers import Container

register(
    Code(
        "container.damaged",
        Severity.ERROR,
        "A container does not hold what its program writes",
        "the program that wrote it cannot read it back; ik_llama.cpp aborts on a broken "
        ".tokens.json",
        RemedyKind.NONE,
        "what could be read of it is shown",
        "the programs named in `slotscope layouts`; ik_llama.cpp 8337e4cd3 measured",
    ),
    Code(
        "container.not-opened",
        Severity.NOTE,
        "A container of Python objects",
        "loading it with pickle runs whatever code it names; it was read without that",
        RemedyKind.NONE,
        "never unpickle a file that you did not write yourself",
        "Python documentation, module pickle",
    ),
)


def check_container(container: Container) -> Iterator[Finding]:
    """Every problem of the container itself."""
    for problem in container.problems:
        yield Finding(
            "container.damaged",
            problem.path,
            problem.span,
            f"{container.format}: {problem.path or 'the file'} is {problem.kind.value}",
            problem.expected,
            problem.actual,
        )
    if container.format == "llama-cpp-python" and container.inner:
        yield Finding(
            "container.not-opened",
            container.inner[0].path,
            container.inner[0].span,
            "the state inside was found without unpickling",
            "a state file",
            "a pickle of LlamaState",
        )
