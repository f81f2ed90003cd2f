"""Every real file against its manifest, which knows nothing of our code."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inspector.render.as_json import to_dict
from inspector.report import examined

SHARED = Path(__file__).resolve().parents[3] / "shared"
TYPE_BYTES = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_0": (32, 18)}
ISWA_SPLIT, SWA_BLOBS, PARTIAL_HYBRID, MASKED_CELLS = 5429, 6160, 6685, 9473


@cache
def manifest() -> dict[str, Any]:
    path = SHARED / "corpus/manifest.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {"files": [], "models": {}}


@cache
def document(path: Path) -> dict[str, Any]:
    with examined(path) as report:
        return to_dict(report)


def files(*, damaged: bool = False) -> list[Any]:
    return [
        pytest.param(entry, id=entry["file"])
        for entry in manifest()["files"]
        if bool(entry.get("damage")) == damaged
    ]


def is_upstream(entry: dict[str, Any]) -> bool:
    return bool(entry["fork"] == "upstream")


def build_of(entry: dict[str, Any]) -> int | None:
    """The upstream build number; None where the package tells no more than a date or a release."""
    if entry["build"] is not None:
        return int(entry["build"])
    return None


def expected_kinds(entry: dict[str, Any], model: dict[str, Any]) -> list[str]:
    memory, build = model["memory"], build_of(entry) or 0
    partial = entry["kind"] == "blob-partial"
    if memory == "iswa" and is_upstream(entry) and build >= ISWA_SPLIT:
        return ["swa"] if partial and build >= SWA_BLOBS else ["attention", "swa"]
    if memory == "hybrid" and partial and build >= PARTIAL_HYBRID:
        return ["recurrent"]
    return {
        "attention": ["attention"],
        "iswa": ["attention"],
        "recurrent": ["recurrent"],
        "hybrid": ["attention", "recurrent"],
        "dsa": ["attention", "indexer"],
    }[memory]


def row_bytes(width: int, type_name: str) -> int:
    elements, size = TYPE_BYTES[type_name]
    return width // elements * size


@pytest.mark.parametrize("entry", files())
def test_intact_file(entry: dict[str, Any]) -> None:
    found = document(SHARED / "corpus" / entry["file"])
    model = manifest()["models"][entry["model"]]
    assert found["identity"]["verdict"] == "recognised"
    assert [f for f in found["findings"] if f["severity"] != "note"] == []
    check_identity(entry, found["identity"])
    check_tokens(entry, found["tokens"])
    check_sections(entry, model, found["sections"])


def check_identity(entry: dict[str, Any], identity: dict[str, Any]) -> None:
    family = {"slot": "ggsq", "seq": "ggsq", "session": "ggsn"}.get(entry["kind"], "blob")
    assert identity["format"] == family
    if is_upstream(entry):
        assert identity["writer"] in ("llama.cpp", None)
        build = build_of(entry)
        if build is None:
            return
        since, until = (identity["builds"][end] for end in ("from", "to"))
        assert since is None or int(since[1:]) <= build
        assert until is None or build <= int(until[1:])
    else:
        assert identity["writer"] in ("ik_llama.cpp", None)
    if family != "blob":
        with (SHARED / "corpus" / entry["file"]).open("rb") as file:
            assert identity["version"] == int.from_bytes(file.read(8)[4:], "little")


def check_tokens(entry: dict[str, Any], tokens: dict[str, Any]) -> None:
    if entry["kind"].startswith("blob"):
        assert tokens["packing"] == "none"
        return
    if entry["tokens"] is not None:
        assert tokens["count"] == len(entry["tokens"])
    packed = entry["kind"] == "slot" and (entry["build"] or 0) >= 10388
    assert tokens["packing"] == ("packed" if packed else "plain")
    assert tokens["words"] == tokens["count"] + (4 if packed else 0)


def check_sections(
    entry: dict[str, Any], model: dict[str, Any], found: list[dict[str, Any]]
) -> None:
    kinds = [section["kind"] for section in found]
    if entry["kind"] == "blob-partial" and found[0]["pos_min"] == 0 and len(found) == 1:
        kinds = [kind.replace("attention", "swa") for kind in kinds]
        assert kinds[0] in (*expected_kinds(entry, model), "swa")
    else:
        assert kinds == expected_kinds(entry, model)
    settings = entry["settings"]
    windowed = set(model.get("windowed_layers", ()))
    partial = entry["kind"] == "blob-partial" and model["memory"] == "iswa"
    split = len(found) > 1 or partial
    recurrent = set(model.get("recurrent_layers", ()))
    for section in found:
        if section["kind"] == "recurrent":
            check_rows(section["r"], [4 * model["r_width"]] * len(recurrent))
            check_rows(section["s"], [4 * model["s_width"]] * len(recurrent))
            continue
        layers = model["attention_layers"]
        if model["memory"] == "iswa" and split:
            layers = [
                il for il in layers if (il in windowed) == (section["kind"] == "swa" or partial)
            ]
        if section["kind"] == "indexer":
            check_rows(section["k"], [2 * model["indexer_width"]] * len(layers))
            assert section["v"] == []
            continue
        k_type, v_type = settings.get("type_k", "f16"), settings.get("type_v", "f16")
        assert {block["type"] for block in section["k"]} == {k_type}
        streams = filled_streams(entry)
        widths = [row_bytes(model["k_width"][str(il)], k_type) for il in layers]
        check_rows(section["k"], widths, streams)
        with_values = [il for il in layers if model["v_width"][str(il)]]
        widths = [row_bytes(model["v_width"][str(il)], v_type) for il in with_values]
        check_rows(section["v"], widths, streams)
        if entry["made_by"] == "llama-server" and settings.get("flash_attn") in ("on", "off"):
            assert section["v_trans"] == (settings["flash_attn"] == "off")
        if entry["kind"] in ("slot", "seq") and entry["tokens"] is not None:
            n_tokens = len(entry["tokens"])
            masked = section["kind"] == "swa" and (build_of(entry) or 0) >= MASKED_CELLS
            assert section["cells"] == (min(n_tokens, model["window"]) if masked else n_tokens)


def filled_streams(entry: dict[str, Any]) -> int:
    """Streams with cells: those of a whole context whose cache is split by sequence."""
    split = entry["kind"] == "session" and "multi-split" in entry["file"]
    used = {
        sequence for step in entry.get("steps", ()) if step[0] == "decode" for sequence in step[2]
    }
    return len(used) if split else 1


def check_rows(blocks: list[dict[str, Any]], expected: list[int], streams: int = 1) -> None:
    assert [block["row_bytes"] for block in blocks] == expected * streams


@pytest.mark.parametrize("entry", [param for param in files() if param.values[0]["kind"] == "slot"])
def test_checkpoints_of_a_slot_file(entry: dict[str, Any]) -> None:
    saves = json.loads((SHARED / "corpus/reuse.json").read_text())["saves"]
    truth = next(
        (s for s in saves.values() if s.get("file") == entry["file"] and not s.get("appendix")),
        None,
    )
    found = document(SHARED / "corpus" / entry["file"])["checkpoints"]
    logged = " ".join(entry.get("save_log", []))
    if truth is None:
        assert ("appended" in logged) == bool(found)
        return
    numbers = ("n_tokens", "pos_min", "pos_max")
    assert [[r[n] for n in numbers] for r in found] == [
        [r[n] for n in numbers] for r in truth["checkpoints"]
    ]
    assert all(record["usable"] for record in found)


@pytest.mark.parametrize("entry", files(damaged=True))
def test_damaged_file(entry: dict[str, Any]) -> None:
    found = document(SHARED / "corpus" / entry["file"])
    unseen = ("payload-bitflip", "payload-ff", "token-out-of-vocab")  # without a model
    codes = {finding["code"] for finding in found["findings"] if finding["severity"] != "note"}
    if entry["damage"] in unseen:
        assert not codes
    elif entry["damage"] == "trailing-zeros":
        assert not codes
        assert "file.trailing-bytes" in {finding["code"] for finding in found["findings"]}
    elif entry["damage"] == "version-plus-1" and found["identity"]["version"] == 3:
        assert not codes
    else:
        assert codes
    if entry["damage"].startswith("cut") and "appendix" not in entry["damage"]:
        assert found["identity"]["verdict"] == "damaged"


def test_the_collection_is_there(shared: Path) -> None:
    assert len(files()) + len(files(damaged=True)) > 300
