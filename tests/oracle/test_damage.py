"""Real files, damaged in known ways: what is claimed of each, and what its server does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inspector.node import Node, walk
from inspector.report import examined
from samples.make import HERE as SAMPLES
from tests.oracle.trial import Bench, Case, cases, contradictions, server_for
from tests.support.damage import cut, overwrite, trail

pytestmark = pytest.mark.oracle

CASES = [
    case
    for case in cases()
    if case.name.startswith("intact/") and "qwen35" not in case.name and "q8_0" not in case.name
]
"""Two dozen damages of each; those that repeat another sample's structure are left out."""


class Whole:
    """An intact file and its tree, to find the places that get damaged."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        with examined(path) as report:
            assert report.identification.root is not None
            assert report.tokens is not None
            self.tokens = [int(token) for token in report.tokens.ids]
            self.nodes: dict[str, Node] = dict(walk(report.identification.root))
            self.sections = [section.path for section in report.sections]
        appendix = self.nodes.get("appendix")
        self.end = appendix.span.start if appendix else len(self.data)

    def changed(self, path: str, change: Callable[[int], int]) -> bytes:
        """The file with another number in one field."""
        node = self.nodes[path]
        size = len(node.span)
        assert isinstance(node.value, int)
        number = change(node.value) % (1 << 8 * size)
        return overwrite(self.data, node.span.start, number.to_bytes(size, "little")).data


def damages(whole: Whole) -> Iterator[tuple[str, bytes]]:
    """Names of damages, and the damaged bytes."""
    data, end, nodes = whole.data, whole.end, whole.nodes
    yield "cut-last-byte", cut(data, end - 1).data
    yield "cut-half", cut(data, end // 2).data
    yield "cut-tokens", cut(data, 20).data
    yield "trailing-zeros", trail(data, bytes(64)).data
    yield "version-plus-1", whole.changed("version", lambda n: n + 1)
    yield "token-count-plus-1", whole.changed("n_token_count", lambda n: n + 1)
    tokens = "tokens.tokens" if "tokens.tokens" in nodes else "tokens"
    yield "token-negative", overwrite(data, nodes[tokens].span.start + 4, b"\xfe\xff\xff\xff").data
    for section in whole.sections:
        yield from _section(whole, section)
    if "appendix" in nodes:
        yield from _appendix(whole)


def _section(whole: Whole, section: str) -> Iterator[tuple[str, bytes]]:
    path = next(
        path
        for path, node in whole.nodes.items()
        if path.startswith(f"{section}.") and path.endswith(".cells") and len(node.span)
    )
    prefix = path.removesuffix("cells")
    names = {path.removeprefix(prefix): path for path in whole.nodes if path.startswith(prefix)}
    fields = {
        "cell_count": {"plus-1": lambda n: n + 1, "minus-1": lambda n: n - 1, "max": lambda n: -1},
        "n_layer": {"plus-1": lambda n: n + 1},
        "v_trans": {"flip": lambda n: n ^ 1},
        "s_trans": {"flip": lambda n: n ^ 1},
        "k[0].k_type": {"flip": lambda n: n ^ 1},
        "k[0].k_size_row": {"double": lambda n: 2 * n},
        "blocks[0].type": {"flip": lambda n: n ^ 1},
    }
    for name, changes in fields.items():
        for what, change in changes.items():
            if name in names:
                yield f"{section}-{name}-{what}", whole.changed(names[name], change)
    if f"{section}.n_stream" in whole.nodes:
        yield f"{section}-n_stream-2", whole.changed(f"{section}.n_stream", lambda n: 2)
    cells = whole.nodes[path]
    count = whole.nodes[names["cell_count"]].value
    assert isinstance(count, int)
    first, size = cells.span.start, len(cells.span) // count
    last = first + (count - 1) * size
    yield f"{section}-pos-last-negative", overwrite(whole.data, last, b"\xff\xff\xff\xff").data
    if count > 1:
        pos = whole.data[first : first + 4]
        yield f"{section}-pos-first-negative", overwrite(whole.data, first, b"\xff" * 4).data
        second = first + size
        yield f"{section}-pos-duplicate", overwrite(whole.data, second, pos).data
        yield f"{section}-pos-last-duplicate", overwrite(whole.data, last, pos).data


def _appendix(whole: Whole) -> Iterator[tuple[str, bytes]]:
    data, end = whole.data, whole.end
    yield "appendix-gone", cut(data, end).data
    yield "appendix-cut-last-byte", cut(data, len(data) - 1).data
    yield "appendix-cut-half", cut(data, (end + len(data)) // 2).data
    yield "appendix-cut-head", cut(data, end + 6).data
    yield "appendix-magic", whole.changed("appendix.magic", lambda n: n ^ 0x20)
    yield "appendix-version-2", whole.changed("appendix.version", lambda n: 2)
    for what, change in {
        "plus-1": lambda n: n + 1,
        "minus-1": lambda n: n - 1,
        "max": lambda n: -1,
    }.items():
        yield f"appendix-count-{what}", whole.changed("appendix.count", change)
    count = whole.nodes["appendix.count"].value
    assert isinstance(count, int)
    last = f"appendix.records[{count - 1}]"
    for name in ("n_tokens", "pos_min", "pos_max", "n_tgt"):
        yield f"record-{name}-plus-1", whole.changed(f"{last}.{name}", lambda n: n + 1)
        yield f"record-{name}-minus-1", whole.changed(f"{last}.{name}", lambda n: n - 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_damaged(bench: Bench, case: Case) -> None:
    whole = Whole(SAMPLES / f"{case.name}.slot")
    mismatches = []
    for what, data in damages(whole):
        bench.path.write_bytes(data)
        with examined(bench.path) as report:
            trial = bench.trial(case, whole.tokens, server_for(report, case))
            claimed = ", ".join(f"{one.severity} {one.code}" for one in report.findings)
            mismatches += [
                f"{what}: {wrong}; claimed: {claimed or 'nothing'}; {trial}"
                for wrong in contradictions(report, trial)
            ]
    assert not mismatches, "\n".join((*mismatches, f"logs: {bench.folder}"))
