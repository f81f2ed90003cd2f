"""Hypothesis strategies for tests of other projects: states, sidecars, damaged files, GGUF headers.

    from hypothesis import given
    from inspector.fuzzing.strategies import damaged, states

    @given(states("ggsq4.kv", "ggsq4.iswa"))
    def test_loads(state):
        assert my_loader(state.data).n_tokens == len(state.tokens)

    @given(damaged(states("ggsq4.kv")))
    def test_survives(mutant):
        my_loader(mutant.data)  # may refuse, must not crash: mutant.mutator.must says which

Hypothesis is needed here only: `pip install "slotscope[fuzz]"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import assume
from hypothesis import strategies as st

from formats.layout import Layout
from formats.layouts import all_layouts, by_id
from inspector.fuzzing.case import Case
from inspector.fuzzing.generator import BESIDE, asked, consistent, with_sidecar
from inspector.fuzzing.mutators import MUTATORS, Mutant, mutant, mutations
from inspector.fuzzing.policy import Server
from inspector.fuzzing.subject import NoSuchPlace, Subject
from inspector.fuzzing.writer import Field, write


@dataclass(frozen=True, slots=True)
class State:
    """A valid file.

    Attributes:
        layout: what it is written as; `.id`, `.since` and `.until` say what and when.
        data: its bytes.
        fields: where each field lies, with its value.
        tokens: the token ids that its server had evaluated; -1 at each media token. They are in
            the file only where its layout has a field for them.
        options: what was chosen.
        companions: what its writer put beside it, by what the names add.
    """

    layout: Layout
    data: bytes
    fields: tuple[Field, ...]
    tokens: tuple[int, ...]
    options: Mapping[str, object]
    companions: Mapping[str, bytes] = field(default_factory=dict)


_SEEDS = st.integers(0, (1 << 32) - 1)
_STATES = ("ggsq", "ggsn", "blob", "context")


_MOST_MISSES = 30
"""States in a row that none of the mutators applies to; Hypothesis itself gives up after 50."""


def states(*layouts: str) -> st.SearchStrategy[State]:
    """Valid state files.

    Args:
        layouts: their ids, as `slotscope layouts` lists them; all states if there are none.

    Raises:
        ValueError: if there is no such layout.
    """
    chosen = [_layout(one) for one in layouts]
    return _states(chosen or [one for one in all_layouts() if one.format in _STATES])


@st.composite
def _states(draw: st.DrawFn, layouts: Sequence[Layout]) -> State:
    layout = draw(st.sampled_from(layouts))
    values = asked(layout)
    options = consistent({name: draw(st.sampled_from(of)) for name, of in values.items()})
    server = Server(Case(layout, draw(_SEEDS), options))
    written = write(layout, server)
    return State(layout, written.data, written.fields, server.ids, options)


def sidecars(*families: str) -> st.SearchStrategy[State]:
    """States with a checkpoint sidecar beside them: `state.companions[".ckpt"]` and the like.

    Args:
        families: ids of sidecars, such as pkcl1 or ik-checkpoints4; all if there are none.

    Raises:
        ValueError: if there is no such sidecar.
    """
    _see_known("sidecar", families, [row[0] for row in BESIDE])
    return _sidecars([row for row in BESIDE if not families or row[0] in families])


@st.composite
def _sidecars(draw: st.DrawFn, rows: Sequence[tuple[str, str, str]]) -> State:
    family, suffix, state = draw(st.sampled_from(rows))
    n_tokens = draw(st.sampled_from((7, 12, 33)))
    options = {"suffix": "recurrent", "n_tokens": n_tokens}
    case = Case(_layout(state), draw(_SEEDS), options)
    made = with_sidecar(case, family, suffix)
    tokens = Server(case).ids
    return State(case.layout, made.data, made.fields, tokens, options, made.companions)


def damaged(
    intact: st.SearchStrategy[State], mutators: Sequence[str] = ()
) -> st.SearchStrategy[Mutant]:
    """Mutants of valid files.

    Args:
        intact: what to damage, such as `states("ggsq4.kv")` or `sidecars()`.
        mutators: names of the mutations to choose from; all if there are none.

    Raises:
        ValueError: if there is no such mutation; when it is drawn from, if none applies.
    """
    _see_known("mutator", mutators, mutator_names())
    return _damaged(intact, mutators, _Hits())


@dataclass
class _Hits:
    """How many states mutators applied to, and how many they did not, before the first."""

    hits: int = 0
    misses: int = 0


@st.composite
def _damaged(
    draw: st.DrawFn, intact: st.SearchStrategy[State], mutators: Sequence[str], seen: _Hits
) -> Mutant:
    state = draw(intact)
    subject = Subject(state.data, state.companions)
    places: dict[str, list[str]] = {}
    for mutator, path in mutations(subject):
        if not mutators or mutator.name in mutators:
            places.setdefault(mutator.name, []).append(path)
    seen.hits += bool(places)
    seen.misses += not places
    if not seen.hits and seen.misses > _MOST_MISSES:
        raise ValueError(f"nothing in these states that {', '.join(mutators)} applies to")
    assume(places)
    name = draw(st.sampled_from(sorted(places)))
    path = draw(st.sampled_from(places[name]))
    try:
        return mutant(subject, f"{name}@{path}:{draw(_SEEDS)}")
    except NoSuchPlace:
        assume(False)
        raise


def gguf_headers() -> st.SearchStrategy[State]:
    """Small model files of versions 2 and 3: metadata of every kind, three tensors."""
    return states("gguf2", "gguf3")


def mutator_names() -> tuple[str, ...]:
    """What `damaged` can choose from."""
    return tuple(MUTATORS)


def _see_known(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    """See that all names are known.

    Raises:
        ValueError: if one is not.
    """
    for name in names:
        if name not in known:
            raise ValueError(f"no {what} {name!r}; there are {', '.join(known)}")


def _layout(layout_id: str) -> Layout:
    found = by_id(layout_id)
    if found is None:
        raise ValueError(f"no layout {layout_id!r}")
    return found
