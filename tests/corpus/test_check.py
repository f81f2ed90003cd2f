"""Verdicts against what real servers did: every pair of a file and a server that was tried."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from inspector.check import Check, checked
from inspector.findings import Severity
from inspector.server.loader import Outcome
from inspector.server.reuse import Request
from inspector.server.target import target_of
from tests.corpus.test_manifest import SHARED, document, manifest

CORPUS = SHARED / "corpus"
OPTIONS = {
    "n_ctx": "-c",
    "n_batch": "-b",
    "n_ubatch": "-ub",
    "n_parallel": "-np",
    "flash_attn": "-fa",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "ctx_checkpoints": "--ctx-checkpoints",
    "cache_ram": "--cache-ram",
}


def slot_files() -> list[dict[str, Any]]:
    found = [f for f in manifest()["files"] if f["kind"] == "slot" and f["fork"] == "upstream"]
    return [entry for entry in found if entry.get("restore")]


@cache
def restores() -> dict[str, list[dict[str, Any]]]:
    """The restores on other builds, by file."""
    path, found = CORPUS / "compat.json", defaultdict(list)
    for entry in json.loads(path.read_text())["restores"] if path.is_file() else ():
        found[entry["file"]].append(entry)
    return found


def command(settings: dict[str, Any]) -> str:
    words = ["llama-server"]
    for name, option in OPTIONS.items():
        if settings.get(name) is not None:
            words += [option, str(settings[name])]
    words += ["--swa-full"] * bool(settings.get("swa_full"))
    words += ["--context-shift"] * bool(settings.get("context_shift"))
    words += ["--kv-unified" if settings.get("kv_unified") else "--no-kv-unified"]
    return " ".join(words)


def verdict(
    file: str, model: str, build: int, settings: dict[str, Any], *requests: Request
) -> Check:
    name = manifest()["models"][model]["file"]
    path = CORPUS / name if name else None
    with (
        target_of(command(settings), f"b{build}", path) as target,
        checked(CORPUS / file, target, requests) as found,
    ):
        return found


def truth(entry: dict[str, Any]) -> Outcome:
    if entry["ok"]:
        return Outcome.ACCEPTS
    return Outcome.ABORTS if entry.get("crashed") else Outcome.REFUSES


def _origin(entry: dict[str, Any]) -> dict[str, Any]:
    """The save that a damaged file was made of."""
    name = entry.get("damaged_from", entry["file"])
    return dict(next(other for other in manifest()["files"] if other["file"] == name))


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(b))


def answers_as_before(found: Check, restore: dict[str, Any], *, damaged: bool = False) -> None:
    """A state that makes a server answer otherwise than before has a finding, and only that."""
    turns = [restore[name] for name in ("same_prompt", "next_turn") if restore.get(name)]
    truths = [turn["as_original"] for turn in turns if "as_original" in turn]
    if not restore["ok"] or not truths or damaged:
        return
    against = [f.code for f in found.findings if f.severity is not Severity.NOTE]
    assert bool(against) == (not all(truths)), against


def by_name(entry: dict[str, Any]) -> str:
    return str(entry["file"])


ANSWERED = (None, "trailing-zeros", "token-negative", "token-out-of-vocab")
"""Damage after which servers were asked for what they still reuse."""


@pytest.mark.parametrize("entry", slot_files(), ids=by_name)
def test_server_that_saved(entry: dict[str, Any]) -> None:
    """Its own restore, and what the next prompts reused."""
    restore, origin = entry["restore"], _origin(entry)
    asked = []
    if restore["ok"] and entry.get("damage") in ANSWERED:
        prompt, held = origin["prompt_tokens"], origin["tokens"]
        held = held or document(CORPUS / entry["file"])["tokens"]["count"] * [-1]  # not recorded
        for name, shared in (("same_prompt", common(held, prompt)), ("next_turn", len(held))):
            turn = restore.get(name) or {}
            if shared and "cache_n" in turn:
                total = turn["cache_n"] + turn["prompt_n"]
                asked.append((Request(shared, total), turn["cache_n"], name))
    requests = [request for request, _, _ in asked]
    found = verdict(entry["file"], entry["model"], entry["build"], entry["settings"], *requests)
    assert found.restore.outcome == truth(restore), found.restore
    assert found.restore.outcome is not Outcome.ACCEPTS or found.identity.outcome != "differs"
    answers_as_before(found, restore, damaged=bool(entry.get("damage")))
    for (_, cache_n, name), answer in zip(asked, found.reuse, strict=bool(asked)):
        if found.target.model is None and answer.found.reused is None:
            continue  # the size of a window, for one, is the model's secret
        assert (name, answer.found.reused) == (name, cache_n), answer.found.why


@pytest.mark.parametrize("entry", [f for f in slot_files() if f.get("mismatch")], ids=by_name)
def test_server_of_other_settings(entry: dict[str, Any]) -> None:
    for case in entry["mismatch"]:
        if case.get("server"):
            continue
        name = case["case"]
        build = int(name[7:]) if name.startswith("build b") else entry["build"]
        settings = {**entry["settings"], **case["change"]}
        found = verdict(entry["file"], case.get("model", entry["model"]), build, settings)
        assert (name, found.restore.outcome) == (name, truth(case)), found.restore
        answers_as_before(found, case)


@pytest.mark.parametrize("file", sorted(restores()))
def test_other_builds(file: str) -> None:
    settings = {"n_ctx": 512, "n_parallel": 1}
    for case in restores()[file]:
        build = case["server_build"]
        found = verdict(file, case["model"], int(build[1:]), settings)
        assert (build, found.restore.outcome) == (build, truth(case)), found.restore
