"""The memory sections of a tree, as plain facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from formats.ggml_types import ABSENT, TYPES, UPSTREAM, GgmlType, readings
from inspector.node import Kind, Node, Rows, walk
from inspector.span import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROLES = ("attention", "swa", "indexer", "recurrent", "dsv4")


@dataclass(frozen=True, slots=True)
class Block:
    """One stored tensor of one layer.

    Attributes:
        path: of its record.
        type_id: ggml type id.
        row_bytes: bytes that one cell occupies.
        n_cells: rows.
        span: its record, header included.
        data: the tensor bytes; None if parsing stopped before or inside.
        element_bytes: bytes of one element if stored channel by channel, else 0.
    """

    path: str
    type_id: int
    row_bytes: int
    n_cells: int
    span: Span
    data: Span | None
    element_bytes: int = 0

    @property
    def readings(self) -> tuple[GgmlType, ...]:
        """The types that the id can mean for this row size."""
        return readings(self.type_id, self.row_bytes)

    @property
    def type_name(self) -> str:
        """The most likely type's name, or `type 77` for an unknown one."""
        found = self.readings
        return found[0].name if found else f"type {self.type_id}"


@dataclass(frozen=True)
class Section:
    """One section of the payload.

    Attributes:
        kind: attention, swa, recurrent, indexer or dsv4.
        path: of its record.
        node: its record.
        n_stream: cell arrays, 1 where the format has no such word.
        tables: the cell records of every non-empty stream.
        streams: the index of the stream that each of `tables` belongs to.
        cell_ext: bytes of the cell extension.
        v_trans: the stored word of the first non-empty stream, or None if the format or the
            section has none.
        n_layer: the stored word, or None.
        k, v, r, s: stored blocks in file order.
        has_values: whether the layout has V blocks.
        declared_cells: the sum of the stored counts, which exceed `cells` when the file is damaged.
    """

    kind: str
    path: str
    node: Node
    n_stream: int
    tables: tuple[Rows, ...]
    streams: tuple[int, ...]
    cell_ext: int
    v_trans: int | None
    n_layer: int | None
    k: tuple[Block, ...]
    v: tuple[Block, ...]
    r: tuple[Block, ...]
    s: tuple[Block, ...]
    has_values: bool
    declared_cells: int

    @property
    def span(self) -> Span:
        """Its bytes."""
        return self.node.span

    @property
    def cells(self) -> int:
        """Cells of all streams."""
        return sum(len(table) for table in self.tables)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All stored blocks."""
        return self.k + self.v + self.r + self.s

    @property
    def marks_absent(self) -> bool:
        """Whether layers without rows have a type of their own, as those of ik_llama.cpp."""
        names = {child.name for child in self.node.children}
        return bool(names & {"v_state", "s"})

    @cached_property
    def pos(self) -> NDArray[np.int64]:
        """Positions of all cells in file order, shape `(cells,)`."""
        import numpy as np

        parts = [table.column("pos") for table in self.tables]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def ordered(self) -> NDArray[np.int64]:
        """The same in ascending order."""
        import numpy as np

        ascending = len(self.pos) < 2 or bool((self.pos[1:] >= self.pos[:-1]).all())
        return self.pos if ascending else np.sort(self.pos)

    @cached_property
    def pos_min(self) -> int | None:
        """Lowest position, None without cells."""
        return int(self.pos.min()) if len(self.pos) else None

    @cached_property
    def pos_max(self) -> int | None:
        """Highest position, None without cells."""
        return int(self.pos.max()) if len(self.pos) else None


def sections(root: Node) -> tuple[Section, ...]:
    """The sections of a state in file order; those inside checkpoints are not among them."""
    return tuple(section_of(root, path, node) for path, node in section_nodes(root))


def section_of(root: Node, path: str, node: Node) -> Section:
    """The section whose record in the tree of `root` is `node`."""
    return _historic(root, path, node) if node.name == "kv_self" else _section(path, node)


def section_nodes(root: Node) -> Iterator[tuple[str, Node]]:
    """The sections stand at the top of a state, those of DeepSeek-V4 in a block of their own."""
    for node in root.children:
        if node.role in _ROLES:
            yield node.name, node
        elif node.name == "dsv4":
            yield from (
                (f"dsv4.{part.name}", part) for part in node.children if part.role in _ROLES
            )


def _section(path: str, node: Node) -> Section:
    if node.role == "recurrent":
        return _recurrent(path, node)
    if node.role == "dsv4":
        return _dsv4(path, node)
    streams = node.get("streams")
    bodies = streams.children if streams is not None else (node,)
    prefix = f"{path}.streams" if streams is not None else path
    tables, owners, k, v = [], [], [], []
    v_trans = n_layer = None
    for index, body in enumerate(bodies):
        at = f"{prefix}[{index}]" if streams is not None else path
        rows = body.rows("cells")
        if rows is not None and len(rows):
            tables.append(rows)
            owners.append(index)
        if v_trans is None and (flag := body.get("v_trans") or body.get("v_state")) is not None:
            v_trans, n_layer = int(str(flag.value)), _optional(body, "n_layer")
        k += list(_blocks(body, at, "k"))
        v += list(_blocks(body, at, "v"))
        k += list(_blocks(body, at, "index"))
    return Section(
        kind=node.role,
        path=path,
        node=node,
        n_stream=node.number("n_stream", 1),
        tables=tuple(tables),
        streams=tuple(owners),
        cell_ext=node.facts.get("cell_ext", 0),
        v_trans=v_trans,
        n_layer=n_layer,
        k=tuple(k),
        v=tuple(v),
        r=(),
        s=(),
        has_values=bool(node.facts.get("values", True)),
        declared_cells=sum(body.number("cell_count") for body in bodies),
    )


def _historic(root: Node, path: str, node: Node) -> Section:
    """A cache of before July 2024: no types in it, widths only in the hyper-parameters."""
    rows = node.rows("cells")
    n_cells = node.number("kv_head", node.number("kv_ntok"))
    widths = _widths(root)
    found: dict[str, list[Block]] = {"k": [], "v": []}
    for at, data in walk(node, path):
        name = data.name if data.name in found else at.rpartition(".")[2].partition("[")[0]
        if data.kind is not Kind.PAYLOAD or name not in found or not n_cells:
            continue
        layer, row = len(found[name]), len(data.span) // n_cells
        width = widths[layer][name == "v"] if layer < len(widths) else 0
        type_id = _type_of(row, width)
        element = row // width if name == "v" and node.number("v_trans", 1) and width else 0
        block = Block(at, type_id, row, n_cells, data.span, data.span, element)
        found[name].append(block)
    return Section(
        kind=node.role,
        path=path,
        node=node,
        n_stream=1,
        tables=(rows,) if rows is not None and len(rows) else (),
        streams=(0,) if rows is not None and len(rows) else (),
        cell_ext=0,
        v_trans=_optional(node, "v_trans"),
        n_layer=len(widths) or None,
        k=tuple(found["k"]),
        v=tuple(found["v"]),
        r=(),
        s=(),
        has_values=True,
        declared_cells=n_cells,
    )


def _widths(root: Node) -> tuple[tuple[int, int], ...]:
    """Elements of a key row and of a value row of every layer, by the hyper-parameters."""
    from construct import Container

    from formats.bodies.hparams import row_widths

    node = root.get("hparams")
    if node is None:
        return ()
    values = Container()
    for child in node.children:
        is_list = isinstance(child.value, Rows)
        values[child.name] = child.value.column("value").tolist() if is_list else child.value  # type: ignore[union-attr]
    return row_widths(values)


def _type_of(row_bytes: int, n_elements: int) -> int:
    """The type of which so many elements take so many bytes; f16 before bf16."""
    fits = (t.id for t in TYPES if t.writer == UPSTREAM and t.elements(row_bytes) == n_elements)
    return next(fits, ABSENT)


def _optional(node: Node, name: str) -> int | None:
    child = node.get(name)
    return child.value if child is not None and isinstance(child.value, int) else None


def _is_absent(block: Node) -> bool:
    """Whether a block says that its layer has no rows: nothing but zeros behind that type."""
    words = [child.value for child in block.children if child.kind is Kind.FIELD]
    return words[0] == ABSENT and not any(words[1:])


def _blocks(body: Node, at: str, name: str) -> Iterator[Block]:
    series = body.get(name)
    n_cells = body.number("cell_count")
    prefix = "v" if name == "v" else "k"
    for child in series.children if series is not None else ():
        type_id = _optional(child, f"{prefix}_type")
        if type_id is None or _is_absent(child):
            continue
        data = child.get("data")
        element = child.number(f"{prefix}_size_el")
        row = child.number(f"{prefix}_size_row")
        if element and child.get("n_embd_v_gqa") is not None:
            row = element * child.number("n_embd_v_gqa")
        elif element:  # ggsq 1 has the number of channels in front of all layers, for layer 0
            channels = body.number("n_embd_v_gqa")
            row = len(data.span) // n_cells if data is not None and n_cells else element * channels
        yield Block(
            path=f"{at}.{name}{child.name}",
            type_id=type_id,
            row_bytes=row,
            n_cells=len(data.span) // row if data is not None and row else n_cells,
            span=child.span,
            data=data.span if data is not None else None,
            element_bytes=element,
        )


def _recurrent(path: str, node: Node) -> Section:
    if node.get("s") is not None:
        return _rows_of_sequences(path, node)
    series = node.get("blocks")
    found = (
        []
        if series is None
        else list(_recurrent_blocks(series, f"{path}.blocks", node.number("cell_count")))
    )
    half = len(found) // 2
    rows = node.rows("cells")
    return Section(
        kind="recurrent",
        path=path,
        node=node,
        n_stream=1,
        tables=(rows,) if rows is not None and len(rows) else (),
        streams=(0,) if rows is not None and len(rows) else (),
        cell_ext=0,
        v_trans=_optional(node, "s_trans"),
        n_layer=_optional(node, "n_layer"),
        k=(),
        v=(),
        r=tuple(found[:half]),
        s=tuple(found[half:]),
        has_values=False,
        declared_cells=node.number("cell_count"),
    )


def _recurrent_blocks(series: Node, at: str, n_cells: int) -> Iterator[Block]:
    for child in series.children:
        if (type_id := _optional(child, "type")) is None:
            continue
        data = child.get("data")
        yield Block(
            path=at + child.name,
            type_id=type_id,
            row_bytes=child.number("row_size"),
            n_cells=n_cells,
            span=child.span,
            data=data.span if data is not None else None,
        )


def _rows_of_sequences(path: str, node: Node) -> Section:
    """The recurrent part of ik_llama.cpp: a row per sequence, no cells, the state in one piece."""
    states = node.get("s")
    assert states is not None
    found = []
    for child in states.children:
        type_id, data = _optional(child, "s_type"), child.get("data")
        if type_id is None or _is_absent(child):
            continue
        found.append(
            Block(
                path=f"{path}.s{child.name}",
                type_id=type_id,
                row_bytes=child.number("s_size_row"),
                n_cells=child.number("s_rows"),
                span=child.span,
                data=data.span if data is not None else None,
            )
        )
    return Section(
        kind="recurrent",
        path=path,
        node=node,
        n_stream=1,
        tables=(),
        streams=(),
        cell_ext=0,
        v_trans=None,
        n_layer=None,
        k=(),
        v=(),
        r=(),
        s=tuple(found),
        has_values=False,
        declared_cells=max((block.n_cells for block in found), default=0),
    )


def _dsv4(path: str, node: Node) -> Section:
    layers = node.get("layers")
    found = []
    for child in layers.children if layers is not None else ():
        for name in ("keys", "kv", "score"):
            tensor = child.get(name)
            if tensor is None or (type_id := _optional(tensor, "type")) is None:
                continue
            data = tensor.get("data")
            found.append(
                Block(
                    path=f"{path}.layers{child.name}.{name}",
                    type_id=type_id,
                    row_bytes=tensor.number("row_size"),
                    n_cells=tensor.number("rows") * node.number("ns", 1),
                    span=tensor.span,
                    data=data.span if data is not None else None,
                )
            )
    return Section(
        kind="dsv4",
        path=path,
        node=node,
        n_stream=node.number("ns", 1),
        tables=(),
        streams=(),
        cell_ext=0,
        v_trans=None,
        n_layer=_optional(node, "n_layer"),
        k=tuple(found),
        v=(),
        r=(),
        s=(),
        has_values=False,
        declared_cells=node.number("n_rows", node.number("state_size")),
    )
