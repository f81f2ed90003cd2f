"""What fuzzers are given: a dictionary, and a mutator that understands the formats."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from typer.testing import CliRunner

from inspector.cli.app import app
from inspector.fuzzing import afl
from inspector.fuzzing.mutators import Mutant, mutate
from inspector.fuzzing.strategies import damaged, sidecars, states
from samples.make import HERE as SAMPLES

STATE = SAMPLES / "intact" / "ggsq4.kv--llama-b11549-short.slot"


def test_dictionary() -> None:
    done = CliRunner().invoke(app, ["fuzz", "dictionary"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert all(re.fullmatch(r'\w+="(\\x[0-9a-f]{2})+"', line) for line in lines)
    names = [line.partition("=")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert 'magic_ggsq="\\x71\\x73\\x67\\x67"' in lines
    assert any(line.startswith("head_ggsq_4=") for line in lines)


def test_mutator() -> None:
    data = STATE.read_bytes()
    afl.init(7)
    first = [bytes(afl.fuzz(bytearray(data), None, 8192)) for _ in range(40)]
    afl.init(7)
    assert [bytes(afl.fuzz(bytearray(data), None, 8192)) for _ in range(40)] == first
    assert len(set(first)) > 20
    assert sum(one[:8] == data[:8] for one in first) > 20, "most get past the magic"
    assert all(len(afl.fuzz(bytearray(one), None, 64)) <= 64 for one in first[:5])
    assert afl.changed(b"", random.Random(1), 10)[0]
    afl.deinit()


def test_mutator_never_gives_nothing() -> None:
    """An empty answer ends AFL++; `emptied` and cuts at the start of a field make some."""
    dice, data = random.Random(3), b"qsgg" + bytes(8)
    assert all(afl.changed(data, dice, 64)[0] for _ in range(2000))


def test_mutator_describes_what_it_did() -> None:
    """By the id, as the bytes that AFL++ wants."""
    data = STATE.read_bytes()
    afl.init(7)
    seen = set()
    for _ in range(40):
        new = bytes(afl.fuzz(bytearray(data), None, 1 << 20))
        described = afl.describe(1 << 10).decode()
        seen.add(described)
        if described != "bytes":
            assert mutate(data, described).data == new
    assert len(seen) > 20
    assert len(afl.describe(9)) <= 9


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: states("nosuch"), "no layout 'nosuch'"),
        (lambda: sidecars("nosuch"), "no sidecar 'nosuch'; there are pkcl1, "),
        (lambda: sidecars("ggsq4.kv"), "no sidecar 'ggsq4.kv'"),
        (lambda: damaged(states("ggsq4.kv"), ["cutlast"]), "no mutator 'cutlast'"),
    ],
)
def test_strategies_know_their_names(made: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        made()


def test_a_mutator_that_never_applies_is_named() -> None:
    """States of their own have no companions that could be cut."""

    @given(damaged(states("ggsq4.kv"), ["companion-cut"]))
    def drawn(mutant: Mutant) -> None:
        raise AssertionError(mutant.id)

    with pytest.raises(ValueError, match="companion-cut"):
        drawn()
