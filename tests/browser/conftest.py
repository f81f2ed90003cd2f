"""A real Chromium without a window, and pages for it to show."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from inspector.cli.app import app

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
MODELS = ROOT / "tests/oracle/models"


def _server(model: str) -> tuple[str, str]:
    return "--for", f"llama-server -m {MODELS}/{model}.gguf -c 512 -np 1 -fa on"


WORDS: dict[str, tuple[str, ...]] = {
    "sound": (
        f"{SAMPLES}/intact/ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot",
        *_server("qwen35"),
        "--deep",
    ),
    "repaired": (
        f"{SAMPLES}/intact/ggsq2.iswa--gemma3-b10229-long.slot",
        *_server("gemma3-iswa"),
    ),
    "cut": (f"{SAMPLES}/damaged/ggsq2.kv--file.truncated.slot", "--build", "b10229"),
    "not-finite": (
        f"{SAMPLES}/damaged/ggsq2.kv--tensors.non-finite.slot",
        "--deep",
        "--show-tokens",
    ),
    "sidecar": (f"{SAMPLES}/damaged/ggsq2.hybrid--checkpoint.beyond-state.slot",),
    "streams": (f"{SAMPLES}/intact/ggsq2.kv--llama-b10229-third-of-four-streams.slot", "--deep"),
    "several": (
        f"{SAMPLES}/intact/ggsq3.dsv4--twelve-tokens.slot",
        f"{SAMPLES}/intact/ggsq4.iswa--two-checkpoints.slot",
        f"{SAMPLES}/models/llama.gguf",
        f"{SAMPLES}/damaged/ggsq2.hybrid--sidecar.two-carriers.slot",
    ),
    "many": tuple(
        map(str, sorted((SAMPLES / "damaged").glob("ggsq2.hybrid--sidecar.*.slot"))[:10])
    ),
}
"""What is shown, by name: the words behind `slotscope report`."""


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of every page."""
    folder = tmp_path_factory.mktemp("pages")
    for name, words in WORDS.items():
        output = folder / f"{name}.html"
        result = CliRunner().invoke(app, ["report", *words, "-o", str(output)])
        assert output.exists(), result.output
    return {name: (folder / f"{name}.html").as_uri() for name in WORDS}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail(f"none of {', '.join(names)} is installed")
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
