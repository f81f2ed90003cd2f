"""`slotscope layouts ID --export`: every layout in other languages, compiled where they can be."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from formats.layouts import all_layouts
from inspector.cli.app import app
from inspector.export import identifier, types_of
from inspector.identify import identify
from inspector.render.imhex import hexpat
from inspector.render.kaitai import ksy
from inspector.source import opened
from samples.make import HERE as SAMPLES

NODE_MODULES = os.environ.get("SLOTSCOPE_KAITAI", "")
"""A folder in which `npm install kaitai-struct-compiler yaml` was run."""
UNSAID = 8
"""Samples of layouts whose sizes follow from what these languages do not have."""
COMPILE = """
const K = require("kaitai-struct-compiler"), Y = require("yaml"), fs = require("fs");
const compiler = typeof K === "function" ? new K() : K;
(async () => {
  for (const file of fs.readdirSync(process.argv[2])) {
    const text = fs.readFileSync(process.argv[2] + "/" + file, "utf8");
    const made = await compiler.compile("python", Y.parse(text), null, false);
    for (const name in made) fs.writeFileSync(process.argv[3] + "/" + name, made[name]);
  }
})().catch((error) => { console.error(error); process.exit(1); });
"""


def test_every_layout_is_exported() -> None:
    for layout in all_layouts():
        types = types_of(layout)
        names = [one.name for one in types]
        assert len(names) == len(set(names)), layout.id
        for one in types:
            fields = [field.name for field in one.fields]
            assert len(fields) == len(set(fields)), (layout.id, one.name)
            assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in (one.name, *fields))
        assert f"id: {identifier(layout.id)}\n" in ksy(layout)
        pattern = hexpat(layout)
        assert pattern.count("{") == pattern.count("}")
        declared = re.findall(r"^struct (\w+)", pattern, re.MULTILINE)
        assert declared[-1] == "File"


def test_command() -> None:
    done = CliRunner().invoke(app, ["layouts", "ggsq2.kv", "--export", "ksy"])
    assert done.exit_code == 0
    assert "size: (k_size_row * _parent.cell_count)" in done.output
    done = CliRunner().invoke(app, ["layouts", "ggsq2.kv", "--export", "hexpat"])
    assert "u8 data[(k_size_row * parent.cell_count)]" in done.output
    for wrong in (["layouts", "--export", "ksy"], ["layouts", "ggsq2.kv", "--export", "xml"]):
        assert CliRunner().invoke(app, wrong).exit_code == 2


def samples() -> Iterator[tuple[Path, str, int]]:
    """Intact samples, their layouts, and where those end."""
    for path in sorted((SAMPLES / "intact").iterdir()):
        if path.suffix in (".toml", ".json"):
            continue
        with opened(path) as source:
            reading = identify(source).reading
            if reading is not None and not reading.decoding.root.span.start:
                yield path, reading.layout.id, reading.decoding.end


@pytest.mark.skipif(
    not NODE_MODULES or shutil.which("node") is None,
    reason="SLOTSCOPE_KAITAI names no folder with kaitai-struct-compiler and yaml",
)
def test_compiled_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All compile, and read the samples to their ends, but for those that say that they cannot."""
    runtime = pytest.importorskip("kaitaistruct")
    specs, made = tmp_path / "specs", tmp_path / "made"
    specs.mkdir()
    made.mkdir()
    layouts = {layout.id: layout for layout in all_layouts()}
    for layout in layouts.values():
        (specs / f"{layout.id}.ksy").write_text(ksy(layout))
    script = Path(NODE_MODULES, "slotscope-compile.js")
    script.write_text(COMPILE)
    subprocess.run(["node", script, specs, made], check=True)
    assert len(list(made.iterdir())) == len(layouts)
    monkeypatch.syspath_prepend(str(made))
    unsaid = []
    for path, layout_id, end in samples():
        name = identifier(layout_id)
        kind = getattr(importlib.import_module(name), "".join(map(str.capitalize, name.split("_"))))
        stream = runtime.KaitaiStream(io.BytesIO(path.read_bytes()))
        try:
            kind(stream)
            whole = stream.pos() == end
        except EOFError:
            whole = False
        remarked = any(field.remark for one in types_of(layouts[layout_id]) for field in one.fields)
        assert whole or remarked, path.name
        unsaid += [] if whole else [path.name]
    assert len(unsaid) <= UNSAID, json.dumps(unsaid)
