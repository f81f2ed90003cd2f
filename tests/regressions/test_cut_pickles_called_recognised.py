"""A pickle that is cut behind the state in it was called recognised, though its error was named."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from inspector.identify import Verdict
from inspector.report import examined

SESSION = Path(__file__).resolve().parents[2] / "samples/intact/ggsn9.kv--twelve-tokens.slot"


class LlamaState:
    """Stands for llama-cpp-python's class; `pickle` writes its name as that program's."""


def test_a_pickle_cut_behind_its_state_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("llama_cpp.llama")
    monkeypatch.setitem(sys.modules, "llama_cpp", types.ModuleType("llama_cpp"))
    monkeypatch.setitem(sys.modules, "llama_cpp.llama", module)
    monkeypatch.setattr(LlamaState, "__module__", "llama_cpp.llama")
    module.LlamaState = LlamaState  # type: ignore[attr-defined]
    data = SESSION.read_bytes()
    n_tokens = int.from_bytes(data[8:12], "little")
    state, body = LlamaState(), data[12 + 4 * n_tokens :]
    for name, value in {
        "input_ids": np.arange(100, dtype=np.intc),
        "scores": np.ones((3, 32), np.single),
        "n_tokens": n_tokens,
        "llama_state": body,
        "llama_state_size": len(body),
        "seed": 1,
    }.items():
        setattr(state, name, value)
    whole = pickle.dumps(state, 4)
    for cut, verdict in ((0, Verdict.RECOGNISED), (2, Verdict.DAMAGED)):
        path = tmp_path / f"{cut}.pkl"
        path.write_bytes(whole[: len(whole) - cut])
        with examined(path) as report:
            assert report.identification.verdict is verdict
            assert report.sections
