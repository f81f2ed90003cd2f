"""Real files, damaged in known ways: what is claimed of each, and what its server does with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inspector.report import Report, examined
from samples.make import HERE as SAMPLES
from tests.oracle.trial import (
    Bench,
    Case,
    cases,
    contradictions,
    judged,
    lengths,
    misjudged,
    server_for,
)
from tests.oracle.whole import Whole
from tests.support.damage import cut, overwrite, trail

pytestmark = pytest.mark.oracle

CASES = [
    case
    for case in cases()
    if case.name.startswith("intact/") and "qwen35" not in case.name and "q8_0" not in case.name
]
"""Two dozen damages of each; those that repeat another sample's structure are left out."""


def unknowable(what: str, report: Report, *, model: bool) -> bool:
    """Whether nothing at hand contradicts a word that the server refuses.

    A layer may have neither attention nor a state, so that only the model tells how many there are
    of a hybrid one. Which way a server lays out values is its own choice, which shows in nothing
    else where there are none.
    """
    if what == "recr-n_layer-plus-1":
        return len(report.sections) > 1 and not model
    return what == "attn-v_trans-flip" and not any(section.v for section in report.sections)


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
    count = whole.number(names["cell_count"])
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
    last = f"appendix.records[{whole.last_record}]"
    for name in ("n_tokens", "pos_min", "pos_max", "n_tgt"):
        yield f"record-{name}-plus-1", whole.changed(f"{last}.{name}", lambda n: n + 1)
        yield f"record-{name}-minus-1", whole.changed(f"{last}.{name}", lambda n: n - 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_damaged(bench: Bench, case: Case) -> None:
    whole, memory = Whole(SAMPLES / f"{case.name}.slot"), case.memory
    mismatches = []
    for what, data in damages(whole):
        bench.path.write_bytes(data)
        with examined(bench.path) as report, examined(bench.path, model=memory) as known:
            build = server_for(report, case)
            trial = bench.trial(case, whole.tokens, build)
            wrong = []
            if not unknowable(what, report, model=False):
                wrong += contradictions(report, trial)
            if not unknowable(what, known, model=True):
                wrong += [f"{one}, given the model" for one in contradictions(known, trial)]
            tried = judged(report) | ({whole.last_record} if what.startswith("record-") else set())
            for index in tried if trial.restored.ok else ():
                requests = bench.requests(case, whole.tokens, lengths(report, index), build)
                wrong += misjudged(report, index, requests)
            claimed = ", ".join(f"{one.severity} {one.code}" for one in known.findings)
            mismatches += [f"{what}: {one}; {claimed or 'no claims'}; {trial}" for one in wrong]
    assert not mismatches, "\n".join((*mismatches, f"logs: {bench.folder}"))
