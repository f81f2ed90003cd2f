"""Numbers in the order of the target's build, where builds changed it without a trace."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formats.bodies.compositions import MEMORY
from inspector.arrays.order import What, orders
from inspector.model.geometry import Keys
from inspector.render.page import counted
from inspector.repair.draft import Draft, Step
from inspector.repair.segments import Rows
from inspector.repair.state import Cache, Hopeless, Part, Recurrent, Refused, Tensor

SWAP, TRANSPOSE, DROP = "swap-latent-keys", "transpose-states", "drop-values"
_F32 = 4


def drop_values(draft: Draft) -> None:
    """No values where the latent part of a key is the value."""
    _check_values(draft)
    memory = draft.target.memory if draft.target is not None else None
    if memory is None or not memory.mla or memory.memory not in MEMORY:
        return
    without = {member for member, (_, values), _ in MEMORY[memory.memory][1] if not values}
    stored = [c for c in draft.state.caches if c.v and c.member in without and c.kind != "indexer"]
    if not stored:
        return
    size = sum(tensor.row_bytes * tensor.n_cells for cache in stored for tensor in cache.v)
    draft.take(
        Step(
            DROP,
            "since b7832 caches of latent keys have no values: the restore would go astray",
            f"drops {size:,} bytes of values, which are the latent part of every key once more",
            proven="b10229, b11549",
        )
    )

    def changed(cache: Cache) -> Cache:
        return replace(cache, v=()) if cache.member in without else cache

    draft.convert(changed)
    draft.state = replace(draft.state, memory=memory.memory)


def _check_values(draft: Draft) -> None:
    """See that no values are missing that the target stores.

    Raises:
        Hopeless: if they are.
    """
    memory = draft.target.memory if draft.target is not None else None
    if draft.target is None or draft.ik or (memory is not None and not memory.mla):
        return
    for cache in draft.state.caches:
        expected = draft.expects(cache.member)
        if cache.k and not cache.v and expected is not None and expected.v:
            raise Hopeless(
                f"{draft.target.build.label} stores values beside the keys of {cache.member}, and "
                "this file has latent keys alone, as b7832 and newer builds write them: values are "
                "not added"
            )


def swap_latent_keys(draft: Draft) -> None:
    """The latent part and the rope part of every key in the order of the target."""
    wanted = _wanted(draft, What.KEYS)
    if wanted is None:
        return
    parts = _parts(draft)
    first, second = ("latent", "rope") if wanted else ("rope", "latent")
    draft.take(
        Step(
            SWAP,
            f"keys changed their order at b7812 without a trace: this server takes the {first} "
            f"part for the {second} part, accepts the state, and answers with noise",
            f"moves the {first} part of every key in front of its {second} part",
            proven="b7551 on b10229 and b11549",
        )
    )
    draft.convert(lambda cache: _swapped(cache, parts, newer=wanted))


def transpose_states(draft: Draft) -> None:
    """The blocks of delta nets the way round that the target has them."""
    wanted = _wanted(draft, What.STATES)
    if wanted is None:
        return
    assert draft.target is not None
    assert draft.target.model is not None  # its memory is known
    keys = Keys(draft.target.model.architecture, draft.target.model.metadata)
    size, n_head = keys.number("ssm.state_size"), keys.number("ssm.time_step_rank")
    how = {True: "values by keys", False: "keys by values"}
    draft.take(
        Step(
            TRANSPOSE,
            f"states of delta nets were transposed between b8156 and b8390 without a trace: this "
            f"server takes {how[not wanted]} for {how[wanted]}, accepts the state, and answers "
            "with noise",
            f"transposes {counted(n_head, 'block')} of {size:,} by {size:,} numbers in every "
            "recurrent layer",
            proven="b8156 on b8672, b10229 and b11549",
        )
    )

    def changed(part: Part) -> Part:
        if not isinstance(part, Recurrent):
            return part
        turned = tuple(transposed(tensor, size, n_head) for tensor in part.s)
        return replace(part, s=turned, stored=None)

    draft.convert_parts(changed)


def _wanted(draft: Draft, what: What) -> bool | None:
    """Whether the target has numbers as newer builds have them; None if they stay as they are.

    Raises:
        Refused: if that is not known.
    """
    if draft.check is None:
        return None
    target, report = draft.check.target, draft.check.report
    found = orders(report, target, draft.check.identity)
    order = next((one for one in found if one.what is what), None)
    if order is None or order.stored == order.wanted is not None:
        return None
    if order.wanted is None:
        raise Refused(f"which order {target.build.label} has is not known")
    if order.stored is None:
        raise Refused(
            f"which order they have is not known: the file was written by "
            f"{report.identification.builds}, and what is known of the model does not tell"
        )
    return order.wanted


@dataclass(frozen=True)
class Key:
    """One key of a row: of a head, or the only one.

    Attributes:
        rest: elements of its latent part, or of what is not turned.
        rope: elements of its turned part.
    """

    rest: int
    rope: int


def _parts(draft: Draft) -> Key:
    assert draft.target is not None
    assert draft.target.memory is not None  # the order that it wants is known
    model = draft.target.model
    if model is None:
        raise Refused("how wide the parts of a key are is not known: name the model with --model")
    keys = Keys(model.architecture, model.metadata)
    rope = keys.number("rope.dimension_count")
    latent = keys.number("attention.kv_lora_rank")
    rest = latent if draft.target.memory.mla else keys.number("attention.key_length") - rope
    if rope <= 0 or rest <= 0:
        raise Refused("the model does not say how wide the parts of a key are")
    return Key(rest, rope)


def _swapped(cache: Cache, key: Key, *, newer: bool) -> Cache:
    """The cache with the parts of its keys swapped.

    Raises:
        Refused: if they do not begin where blocks begin.
    """
    if cache.kind == "indexer":
        return cache
    turned = cache.rotation[0] if cache.rotation is not None else 0
    k = tuple(swapped_rows(tensor, key, turned, newer=newer) for tensor in cache.k)
    return replace(cache, k=k)


def swapped_rows(tensor: Tensor, key: Key, turned: int, *, newer: bool) -> Tensor:
    kind = tensor.kind
    if kind is None:
        raise Refused(f"keys of type {tensor.type_id} are of no known width")
    unit = max(kind.block_elements, turned)
    n_elements = kind.elements(tensor.row_bytes) or 0
    if n_elements % (key.rest + key.rope):
        raise Refused(f"rows of {n_elements:,} elements are no keys of this model")
    if key.rest % unit or key.rope % unit:
        raise Refused(f"the parts of a key are no whole number of {kind.name} blocks")
    front = key.rope if newer else key.rest
    first, whole = (
        n // kind.block_elements * kind.block_bytes for n in (front, key.rest + key.rope)
    )

    def change(data: bytes) -> bytes:
        keys = np.frombuffer(data, np.uint8).reshape(-1, whole)
        return np.concatenate([keys[:, first:], keys[:, :first]], axis=1).tobytes()

    sizes = tensor.row_bytes, tensor.row_bytes
    return replace(tensor, content=(Rows(tensor.content, sizes, tensor.n_cells, change, SWAP),))


def transposed(tensor: Tensor, size: int, n_head: int) -> Tensor:
    """A state with its blocks transposed.

    Raises:
        Refused: if it does not consist of such blocks.
    """
    block = _F32 * size * size
    if not size or tensor.row_bytes != n_head * block:
        raise Refused(f"rows of {tensor.row_bytes:,} bytes are no {n_head} square blocks")

    def change(data: bytes) -> bytes:
        blocks = np.frombuffer(data, "<u4").reshape(-1, size, size)
        return blocks.transpose(0, 2, 1).tobytes()

    n_blocks = n_head * tensor.n_cells
    return replace(
        tensor, content=(Rows(tensor.content, (block, block), n_blocks, change, TRANSPOSE),)
    )
