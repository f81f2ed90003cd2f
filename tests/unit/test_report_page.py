"""The page: what it says, what it must not say, how it is written, and its colours."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from inspector.check import check_of, checked
from inspector.checks.strips import strips
from inspector.cli.app import app
from inspector.cli.check import code_of
from inspector.cli.exits import FINDINGS, SOUND, USAGE
from inspector.overview import overview
from inspector.render.html.page import document, entry
from inspector.render.html.style import DARK, LIGHT
from inspector.report import examined
from inspector.server.curve import curve
from inspector.server.prompt import Request
from inspector.server.target import target_of
from tests.support.html import sound
from tests.support.powers import powerless
from tests.support.writer import (
    DIALECTS,
    F16,
    Cache,
    Cell,
    Memory,
    Row,
    Slot,
    Tokens,
    cells_of,
    pack,
)

ROOT = Path(__file__).resolve().parents[2]
INTACT, DAMAGED = ROOT / "samples/intact", ROOT / "samples/damaged"
SAMPLES = sorted(
    path
    for folder in (INTACT, DAMAGED)
    for path in folder.iterdir()
    if path.suffix not in (".toml", ".md", ".py")
)
MODELS = ROOT / "tests/oracle/models"
LONG = INTACT / "ggsq2.iswa--gemma3-b10229-long.slot"
HYBRID = INTACT / "ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot"
SIDECAR = INTACT / "ggsq2.hybrid--with-pkcl1.slot"
CUT = DAMAGED / "ggsq2.kv--file.truncated.slot"
NOT_FINITE = DAMAGED / "ggsq2.kv--tensors.non-finite.slot"
TRANSPOSED = INTACT / "ggsq2.kv--llama-b10229-flash-attention-off.slot"
GEMMA = f"llama-server -m {MODELS}/gemma3-iswa.gguf -c 512 -np 1 -fa on"
QWEN = f"llama-server -m {MODELS}/qwen35.gguf -c 512 -np 1 -fa on"


def ran(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def page_of(path: Path, command: str | None = None, *, deep: bool = False, **target: str) -> str:
    with target_of(command, **target) as server, overview(path, server, deep=deep) as found:
        shown = entry(found, 1, alone=True, show_tokens=False)
    return document([shown], alone=True)


def test_what_a_person_sees_first() -> None:
    read = sound(page_of(LONG, GEMMA))
    for words in ("refuses", "0 of 84", "0 → 83 reused", "2 steps: relayout, synthesize-tip"):
        assert words in read.text
    assert "the state is of this model" in read.text
    assert "target.version-mismatch" in read.text


def test_a_sound_file() -> None:
    read = sound(page_of(HYBRID, QWEN, deep=True))
    for words in ("sound, no findings", "accepts", "27 of 27", "not needed", "✓ usable", "recr S"):
        assert words in read.text


def test_no_server_is_named() -> None:
    assert "build b11549, the newest known" in sound(page_of(CUT)).text


@pytest.mark.parametrize(
    "path", [*sorted(DAMAGED.glob("*.slot"))[::6], *sorted(INTACT.glob("*.slot"))[::9]]
)
def test_pages_of_samples_hold_together(path: Path) -> None:
    sound(page_of(path, deep=True))


def test_other_files(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.slot"
    nonsense.write_bytes(bytes(range(1, 200)) * 3)
    empty = tmp_path / "empty.slot"
    empty.write_bytes(b"")
    names = (nonsense, empty, ROOT / "samples/models/llama.gguf", f"{SIDECAR}.ckpt")
    for path in map(Path, names):
        sound(page_of(path))
    for path in sorted(DAMAGED.glob("*.json"))[:4] + sorted(INTACT.glob("*.pkl"))[:2]:
        sound(page_of(path))


def test_findings_and_their_bytes_lead_to_one_another() -> None:
    read = sound(page_of(CUT, build="b10229"))
    marks = [a for a in read.of("a") if (a.get("id") or "").startswith("f1-mark")]
    cards = read.of("article")
    assert [mark["href"] for mark in marks] == [f"#{card['id']}" for card in cards]
    assert {f"#{mark['id']}" for mark in marks} <= set(read.links)
    assert any("file.truncated, at 0x34c..0x40b" in (one["aria-label"] or "") for one in marks)


def test_findings_of_companions_are_on_their_own_map() -> None:
    path = DAMAGED / "ggsq2.hybrid--checkpoint.beyond-state.slot"
    read = sound(page_of(path))
    number = next(
        one["id"].rpartition("-")[2]
        for one in read.of("article")
        if one["id"] and "checkpoint 1 covers 13 tokens" in page_part(page_of(path), one["id"])
    )
    assert f"f1-mark-{number}" in read.ids


def page_part(page: str, own: str) -> str:
    start = page.index(f'id="{own}"')
    return page[start : page.index("</article>", start)]


def test_the_map_is_to_scale() -> None:
    with examined(HYBRID) as report:
        size = report.size
        spans = {child.name: child.span for child in report.tree.children}
    shapes = re.findall(
        r'<svg x="([\d.]+)%" y="0" width="([\d.]+)%" height="38"><title>(\w+) 0x', page_of(HYBRID)
    )
    drawn = {name: (float(x), float(width)) for x, width, name in reversed(shapes)}
    for name in ("attn", "recr", "appendix"):
        x, width = drawn[name]
        assert x == pytest.approx(100 * spans[name].start / size, abs=0.01)
        assert width == pytest.approx(100 * len(spans[name]) / size, abs=0.01)


def test_cells_by_position(tmp_path: Path) -> None:
    order = [0, 1, 2, 5, 6, 3, 9]
    cache = Cache((tuple(Cell(pos) for pos in order),), (Row(F16, 16),), (Row(F16, 16),))
    path = tmp_path / "order.slot"
    tokens = Tokens(tuple(range(10)))
    path.write_bytes(pack(Slot(2, tokens, Memory({"attn": cache}, DIALECTS[""]))).data)
    read = sound(page_of(path))
    drawn = {}
    for one in read.of("path"):
        if one["class"] in ("cells", "dots"):
            stroke = r"M([\d.]+) ([\d.]+)l(\d+) -?(\d+)"
            for x, y, right, up in re.findall(stroke, one["d"] or ""):
                assert right == up
                for at in range(int(right) + 1):
                    drawn[int(float(x)) + at] = 10 - int(float(y)) - 1 + at
    assert [drawn[cell] for cell in range(len(order))] == order
    assert "7 cells, positions 0 to 9, 2 holes, not in order" in read.text


def test_positions_below_zero_stay_within_the_drawing(tmp_path: Path) -> None:
    order = [-5, 0, 1, 2]
    cache = Cache((tuple(Cell(pos) for pos in order),), (Row(F16, 16),), (Row(F16, 16),))
    path = tmp_path / "below.slot"
    memory = Memory({"attn": cache}, DIALECTS[""])
    path.write_bytes(pack(Slot(2, Tokens(tuple(range(4))), memory)).data)
    read = sound(page_of(path))
    labels = {one.get("aria-label") or "": one for one in read.of("svg")}
    picture = labels["positions of attn: 4 cells, positions -5 to 2, 1 hole"]
    assert picture["viewbox"] == "0 0 4 8"
    (dot,) = [one["d"] for one in read.of("path") if one.get("class") == "dots"]
    assert dot == "M0.5 7.5l0 0"


def test_a_masked_cell_and_the_window() -> None:
    path = DAMAGED / "ggsq2.iswa--cells.window-anchor.slot"
    read = sound(page_of(path, build="b10229"))
    kinds = [one.get("class") for one in read.of("path")]
    assert (kinds.count("masked"), kinds.count("win")) == (1, 1)
    assert "the first cell is masked" in read.text


def test_checkpoints_that_are_of_no_use_say_why() -> None:
    page = page_of(DAMAGED / "ggsq2.hybrid--checkpoint.beyond-state.slot")
    tracks = [part for part in page.split("<li>") if "✕ not usable" in part]
    assert len(tracks) == 2  # its reader refuses the whole list
    for track in tracks:
        (card,) = re.findall(r'<a href="#([\w-]+)">checkpoint.beyond-state</a>', track)
        assert "checkpoint 1 covers 13 tokens" in page_part(page, card)


# The reuse curve


@pytest.mark.parametrize(
    ("path", "command", "build"),
    [
        (HYBRID, QWEN, None),
        (LONG, GEMMA, "b10229"),
        (LONG, GEMMA + " --swa-full", "b10229"),
        (INTACT / "ggsq4.iswa--gemma3-b11549-checkpoints.slot", GEMMA, None),
        (SIDECAR, None, "turboquant@b9079"),
        (DAMAGED / "ggsq2.kv--cells.pos-not-tokens.slot", None, "b10229"),
        (INTACT / "ggsq4.hybrid--lfm2-b11549-checkpoints.slot", None, None),
    ],
)
def test_the_curve_is_what_check_says_of_every_length(
    path: Path, command: str | None, build: str | None
) -> None:
    with target_of(command, build) as target, checked(path, target) as found:
        traced = curve(found)
        n = traced.n_tokens
        assert n > 1
        requests = tuple(Request(shared, shared + 1) for shared in range(n + 1))
        asked = [one.found.reused for one in check_of(found.report, target, requests, None).reuse]
    followed: dict[int, int | None] = dict(traced.points)
    for (left, low), (right, high) in itertools.pairwise(traced.points):
        for at in range(left + 1, right):
            assert (low is None) == (high is None)
            step = 0 if low == high else 1
            followed[at] = None if low is None else low + step * (at - left)
    assert [followed[at] for at in range(n + 1)] == asked


def test_a_long_curve_is_cheap_and_short(tmp_path: Path) -> None:
    tokens = Tokens(tuple(1 + at % 30_000 for at in range(60_000)))
    path = tmp_path / "long.slot"
    cells = cells_of(tokens)
    memory = Memory({"attn": Cache((cells,), (Row(F16, 2),), (Row(F16, 2),))}, DIALECTS[""])
    path.write_bytes(pack(Slot(2, tokens, memory)).data)
    with target_of(None, "b10229") as target, checked(path, target) as found:
        assert curve(found).points == ((0, 0), (60_000, 60_000))


# The numbers


@pytest.mark.parametrize("path", [NOT_FINITE, TRANSPOSED])
def test_strips_against_the_bytes(path: Path) -> None:
    data = path.read_bytes()
    with examined(path, deep=True) as report:
        found = list(strips(report.source, report.statistics))
        assert found
        for strip in found:
            block = strip.of.block
            assert block.data is not None
            numbers = np.frombuffer(data[block.data.start : block.data.stop], "<f2")
            by_cell = numbers.astype(np.float64).reshape(
                (-1, block.n_cells) if block.element_bytes else (block.n_cells, -1)
            )
            by_cell = by_cell.T if block.element_bytes else by_cell
            for at, (first, last) in enumerate(itertools.pairwise(strip.edges)):
                part = by_cell[first:last]
                bad = int((~np.isfinite(part)).sum())
                assert strip.non_finite[at] == bad
                if not bad:
                    assert strip.rms[at] == pytest.approx(float(np.sqrt((part**2).mean())))
            assert strip.edges[0] == 0
            assert strip.edges[-1] == block.n_cells
    assert any(sum(strip.non_finite) for strip in found) == (path == NOT_FINITE)


def test_a_signalling_nan_in_transposed_values(tmp_path: Path) -> None:
    path = tmp_path / "state.slot"
    data = bytearray(TRANSPOSED.read_bytes())
    with examined(TRANSPOSED) as report:
        (section,) = report.sections
        block = section.v[0]
    assert block.data is not None
    assert block.element_bytes == 2
    data[block.data.start : block.data.start + 2] = b"\x01\x7c"
    path.write_bytes(data)
    with examined(path, deep=True) as report:
        found = {one.of.block.path: one for one in strips(report.source, report.statistics)}
    assert found[block.path].non_finite[0] == 1
    assert np.isnan(found[block.path].rms[0])


def test_counts_that_cannot_be_are_not_followed() -> None:
    with examined(NOT_FINITE, deep=True) as report:
        one = report.statistics[0]
        for n_cells, element_bytes in ((1 << 62, 2), (1 << 40, 2), (0, 2), (100, 2)):
            block = replace(one.block, n_cells=n_cells, element_bytes=element_bytes)
            assert not list(strips(report.source, [replace(one, block=block)]))


def test_numbers_that_are_not_finite_have_a_shape_of_their_own() -> None:
    read = sound(page_of(NOT_FINITE, deep=True))
    kinds = [one.get("class") for one in read.of("path")]
    assert kinds.count("cross") == 2  # in the drawing, and in the legend
    assert "1 not finite" in read.text
    read = sound(page_of(HYBRID, deep=True))
    assert [one.get("class") for one in read.of("path")].count("cross") == 1
    assert "stored numbers" not in sound(page_of(HYBRID)).text


# What must not be said


def test_names_are_never_markup(tmp_path: Path) -> None:
    name = "a<img src=x onerror=alert(1)>&quot;\"'\u202e\n`b`.slot"
    path = tmp_path / name
    shutil.copyfile(SIDECAR, path)
    shutil.copyfile(f"{SIDECAR}.ckpt", f"{path}.ckpt")
    page = page_of(path)
    read = sound(page)
    assert not read.of("img")
    assert "\u202e" not in page
    assert "a<img src=x onerror=alert(1)>&quot;\"'\\u202e\\n`b`.slot" in read.text
    broken = tmp_path / os.fsdecode(b"\xff\xfe.slot")
    shutil.copyfile(CUT, broken)
    page_of(broken).encode("utf-8")


def test_no_finding_of_a_sample_has_a_token_id() -> None:
    """Counts have commas: a longer number without them that is in the token list is an id."""
    with target_of(None, None, MODELS / "llama-gqa.gguf") as target:
        assert target.memory is not None
        tiny = replace(target.memory, n_vocab=10)
    seen = set()
    for path in SAMPLES:
        with examined(path, model=tiny) as report:
            ids = set(report.tokens.ids.tolist()) if report.tokens is not None else set()
            for one in report.findings:
                texts = (one.message, one.expected, one.actual, *one.evidence)
                numbers = set(
                    map(int, re.findall(r"(?<![\w,.-])\d{3,10}(?![\w,.])", " ".join(texts)))
                )
                assert not numbers & ids, (path, one)
                seen.add(one.code)
    assert {"tokens.beyond-vocabulary", "cells.token-differs"} <= seen


@pytest.mark.parametrize("text", ['{"tokens": [4711, 0.5]}', '{"tokens": [4711, 4712 4713]}'])
def test_no_finding_has_the_tokens_of_a_broken_list(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.slot"
    shutil.copyfile(INTACT / "ik4--llama-server.slot", path)
    Path(f"{path}.tokens.json").write_text(text)
    with examined(path) as report:
        (found,) = [one for one in report.findings if one.code.startswith("sidecar.tokens")]
    assert "471" not in f"{found.message} {found.actual}"


def test_no_finding_of_a_sample_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "marked-home"
    shutil.copytree(INTACT, folder / "intact")
    shutil.copytree(DAMAGED, folder / "damaged")
    monkeypatch.chdir(tmp_path)
    result = ran("report", "marked-home", "-o", "page.html", "--fail-on", "never")
    assert result.exit_code == SOUND, result.output
    page = Path("page.html").read_text()
    assert "seal.unreadable" in page
    assert "marked-home" not in page


def test_no_folders_and_no_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "secret-folder"
    folder.mkdir()
    ids = tuple(7_654_301 + 13 * at for at in range(20))
    tokens = Tokens(ids)
    memory = Memory(
        {"attn": Cache((cells_of(tokens),), (Row(F16, 16),), (Row(F16, 16),))}, DIALECTS[""]
    )
    path = folder / "state.slot"
    path.write_bytes(pack(Slot(2, tokens, memory)).data)
    link = folder / "link.slot"
    link.symlink_to(path)
    model = folder / "model.gguf"
    shutil.copyfile(MODELS / "gemma3-iswa.gguf", model)
    command = (
        f"SECRET_KEY=hunter2 nice llama-server -m {model} --api-key hunter2 --nonsense {folder}"
    )
    for file in (path, link):
        output = tmp_path / "page.html"
        result = ran("report", file, "--for", command, "-o", output, "--force")
        assert result.exit_code in (SOUND, FINDINGS), result.output
        page = output.read_text()
        sound(page)
        assert "secret-folder" not in page
        assert "hunter2" not in page
        assert "model.gguf" in page
    ran("report", path, "-o", output, "--force", "--deep")
    assert not [one for one in ids if str(one) in output.read_text()]
    ran("report", path, "-o", output, "--force", "--show-tokens")
    assert all(str(one) in output.read_text() for one in ids)


def test_no_script_runs_but_our_own() -> None:
    page = page_of(CUT)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert f"script-src 'sha256-{digest}';" in policy


# How it is written


def test_the_page_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        assert ran("report", CUT, NOT_FINITE, "--deep", "-o", tmp_path / name).exit_code == FINDINGS
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_exit_codes(tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert ran("report", HYBRID, "-o", output).exit_code == SOUND
    assert ran("report", HYBRID, "-o", output).exit_code == USAGE
    before = output.read_bytes()
    result = ran("report", CUT, "-o", output)
    assert (result.exit_code, output.read_bytes()) == (USAGE, before)
    assert "--force" in result.output
    assert ran("report", CUT, "-o", output, "--force").exit_code == FINDINGS
    assert output.read_bytes() != before
    assert ran("report", CUT, "-o", output, "--force", "--fail-on", "never").exit_code == SOUND
    assert ran("report", HYBRID, "-o", "-").exit_code == USAGE
    assert ran("report", HYBRID, "-o", output, "--force", "--build", "x").exit_code == USAGE
    assert ran("report", HYBRID, "-o", tmp_path / "none" / "page.html").exit_code == USAGE


@pytest.mark.parametrize(
    "name",
    [
        "intact/ggsn5.hparams-b2440--llama-2024-04.slot",
        "damaged/llama-cpp-python--container.not-opened.slot",
        "damaged/pkcl1--sidecar.orphan.slot",
        "damaged/ik-tokens--container.damaged.slot",
        "damaged/gguf3--gguf.truncated.slot",
    ],
)
def test_what_is_no_state_of_this_server_is_refused(name: str, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    result = ran("report", ROOT / "samples" / name, "--build", "b11549", "-o", output)
    assert result.exit_code == FINDINGS
    assert re.search(
        r"restore on [^<]*b11549</span><span class=\"value\">refuses<", output.read_text()
    )


def test_report_and_check_agree_on_every_sample() -> None:
    paths = [path for path in SAMPLES if path.is_file()]
    assert len(paths) > 400
    with target_of(None, "b11549") as target:
        for path in paths:
            with checked(path, target) as one, overview(path, target) as other:
                assert code_of(other.check, 0) == code_of(one, 0), path
                assert other.findings == one.findings, path


def test_originals_are_never_replaced(tmp_path: Path) -> None:
    state, model = tmp_path / "slot.bin", tmp_path / "model.gguf"
    shutil.copyfile(SIDECAR, state)
    shutil.copyfile(f"{SIDECAR}.ckpt", f"{state}.ckpt")
    shutil.copyfile(ROOT / "samples/models/llama.gguf", model)
    for output in (state, Path(f"{state}.ckpt"), model):
        before = output.read_bytes()
        result = ran("report", state, "--model", model, "-o", output, "--force")
        assert (result.exit_code, output.read_bytes()) == (USAGE, before), output
    link = tmp_path / "hard.html"
    link.hardlink_to(state)
    assert ran("report", state, "-o", link, "--force").exit_code == USAGE
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "hard.html",
        "model.gguf",
        "slot.bin",
        "slot.bin.ckpt",
    ]


def test_several_files_and_one_that_is_missing(tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    result = ran("report", HYBRID, tmp_path / "missing", CUT, "-o", output)
    assert result.exit_code == USAGE
    assert "missing: No such file" in result.output
    read = sound(output.read_text())
    assert read.headings[0] == 1
    assert {"f1", "f2"} <= set(read.ids)
    assert "2 files" in read.text
    assert ran("report", tmp_path / "missing", "-o", tmp_path / "other.html").exit_code == USAGE
    assert not (tmp_path / "other.html").exists()


def test_a_folder(tmp_path: Path) -> None:
    saves, output = tmp_path / "saves", tmp_path / "saves" / "page.html"
    saves.mkdir()
    shutil.copyfile(SIDECAR, saves / "a.slot")
    shutil.copyfile(f"{SIDECAR}.ckpt", saves / "a.slot.ckpt")
    shutil.copyfile(HYBRID, saves / "b.slot")
    (saves / "notes.txt").write_text("nothing of ours")
    for _ in range(2):  # the second time with the page in the folder
        result = ran("report", saves, "-o", output, "--force", "--fail-on", "never")
        assert result.exit_code == SOUND, result.output
        page = output.read_text()
        assert re.findall(r'<h2 class="name" id="(\w+)">([^<]*)', page) == [
            ("f1", "a.slot"),
            ("f2", "b.slot"),
        ]


def test_what_cannot_be_looked_at_hides_no_other(tmp_path: Path) -> None:
    saves, output = tmp_path / "saves", tmp_path / "page.html"
    for name in ("open", "listed only", "closed"):
        (saves / name).mkdir(parents=True)
        shutil.copyfile(HYBRID, saves / name / "a.slot")
    (saves / "listed only").chmod(0o600)
    (saves / "closed").chmod(0o300)
    try:
        done = powerless("report", saves, "-o", output, "--fail-on", "never")
        alone = powerless("report", saves / "listed only/a.slot", "-o", tmp_path / "none.html")
    finally:
        for folder in saves.iterdir():
            folder.chmod(0o700)
    assert done.returncode == USAGE
    assert done.stderr.splitlines() == [
        f"slotscope: {saves}/{name}: Permission denied" for name in ("closed", "listed only/a.slot")
    ]
    assert output.read_text().count('<h2 class="name"') == 1
    assert alone.returncode == USAGE
    assert "Permission denied" in alone.stderr


def test_many_files_are_folded_the_worst_first(tmp_path: Path) -> None:
    saves, output = tmp_path / "saves", tmp_path / "page.html"
    saves.mkdir()
    for n in range(8):
        shutil.copyfile(HYBRID, saves / f"{n}.slot")
    ran("report", saves, "-o", output, "--build", "b11549")
    assert "fold" not in [one.get("class") for one in sound(output.read_text()).of("details")]
    for name in ("y.slot", "z.slot"):
        shutil.copyfile(CUT, saves / name)
    assert ran("report", saves, "-o", output, "--force", "--build", "b11549").exit_code == FINDINGS
    page = output.read_text()
    folds = [one for one in sound(page).of("details") if one.get("class") == "fold"]
    assert ["open" in one for one in folds] == [True] * 2 + [False] * 8
    names = ["y.slot", "z.slot", *(f"{n}.slot" for n in range(8))]
    assert re.findall(r'<h2 class="name" id="\w+">([^<]*)', page) == names
    assert re.findall(r'<td><a href="#\w+">([^<]*)', page) == names


def test_what_kills_a_server_comes_before_what_it_refuses(tmp_path: Path) -> None:
    """Then errors in what it takes, then warnings, whatever their names."""
    saves, output = tmp_path / "saves", tmp_path / "page.html"
    saves.mkdir()
    shutil.copyfile(HYBRID, saves / "a sound.slot")
    damaged = HYBRID.parents[1] / "damaged"
    for name, sample in (
        ("b warning.slot", "ggsq4.hybrid--appendix.blob-empty.slot"),
        ("c error.slot", "ggsq4.iswa--checkpoint.window-gap.slot"),
        ("d refused.slot", "ggsq2.kv--file.truncated.slot"),
    ):
        shutil.copyfile(damaged / sample, saves / name)
    (saves / "e aborts.slot").write_bytes(HYBRID.read_bytes()[:0x7000])
    ran("report", saves, "-o", output, "--build", "b11549")
    names = re.findall(r'<td><a href="#\w+">\w ([^<]*).slot', output.read_text())
    assert names == ["aborts", "refused", "error", "warning", "sound"]


def test_the_size_is_bounded(tmp_path: Path) -> None:
    """The worst there is: numbers that differ everywhere in 80 layers, cells in no order."""
    numbers, path = random.Random(1), tmp_path / "wide.slot"
    scales = [2.0 ** -numbers.randrange(12) for _ in range(4_099)]

    def values(part: str, layer: int, pos: int, size: int) -> bytes:
        return np.float16(scales[(pos // 20 + 331 * layer) % len(scales)]).tobytes()

    def written(n: int, layers: int, order: list[int]) -> str:
        rows = (Row(F16, 2),) * layers
        cache = Cache((tuple(Cell(pos) for pos in order),), rows, rows)
        slot = Slot(2, Tokens(tuple(range(n))), Memory({"attn": cache}, DIALECTS[""]))
        path.write_bytes(pack(slot, values).data)
        page = page_of(path, deep=True, build="b10229")
        sound(page)
        return page

    assert 100_000 < len(written(1_000, 80, list(range(1_000)))) < 500_000
    order = list(range(200_000))
    numbers.shuffle(order)
    page = written(200_000, 1, order)
    assert "not in order" in page
    assert len(page) < 100_000


# Colours


def luminance(colour: str) -> float:
    """Relative luminance. Source: WCAG 2.2."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


PARTS = ("attention", "swa", "recurrent", "indexer", "checkpoints", "tokens", "other")
TEXTS = [
    *itertools.product(("ink", "quiet", "link"), ("page", "card")),
    *itertools.product(("good", "warn", "bad", "note"), ("card",)),
    *(("ink", part) for part in PARTS),
    *itertools.product(("ink", "quiet", "link"), ("bad-soft", "warn-soft", "note-soft")),
    *((tone, f"{tone}-soft") for tone in ("bad", "warn", "note")),
    *(("card", tone) for tone in ("bad", "warn", "note")),
]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_can_be_read(theme: dict[str, str]) -> None:
    assert LIGHT.keys() == DARK.keys()
    low = [
        (a, b, contrast(theme[a], theme[b])) for a, b in TEXTS if contrast(theme[a], theme[b]) < 4.5
    ]
    assert not low
    for line in ("before", "after", "bad", "note"):
        assert contrast(theme[line], theme["card"]) >= 3


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_scale_of_heat_is_ordered_by_lightness(theme: dict[str, str]) -> None:
    """Who sees no colours sees the order all the same, and every step."""
    lightness = [116 * luminance(theme[f"h{step}"]) ** (1 / 3) - 16 for step in range(9)]
    steps = np.diff(lightness)
    assert (steps > 4).all() or (steps < -4).all(), steps
    away = abs(lightness[-1] - (116 * luminance(theme["card"]) ** (1 / 3) - 16))
    assert away > 50  # the most stands out from the page, in light and in dark
