"""Checkpoints with wrong numbers: what is claimed, and what a request gets that picks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from inspector.checks import all_codes
from inspector.findings import Severity
from inspector.report import examined
from tests.oracle.builds import BUILDS
from tests.oracle.trial import MODELS, NAME, Bench, Case, lengths, misjudged
from tests.oracle.whole import Whole
from tests.support.damage import overwrite

pytestmark = pytest.mark.oracle

Record = tuple[int, int, int]
"""n_tokens, pos_min and pos_max."""

FLAGS = ("-c", "1024", "-np", "1", "--no-kv-unified")


@dataclass(frozen=True)
class Talk:
    """A conversation, and the server that saves it.

    Attributes:
        model: of the server.
        turns: new tokens of each prompt.
        n_ubatch: tokens that a server evaluates at once: the windowed cache has 224 cells more than
            that, rounded up.
    """

    model: str
    turns: tuple[int, ...]
    n_ubatch: int = 512

    @property
    def case(self) -> Case:
        """With the only build that reads checkpoints."""
        flags = (*FLAGS, "-ub", str(self.n_ubatch))
        return Case(self.model, BUILDS[-1], MODELS / f"{self.model}.gguf", flags)


TALKS = {
    "hybrid": Talk("lfm2", (40, 8)),
    "recurrent": Talk("mamba", (40, 8)),
    "hybrid, coordinates": Talk("qwen35", (40, 8)),
    "window, all of it": Talk("gemma3-iswa", (24,)),
    "window": Talk("gemma3-iswa", (100, 29)),
    "window, overwritten": Talk("gemma3-iswa", (400, 29), n_ubatch=64),
}

CHANGES: dict[str, Callable[[int, int, int], Record]] = {
    "nothing": lambda n, low, high: (n, low, high),
    "n_tokens - 10": lambda n, low, high: (n - 10, low, high),
    "n_tokens - 3": lambda n, low, high: (n - 3, low, high),
    "n_tokens - 2": lambda n, low, high: (n - 2, low, high),
    "n_tokens - 1": lambda n, low, high: (n - 1, low, high),
    "n_tokens + 1": lambda n, low, high: (n + 1, low, high),
    "n_tokens + 100": lambda n, low, high: (n + 100, low, high),
    "n_tokens 0": lambda n, low, high: (0, low, high),
    "n_tokens -1": lambda n, low, high: (-1, low, high),
    "pos_min - 1": lambda n, low, high: (n, low - 1, high),
    "pos_min + 1": lambda n, low, high: (n, low + 1, high),
    "pos_min 0": lambda n, low, high: (n, 0, high),
    "pos_min pos_max": lambda n, low, high: (n, high, high),
    "pos_min pos_max + 2": lambda n, low, high: (n, high + 2, high),
    "pos_max - 10": lambda n, low, high: (n, low, high - 10),
    "pos_max - 2": lambda n, low, high: (n, low, high - 2),
    "pos_max - 1": lambda n, low, high: (n, low, high - 1),
    "pos_max + 1": lambda n, low, high: (n, low, high + 1),
    "pos_max + 2": lambda n, low, high: (n, low, high + 2),
    "pos_max + 100": lambda n, low, high: (n, low, high + 100),
    "pos_max and n_tokens - 2": lambda n, low, high: (n - 2, low, high - 2),
    "pos_max and n_tokens + 1": lambda n, low, high: (n + 1, low, high + 1),
    "pos_max and n_tokens + 2": lambda n, low, high: (n + 2, low, high + 2),
    "pos_min - 1, pos_max + 1": lambda n, low, high: (n, low - 1, high + 1),
    "pos_min - 1, pos_max + 2": lambda n, low, high: (n, low - 1, high + 2),
    "all - 1": lambda n, low, high: (n - 1, low - 1, high - 1),
    "all + 1": lambda n, low, high: (n + 1, low + 1, high + 1),
    "pos_min -1, pos_max 0": lambda n, low, high: (n, -1, 0),
}


def prompt(n: int, start: int = 0) -> tuple[int, ...]:
    """Tokens of a text that does not repeat itself."""
    return tuple(262 + (37 * i + 11 + i * i // 7) % 180 for i in range(start, start + n))


def saved(bench: Bench, talk: Talk, start: int = 0) -> Whole:
    """A conversation, saved to the file on trial."""
    held: tuple[int, ...] = (1,)
    with bench.serve(talk.case.build, talk.case.model, talk.case.flags) as server:
        for n in talk.turns:
            answer = server.complete(held + prompt(n - 1, start + len(held)), n_predict=5)
            assert answer.ok, answer
            held += prompt(n - 1, start + len(held)) + answer.tokens[:-1]
        assert server.save(NAME).ok
    return Whole(bench.path)


def wrong_about(bench: Bench, talk: Talk, whole: Whole, index: int) -> tuple[list[str], set[str]]:
    """What is claimed of a checkpoint of the file on trial and not true; the errors claimed."""
    with examined(bench.path) as report:
        asked = lengths(report, index)
        requests = bench.requests(talk.case, whole.tokens, asked)
        path = f"appendix.records[{index}]"
        found = [finding for finding in report.findings if finding.path.startswith(path)]
        errors = {finding.code for finding in found if finding.severity is Severity.ERROR}
        codes = ", ".join(f"{f.severity} {f.code}" for f in found) or "no claims"
        answers = "; ".join(map(str, requests))
        wrong = misjudged(report, index, requests)
        return [f"{one}; {codes}; {answers}" for one in wrong], errors


@pytest.mark.parametrize("kind", TALKS)
def test_numbers(bench: Bench, kind: str) -> None:
    talk = TALKS[kind]
    whole = saved(bench, talk)
    index, mismatches = whole.last_record, []
    paths = [f"appendix.records[{index}].{name}" for name in ("n_tokens", "pos_min", "pos_max")]
    n_tokens, pos_min, pos_max = (whole.number(path) for path in paths)
    for what, change in CHANGES.items():
        numbers = change(n_tokens, pos_min, pos_max)
        bench.path.write_bytes(whole.with_numbers(dict(zip(paths, numbers, strict=True))))
        wrong, _ = wrong_about(bench, talk, whole, index)
        mismatches += [f"{what}: {one}" for one in wrong]
    assert not mismatches, "\n".join((*mismatches, f"logs: {bench.folder}"))


# -- every error once ------------------------------------------------------------------------------


def with_record(kind: str, **changes: int) -> Callable[[Bench], tuple[Talk, Whole, bytes]]:
    """A file in whose last checkpoint some members are larger by so much."""

    def made(bench: Bench) -> tuple[Talk, Whole, bytes]:
        whole = saved(bench, TALKS[kind])
        record = f"appendix.records[{whole.last_record}]"
        numbers = {f"{record}.{name}": by for name, by in changes.items()}
        data = whole.with_numbers({path: whole.number(path) + by for path, by in numbers.items()})
        return TALKS[kind], whole, data

    return made


def with_gap(bench: Bench) -> tuple[Talk, Whole, bytes]:
    """A file in whose last checkpoint eight cells of the window say that they are of long ago."""
    talk = TALKS["window"]
    whole = saved(bench, talk)
    record = f"appendix.records[{whole.last_record}].data_tgt.swa.streams[0]"
    cells = whole.nodes[f"{record}.cells"].span
    size, data = len(cells) // whole.number(f"{record}.cell_count"), whole.data
    for cell in range(8):
        data = overwrite(data, cells.start + (8 + cell) * size, cell.to_bytes(4, "little")).data
    return talk, whole, data


def of_another_save(bench: Bench) -> tuple[Talk, Whole, bytes]:
    """A file with the checkpoint of a longer conversation, which ends right behind it."""
    talk = Talk("gemma3-iswa", (100,))
    longer = Talk("gemma3-iswa", (100 + 4 + 5,))  # taken four tokens before the end of a prompt
    other = saved(bench, longer, start=1000)
    taken = other.nodes[f"appendix.records[{other.last_record}]"].span
    whole = saved(bench, talk)
    head = whole.data[: whole.nodes["appendix.count"].span.start] + (1).to_bytes(4, "little")
    return talk, whole, head + other.data[taken.start : taken.stop]


HARM: dict[str, Callable[[Bench], tuple[Talk, Whole, bytes]]] = {
    "checkpoint.beyond-state": of_another_save,
    "checkpoint.n-tokens-mismatch": with_record("hybrid", n_tokens=-1),
    "checkpoint.recurrent-range": with_record("hybrid", pos_min=-1),
    "checkpoint.position-mismatch": with_record("window", pos_max=-10),
    "checkpoint.window-gap": with_gap,
}

UNREAD = "checkpoint.blob-"
"""Blobs that do not load: errors in sidecars, of which no build at hand reads any. In an appendix
they are warnings, and tried in `test_damage`."""


def claims() -> Iterator[str]:
    """The errors of one checkpoint."""
    for code, about in all_codes().items():
        of_one = code.startswith("checkpoint.") and not code.startswith(UNREAD)
        if of_one and about.severity is Severity.ERROR:
            yield code


def test_every_error_is_tried() -> None:
    assert set(claims()) == set(HARM)


@pytest.mark.parametrize("code", HARM)
def test_an_error_harms(bench: Bench, code: str) -> None:
    talk, whole, data = HARM[code](bench)
    bench.path.write_bytes(data)
    with examined(bench.path) as report:
        index = len(report.checkpoints) - 1
    wrong, errors = wrong_about(bench, talk, whole, index)
    assert errors == {code}
    assert not wrong
