"""Whole-context files that repairs write, in the library that reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.builds import build_of, installed
from tests.oracle.repairs import N_PREDICT, NEW, Save, Workshop, model_of, ran
from tests.oracle.trial import OTHERWISE, Bench
from tests.oracle.whole import Whole

pytestmark = pytest.mark.oracle

SAVES = [
    Save(model, build)
    for build in (10229, 11549)
    for model in ("llama-gqa", "gemma3-iswa", "lfm2", "mamba", "qwen35")
]


def in_library(save: Save, **asked: Any) -> dict[str, Any]:
    """What the library of a save's build does in a process of its own."""
    script = Path(__file__).with_name("library.py")
    words = (installed(build_of(save.build)), model_of(save.model), json.dumps(asked))
    done = subprocess.run(
        (sys.executable, script, *map(str, words)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Saves that were made so far in this process."""
    return Workshop(tmp_path_factory.mktemp("saves"))


@pytest.mark.parametrize("save", SAVES, ids=str)
def test_a_slot_file_goes_on_as_a_whole_context(
    save: Save, bench: Bench, workshop: Workshop
) -> None:
    """As it is the library refuses it, and it refuses the copy with bytes behind its end."""
    slot, session = workshop.put(save, bench), bench.folder / NEW
    asked = {"next": OTHERWISE, "n_predict": N_PREDICT}
    assert not in_library(save, load=str(slot), **asked)["loaded"]
    words = ("--for", f"llama-server -m {model_of(save.model)}", "--build", save.build)
    said = ran(slot, session, *words, "--only", "to-session", "--allow-loss")
    assert [one["action"] for one in said["actions"]] == ["to-session"]
    assert said["exit"] == 0
    held = Whole(slot).tokens
    cold = in_library(save, next=[*held, *OTHERWISE], n_predict=N_PREDICT)["generated"]
    warm = in_library(save, load=str(session), **asked)
    assert (warm["loaded"], warm["tokens"], warm["generated"]) == (True, held, cold)
    longer = bench.folder / "longer.bin"
    for junk, agreed in ((bytes(64), ()), (b"something", ("--allow-loss",))):
        longer.write_bytes(session.read_bytes() + junk)
        assert not in_library(save, load=str(longer), **asked)["loaded"]
        shorter = bench.folder / f"shorter-{len(agreed)}.bin"
        said = ran(longer, shorter, *agreed)
        assert [one["action"] for one in said["actions"]] == ["strip-trailing"]
        assert said["exit"] == 0
        assert shorter.read_bytes() == session.read_bytes()
        assert in_library(save, load=str(shorter), **asked) == warm
