"""The loader of ik_llama.cpp, followed word by word over the payload of a slot file.

Source: ikawrakow/ik_llama.cpp 8337e4cd3, src/llama.cpp `llama_data_read::read_kv_cache`; 54 files
loaded by builds of 2026-02 to 2026-08.
"""

from __future__ import annotations

from inspector.server.loader import HUGE, Ended, Loader, Outcome, Own

_CELL_BYTES = 8
_NO_TYPE = -1
_NO_VALUES = 2
_THERE = {True: "there", False: "absent"}
_STORED = {0: "in rows", 1: "channel by channel", 2: "not at all"}


class IkLoader(Loader):
    """Reads as the loader of ik_llama.cpp reads: one cell array, then layers of all kinds."""

    def run(self, own: Own) -> None:
        """Read everything.

        Raises:
            Ended: where the loader refuses or dies.
        """
        attention, *others = own.sections
        count = self._cell_count(attention)
        room = attention.capacity
        if count > HUGE and not self._build.has("ggsq-4"):
            finding = self._finding(
                "cell-count-allocates",
                f"the server reads {count:,} cells before it looks whether it has them",
                "cells that the file holds",
                f"{count:,}",
            )
            raise Ended(Outcome.ABORTS, finding, "SIGSEGV")
        if room is not None and count > room and self._build.has("ggsq-4"):
            raise self._too_many(attention, count, "not enough cells in kv cache")
        self._cells(attention.member, count, _CELL_BYTES, 0)
        if count == 0:
            finding = self._finding(
                "no-cells-abort", "the state of a sequence without cells", "cells", "none"
            )
            raise Ended(Outcome.ABORTS, finding, "GGML_ASSERT: SIGABRT")
        if room is not None and count > room:
            raise self._too_many(attention, count, "failed to find available cells in kv cache")
        self._attention(own, count)
        for section in others:
            words = self._words("I")
            there = words is not None and words[0] != 0
            wanted = any(section.k)
            if there != wanted:
                raise self._refusal(
                    "layer-count-mismatch",
                    f"section {section.member} is {_THERE[there]}, in the server it is "
                    f"{_THERE[wanted]}",
                    f"incompatible {section.member} state",
                    _THERE[wanted],
                    _THERE[there],
                )
            if wanted and section.kind == "recurrent":
                for layer, row in enumerate(section.k):
                    self._state_row(layer, row)
            elif wanted:
                for layer, row in zip(section.layers, section.k, strict=True):
                    self._row("key", layer, self._type(section.type_k), row, count)

    def _attention(self, own: Own, count: int) -> None:
        attention = own.sections[0]
        words = self._words("II") or (0, attention.n_layer)
        v_state, n_layer = words
        if n_layer != attention.n_layer:
            raise self._other_layers(attention, n_layer)
        state = int(own.v_trans) if attention.v else _NO_VALUES
        agrees = v_state == state
        if not self._build.has("ik-own-mla-loads"):
            agrees = (v_state == 1) == own.v_trans
        if not agrees:
            raise self._refusal(
                "v-trans-mismatch",
                f"values are stored {_STORED.get(v_state, 'in no known way')}, "
                f"the server wants them {_STORED[state]}",
                "incompatible V transposition",
                f"v_state {state}",
                f"v_state {v_state}",
            )
        keys, values = self._type(attention.type_k), self._type(attention.type_v)
        for layer, row in enumerate(attention.k):
            self._row("key", layer, keys, row, count)
        if v_state == _NO_VALUES:
            return
        for layer, row in enumerate(attention.v):
            if own.v_trans and row:
                self._columns(attention, layer, values, row)
                self._skip(count * row)
            elif own.v_trans:
                self._words("iII")
            else:
                self._row("value", layer, values, row, count)

    def _row(self, name: str, layer: int, type_id: int, row: int, count: int) -> None:
        self._block(name, layer, type_id if row else _NO_TYPE, row)
        self._skip(count * row)

    def _state_row(self, layer: int, row: int) -> None:
        words = self._words("iQI")
        own = (0, row, 1) if row else (_NO_TYPE, 0, 0)
        if words is not None and words != own:
            raise self._refusal(
                "row-size-mismatch",
                f"the state of layer {layer} is {words[2]:,} rows of {words[1]:,} bytes, "
                f"the server's {own[2]} of {row:,}",
                f"mismatched qwen3next state, layer {layer}",
                f"{row:,} bytes",
                f"{words[1]:,} bytes",
            )
        self._skip(row)
