"""Generated files are what they were generated to be; mutants are reproducible and survived."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.layout import Layout
from formats.layouts import all_layouts, by_id
from inspector.findings import Finding, Severity
from inspector.fuzzing.case import Case
from inspector.fuzzing.generator import BESIDE, TWINS, asked, cases, generated, with_sidecar
from inspector.fuzzing.mutators import Mutant, mutate
from inspector.fuzzing.mutators.kinds import Changed
from inspector.fuzzing.strategies import State, damaged, gguf_headers, sidecars, states
from inspector.fuzzing.subject import Subject
from inspector.identify import Verdict
from inspector.node import Rows
from inspector.report import examined
from tests.support.mutants import put

LAYOUTS = all_layouts()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated") / "slot.bin"


def recognised(layout: Layout, data: bytes) -> Subject:
    """The file, which must be what it was generated to be."""
    subject = Subject(data)
    reading = subject.identification.reading
    assert reading is not None
    expected = TWINS.get(layout.id, (layout.id, ""))[0]
    found = {reading.layout.id, *(one.layout.id for one in subject.identification.competing)}
    assert expected in found
    assert subject.identification.verdict in (Verdict.RECOGNISED, Verdict.AMBIGUOUS)
    if expected == reading.layout.id:
        assert subject.identification.verdict is Verdict.RECOGNISED
    return subject


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_the_smallest_of_a_layout(path: Path, layout: Layout) -> None:
    """It is recognised, every field lies where it was written, and nothing is wrong with it."""
    first = generated(next(cases(layout)))
    subject = recognised(layout, first.data)
    if layout.id not in TWINS:
        for written in first.fields:
            node = subject.nodes.get(written.path)
            assert node is not None, written
            assert (node.span.start, node.span.stop) == (written.start, written.stop)
    assert not wrong_with(put(path, Changed(first.data, {})))


def wrong_with(path: Path) -> list[Finding]:
    with examined(path, deep=True) as report:
        return [one for one in report.findings if one.severity is not Severity.NOTE]


def test_the_smallest_is_the_smallest() -> None:
    for layout_id in ("ggsq4.hybrid", "ggsq2.kv", "ggsn9.iswa.outputs", "ik4", "pkcl1"):
        layout = by_id(layout_id)
        assert layout is not None
        sizes = [len(generated(case).data) for case in cases(layout)]
        assert sizes[0] == min(sizes)


@given(layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 1 << 32), data=st.data())
def test_any_case(path: Path, layout: Layout, seed: int, data: st.DataObject) -> None:
    options = data.draw(st.sampled_from(list(cases(layout, seed)))).options
    case = Case(layout, seed, options)
    first, again = generated(case), generated(case)
    assert first.data == again.data
    recognised(layout, first.data)
    if layout.id not in TWINS:
        assert not wrong_with(put(path, Changed(first.data, {})))


@pytest.mark.parametrize("layout_id", ["ggsq4.iswa", "ggsq4.dsa-iswa", "ggsq4.hybrid-iswa"])
@pytest.mark.parametrize("n_stream", [1, 2])
@pytest.mark.parametrize("v_trans", [0, 1])
def test_windows_of_checkpoints_hold_rows_of_the_state(
    path: Path, layout_id: str, n_stream: int, v_trans: int
) -> None:
    layout = by_id(layout_id)
    assert layout is not None
    options = {"records": 2, "n_stream": n_stream, "v_trans": v_trans, "types": "f32/f32"}
    made = generated(Case(layout, 1, options))
    assert not wrong_with(put(path, Changed(made.data, {})))
    part = f"swa.streams[{1 % n_stream}]"
    blob, tables = f"appendix.records[1].data_tgt.{part}", {}
    nodes = Subject(made.data).nodes
    for prefix in (part, blob):
        node = nodes[f"{prefix}.k[0].data"]
        rows = nodes[f"{prefix}.cells"].value
        assert isinstance(rows, Rows)
        size = len(node.span) // len(rows)
        data = made.data[node.span.start : node.span.stop]
        places = enumerate(rows.column("pos").tolist())
        tables[prefix] = {pos: data[i * size : (i + 1) * size] for i, pos in places}
    common = tables[part].keys() & tables[blob].keys()
    assert common
    assert all(tables[part][pos] == tables[blob][pos] for pos in common)


def test_every_pair_of_values_meets() -> None:
    layout = by_id("ggsq4.hybrid")
    assert layout is not None
    values, chosen = asked(layout), [case.options for case in cases(layout)]
    for one, other in (("tokens", "records"), ("v_trans", "n_stream"), ("tokens", "n_layer")):
        for a in values[one]:
            for b in values[other]:
                assert any(options[one] == a and options[other] == b for options in chosen)


@pytest.mark.parametrize(("family", "suffix", "state"), BESIDE)
def test_a_state_with_a_sidecar(path: Path, family: str, suffix: str, state: str) -> None:
    layout = by_id(state)
    assert layout is not None
    made = with_sidecar(Case(layout, 3, {"suffix": "recurrent"}), family, suffix)
    put(path, Changed(made.data, made.companions))
    with examined(path) as report:
        bad = [one for one in report.findings if one.severity is not Severity.NOTE]
        assert len(report.checkpoints) == 2
        assert all(one.usable for one in report.checkpoints)
    assert not bad, bad


@given(states("ggsq4.iswa", "ggsq3.kv.xyt", "ggsn9.kv"))
def test_a_state_of_a_strategy(state: State) -> None:
    recognised(state.layout, state.data)
    count = next(field.value for field in state.fields if field.path == "n_token_count")
    assert state.options.get("tokens", "plain") != "plain" or count == len(state.tokens)


@given(gguf_headers())
def test_a_header_of_a_model(state: State) -> None:
    recognised(state.layout, state.data)


@given(st.one_of(damaged(states("ggsq4.hybrid", "ik4", "ggsq2.iswa")), damaged(sidecars())))
def test_mutants_give_a_report(path: Path, mutant: Mutant) -> None:
    with examined(put(path, mutant)) as report:
        assert report.identification.verdict


@given(states("ggsq4.hybrid"), st.data())
def test_a_mutation_is_reproducible(state: State, data: st.DataObject) -> None:
    found = data.draw(damaged(st.just(state)))
    again = mutate(state.data, found.id)
    assert (again.data, again.companions) == (found.data, found.companions)
