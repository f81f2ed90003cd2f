"""A state of ik_llama.cpp by its parts: one cell list, and every layer of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from inspector.repair.segments import Keep
from inspector.repair.state import IK_MEMORY, Cache, Cells, Part, Recurrent, Refused, Tensor
from inspector.sections import Block, Section
from inspector.source import Source

if TYPE_CHECKING:
    from inspector.model.identity import Identity
    from inspector.repair.state import State
    from inspector.report import Report

_NO_VALUES = 2
_KNOWN = ("attn", "recr", "indexer")


@dataclass(frozen=True)
class IkCache(Cache):
    """Its attention cache, or the keys of its indexers.

    Attributes:
        layers: layers of the model that keys are stored of, ascending; `n_layer` counts them all.
        value_layers: those that values are stored of.
        values: whether values are stored at all; latent keys have none.
    """

    layers: tuple[int, ...] = ()
    value_layers: tuple[int, ...] = ()
    values: bool = True


@dataclass(frozen=True)
class IkState(Recurrent):
    """Its recurrent layers: what upstream keeps as R and S rows is one row here, in `s`.

    Attributes:
        layers: layers of the model that have one, ascending.
    """

    layers: tuple[int, ...] = ()


def ik_parts(report: Report) -> tuple[Part, ...]:
    """The parts of a state.

    Raises:
        Refused: if it holds what cannot be taken apart.
    """
    reading = report.identification.reading
    assert reading is not None  # its layout is known
    if reading.layout.format != "ggsq":
        raise Refused("of ik_llama.cpp only slot files are taken apart")
    if reading.decoding.stops:
        raise Refused("it is cut or damaged, and nothing in it can take the place of what is lost")
    if reading.decoding.root.get("swac") is not None:
        raise Refused("states with compacted windows (--swa-compress) are not taken apart")
    others = [section.path for section in report.sections if section.path not in _KNOWN]
    if others:
        raise Refused(f"the {others[0]} section of a state is not taken apart")
    if not report.sections or not report.sections[0].cells:
        raise Refused("it holds no cells, and loading it kills ik_llama.cpp: delete it")
    return parts_of_payload(report.source, report.sections)


def parts_of_payload(source: Source, sections: tuple[Section, ...]) -> tuple[Part, ...]:
    """The parts of a payload: of a state, or of a blob in a checkpoint."""
    attention = next(section for section in sections if section.path.endswith("attn"))
    cells = Cells(attention.pos)
    return tuple(_part(source, section, cells) for section in sections)


def _part(source: Source, section: Section, cells: Cells) -> Part:
    if section.kind == "recurrent":
        if any(block.n_cells != 1 for block in section.s):
            raise Refused("it holds recurrent states of several sequences")
        rows = tuple(_tensor(source, block) for block in section.s)
        states = section.node.get("s")
        n_layer = len(states.children) if states is not None else 0
        pos = np.array([cells.pos.max()]) if len(cells) else cells.pos
        return IkState("recr", pos, n_layer, (), rows, None, _layers(section.s))
    v_state = section.v_trans or 0
    return IkCache(
        section.path.rpartition(".")[2],
        section.kind,
        cells,
        1,
        0,
        v_state if v_state != _NO_VALUES else 0,
        section.n_layer if section.n_layer is not None else len(section.k),
        None,
        tuple(_tensor(source, block) for block in section.k),
        tuple(_tensor(source, block) for block in section.v),
        _layers(section.k),
        _layers(section.v),
        section.kind == "attention" and v_state != _NO_VALUES,
    )


def _layers(blocks: tuple[Block, ...]) -> tuple[int, ...]:
    """The layers that blocks are of, by their place in the series."""
    return tuple(int(block.path.rpartition("[")[2].rstrip("]")) for block in blocks)


def _tensor(source: Source, block: Block) -> Tensor:
    if block.data is None:
        raise Refused(f"{block.path} is not there")
    kind = block.readings[0] if block.readings else None
    content = (Keep(source, block.data),)
    size, n, element = block.row_bytes, block.n_cells, block.element_bytes
    return Tensor(block.type_id, size, n, content, element, kind)


def attention_of(state: State) -> IkCache:
    """The one attention cache."""
    return next(part for part in state.parts if isinstance(part, IkCache) and part.member == "attn")


def is_ik(state: State) -> bool:
    """Whether a state is one of ik_llama.cpp, not yet in the form of upstream."""
    return state.memory == IK_MEMORY


Q8_KV = "q8_KV"
_NAMES = {"k": "keys", "v": "values"}


def rotation_of(identity: Identity | None, cache: Cache) -> tuple[int, int]:
    """Elements of the matrices that turned keys and values, by comparison with the model.

    Raises:
        Refused: if that does not tell.
    """
    return _turned(identity, cache.k, "k"), _turned(identity, cache.v, "v")


def _turned(identity: Identity | None, tensors: tuple[Tensor, ...], side: str) -> int:
    kinds = [tensor.kind for tensor in tensors]
    if all(kind is not None and kind.block_elements == 1 for kind in kinds):
        return 0
    found = identity.side(side) if identity is not None else None
    told = found is not None and found.agrees and not found.blind
    why = f"whether its quantized {_NAMES[side]} are rotated (-{side}had) is not recorded, and "
    if found is None or not told:
        raise Refused(f"{why}the comparison with the model does not tell")
    if kinds[0] is None or kinds[0].block_elements == 1:
        raise Refused(f"{why}the first layer, which could tell, is not quantized")
    return found.rotation
