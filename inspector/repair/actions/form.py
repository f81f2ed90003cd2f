"""The same state in the form of another build: version, words, cells, tokens."""

from __future__ import annotations

from dataclasses import replace

from inspector.render.page import counted
from inspector.repair.actions.words import ACTION as WORDS
from inspector.repair.draft import Draft, Step
from inspector.repair.state import Part, Recurrent, Refused

_WORDS = {
    "streams": "the number of cell arrays in front of every cache",
    "seq_id": "a sequence id in every cell",
    "cell_ext": "coordinates in every cell",
    "rotation": "the rotation words of every cache",
}


def correct_layers(draft: Draft) -> None:
    """Words that say another number of layers than the model has, where all rows are there."""
    counts = {} if draft.ik or draft.form.session else _layer_counts(draft, of_model=True)
    if not counts:
        return
    assert draft.target is not None  # else nothing is known to differ
    draft.take(
        Step(
            WORDS,
            f"{draft.target.model_name} has another number of layers than the file says, and "
            f"{draft.target.build.label} compares the two",
            "; ".join(_recounted(draft, counts)),
        )
    )


def restamp(draft: Draft) -> None:
    """The version word, and what a version has more or less than another."""
    if draft.ik or draft.form.session:
        return
    stored, form = draft.stored, draft.wanted
    added: list[str] = []
    dropped: list[str] = []
    for name, what in _WORDS.items():
        before, after = getattr(stored, name), getattr(form, name)
        if not draft.state.caches or before == after:
            continue
        (added if after > before else dropped).append(what)
    if stored.version == _FIRST < form.version:
        added.append("whether values are stored channel by channel, which their sizes tell")
        dropped.append("the width of a size_t and that of values")
    counts = _layer_counts(draft, of_model=False)
    if form.version == stored.version and not added and not dropped and not counts:
        return
    before_it = [name for name, _ in draft.refused if name in _FIRST_OF_ALL]
    if before_it:
        raise Refused(f"{before_it[0]} would have to be done first: a newer form would hide that")
    if form.rotation and not stored.rotation:
        _rotation_words(draft)
    changes = [f"the version word: {stored.version} becomes {form.version}"]
    if form.version == stored.version:
        changes = []
    changes += [f"adds {what}" for what in added] + [f"drops {what}" for what in dropped]
    changes += _recounted(draft, counts)
    assert draft.target is not None  # else the wanted form is the stored one
    draft.form = replace(form, packed=stored.packed)
    label = draft.target.build.label
    why = f"{label} reads slot files of version {form.version} in its own layout alone"
    if form.version == stored.version and not added and not dropped:
        why = f"{label} counts next-token layers otherwise, and compares the number of layers"
    draft.take(
        Step(
            "relayout" if added or dropped or counts else "restamp",
            why,
            "; ".join(changes),
            proven="saves of 2024-06 to b11549 on b7551 to b11549",
        )
    )


_FIRST = 1
_FIRST_OF_ALL = ("split-window", "swap-latent-keys", "transpose-states")
"""What cannot be told from a copy any more."""


def _layer_counts(draft: Draft, *, of_model: bool) -> dict[str, tuple[int, int]]:
    """Words that count layers otherwise than the target, of sections with as many blocks.

    Args:
        draft: the repair.
        of_model: whether to take those that no build writes for this model, or those in which
            builds count next-token layers otherwise.
    """
    memory = draft.target.memory if draft.target is not None else None
    n_nextn = memory.n_layer_nextn if memory is not None else 0
    found = {}
    for part in draft.state.parts:
        expected = draft.expects(part.member)
        blocks = len(part.r if isinstance(part, Recurrent) else part.k)
        if expected is None or blocks != len(expected.k) or part.n_layer == expected.n_layer:
            continue
        if (abs(part.n_layer - expected.n_layer) != n_nextn) == of_model:
            found[part.member] = part.n_layer, expected.n_layer
    return found


def _recounted(draft: Draft, counts: dict[str, tuple[int, int]]) -> list[str]:
    """Write numbers of layers, and say so."""

    def changed(part: Part) -> Part:
        return replace(part, n_layer=counts[part.member][1]) if part.member in counts else part

    draft.convert_parts(changed)
    return [f"n_layer of {member}: {n} becomes {new}" for member, (n, new) in counts.items()]


def _rotation_words(draft: Draft) -> None:
    """The words that older files lack.

    Raises:
        Refused: if it is not known whether rows are rotated.
    """
    for cache in draft.state.caches:
        if cache.rotation is None:
            raise Refused(
                f"whether the quantized rows of {cache.member} are rotated is not known: name the "
                "model with --model"
            )


def unpack(draft: Draft) -> None:
    """Plain tokens for a server that does not know packed ones."""
    tokens = draft.state.tokens
    if tokens.packed and not draft.wanted.packed and not draft.ik:
        if tokens.media_start:
            raise Refused("media chunks need packed tokens, which this build does not read")
        draft.form = replace(draft.form, packed=False)
        draft.take(
            Step(
                "unpack-tokens",
                "servers before b10388 take packed tokens for tokens of their own: they restore "
                "the state and reuse nothing of it",
                f"the token field: {counted(len(tokens.ids), 'plain token')}",
                proven="b7551, b8672, b9538, b10229",
            )
        )
        draft.state = replace(draft.state, tokens=replace(tokens, packed=False))
