"""Verdicts for ik_llama.cpp against what its builds did with their own files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from inspector.check import checked
from inspector.server.loader import Outcome
from inspector.server.reuse import Request
from inspector.server.target import target_of
from tests.corpus.test_manifest import SHARED

CORPUS = SHARED / "corpus-ik"
DAYS = {"ik 2026-09": "2026-07-10", "ik 2026-08-15 (8337e4cd3)": "2026-08-15"}
"""What wrote version 3 as of 2026-09 descends from before version 4."""
OPTIONS = {"type_k": "-ctk", "type_v": "-ctv", "mla_attn": "-mla", "idx_type_k": "-ictk"}


def entries(kind: str) -> list[dict[str, Any]]:
    path = CORPUS / "manifest.json"
    found = json.loads(path.read_text()) if path.is_file() else {"files": [], "models": {}}
    models = found["models"]
    files = [f for f in found["files"] if f["kind"] == kind and models[f["model"]]["file"]]
    return [{**f, "model_file": models[f["model"]]["file"]} for f in files]


def command(settings: dict[str, Any]) -> str:
    words = ["llama-server", "-c", str(settings["n_ctx"]), "-np", str(settings["n_seq_max"])]
    for name, option in OPTIONS.items():
        if name in settings:
            words += [option, str(settings[name])]
    words += ["-fa", "on" if settings.get("flash_attn", 1) else "off"]
    words += ["-khad"] * settings.get("k_cache_hadamard", 0)
    words += ["-vhad"] * settings.get("v_cache_hadamard", 0)
    return " ".join(words)


LAYERWISE = ("n_k_first", "n_k_last")


@pytest.mark.parametrize(
    "entry",
    [e for e in entries("seq") if "settings" in e and not set(LAYERWISE) & set(e["settings"])],
    ids=lambda entry: entry["file"],
)
def test_library(entry: dict[str, Any]) -> None:
    reload = entry["reload"]
    truth = Outcome.ACCEPTS if reload.get("returned") else Outcome.REFUSES
    truth = Outcome.ABORTS if "crashed" in reload else truth
    label = entry["build_label"]
    build = f"ik@{DAYS.get(label, label.split()[1])}"
    with (
        target_of(command(entry["settings"]), build, CORPUS / entry["model_file"]) as target,
        checked(CORPUS / entry["file"], target) as found,
    ):
        assert found.restore.outcome == truth, found.restore


_NEW = 6
"""Tokens that every prompt tried adds to a beginning of the saved ones."""


def arranged(folder: Path, file: str, case: str) -> Path:
    """The save with its companions as in one of the cases that were tried."""
    state = folder / file
    shutil.copyfile(CORPUS / file, state)
    for suffix in (".tokens.json", ".checkpoints"):
        companion = CORPUS / (file + suffix)
        if (
            companion.is_file()
            and case not in ("bare", f"no-{suffix[1:]}")
            and not (case == "no-json" and suffix == ".tokens.json")
        ):
            shutil.copyfile(companion, folder / companion.name)
    lists, tokens = folder / f"{file}.checkpoints", folder / f"{file}.tokens.json"
    if case == "checkpoints-count-huge":
        lists.write_bytes(lists.read_bytes()[:8] + b"\xff\xff\xff\x7f" + lists.read_bytes()[12:])
    elif case == "checkpoints-version-3":
        lists.write_bytes(lists.read_bytes()[:4] + b"\3\0\0\0" + lists.read_bytes()[8:])
    elif case == "json-cut":
        tokens.write_bytes(tokens.read_bytes()[:40])
    elif case == "json-without-map":
        document = json.loads(tokens.read_text())
        del document["map_idx_to_media"]
        tokens.write_text(json.dumps(document))
    elif case == "json-wrong-magic":
        tokens.write_text(json.dumps({**json.loads(tokens.read_text()), "magic": 1}))
    return state


@pytest.mark.parametrize("entry", entries("slot"), ids=lambda entry: entry["file"])
def test_server(entry: dict[str, Any], tmp_path: Path) -> None:
    tried: dict[str, dict[str, Any]] = {}
    for name, result in entry["restore"].items():
        case, _, request = name.partition("/")
        tried.setdefault(case, {})[request] = result
    for case, results in tried.items():
        if case == "checkpoints-cut":  # how far it was cut was not recorded
            continue
        folder = tmp_path / case
        folder.mkdir()
        path = arranged(folder, entry["file"], case)
        crashed = any("crashed" in result for result in results.values())
        asked = [] if crashed else [results["append"], results["half"]]
        requests = [Request(r["prompt"] - _NEW, r["prompt"]) for r in asked]
        with (
            target_of(entry["command"], "ik@2026-08-15", CORPUS / entry["model_file"]) as target,
            checked(path, target, requests) as found,
        ):
            outcome = Outcome.ABORTS if crashed else Outcome.ACCEPTS
            assert (case, found.restore.outcome) == (case, outcome), found.restore
            if crashed:
                continue
            for result, answer in zip(asked, found.reuse, strict=True):
                reused = result["prompt"] - result["evaluated"]
                assert (case, answer.found.reused) == (case, reused), answer.found.why
