"""Predictions against the answers of real servers: what each prompt reused, request by request."""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inspector.model.geometry import memory_of
from inspector.model.gguf import ModelFile, read_model
from inspector.report import examined
from inspector.server.restored import capacity, restored
from inspector.server.reuse import Outcome, Request, after, follow_up, predict
from inspector.server.servers import Build, build_named
from inspector.server.slot import NOWHERE, Blob, Cells, Checkpoint, Memory, Slot, Window
from inspector.server.target import CHECKPOINT_MIN_STEP, N_CTX_CHECKPOINTS, Target
from inspector.source import opened
from tests.corpus.test_manifest import SHARED, manifest

CORPUS = SHARED / "corpus"
FORK = SHARED / "corpus-fork"
N_PREDICT = 8
MEMORY = {
    "attention": Memory.UNIFIED,
    "dsa": Memory.UNIFIED,
    "iswa": Memory.WINDOWED,
    "recurrent": Memory.RECURRENT,
    "hybrid": Memory.HYBRID,
}
WINDOW_UNKNOWN = "the size of the window is not known: name the model"


@cache
def recorded() -> dict[str, Any]:
    path = CORPUS / "reuse.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {"saves": {}, "records": []}


def by_build() -> list[Any]:
    found = defaultdict(list)
    for record in recorded()["records"]:
        if "refused" not in record:
            found[record["build"]].append(record)
    return [pytest.param(records, id=build) for build, records in sorted(found.items())]


def build(name: str) -> Build:
    found = build_named(name)
    assert isinstance(found, Build), found
    return found


def since(table: Sequence[tuple[int, int]], number: int | None) -> int:
    return next(value for first, value in table if (number or 0) >= first)


def target(name: str, settings: dict[str, Any]) -> Target:
    """The server, with the defaults of its build."""
    program = build(name)
    return Target(
        program,
        n_ctx=settings["n_ctx"],
        n_parallel=settings.get("n_parallel", 1),
        kv_unified=bool(settings.get("kv_unified")),
        swa_full=bool(settings.get("swa_full")),
        n_ctx_checkpoints=settings.get("ctx_checkpoints", since(N_CTX_CHECKPOINTS, program.number)),
        checkpoint_min_step=settings.get(
            "checkpoint_min_step", since(CHECKPOINT_MIN_STEP, program.number)
        ),
        n_batch=settings.get("n_batch", 2048),
        n_ubatch=settings.get("n_ubatch", 512),
        cache_ram=settings.get("cache_ram"),
    )


def positions(runs: list[list[int]] | None) -> NDArray[np.int64] | None:
    if runs is None:
        return None
    return np.concatenate([np.arange(a, b + 1) for a, b in runs] or [np.zeros(0, np.int64)])


def described(save: dict[str, Any], server: Target) -> Slot:
    """The slot by its description in reuse.json."""
    model = manifest()["models"][save["model"]]
    memory, window = MEMORY[model["memory"]], positions(save["window"])
    base, swa = positions(save["base"]), Window(model["window"]) if "window" in model else None
    records = save["checkpoints"] if server.build.has("sckp") else []
    checkpoints = tuple(
        Checkpoint(
            record["n_tokens"],
            record["pos_min"],
            record["pos_max"],
            positions(record.get("window")),
            record.get("recurrent"),
            Blob.LOADS if record.get("loads", True) else Blob.FAILS,
            index,
        )
        for index, record in enumerate(records)
    )
    limit = server.n_ctx_checkpoints
    packed = save["packed"] and not server.build.has("packed-tokens")
    return Slot(
        memory,
        len(save["held"]),
        int(base.min()) if base is not None and len(base) else NOWHERE,
        int(base.max()) if base is not None and len(base) else NOWHERE,
        Cells.restored(capacity(swa, server), window) if window is not None else None,
        NOWHERE if save["recurrent"] is None else save["recurrent"],
        swa,
        bool(model.get("mrope")),
        checkpoints=checkpoints[-limit:] if limit else (),
        alien="packed" if packed else "",
    )


def common(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def truth(request: dict[str, Any]) -> int | Outcome:
    if "crashed" in request:
        return Outcome.ABORTS
    return Outcome.HTTP_ERROR if "http" in request else int(request["cache_n"])


def disagreements(
    slot: Slot | str, server: Target, record: dict[str, Any], agreed: Counter[str]
) -> Iterator[str]:
    """Where a record and the predictions part; what is not known for want of a model counts."""
    held, before, answered = recorded()["saves"][record["save"]]["held"], [], []
    for number, asked in enumerate(record["requests"]):
        beginning = {"held": held, "before": before, "after": answered}[asked["of"]]
        prompt = beginning[: asked["keep"]] + asked["then"]
        request = Request(asked["L"], asked["M"], common(prompt, held))
        if isinstance(slot, str):
            assert slot.endswith(WINDOW_UNKNOWN), slot
            assert server.memory is None
            agreed["unknown"] += 1
            continue
        found = predict(slot, server, request)
        answer = found.outcome if found.reused is None else found.reused
        if found.outcome is Outcome.UNKNOWN and server.memory is None:
            assert found.why == WINDOW_UNKNOWN
            agreed["unknown"] += 1
        elif answer == truth(asked):
            agreed["same"] += 1
        else:
            yield f"{record['save']}, {record['settings']}, {number}: {answer} {found.why}; {asked}"
        before, answered = prompt, prompt + asked.get("answer", [])[:-1]
        slot = after(slot, server, request, N_PREDICT)


@pytest.mark.parametrize("records", by_build())
def test_described_states(records: list[dict[str, Any]]) -> None:
    """All of reuse.json: two requests after each restore, as the slots are described there."""
    agreed: Counter[str] = Counter()
    wrong = []
    for record in records:
        server = target(record["build"], record["settings"])
        slot = described(recorded()["saves"][record["save"]], server)
        wrong += list(disagreements(slot, server, record, agreed))
    assert wrong == []
    assert agreed == {"same": sum(len(record["requests"]) for record in records)}


def test_nothing_is_left_out() -> None:
    records = recorded()["records"]
    if not records:
        pytest.skip("no collection of real state files beside the checkout")
    asked = [request for record in records for request in record.get("requests", [])]
    assert len(records) == 3929
    assert Counter(type(truth(request)).__name__ for request in asked) == {
        "int": 7754,
        "Outcome": 23,
    }


def on_files() -> list[Any]:
    found = defaultdict(list)
    for record in recorded()["records"]:
        if "refused" not in record and "file" in recorded()["saves"][record["save"]]:
            found[recorded()["saves"][record["save"]]["file"]].append(record)
    return [pytest.param(file, records, id=file) for file, records in sorted(found.items())]


@contextmanager
def model_named(name: str) -> Iterator[ModelFile | None]:
    file = manifest()["models"][name]["file"]
    if file is None:
        yield None
        return
    with opened(CORPUS / file) as source:
        model = read_model(source)
        assert isinstance(model, ModelFile)
        yield model


@pytest.mark.parametrize(("file", "records"), on_files())
def test_files(file: str, records: list[dict[str, Any]]) -> None:
    """The same from the bytes of the files, with the model and without."""
    model_name = recorded()["saves"][records[0]["save"]]["model"]
    with examined(CORPUS / file) as report, model_named(model_name) as model:
        assert model is not None
        for record in records:
            bare = target(record["build"], record["settings"])
            memory = memory_of(model, bare.build)
            for server in (replace(bare, model=model, memory=memory), bare):
                agreed: Counter[str] = Counter()
                slot = restored(report, server)
                assert list(disagreements(slot, server, record, agreed)) == []
                assert sum(agreed.values()) == len(record["requests"])
                assert server is bare or agreed["unknown"] == 0


def mismatches() -> list[Any]:
    tried = (
        (entry, case)
        for entry in manifest()["files"]
        for case in entry.get("mismatch") or []
        if case.get("same_prompt") or case.get("next_turn")
    )
    return [pytest.param(e, c, id=f"{e['file']}, {c['case']}") for e, c in tried]


@pytest.mark.parametrize(("entry", "case"), mismatches())
def test_other_settings(entry: dict[str, Any], case: dict[str, Any]) -> None:
    """What a server of other settings reused of a file that it took all the same."""
    bare = target(entry["build_label"], {**entry["settings"], **case["change"]})
    with (
        examined(CORPUS / entry["file"]) as report,
        model_named(case.get("model", entry["model"])) as model,
    ):
        memory = memory_of(model, bare.build) if model is not None else None
        slot = restored(report, replace(bare, model=model, memory=memory))
        assert isinstance(slot, Slot), slot
        assert report.tokens is not None
        held = report.tokens.ids.tolist()
        for name, shared in (
            ("same_prompt", common(entry["prompt_tokens"], held)),
            ("next_turn", len(held)),
        ):
            turn = case.get(name)
            if turn:
                request = Request(shared, turn["cache_n"] + turn["prompt_n"])
                found = predict(slot, bare, request)
                assert (name, found.reused) == (name, turn["cache_n"]), found.why


CHAINS = json.loads(Path(__file__).with_name("chains.json").read_text())
"""Restores on real servers and up to seven requests after each, recorded with the builds named.

Of each chain:
- the server: `build`, `n_ctx`, `n_ubatch`, `cache_ram`; one slot, all else the build's defaults;
- what the file held: `n_tokens`; `cells`, runs of positions in the windowed cache; `checkpoints`,
  each n_tokens, pos_min, pos_max and the runs in its blob;
- `requests`, each: tokens shared with the slot, tokens of the prompt, tokens shared with what the
  host prompt cache had from before the last request, tokens generated, and `cache_n` of the answer
  or how the request ended.
"""


def chain_slot(chain: dict[str, Any], server: Target) -> Slot:
    memory, last = Memory(chain["memory"]), chain["n_tokens"] - 1
    window = Window(chain["window"]) if chain["window"] else None
    cells = positions(chain["cells"])
    attention = memory is not Memory.RECURRENT
    return Slot(
        memory,
        last + 1,
        0 if attention else NOWHERE,
        last if attention else NOWHERE,
        Cells.restored(capacity(window, server), cells) if cells is not None else None,
        last if memory.at_tip else NOWHERE,
        window,
        chain["mrope"],
        checkpoints=tuple(
            Checkpoint(n, low, high, positions(runs), high if memory.at_tip else None, index=index)
            for index, (n, low, high, runs) in enumerate(chain["checkpoints"])
        ),
    )


@pytest.mark.parametrize("name", sorted({chain["build"] for chain in CHAINS}))
def test_chains(name: str) -> None:
    """Many requests in a row: each depends on what all before it left behind."""
    for chain in CHAINS:
        if chain["build"] != name:
            continue
        server = target(name, chain)
        slot: Slot | str = chain_slot(chain, server)
        for number, (shared, total, returning, n_predict, answer) in enumerate(chain["requests"]):
            assert isinstance(slot, Slot), slot
            request = Request(shared, total, returning)
            found = predict(slot, server, request)
            mine = str(found.outcome) if found.reused is None else found.reused
            assert (number, mine) == (number, answer), (chain, found.why)
            slot = after(slot, server, request, n_predict)


def resumes() -> list[Any]:
    folders = sorted(FORK.iterdir()) if FORK.is_dir() else []
    truths = [(f, json.loads((f / "truth.json").read_text())) for f in folders if f.is_dir()]
    return [
        pytest.param(folder, truth, case, id=f"{folder.name}, {case}")
        for folder, truth in truths
        for case in truth["resume"]
    ]


def fork_checkpoints(truth: dict[str, Any]) -> tuple[Checkpoint, ...]:
    """The list that the fork saved, as its log has it; a windowed blob holds all cells."""
    found = []
    for line in truth["save_log"]:
        if "created context checkpoint" in line:
            text = line[line.index("(") + 1 : line.index(", size")]
            numbers = dict(part.split(" = ") for part in text.split(", "))
            low, high = int(numbers["pos_min"]), int(numbers["pos_max"])
            n_tokens, index = int(numbers["n_tokens"]), len(found)
            blob = np.arange(low, high + 1)
            found.append(Checkpoint(n_tokens, low, high, blob, high, index=index))
    return tuple(found)


@pytest.mark.parametrize(("folder", "truth", "case"), resumes())
def test_fork(folder: Path, truth: dict[str, Any], case: str) -> None:
    """The turboquant fork: with the sidecar, with a tip in its place, with neither.

    The sidecars that lie there are not those that the fork wrote: their numbers are in its log.
    """
    variant, _, request = case.partition("/")
    settings = {"n_ctx": 512, "n_batch": 64, "n_ubatch": 64}
    server = target("turboquant@b9079", settings)
    with examined(folder / "slot.bin") as report:
        slot = restored(replace(report, beside=()), server)
    assert isinstance(slot, Slot), slot
    n_swa = manifest()["models"][truth["model"].removesuffix(".gguf")].get("window")
    slot = replace(slot, window=Window(n_swa) if n_swa else None)
    made = [checkpoint.index for checkpoint in slot.checkpoints]
    assert made == [None], "without a sidecar the fork makes a checkpoint of the end"
    saved = fork_checkpoints(truth)
    if variant == "none" or (variant == "sidecar" and saved):
        slot = replace(slot, checkpoints=saved if variant == "sidecar" else ())
    n_prompt, answer = truth["n_prompt"], truth["resume"][case]
    shared = {"append": slot.n_tokens, "same": n_prompt, "back8": n_prompt - 8}
    asked = Request(shared.get(request, n_prompt // 2), answer["cache_n"] + answer["prompt_n"])
    found = predict(slot, server, asked)
    assert found.reused == answer["cache_n"], found.why
    if variant == "sidecar" and saved and f"n_past = {answer['cache_n']}" in str(answer["log"]):
        assert found.checkpoint == 0


LIST_HEAD = struct.Struct("<4sII")
RECORD_HEAD = struct.Struct("<qiiQQ")


def test_fork_reads_its_sidecar(tmp_path: Path) -> None:
    """A list as the fork writes it, its blob the recurrent section moved to position 235."""
    state = FORK / "qwen35-pkcl/slot.bin"
    if not state.is_file():
        pytest.skip("no collection of real state files beside the checkout")
    data = bytearray(state.read_bytes())
    with examined(state) as report:
        span = next(part.span for part in report.sections if part.kind == "recurrent")
    blob = data[span.start : span.stop]
    struct.pack_into("<i", blob, 4, 235)
    (tmp_path / "slot.bin").write_bytes(data)
    head = LIST_HEAD.pack(b"PKCL", 1, 1) + RECORD_HEAD.pack(236, 235, 235, len(blob), 0)
    sidecar = tmp_path / "slot.bin.ckpt"
    settings = {"n_ctx": 512}
    for content, expected in (
        (head + blob, [(236, 0, Blob.LOADS)]),
        (head + blob[:-1], [(303, None, Blob.LOADS)]),  # cut: a tip in its place
        (head.replace(b"PKCL", b"PKCM") + blob, [(303, None, Blob.LOADS)]),
        (head + b"\0\0\0\0" + blob[4:], [(236, 0, Blob.FAILS)]),
        (LIST_HEAD.pack(b"PKCL", 1, 0), []),  # an empty list is a list
    ):
        sidecar.write_bytes(content)
        with examined(tmp_path / "slot.bin") as report:
            slot = restored(report, target("turboquant@b9079", settings))
            assert isinstance(slot, Slot), slot
            assert [(c.n_tokens, c.index, c.blob) for c in slot.checkpoints] == expected
            upstream = restored(report, target("b8871", settings))
            assert isinstance(upstream, Slot), upstream
            assert upstream.checkpoints == ()


@pytest.mark.parametrize(
    ("defect", "expected"),
    [
        ("none", [Blob.LOADS] * 5),
        ("prefix", [Blob.LOADS] * 4 + [Blob.FAILS]),
        ("layers", [Blob.LOADS] * 4 + [Blob.FAILS]),
        ("cut", []),
    ],
)
def test_appendix_that_is_damaged(defect: str, expected: list[Blob], tmp_path: Path) -> None:
    """A blob that does not load costs one request; a list that is cut is not there."""
    state = CORPUS / "lfm2.b11549.turns.bin"
    if not state.is_file():
        pytest.skip("no collection of real state files beside the checkout")
    data = bytearray(state.read_bytes())
    with examined(state) as report:
        blob = report.checkpoints[-1].record.data_tgt
        assert blob is not None
    if defect == "prefix":
        data[blob.start] ^= 1
    elif defect == "layers":
        data[blob.start + 24] ^= 1  # prefix, cell_count, pos, n_seq_id, s_trans come before
    elif defect == "cut":
        del data[-1]
    (tmp_path / "slot.bin").write_bytes(data)
    with examined(tmp_path / "slot.bin") as report:
        for name, there in (("b11549", expected), ("b11434", [])):
            slot = restored(report, target(name, {"n_ctx": 512}))
            assert isinstance(slot, Slot), slot
            assert [checkpoint.blob for checkpoint in slot.checkpoints] == there


def test_wrong_answers_are_announced() -> None:
    """Where tokens of the answer were not those of a cold run, there is a note."""
    unannounced, wrong = [], 0
    for record in recorded()["records"]:
        if all(request.get("as_cold", True) for request in record.get("requests", [])):
            continue
        server = target(record["build"], record["settings"])
        slot = described(recorded()["saves"][record["save"]], server)
        first, second = (Request(r["L"], r["M"]) for r in record["requests"])
        found = predict(slot, server, first), follow_up(slot, server, first, second, N_PREDICT)
        for request, prediction in zip(record["requests"], found, strict=True):
            wrong += not request["as_cold"]
            if not request["as_cold"] and not prediction.notes:
                unannounced.append(record)
    assert unannounced == []
    assert wrong == (5 if recorded()["records"] else 0)
