"""Does a state belong to a model? Rows of layer 0, computed from the model, against the file's.

Layer 0 sees token ids, positions and its own weights, and nothing else; so its rows can be computed
again without running anything. Agreement says that this layer was computed from these tokens at
these positions with these weights. It does not say which file wrote the state, nor anything about
deeper layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.builds import Interval
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.model.layer0.side import AGREES, DISTINCT, OTHER, Side
from inspector.span import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inspector.model.gguf import ModelFile
    from inspector.model.layer0.comparison import Attention, Comparison, Convolution
    from inspector.model.layer0.unfit import Unfit
    from inspector.sections import Section
    from inspector.source import Source
    from inspector.tokens import Tokens

DOES_NOT_PROVE = (
    "not which model file wrote the state, and nothing about deeper layers: adapters there, "
    "control vectors, and models that share layer 0 do not show"
)

_ONCE, _TWICE = 1.02, 1.1
"""Error by rounding: 0.997 to 1.007 as computed, 1.20 to 1.31 of keys after a shift."""
_TURNED_EXACTLY = 2048
"""Below this position what servers lose in angles is less than what rounding to f16 loses."""

_MEASURED = "29 models, llama.cpp 2024-06 to b11549 and ik_llama.cpp: rows against computed ones"

register(
    Code(
        "identity.differs",
        Severity.ERROR,
        "The state was computed with other weights, or not from its token list",
        "a server with this model accepts it and answers with noise",
        RemedyKind.NONE,
        "load it with the model that wrote it; if this is the one, the token list is not its own",
        _MEASURED,
    ),
    Code(
        "identity.mixed",
        Severity.ERROR,
        "A part of the state was computed with this model, another part was not",
        "a server with this model accepts it and answers with noise",
        RemedyKind.NONE,
        "it was restored into another model, continued there and saved again, or it is damaged",
        _MEASURED,
    ),
    Code(
        "identity.other-positions",
        Severity.ERROR,
        "Tokens and weights are those of the model, positions or their encoding are not",
        "a server with this model accepts it and attends to the wrong places",
        RemedyKind.NONE,
        "give the server the RoPE options of the one that wrote it",
        _MEASURED,
    ),
    Code(
        "identity.related",
        Severity.WARNING,
        "The weights are close to the model's: another quantization, an adapter, a fine-tune",
        "it loads; answers differ a little from those of the model that wrote it",
        RemedyKind.NONE,
        "usually harmless; the model file that wrote it is exact",
        _MEASURED,
    ),
    Code(
        "identity.rotation-differs",
        Severity.ERROR,
        "Rows are rotated otherwise than the file says",
        "the loader goes by what the file says: it refuses sound rows, or answers with noise",
        RemedyKind.EXACT,
        "write the number that the rows were multiplied by",
        "llama.cpp PR #28498 (ggsq 4): n_rot_k, n_rot_v",
    ),
    Code(
        "identity.repeated-tokens",
        Severity.WARNING,
        "Cells of one token hold different values in the first layer",
        "the token list is not that of the rows, or rows are damaged or of two models",
        RemedyKind.NONE,
        "values of models with learned positions differ too; the model itself settles it",
        "104 files of 10 models: equal values for equal tokens",
    ),
    Code(
        "identity.checkpoint-differs",
        Severity.ERROR,
        "A checkpoint is not what the model makes of the tokens in front of it",
        "a request that picks it is answered from another conversation, or with noise",
        RemedyKind.LOSSY,
        "drop the record; if all of a list differ, delete the list",
        "52 checkpoints of 9 models, of all builds that save them: each matches its own tokens",
    ),
    Code(
        "identity.not-tested",
        Severity.NOTE,
        "Whether the state belongs to the model was not found out",
        "nothing speaks for it and nothing against it",
        RemedyKind.NONE,
        "the message says what stood in the way",
        _MEASURED,
    ),
)


class Outcome(StrEnum):
    """Whether a state belongs to a model."""

    MATCHES = "matches"
    RELATED = "related"
    """Close weights: another quantization, an adapter, a fine-tune."""
    OTHER_POSITIONS = "other-positions"
    """Right tokens and weights; other positions, or another setting of RoPE."""
    MIXED = "mixed"
    """A part matches."""
    DIFFERS = "differs"
    NOT_TESTED = "not-tested"
    UNDECIDABLE = "undecidable"
    """Compared, but the cache type is too coarse for what sets tokens apart."""

    @property
    def in_short(self) -> str:
        """One of matches, differs, not-tested, undecidable."""
        if self in (Outcome.OTHER_POSITIONS, Outcome.MIXED):
            return Outcome.DIFFERS.value
        return Outcome.MATCHES.value if self is Outcome.RELATED else self.value


_CODES = {
    Outcome.DIFFERS: "identity.differs",
    Outcome.MIXED: "identity.mixed",
    Outcome.OTHER_POSITIONS: "identity.other-positions",
    Outcome.RELATED: "identity.related",
    Outcome.UNDECIDABLE: "identity.not-tested",
}


@dataclass(frozen=True, slots=True)
class Dating:
    """What numbers say about when a file was written.

    Attributes:
        says: what was found.
        builds: the llama.cpp builds that write so.
    """

    says: str
    builds: Interval


@dataclass(frozen=True, slots=True)
class Identity:
    """Whether a state belongs to a model, and how that is known.

    Attributes:
        outcome: the answer.
        evidence: why, in words.
        sides: what was measured.
        order: of the parts of a key, where that has varied; else empty.
        tokens_by: how tokens were found for cells: `position` or `rank`; empty without cells.
        values_first: whether blocks of a delta net go values by keys, None if not known.
        explanation: what would make keys right that alone are wrong.
        not_held: what layer 0 says nothing of, in words; empty if every token left a row in it.
        notes: what else is to be said, such as rows that could not be compared.
        datings: what the numbers say about the build that wrote the file.
        of_list: positions whose rows are of the token in the list, where the cell names another.
        of_cell: positions whose rows are of the token in the cell, where the list has another.
        findings: for the report.
    """

    outcome: Outcome
    evidence: str
    sides: tuple[Side, ...] = ()
    order: str = ""
    tokens_by: str = ""
    values_first: bool | None = None
    explanation: str = ""
    not_held: str = ""
    notes: tuple[str, ...] = ()
    datings: tuple[Dating, ...] = ()
    of_list: tuple[int, ...] = ()
    of_cell: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def unproven(self) -> str:
        """What a comparison does not prove, in words; empty if nothing was compared."""
        if self.outcome.in_short not in ("matches", "differs"):
            return ""
        return "; ".join(filter(None, (DOES_NOT_PROVE, self.not_held)))

    def side(self, name: str) -> Side | None:
        """What was measured of `k`, `v` or `r`."""
        return next((side for side in self.sides if side.name == name), None)


def judge(
    source: Source,
    sections: Sequence[Section],
    tokens: Tokens | None,
    model: ModelFile | None,
    *,
    writer: str | None = None,
) -> Identity:
    """Compare what a state stored of layer 0 with what a model makes of its tokens.

    Args:
        source: the file with the state, open.
        sections: its memory sections; or those of a checkpoint.
        tokens: its token list; of a checkpoint those in front of it.
        model: the header of the model, its file open; None to look at the state alone.
        writer: the program that wrote the state, if that is known.

    Returns:
        The answer; never raises for what the bytes are.
    """
    import numpy as np

    ids = tokens.ids if tokens is not None else np.zeros(0, np.int64)
    with np.errstate(all="ignore"):  # any bytes are numbers, infinities and NaN too
        from inspector.model.layer0.unfit import unfit_rows

        unfit = list(unfit_rows(source, sections))
        if model is None:
            found = _alone(source, sections, ids)
        else:
            found = _compared(source, sections, ids, model, writer, unfit)
    return replace(found, findings=(*_not_finite(unfit), *found.findings))


def _compared(
    source: Source,
    sections: Sequence[Section],
    ids: NDArray[np.int64],
    model: ModelFile,
    writer: str | None,
    unfit: list[Unfit],
) -> Identity:
    """What a comparison says; rows that are no numbers are added to `unfit`."""
    from inspector.model.layer0.comparison import OtherShape, comparison
    from inspector.model.layer0.weights import NotTestable

    try:
        compared = comparison(source, sections, ids, model, unfit)
        attention, convolution = compared.run()
        return _answer(compared, attention, convolution, writer)
    except OtherShape as shape:
        return _of_other_shape(sections, str(shape))
    except NotTestable as reason:
        path, span = _place(sections)
        finding = Finding("identity.not-tested", path, span, str(reason), "rows to compare", "none")
        return Identity(Outcome.NOT_TESTED, str(reason), findings=(finding,))


def _not_finite(unfit: Sequence[Unfit]) -> Iterator[Finding]:
    """One finding for each block."""
    if not unfit:
        return
    import inspector.checks.tensors  # noqa: F401 - registers the code

    for path in dict.fromkeys(one.block.path for one in unfit):
        of_block = [one for one in unfit if one.block.path == path]
        positions = sorted({pos for one in of_block for pos in one.positions})
        block = of_block[0].block
        where = f"position {positions[0]}"
        if len(positions) > 1:
            where = f"{len(positions):,} positions from {positions[0]:,} to {positions[-1]:,}"
        yield Finding(
            "tensors.non-finite",
            f"{path}.data",
            block.data or block.span,
            f"NaN or infinity in {path} at {where}",
            "finite numbers",
            "others",
            (
                f"of {max(one.n_read for one in of_block):,} cells that were looked at; "
                "inspect --deep reads all",
            ),
        )


def verdict(sides: Sequence[Side]) -> Outcome:
    """What the measured sides mean together."""
    seeing = [side for side in sides if not side.blind]
    content = [side for side in seeing if side.content]
    if not content:
        return Outcome.UNDECIDABLE
    alien = any(side.empty or (side.foreign and (side.content or side.agrees)) for side in seeing)
    if alien and any(side.agreeing for side in seeing):
        return Outcome.MIXED
    excess = max(side.excess for side in content)
    if excess > AGREES:
        return Outcome.DIFFERS if excess > OTHER else Outcome.RELATED
    if all(side.agrees for side in seeing):
        return Outcome.MATCHES
    return Outcome.OTHER_POSITIONS


def _place(sections: Sequence[Section]) -> tuple[str, Span]:
    first = next(iter(sections), None)
    return (first.path, first.span) if first is not None else ("", Span(0, 0))


def _alone(source: Source, sections: Sequence[Section], ids: NDArray[np.int64]) -> Identity:
    """What can be said without a model."""
    from inspector.model.layer0.repeats import repeats_of

    repeats = repeats_of(source, sections, ids)
    if repeats is None:
        return Identity(Outcome.NOT_TESTED, "no model was given")
    says = str(repeats)
    finding = Finding(
        "identity.repeated-tokens",
        repeats.path,
        repeats.span,
        says,
        "equal values",
        f"{repeats.error:.2g} apart",
    )
    findings = () if repeats.agree else (finding,)
    return Identity(Outcome.NOT_TESTED, "no model was given", notes=(says,), findings=findings)


def _of_other_shape(sections: Sequence[Section], message: str) -> Identity:
    path, span = _place(sections)
    finding = Finding(
        "identity.differs", path, span, message, "rows of the model's width", "rows of another"
    )
    return Identity(Outcome.DIFFERS, message, findings=(finding,))


def _answer(
    compared: Comparison,
    attention: Attention | None,
    convolution: Convolution | None,
    writer: str | None,
) -> Identity:
    from inspector.model.layer0.alternatives import explained
    from inspector.model.layer0.recipes import NOT_MEASURED
    from inspector.model.layer0.weights import NotTestable

    sides = attention.sides if attention is not None else ()
    sides += (convolution.side,) if convolution is not None else ()
    outcome, notes = verdict(sides), list(compared.notes)
    if compared.unfit and outcome in (Outcome.MATCHES, Outcome.RELATED):
        outcome = Outcome.MIXED
    explanation = ""
    if outcome is Outcome.OTHER_POSITIONS and attention is not None:
        explanation = explained(attention, compared.layer.keys)
    architecture = compared.layer.keys.architecture
    if outcome is not Outcome.MATCHES and architecture in NOT_MEASURED:
        notes.append(f"what {architecture} computes was read in the source and not measured")
    if any(side.n_distinct < DISTINCT for side in sides if side.name != "r"):
        notes.append("fewer than four distinct tokens: other weights can look closer than they are")
    if outcome is Outcome.MATCHES and _shifted(sides):
        notes.append(
            "keys were rounded more than once, as a context shift or --cache-reuse does: answers "
            "differ from those of the same tokens without memory"
        )
    order = attention.form.order if attention is not None else ""
    known = outcome in (Outcome.MATCHES, Outcome.RELATED)
    values_first = _values_first(compared, convolution) if known else None
    settled: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
    if attention is not None and outcome in (Outcome.MATCHES, Outcome.MIXED):
        with suppress(NotTestable):
            settled = compared.settled(attention)
    notes.extend(_settled(*settled))
    n_tokens = int((compared.tokens >= 0).sum())
    n_held = attention.n_held if attention is not None else sides[0].n_cells
    evidence = _evidence(outcome, sides, explanation, compared.unfit, n_tokens, n_held)
    return Identity(
        outcome,
        evidence,
        sides,
        order,
        attention.by if attention is not None else "",
        values_first,
        explanation,
        _not_held(n_tokens, n_held),
        tuple(notes),
        tuple(_datings(sides, order, values_first)) if known and writer != IK else (),
        *settled,
        tuple(_findings(compared, outcome, sides, evidence, notes)),
    )


def _settled(by_list: Sequence[int], by_cell: Sequence[int]) -> Iterator[str]:
    """Whose tokens are right where the list and the cells differ."""
    for found, right, wrong in ((by_list, "list", "cell"), (by_cell, "cell", "list")):
        if found:
            where = f"position {found[0]}" + (f" and {len(found) - 1:,} others" * (len(found) > 1))
            yield (
                f"at {where} the row is that of the token in the {right}: the {wrong} was changed"
            )


def _shifted(sides: Sequence[Side]) -> bool:
    """Whether keys are less exact than rounding once makes them, and values are not."""
    k, v = (next((side for side in sides if side.name == name), None) for name in ("k", "v"))
    if k is None or v is None or k.content or k.blind or k.last >= _TURNED_EXACTLY:
        return False
    return k.error > _TWICE * k.rounding and v.error < _ONCE * v.rounding


def _not_held(n_tokens: int, n_held: int) -> str:
    if n_held + 1 >= n_tokens:
        return ""
    return (
        f"nothing about {n_tokens - n_held:,} of {n_tokens:,} tokens: layer 0 holds the last "
        f"{n_held:,} only"
    )


def _values_first(compared: Comparison, convolution: Convolution | None) -> bool | None:
    from inspector.model.layer0 import delta
    from inspector.model.layer0.weights import NotTestable

    if convolution is None or compared.layer.keys.architecture not in delta.ARCHITECTURES:
        return None
    section = next(s for s in compared.sections if s.kind == "recurrent")
    tokens = compared.tokens[: convolution.end + 1]
    try:
        alike = delta.likeness(compared.source, section, compared.layer, tokens, convolution.row)
    except NotTestable:
        return None
    return alike.values_first if alike is not None else None


def _datings(sides: Sequence[Side], order: str, values_first: bool | None) -> Iterator[Dating]:
    from inspector.model.layer0.attention import LATENT_FIRST, ROPE_FIRST, ROPE_THEN_NOPE

    if order in (ROPE_FIRST, ROPE_THEN_NOPE):
        yield Dating(f"a key is stored as {order}", Interval("b5137", "b7811"))
    elif order == LATENT_FIRST:
        yield Dating(f"a key is stored as {order}", Interval("b7812", None))
    for side in sides:
        if side.rotation and not side.blind:
            says = f"{side.what} rotated by a matrix of size {side.rotation}"
            yield Dating(says, Interval("b8619", None))
    if values_first is not None:
        says = "values by keys" if values_first else "keys by values"
        builds = Interval("b8157", None) if values_first else Interval(None, "b8389")
        yield Dating(f"blocks of the delta net are stored {says}", builds)


def _findings(
    compared: Comparison, outcome: Outcome, sides: Sequence[Side], evidence: str, notes: list[str]
) -> Iterator[Finding]:
    told = max(
        sides, key=lambda side: (side.content, bool(side.foreign or side.empty), side.excess)
    )
    if outcome is Outcome.MIXED and not any(side.foreign for side in sides if side.content):
        told = next((side for side in sides if side.empty or side.foreign), told)
    if outcome is Outcome.OTHER_POSITIONS:
        told = next(side for side in sides if not side.content)
    actual = f"{told.excess:.2g} off"
    if told.empty:
        actual = f"zero at {len(told.empty)} of {told.n_cells}"
    elif outcome is Outcome.MIXED and told.foreign:
        actual = f"{len(told.foreign)} of {told.n_cells} rows are further off"
    if outcome in _CODES and not (outcome is Outcome.MIXED and verdict(sides) is not outcome):
        yield Finding(
            _CODES[outcome],
            told.path,
            told.span,
            evidence,
            f"at most {AGREES} off, rounding apart",
            actual,
            (*map(str, sides), *notes),
        )
    for side in sides:
        said = _said_rotation(compared.sections, side)
        if said is not None and said != side.rotation and side.agrees and not side.blind:
            yield Finding(
                "identity.rotation-differs",
                side.path,
                side.span,
                f"{side.what} were multiplied by a matrix of size {side.rotation}, and the file "
                f"says {said}",
                f"n_rot_{side.name} {side.rotation}",
                f"n_rot_{side.name} {said}",
            )


def _said_rotation(sections: Sequence[Section], side: Side) -> int | None:
    """What the file says about the rotation of rows; None before version 4."""
    for section in sections:
        streams = section.node.get("streams")
        for index, body in enumerate(streams.children if streams is not None else ()):
            here = side.path.startswith(f"{section.path}.streams[{index}].")
            if here and body.get(f"n_rot_{side.name}") is not None:
                return body.number(f"n_rot_{side.name}")
    return None


def _evidence(
    outcome: Outcome,
    sides: Sequence[Side],
    explanation: str,
    unfit: Sequence[Unfit],
    n_tokens: int,
    n_held: int,
) -> str:
    k = next((side for side in sides if side.name == "k" and not side.blind), None)
    partly = n_held + 1 < n_tokens  # a library may save one more token than it evaluated
    tokens = f"the last {n_held:,} of these tokens" if partly else "these tokens"
    weights = "exactly these" if all(side.exact for side in sides) else "these"
    match outcome:
        case Outcome.MATCHES:
            where = " at these positions" if k is not None else ""
            says = f"computed from {tokens}{where} with {weights} layer-0 weights"
        case Outcome.RELATED:
            says = f"computed from {tokens} with close weights: another quantization of the same "
            says += "model, an adapter, or a fine-tune"
        case Outcome.OTHER_POSITIONS:
            says = f"computed from {tokens} with these layer-0 weights, but keys are not those of "
            says += "these positions" + (f": {explanation}" if explanation else "")
        case Outcome.MIXED:
            says = _mixture(sides, unfit)
        case Outcome.DIFFERS:
            says = "computed with other weights, or not from this token list"
        case _:
            says = "the cache type is too coarse for what sets tokens apart"
    first, last = min(side.first for side in sides), max(side.last for side in sides)
    n_cells = max(side.n_cells for side in sides)
    tried = f"{n_cells} of {n_tokens:,} tokens were tried, at positions {first} to {last}"
    measured = "; ".join(map(str, sides))
    return f"{says} ({tried}: {measured})"


def _mixture(sides: Sequence[Side], unfit: Sequence[Unfit]) -> str:
    right = [side.what for side in sides if side.agrees and not (side.foreign or side.empty)]
    wrong = [side.what for side in sides if side.content and not side.agreeing]
    if right and wrong:
        return (
            f"{' and '.join(right)} were computed with this model, {' and '.join(wrong)} were not"
        )
    spoilt = [side for side in sides if side.foreign or side.empty]
    shown = spoilt if any(side.agreeing for side in spoilt) else sides
    own, other, empty = (
        sorted({pos for side in shown for pos in getattr(side, name)})
        for name in ("agreeing", "foreign", "empty")
    )
    bad = sorted({pos for one in unfit for pos in one.positions})
    parts = [
        f"{what} at {found[0]} to {found[-1]}"
        for what, found in (
            ("with other weights or from other tokens", other),
            ("zero", empty),
            ("NaN or infinity", bad),
        )
        if found
    ]
    first = f"computed with this model at positions {own[0]} to {own[-1]}" if own else "a part fits"
    return ", ".join((first, *parts))
