"""What real servers write: values for every field, chosen from the options and a seed."""

from __future__ import annotations

import hashlib
import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from formats.bodies.compositions import PARTIAL
from formats.bodies.dsv4 import DSV4_MAGIC
from formats.bodies.hparams import row_widths
from formats.envelopes.tokens import PACKED_MARKER
from formats.ggml_types import ABSENT, IK, TYPES
from formats.layout import Layout
from formats.layouts import by_id
from formats.spans import Payload, Scalar, Text
from inspector.builds import build_number
from inspector.fuzzing.case import OPTIONS, Case, Row, Shape, row
from inspector.fuzzing.model import ENTRIES, TENSOR_BYTES, TENSORS
from inspector.fuzzing.writer import Place, write

_NUMBERS = bytes(0x3C | (byte & 0x83) for byte in range(256))
"""High bytes of two-byte numbers that are finite and not zero, as f16, bf16 and halves of f32."""
_F32, _F16 = 0, 1
_RNG = " ".join(str(1 + i % 9) for i in range(625)).encode()
"""What the text of an mt19937 looks like, of the smallest numbers."""
_TEXTS = {"header": b'{"Version":1,"TokenCount":12}', "id": b"0f1e2d3c", "rng": _RNG, "text": _RNG}
_HISTORY_BYTES = 384
_CACHES = ("attention", "swa", "indexer")
_FLOATS = ("f16", "f32", "bf16")
"""Caches of these types are not rotated, but for indexers."""
_WITH_HISTORY = ("hybrid-ple", "hybrid-ple-partial", "hybrid-idx", "hybrid-idx-values")
_MEDIA_TOKENS = {"image": 4, "audio": 3}
_MEDIA_START = 2
_EMPTY_CELLS = 3
_FIRST_PACKED = 10388
"""Build from which on servers pack tokens."""
_FNV_PRIME, _FNV_BASIS = 1099511628211, 14695981039346656037
STCK_BASIS = 1469598103934665603


def fnv1a(data: bytes, basis: int = _FNV_BASIS) -> int:
    """FNV-1a of 64 bits."""
    for byte in data:
        basis = (basis ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return basis


def _noise(dice: random.Random, size: int) -> bytes:
    """Numbers that are finite and never zero; dice of one seed begin with the same ones."""
    noise = bytearray(dice.randbytes(-(-size // _DICE_BYTES) * _DICE_BYTES))
    noise[1::2] = noise[1::2].translate(_NUMBERS)
    return bytes(noise[:size])


def _by_channel(rows: Sequence[bytes], size: int) -> bytes:
    """Rows of elements of that size as servers without flash attention store values."""
    return b"".join(row[i : i + size] for i in range(0, len(rows[0]), size) for row in rows)


_DICE_BYTES = 4
"""What `random` makes at once."""


class Cell(NamedTuple):
    """One stored position."""

    pos: int
    x: int
    y: int
    tok: int
    seq_ids: tuple[int, ...] = (0,)


class Server:
    """The `Policy` of a server that saves what it holds.

    Attributes:
        asked: the options that the layout has a use for.
        beside: the state file that a list is written for, if it names one.
    """

    def __init__(
        self,
        case: Case,
        beside: bytes = b"",
        checkpoint: int | None = None,
        owner: Layout | None = None,
    ) -> None:
        """Write `case`.

        Args:
            case: what to write.
            beside: the state file that a list is written for, if it names one.
            checkpoint: tokens after which it was made, for the blob of a checkpoint.
            owner: layout of the state that a list or a blob belongs to.
        """
        self.case = case
        self.layout = case.layout
        self.asked: dict[str, None] = {}
        self.beside = beside
        self._checkpoint = checkpoint
        self._owner = owner or case.layout
        self._memory = self._owner.memory
        self._dice = random.Random(f"{case.seed}/{case.layout.id}/{checkpoint}")
        self._ik = case.layout.writer == IK

    def _option(self, name: str) -> Any:
        self.asked[name] = None
        return self.case.options.get(name, OPTIONS[name][0])

    # -- what the context holds ------------------------------------------------------------------

    @cached_property
    def _n_seq(self) -> int:
        """Sequences of a full save."""
        return max(2, self._n_stream)

    @property
    def _n_stream(self) -> int:
        return int(self._option("n_stream"))

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Token ids; -1 at each media token."""
        if self.case.ids is not None:
            return self.case.ids[: self._checkpoint]
        dice = random.Random(f"{self.case.seed}/tokens")
        n_tokens = int(self._option("n_tokens"))
        ids = [dice.randint(1, 31999) for _ in range(n_tokens)]
        ids[_MEDIA_START:_MEDIA_START] = [-1] * _MEDIA_TOKENS.get(self._media, 0)
        return tuple(ids)[: self._checkpoint]

    @property
    def _media(self) -> str:
        """`image`, `audio` or nothing."""
        kind = str(self.case.options.get("tokens", ""))
        return kind if kind in _MEDIA_TOKENS and self._packs else ""

    @property
    def _packs(self) -> bool:
        """Whether servers that write this layout pack tokens."""
        until = self.layout.until
        late = until is None or build_number(until) >= _FIRST_PACKED
        return late and self.layout.format == "ggsq" and not self._ik

    @cached_property
    def _all_cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(i, i, i, token) for i, token in enumerate(self.ids))

    @property
    def _historic(self) -> bool:
        """Whether it is a whole context from before July 2024."""
        return "hparams" in self.layout.id or re.match(r"context\.b\d", self.layout.id) is not None

    def _full(self, at: Place) -> bool:
        """Whether all sequences are saved."""
        return self.layout.format in ("ggsn", "context")

    def _cells(self, at: Place) -> tuple[Cell, ...]:
        """The cells of the section and the stream that the place lies in."""
        role = at.record.role if at.record is not None else ""
        full, cells = self._full(at), self._all_cells
        if role == "recurrent":
            last = cells[-1:]
            if not full:
                return last
            return tuple(one._replace(seq_ids=(seq,)) for one in last for seq in range(self._n_seq))
        if role == "swa" and not full:
            cells = cells[-self.case.n_swa :]
        found = re.search(r"streams\[(\d+)\]", at.path)
        n_stream = self._n_stream if found else 1
        index = int(found[1]) if found else 0
        if not full:
            return cells if index == self.case.seed % n_stream else ()
        if n_stream == 1:
            shared = ((0,), (1,), (0, 1))
            return tuple(one._replace(seq_ids=shared[i % 3]) for i, one in enumerate(cells))
        own = cells[index::n_stream] if index < len(cells) else cells[:1]
        return tuple(one._replace(seq_ids=(index,)) for one in own)

    # -- blocks ----------------------------------------------------------------------------------

    @cached_property
    def _types(self) -> tuple[str, str]:
        k, v = str(self._option("types")).split("/")
        return k, v

    def _shape(self, at: Place) -> Shape:
        member = at.path.split(".", 1)[0].split("[")[0]
        if member == "dsv4":
            member = at.path.split(".")[1]
        if member not in self.case.shapes:
            return self._small(member, at)
        return self.case.shapes[member]

    def _small(self, member: str, at: Place) -> Shape:
        """The shape of a section of a small model."""
        role = at.record.role if at.record is not None else ""
        n_layer = int(self._option("n_layer"))
        if role == "recurrent":
            r, s = (512, 1024) if self._memory in _WITH_HISTORY else (96, 64)
            others = 0 if self._memory == "recurrent" else 2
            return Shape((Row(_F32, r),) * n_layer, (Row(_F32, s),) * n_layer, n_layer + others)
        if member == "base" and self.layout.memory == "dsv4":
            return Shape((), (), 0)
        k, v = self._types
        width = {"swa": 64, "indexer": 32}.get(role, 64)
        if role == "attention" and self.layout.memory == "msa":
            n_layer += 1
        n_rot = int(self._option("n_rot")) if at.record and at.record.facts.get("rotation") else 0
        if self._transposed(at):
            v = v if v in _FLOATS else "f16"
        n_rot = n_rot if n_rot and width % n_rot == 0 else 0
        turned = [0 if kind in _FLOATS and role != "indexer" else n_rot for kind in (k, v)]
        rows_k, rows_v = ((row(kind, width),) * n_layer for kind in (k, v))
        return Shape(rows_k, rows_v, n_layer, (turned[0], turned[1]))

    def _transposed(self, at: Place) -> bool:
        if self._ik:
            return bool(self._v_state == 1)
        values = at.record is not None and at.record.facts.get("values")
        return bool((values or self.layout.version == 1) and self._option("v_trans"))

    @property
    def _v_state(self) -> int:
        if ".mla" in self.layout.id:
            return 2
        return 2 if "pangu" in self.layout.id else int(self._option("v_state"))

    def _has_suffix(self, name: str) -> bool:
        return bool(self._option("suffix") == name)

    def _absent(self, layer: int) -> bool:
        """Whether this layer of ik_llama.cpp has no attention cache."""
        if "attn" in self.case.shapes:
            return not self.case.shapes["attn"].k[layer].size
        if self.layout.version in (2, 8) or "swac" in self.layout.id or "pangu" in self.layout.id:
            return False
        return self._has_suffix("recurrent") and (layer % 2 == 1 or self._is_partial)

    @property
    def _is_partial(self) -> bool:
        return self._ik and self._checkpoint is not None

    def _block(self, at: Place) -> tuple[Row | None, int]:
        """The row of the block that the place lies in, and its index."""
        index = [int(i) for i in re.findall(r"\[(\d+)\]", at.path)][-1]
        shape = self._shape(at)
        part = re.findall(r"(\w+)\[\d+\]", at.path)[-1]
        if part == "blocks":
            return (*shape.k, *shape.v)[index], index
        if self._ik and part in ("k", "v") and at.record and at.record.role == "attention":
            return (None if self._absent(index) else getattr(shape, part)[index]), index
        if part == "index":
            return shape.k[index], index
        return getattr(shape, part if part in ("k", "v") else "k")[index], index

    # -- the policy ------------------------------------------------------------------------------

    def number(self, at: Place, con: Scalar) -> int | float:
        """The value of a scalar."""
        if con.meanings and at.name == "magic":
            return next(iter(con.meanings))
        if self.layout.format == "gguf" and at.name != "version":
            return self._of_model(at)
        if at.path.startswith("hparams."):
            return _HPARAMS.get(at.name, 1.0 if con.numpy.endswith(("f4", "f8")) else 0)
        own: Callable[[Place], int] | None = getattr(self, f"_at_{at.name}", None)
        return own(at) if own is not None else 0

    def _of_model(self, at: Place) -> int | float:
        entry = re.match(r"metadata_kv\[(\d+)\]", at.path)
        if entry is not None:
            _, kind, value, element = ENTRIES[int(entry[1])]
            if at.name in ("type", "value_type"):
                return element if at.name == "type" else kind
            if at.path.endswith("value.len") and isinstance(value, tuple):
                return len(value)
            return value if at.name == "value" and isinstance(value, int | float) else 0
        tensor = re.match(r"tensor_infos\[(\d+)\]", at.path)
        if tensor is not None:
            index = int(tensor[1])
            sizes = {"n_dimensions": 2, "type": _F32, "offset": TENSOR_BYTES * index}
            return sizes.get(at.name, 0)
        return {"tensor_count": len(TENSORS), "metadata_kv_count": len(ENTRIES)}.get(at.name, 0)

    def content(self, at: Place, con: Text | Payload) -> bytes | None:
        """Contents that decide their own length."""
        if self.layout.format == "gguf":
            return self._model_content(at)
        if isinstance(con, Text):
            return _TEXTS.get(at.name, f"{at.name}-1".encode() if at.name != "arch" else b"llama")
        if con.holds == "blob":
            return self._blob(at)
        if con.holds == "draft":
            return b""
        own: dict[str, Callable[[], bytes]] = {
            "padding": lambda: self._padding(at),
            "rest": lambda: b"",
            "prompt": lambda: self._dice.randbytes(12),
            "stream": lambda: b"\0\0\0\1" + self._dice.randbytes(28),
            "sha256": lambda: hashlib.sha256(at.written).digest(),
            "object_sha256": lambda: hashlib.sha256(bytes(at.written)).digest(),
        }
        if at.name in own:
            return own[at.name]()
        if self.layout.id in ("context.b451", "context.b1857") and at.name == "data":
            return self.filling(at, int(at.scope.kv_buf_size))
        return None

    def _model_content(self, at: Place) -> bytes | None:
        entry = re.match(r"metadata_kv\[(\d+)\]\.(\w+)", at.path)
        if entry is not None:
            key, _, value, _ = ENTRIES[int(entry[1])]
            if at.name != "string":
                return None
            return (key if entry[2] == "key" else str(value)).encode()
        tensor = re.match(r"tensor_infos\[(\d+)\]", at.path)
        if tensor is not None:
            return TENSORS[int(tensor[1])].encode()
        if at.name == "tensor_data":
            return self.filling(at, TENSOR_BYTES * len(TENSORS))
        return bytes(-len(at.written) % 32)

    def _padding(self, at: Place) -> bytes:
        used = len(at.written) - at.frame
        wall = at.scope._cursor.wall - at.frame
        return bytes(wall - used if wall > used else -used % 4)

    def size(self, at: Place) -> int | None:
        """Bytes of a layer that ik_llama.cpp stores the window of."""
        found = re.match(r"attn\.([kv])\[(\d+)\]\.data", at.path)
        if found is None or "swac" not in self.layout.id:
            return None
        rows = self._live if int(found[2]) % 2 == 0 else len(self._all_cells)
        shape = self._shape(at)
        blocks = shape.k if found[1] == "k" else shape.v
        return rows * blocks[int(found[2])].size

    def filling(self, at: Place, size: int) -> bytes:
        """Such numbers; a position has the same in every save."""
        cells = self._cells(at) if at.record is not None and at.record.role in _CACHES else ()
        if self._historic or at.name != "data" or not (size and cells) or size % len(cells):
            return _noise(self._dice, size)
        n = size // len(cells)
        most = max(cell.pos for cell in cells) + 1
        noise = _noise(random.Random(f"{self.case.seed}/{at.path}"), n * most)
        rows = [noise[n * cell.pos : n * (cell.pos + 1)] for cell in cells]
        if not self._transposed(at) or re.findall(r"(\w+)\[\d+\]", at.path)[-1] != "v":
            return b"".join(rows)
        kind, _ = self._block(at)
        return _by_channel(rows, n if kind is None else _ELEMENT_BYTES.get(kind.type, n))

    def cell(self, at: Place, index: int, name: str) -> int:
        """A number of a row of a table."""
        if at.name == "cells":
            if self._historic:
                return index if index < len(self.ids) else -1
            cell = self._cells(at)[index]
            if name in ("pos", "value"):
                return cell.pos
            if name == "n_seq_id":
                return int("seq_id" in at.row)
            return {"x": cell.x, "y": cell.y, "tok": cell.tok, "seq_id": 0}[name]
        if at.name in ("tokens", "token_prefix"):
            return self.ids[index] if index < len(self.ids) else 0
        if at.name in ("n_head_arr", "n_head_kv_arr", "n_ff_arr"):
            return 2 if index < _HPARAMS["n_layer"] else 0
        if at.name == "media_start":
            return _MEDIA_START
        if at.name == "entries":
            return {"nx": 64, "ny": 64}.get(name, 0)
        if at.name == "dimensions":
            return (8, 2)[index]
        if self.layout.format == "gguf":
            entry = re.match(r"metadata_kv\[(\d+)\]", at.path)
            value = ENTRIES[int(entry[1])].value if entry is not None else ()
            return value[index] if isinstance(value, tuple) else 0
        return index if at.name == "output_pos" else 0

    def items(self, at: Place, index: int) -> tuple[int, ...]:
        """The sequences of a cell."""
        if self._historic:
            return (0,) if index < len(self.ids) else ()
        return self._cells(at)[index].seq_ids

    def repeats(self, at: Place) -> int:
        """Blocks of a recurrent section, or of an indexer of ik_llama.cpp."""
        if at.name == "blocks":
            shape = self._shape(at)
            return len(shape.k) + len(shape.v)
        return 0 if self._is_partial else int(self._option("n_layer"))

    def follows(self, at: Place, says: str) -> bool:
        """Whether what is announced by its first bytes is written."""
        if "-1" in says:
            return self._packs and self._option("tokens") != "plain"
        if "SCKP" in says:
            return self._has_checkpoints and self._option("records") is not None
        if "one element" in says:
            return bool(self._option("v_trans"))
        if "row size" in says:
            index = int(re.findall(r"\[(\d+)\]", at.path)[-1])
            return index < len(self._shape(at).k) and index % 2 == 0
        return False

    # -- fields by name --------------------------------------------------------------------------

    def _at_magic(self, at: Place) -> int:
        return DSV4_MAGIC

    def _at_version(self, at: Place) -> int:
        if at.path == "version":
            return 1 if self.layout.version is None else self.layout.version
        if at.path.endswith("chunk.version"):
            return 1 if self.layout.version == 2 else 2
        return 2 if at.path in ("dsv4.csa.version", "dsv4.hca.version", "dsv4.lid.version") else 1

    @property
    def _has_checkpoints(self) -> bool:
        """Whether servers append checkpoints to files of this layout."""
        memory = self.layout.memory
        return self.layout.version == 4 and memory in (*PARTIAL, "recurrent", "dsv4")

    def _at_n_token_count(self, at: Place) -> int:
        return len(self.ids) or int(self._packs)

    def _at_marker(self, at: Place) -> int:
        return PACKED_MARKER

    def _at_n_tokens(self, at: Place) -> int:
        if at.path.endswith("audio.n_tokens"):
            return _MEDIA_TOKENS["audio"]
        return self._record(at) if "records" in at.path else len(self.ids)

    def _at_n_media(self, at: Place) -> int:
        return int(bool(self._media))

    def _at_has_image(self, at: Place) -> int:
        return int(self._media == "image")

    def _at_has_audio(self, at: Place) -> int:
        return int(self._media == "audio")

    _at_is_audio = _at_has_audio

    def _at_nx(self, at: Place) -> int:
        return 2

    _at_ny = _at_nx

    def _at_n_temporal_merge(self, at: Place) -> int:
        return 1

    def _at_n_entries(self, at: Place) -> int:
        return 1

    def _at_n_outputs(self, at: Place) -> int:
        return int(self._option("outputs"))

    def _at_logits_size(self, at: Place) -> int:
        return 4 * int(self._option("outputs"))

    def _at_logits_cap(self, at: Place) -> int:
        return 16

    # attention caches

    def _at_n_stream(self, at: Place) -> int:
        return self._n_stream

    def _at_cell_count(self, at: Place) -> int:
        return len(self._cells(at))

    def _at_v_trans(self, at: Place) -> int:
        return int(self._historic or bool(self._option("v_trans")))

    def _at_n_layer(self, at: Place) -> int:
        if found := re.match(r"dsv4\.(csa|hca|lid)", at.path):
            return len(_COMPRESSED[found[1]])
        return self._shape(at).n_layer

    def _at_n_rot_k(self, at: Place) -> int:
        return self._shape(at).n_rot[0]

    def _at_n_rot_v(self, at: Place) -> int:
        return self._shape(at).n_rot[1]

    def _at_k_type(self, at: Place) -> int:
        found, _ = self._block(at)
        return ABSENT if found is None else found.type

    _at_v_type = _at_k_type

    def _at_k_size_row(self, at: Place) -> int:
        found, _ = self._block(at)
        return 0 if found is None else found.size

    _at_v_size_row = _at_k_size_row

    def _at_v_size_el(self, at: Place) -> int:
        found, _ = self._block(at)
        return 0 if found is None else _ELEMENT_BYTES[found.type]

    def _at_n_embd_v_gqa(self, at: Place) -> int:
        found = self._shape(at).v[0] if self.layout.version == 1 else self._block(at)[0]
        return 0 if found is None else found.size // _ELEMENT_BYTES.get(found.type, 1)

    def _at_size_t_size(self, at: Place) -> int:
        return 4 if "size_t-4" in self.layout.id else 8

    def _at_has_index(self, at: Place) -> int:
        return 1

    def _at_present(self, at: Place) -> int:
        return int(self._block(at)[1] % 2 == 0)

    # recurrent state, and DeepSeek-V4

    def _at_type(self, at: Place) -> int:
        if at.path.startswith("tokens."):
            return 1 if self._media == "image" else 2
        if at.path.startswith("dsv4."):
            return _F16 if at.path.endswith("keys.type") else _F32
        return self._at_k_type(at)

    def _at_row_size(self, at: Place) -> int:
        if at.path.startswith("dsv4."):
            return int(at.scope.ne0) * (2 if at.scope.type == _F16 else 4)
        return self._at_k_size_row(at)

    def _at_ple_row_size(self, at: Place) -> int:
        return _HISTORY_BYTES

    def _at_mode(self, at: Place) -> int:
        return int(self._checkpoint is not None)

    def _at_ns(self, at: Place) -> int:
        return self._n_stream if self._full(at) else 1

    def _at_n_rows(self, at: Place) -> int:
        if self._full(at):
            return 8
        return 0 if ".hca." in at.path else len(self._all_cells) // 4

    def _at_layer_index(self, at: Place) -> int:
        name, index = re.findall(r"dsv4\.(csa|hca|lid).*\[(\d+)\]", at.path)[0]
        return _COMPRESSED[name][int(index)]

    def _at_ne0(self, at: Place) -> int:
        outer = at.scope._._
        return int(outer.n_embd_state if "n_embd_state" in outer else 8)

    def _at_rows(self, at: Place) -> int:
        outer = at.scope._._
        return int(outer.state_size if "state_size" in outer else outer.n_rows)

    def _at_ratio(self, at: Place) -> int:
        return 128 if ".hca_state." in at.path else 4

    def _at_state_size(self, at: Place) -> int:
        return 8 if at.path.startswith("dsv4.") else 0

    def _at_n_embd_state(self, at: Place) -> int:
        return 16

    # ik_llama.cpp

    def _at_v_state(self, at: Place) -> int:
        return self._v_state

    def _at_qnext_state(self, at: Place) -> int:
        return int("pangu" not in self.layout.id and self._has_suffix("recurrent"))

    def _at_dsa_indexer_state(self, at: Place) -> int:
        return int("swac" not in self.layout.id and self._has_suffix("indexer"))

    def _at_s_type(self, at: Place) -> int:
        return ABSENT if self._stateless(at) else _F32

    def _at_s_size_row(self, at: Place) -> int:
        if self._stateless(at):
            return 0
        return self._shape(at).k[self._block(at)[1]].size if "recr" in self.case.shapes else 32

    def _at_s_rows(self, at: Place) -> int:
        if self._stateless(at):
            return 0
        return self._n_seq if self._full(at) else 1

    def _stateless(self, at: Place) -> bool:
        if "recr" in self.case.shapes:
            return not self._shape(at).k[self._block(at)[1]].size
        return not at.path.startswith("pangu") and self._block(at)[1] % 2 == 0

    @property
    def _live(self) -> int:
        return min(len(self._all_cells), 2)

    def _at_size_swa(self, at: Place) -> int:
        return 32

    def _at_live_rows(self, at: Place) -> int:
        return self._live

    def _at_pos_base_swa(self, at: Place) -> int:
        return len(self._all_cells) - self._live

    def _at_head_swa(self, at: Place) -> int:
        return self._live

    def _at_pos(self, at: Place) -> int:
        return len(self._all_cells) - 1

    # whole contexts before July 2024

    def _at_kv_head(self, at: Place) -> int:
        return len(self.ids)

    _at_kv_used = _at_kv_ntok = _at_kv_head

    def _at_kv_size(self, at: Place) -> int:
        if "kv_buf_size" in at.scope:
            return len(self.ids) + _EMPTY_CELLS
        return self._cache_bytes(at)

    def _at_kv_buf_size(self, at: Place) -> int:
        return self._cache_bytes(at)

    def _cache_bytes(self, at: Place) -> int:
        hparams = at.scope._.get("hparams")
        widths = row_widths(hparams) if hparams is not None else ((32, 32),)
        return 2 * len(self.ids) * sum(k + v for k, v in widths)

    # checkpoint lists

    def _at_count(self, at: Place) -> int:
        return 2 if (n := self._option("records")) is None else int(n)

    def _at_n_checkpoints(self, at: Place) -> int:
        return 1

    def _record(self, at: Place) -> int:
        """Tokens that the record the place lies in returns to; the last is one short of all."""
        index = int(re.findall(r"records\[(\d+)\]", at.path)[0])
        n_records = 1 if self.layout.id == "lcpc1" else self._at_count(at)
        return len(self.ids) - n_records + index

    def _at_pos_min(self, at: Place) -> int:
        if "records" not in at.path:
            return 0
        windowed = self._of_checkpoints().startswith(_WINDOWED)
        whole = self._of_checkpoints().startswith(("blob.kv", "blob.mla", "blob.dsa.", "blob.msa"))
        last = self._at_pos_max(at)
        return max(0, last + 1 - self.case.n_swa) if windowed else 0 if whole else last

    def _at_pos_max(self, at: Place) -> int:
        return (self._record(at) if "records" in at.path else len(self.ids)) - 1

    _at_pos_min_prompt, _at_pos_max_prompt = _at_pos_min, _at_pos_max

    def _at_id_task(self, at: Place) -> int:
        return -1

    def _at_state_hash(self, at: Place) -> int:
        return fnv1a(self.beside)

    def _at_prompt_size(self, at: Place) -> int:
        return len(self._prompt)

    def _at_prompt_tokens(self, at: Place) -> int:
        return len(self.ids)

    def _at_prompt_hash(self, at: Place) -> int:
        return fnv1a(self._prompt, STCK_BASIS)

    @property
    def _prompt(self) -> bytes:
        return struct.pack(f"<{len(self.ids)}i", *self.ids)

    def _of_checkpoints(self) -> str:
        """The layout of the blobs."""
        if self._ik:
            return f"ik{self.layout.version}.blob"
        if self._owner.format != "ggsq":
            return "blob.recurrent.prefixed" if self.layout.format in _LISTS else "blob.kv.prefixed"
        memory = PARTIAL.get(self._memory, self._memory)
        if self._owner.version != 4:
            return f"blob.{memory}.prefixed"
        xyt = "xyt" in self._owner.id
        for dialect in (".rotated-xyt" if xyt else ".rotated", ""):
            found = f"blob.{memory}.prefixed{dialect}"
            if by_id(found) is not None:
                return found
        raise LookupError(memory)

    def _blob(self, at: Place) -> bytes:
        """The state of a checkpoint, or of the context that another program has stored."""
        layout = by_id(self._of_checkpoints())
        assert layout is not None
        listed = "records" in at.path
        options = dict(self.case.options)
        if self._ik:
            options["suffix"] = "recurrent"
        case = replace(self.case, layout=layout, options=options, ids=self.ids)
        n_tokens = self._record(at) if listed else len(self.ids)
        server = Server(case, checkpoint=n_tokens, owner=self._owner)
        blob = write(layout, server).data
        self.asked.update(server.asked)
        return blob

    # other programs

    def _at_token_count(self, at: Place) -> int:
        return len(self.ids)

    _at_next_position = _at_token_count

    def _at_body_size(self, at: Place) -> int:
        return len(at.written)


_WINDOWED = ("blob.iswa", "blob.dsa-iswa", "blob.dsv4")
_LISTS = ("pkcl", "llcp", "lsckpt2", "sckp", "stck", "bkcp", "slck")
_ELEMENT_BYTES = {t.id: t.block_bytes for t in TYPES if t.block_elements == 1}
_COMPRESSED = {"csa": (0, 2), "hca": (1,), "lid": (0, 2)}
"""Part of a DeepSeek-V4 memory -> the layers that it has."""
_HPARAMS = {
    "n_vocab": 32000,
    "n_ctx": 512,
    "n_ctx_train": 512,
    "n_embd": 64,
    "n_mult": 32,
    "n_head": 4,
    "n_head_kv": 2,
    "n_layer": 2,
    "n_rot": 16,
    "n_ff": 128,
    "n_embd_head_k": 16,
    "n_embd_head_v": 16,
    "ftype": 1,
}
