"""Verdicts: every code of a verdict in a situation that has it, and what the command does."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from inspector.checks import all_codes
from inspector.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
INTACT, DAMAGED = ROOT / "samples/intact", ROOT / "samples/damaged"
MODELS = ROOT / "tests/oracle/models"
LLAMA = INTACT / "ggsq2.kv--llama-b10229-short.slot"
SHORT4 = INTACT / "ggsq4.kv--llama-b11549-short.slot"
LFM2 = INTACT / "ggsq2.hybrid--lfm2-b10229.slot"
PACKED = INTACT / "ggsq2.kv--an-image.slot"
ONE = "llama-server -c 512 -np 1 -fa on"
_AT_COUNT, _AT_TOKENS = 8, 12

Edit = Callable[[bytes], bytes]


def put(at: int, code: str, *values: int) -> Edit:
    def edit(data: bytes) -> bytes:
        new = struct.pack("<" + code, *values)
        return data[:at] + new + data[at + len(new) :]

    return edit


def in_payload(at: int, code: str, *values: int) -> Edit:
    """Words behind the tokens."""

    def edit(data: bytes) -> bytes:
        (n,) = struct.unpack_from("<I", data, _AT_COUNT)
        return put(_AT_TOKENS + 4 * n + at, code, *values)(data)

    return edit


def cut(n: int) -> Edit:
    return lambda data: data[:-n]


def same(data: bytes) -> bytes:
    return data


def without_cells(data: bytes) -> bytes:
    (n,) = struct.unpack_from("<I", data, _AT_COUNT)
    return data[: _AT_TOKENS + 4 * n] + struct.pack("<II", 1, 0)


class Situation(NamedTuple):
    """A code, and what brings it about."""

    code: str
    outcome: str
    sample: Path
    build: str
    command: str = ONE
    model: str | None = "llama-gqa"
    edit: Edit = same


SITUATIONS = [
    Situation("target.undecided", "unknown", LLAMA, "b2024"),
    Situation("target.not-a-slot-file", "refuses", LLAMA, "b10229", edit=put(0, "I", 1)),
    Situation("target.version-mismatch", "refuses", LLAMA, "b11549"),
    Situation("target.tokens-exceed-file", "refuses", SHORT4, "b11549", edit=put(8, "I", 1 << 30)),
    Situation(
        "target.tokens-exceed-context", "refuses", LLAMA, "b10229", edit=put(8, "I", 1 << 20)
    ),
    Situation(
        "target.tokens-invalid",
        "refuses",
        SHORT4,
        "b11549",
        edit=lambda data: data[:24] + struct.pack("<i", 1 << 20) + data[28:],
    ),
    Situation("target.tokens-packed", "accepts", PACKED, "b10229", model=None),
    Situation("target.media-needs-projector", "refuses", PACKED, "b10400", model=None),
    Situation("target.projector-refused", "refuses", LLAMA, "b9500", ONE + " --mmproj P.gguf"),
    Situation("target.n-stream-mismatch", "refuses", LLAMA, "b10229", "llama-server -c 512 -np 2"),
    Situation("target.seq-id-mismatch", "refuses", LLAMA, "b10229", edit=in_payload(12, "I", 2)),
    Situation(
        "target.cells-do-not-fit", "refuses", SHORT4, "b11549", edit=in_payload(4, "I", 9999)
    ),
    Situation(
        "target.cell-count-allocates", "refuses", LLAMA, "b10229", edit=in_payload(4, "I", 1 << 31)
    ),
    Situation("target.layer-count-mismatch", "refuses", LFM2, "b10229", model="mamba"),
    Situation(
        "target.v-trans-mismatch", "refuses", LLAMA, "b10229", "llama-server -c 512 -np 1 -fa off"
    ),
    Situation(
        "target.rotation-mismatch", "refuses", SHORT4, "b11549", edit=in_payload(76, "I", 64)
    ),
    Situation("target.type-mismatch", "refuses", LLAMA, "b10229", ONE + " -ctk q8_0"),
    Situation("target.row-size-mismatch", "refuses", LLAMA, "b10229", edit=in_payload(80, "Q", 64)),
    Situation("target.truncated", "refuses", LLAMA, "b7551", edit=cut(1)),
    Situation("target.truncated-aborts", "aborts", LLAMA, "b10229", edit=cut(1)),
    Situation(
        "target.recurrent-cells-abort",
        "aborts",
        DAMAGED / "ggsq3.recurrent--recurrent.several-cells.slot",
        "b10809",
        model=None,
    ),
    Situation(
        "target.empty-state", "accepts", INTACT / "ggsq2.kv--empty.slot", "b10229", model=None
    ),
    Situation("target.pos-min-abort", "accepts", LLAMA, "b10229", edit=without_cells),
    Situation("target.fallback-aborts", "aborts", LLAMA, "turboquant@cff2ea367", model=None),
    Situation(
        "target.companion-ignored",
        "accepts",
        INTACT / "ggsq2.hybrid--with-pkcl1.slot",
        "b10229",
        model=None,
    ),
]


def slotscope(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def checked(situation: Situation, folder: Path) -> tuple[dict[str, Any], int]:
    path = folder / "slot.bin"
    path.write_bytes(situation.edit(situation.sample.read_bytes()))
    for beside in situation.sample.parent.glob(f"{situation.sample.name}.*"):
        shutil.copyfile(beside, folder / beside.name.replace(situation.sample.name, path.name))
    words: list[str | Path] = ["check", path, "--json", "--for", situation.command]
    words += ["--build", situation.build]
    if situation.model is not None:
        words += ["--model", MODELS / f"{situation.model}.gguf"]
    result = slotscope(*words)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout), result.exit_code


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.code)
def test_a_situation_of_every_code(situation: Situation, tmp_path: Path) -> None:
    document, exit_code = checked(situation, tmp_path)
    assert document["schema"] == "slotscope.check/1"
    assert document["restore"]["outcome"] == situation.outcome
    found = {finding["code"]: finding for finding in document["findings"]}
    assert situation.code in found
    if situation.outcome != "accepts":
        assert document["restore"]["reason"] == situation.code
        assert exit_code == (0 if situation.outcome == "unknown" else 1)
        assert {answer["reused"] for answer in document["reuse"]} == {
            0 if situation.outcome == "refuses" else None
        }


def test_every_code_of_a_restore_has_a_situation() -> None:
    elsewhere = {
        "target.rotation-unrecorded",  # tests/corpus: restores across b8619
        "target.layout-silent",  # tests/corpus: restores across the builds that changed it
        "target.no-cells-abort",  # tests/corpus: ik_llama.cpp
        "target.companion-aborts",
        "target.request-aborts",  # tests/corpus: the replayed prompts
        "target.request-refused",
        "target.model-truncated",  # below
    }
    codes = {code for code in all_codes() if code.startswith("target.")}
    assert {situation.code for situation in SITUATIONS} == codes - elsewhere


def test_a_model_that_is_cut(tmp_path: Path) -> None:
    data = (MODELS / "llama-gqa.gguf").read_bytes()
    (tmp_path / "half.gguf").write_bytes(data[: len(data) // 2])
    result = slotscope(
        "check", LLAMA, "--json", "--build", "b10229", "--model", tmp_path / "half.gguf"
    )
    assert "target.model-truncated" in {f["code"] for f in json.loads(result.stdout)["findings"]}
    assert "no server starts with it" in " ".join(
        slotscope("geometry", tmp_path / "half.gguf").stdout.split()
    )


def test_the_window_behind_an_anchor_is_known_without_a_model() -> None:
    anchored = next(DAMAGED.glob("*--cells.window-anchor.slot"))
    result = slotscope("check", anchored, "--json", "--build", "b10229")
    document = json.loads(result.stdout)
    assert None not in {answer["reused"] for answer in document["reuse"]}
    assert any("behind the anchor" in line for line in document["conditions"])


def test_an_unreadable_token_list_is_told_without_a_model() -> None:
    """ik_llama.cpp ends there, whatever the model."""
    sample = DAMAGED / "ik4--sidecar.tokens-unreadable.slot"
    result = slotscope("check", sample, "--json", "--build", "ik@2026-08-15")
    codes = {finding["code"] for finding in json.loads(result.stdout)["findings"]}
    assert "sidecar.tokens-unreadable" in codes
    assert result.exit_code == 1


def test_a_build_newer_than_all_known_is_named_so() -> None:
    result = slotscope("check", SHORT4, "--build", "b99999")
    assert "newer than b11549" in " ".join(result.stdout.split())


def test_caches_are_those_of_the_save_unless_a_server_is_named() -> None:
    """Saved with --flash-attn off: a server that is started without options refuses it (b10229:
    incompatible V transposition).
    """
    transposed = INTACT / "ggsq2.kv--llama-b10229-flash-attention-off.slot"
    like_it = slotscope("check", transposed, "--build", "b10229", "--json")
    found = json.loads(like_it.stdout)
    assert found["restore"]["outcome"] == "accepts"
    assumed = found["target"]["assumed"]
    assert "cache types, flash attention, slots: those that the file was saved with" in assumed
    assert not [line for line in assumed if "auto" in line or "slots with" in line]
    plain = f"llama-server -m {MODELS / 'llama-gqa.gguf'} -np 1"
    named = slotscope("check", transposed, "--build", "b10229", "--for", plain, "--json")
    assert json.loads(named.stdout)["restore"]["reason"] == "target.v-trans-mismatch"
    bare = slotscope("check", transposed, "--build", "b10229", "--for", "llama-server", "--json")
    assert json.loads(bare.stdout)["restore"]["reason"] == "target.v-trans-mismatch"


def test_why_there_is_no_model_is_said_of_the_one_that_was_named() -> None:
    result = slotscope("check", LLAMA, "--json", "--for", "llama-server -hf org/name:Q4_K_M")
    evidence = json.loads(result.stdout)["model"]["evidence"]
    assert "-hf org/name:Q4_K_M" in evidence


@pytest.mark.parametrize("token", [-5, 1 << 20])
def test_no_prompt_shares_an_id_that_there_is_not(token: int, tmp_path: Path) -> None:
    data = LLAMA.read_bytes()
    (tmp_path / "a.slot").write_bytes(put(_AT_TOKENS + 8, "i", token)(data))
    result = slotscope("check", tmp_path / "a.slot", *OWN, "--next", "5/6", "--json")
    document = json.loads(result.stdout)
    assert [answer["reused"] for answer in document["reuse"]] == [2]
    code = "tokens.negative" if token < 0 else "tokens.beyond-vocabulary"
    assert code in {finding["code"] for finding in document["findings"]}


# -- the command -----------------------------------------------------------------------------------

HELD = 5
"""Tokens of the short samples."""
OWN = ("--for", ONE, "--build", "b10229", "--model", MODELS / "llama-gqa.gguf")


def reuse(*words: str | Path) -> list[dict[str, Any]]:
    result = slotscope("check", LLAMA, *OWN, "--json", *words)
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["reuse"])


def test_four_usual_cases_without_a_prompt() -> None:
    cases = [answer["case"] for answer in reuse()]
    assert cases == ["append", "identical", "roll back 8", "half"]


def test_prompts_are_answered_in_the_order_of_the_command_line() -> None:
    found = [
        (a["shared"], a["total"], a["reused"]) for a in reuse("--next", "2/9", "--next", "5/5")
    ]
    assert found == [(2, 9, 2), (5, 5, 4)]


def test_a_prompt_can_be_given_as_tokens(tmp_path: Path) -> None:
    ids = [1, 290, 369]
    (tmp_path / "ids.json").write_text(json.dumps([*ids, 300, 300]))
    (answer,) = reuse("--next-tokens", tmp_path / "ids.json")
    assert answer["total"] == HELD
    assert 1 <= answer["shared"] <= HELD
    words = map(str, ("check", LLAMA, *OWN, "--json", "--next-tokens", "-"))
    piped = CliRunner().invoke(app, list(words), input=json.dumps([*ids, 300, 300]))
    assert json.loads(piped.stdout)["reuse"] == [answer]


def test_the_prompt_after_the_next() -> None:
    (answer,) = reuse("--next", "5/9", "--then", "9/12")
    assert answer["reused"] == HELD
    assert answer["then"]["reused"] == 9


def test_several_files_make_a_list() -> None:
    result = slotscope("check", LLAMA, SHORT4, "--json", "--build", "b11549")
    documents = json.loads(result.stdout)
    assert [document["restore"]["outcome"] for document in documents] == ["refuses", "accepts"]
    assert result.exit_code == 1


@pytest.mark.parametrize(("fail_on", "exit_code"), [("error", 1), ("note", 1), ("never", 0)])
def test_a_refused_restore_ends_with_1_unless_nothing_does(fail_on: str, exit_code: int) -> None:
    assert (
        slotscope("check", LLAMA, "--build", "b11549", "--fail-on", fail_on).exit_code == exit_code
    )


WRONG = {
    "no such build": ("--build", "b0"),
    "a month for a build": ("--build", "2024-06"),
    "a fork without a build": ("--build", "turboquant@"),
    "no such model": ("--model", "nowhere.gguf"),
    "a state for a model": ("--model", LLAMA),
    "nobody there": ("--url", "http://127.0.0.1:9"),
    "no address": ("--url", "nonsense"),
    "shares more than it has": ("--next", "3/2"),
    "shares more than the file has": ("--next", "500/600"),
    "no prompt": ("--next", "abc"),
    "no tokens": ("--next-tokens", LLAMA),
    "no such severity": ("--fail-on", "all"),
    "no such cache type": ("--for", "llama-server -ctk q1_9"),
    "an open quotation": ("--for", "llama-server -m 'x"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_wrong_usage_ends_with_2_and_a_line(words: tuple[str | Path, ...]) -> None:
    result = slotscope("check", LLAMA, *words)
    assert result.exit_code == 2
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


def test_a_file_that_is_not_there_does_not_hide_the_others() -> None:
    result = slotscope("check", "nowhere.bin", LLAMA, *OWN)
    assert result.exit_code == 2
    assert "nowhere.bin" in result.stderr
    assert "accepts" in result.stdout


@pytest.mark.parametrize("path", sorted(DAMAGED.glob("*.slot")), ids=lambda path: path.stem)
def test_any_file_gets_a_verdict(path: Path) -> None:
    for build in ("b7551", "b11549", "ik@2026-08-15", "turboquant@b9079"):
        result = slotscope("check", path, "--json", "--build", build, "--model", OWN[-1])
        assert result.exit_code in (0, 1), result.output
        document = json.loads(result.stdout)
        assert document["restore"]["outcome"] in ("accepts", "refuses", "aborts", "unknown")
        assert len(document["reuse"]) == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_that_nobody_writes_to_is_no_prompt(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = slotscope("check", LLAMA, "--next-tokens", tmp_path / "pipe")
    assert result.exit_code == 2
    assert "not a regular file: pipe it to --next-tokens -" in result.stderr


def test_the_name_of_a_prompt_says_nothing_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred"
    path.write_text("[")
    result = slotscope("check", LLAMA, "--next-tokens", path)
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr


def identity_of(sample: str, model: str, build: str) -> dict[str, Any]:
    command = f"{ONE} -m {MODELS / model}.gguf"
    words = [str(INTACT / f"{sample}.slot"), "--for", command, "--build", build, "--json"]
    found: dict[str, Any] = json.loads(CliRunner().invoke(app, ["check", *words]).stdout)["model"]
    assert found["outcome"] == "matches"
    return found


def test_how_many_tokens_a_model_was_compared_with() -> None:
    """The first layer of gemma has a window, that of llama has none."""
    found = identity_of("ggsq2.iswa--gemma3-b10229-long", "gemma3-iswa", "b10229")
    assert found["evidence"].startswith("computed from the last 32 of these tokens")
    assert "16 of 84 tokens were tried, at positions 52 to 83" in found["evidence"]
    assert found["unproven"].endswith("52 of 84 tokens: layer 0 holds the last 32 only")
    found = identity_of("ggsq2.kv--llama-b10229-short", "llama-gqa", "b10229")
    assert found["evidence"].startswith("computed from these tokens")
    assert "5 of 5 tokens were tried" in found["evidence"]
    assert "layer 0 holds" not in found["unproven"]


def test_keys_tell_of_a_context_shift() -> None:
    (note,) = identity_of("ggsq2.kv.flat--llama-b5671-shifted", "llama-gqa", "b5671")["notes"]
    assert note.startswith("keys were rounded more than once")
    assert identity_of("ggsq2.kv--llama-b10229-short", "llama-gqa", "b10229")["notes"] == []
