"""Exported layouts, compiled by Kaitai Struct's own compiler, read the samples as we do."""

from __future__ import annotations

import importlib
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from formats.layouts import all_layouts
from inspector.decode import decode
from inspector.export import identifier, types_of
from inspector.identify import identify
from inspector.node import Kind, Node, Rows
from inspector.render.kaitai import ksy
from inspector.source import opened
from samples.make import HERE as SAMPLES
from tests.oracle.builds import cache

pytestmark = pytest.mark.oracle

COMPILER = ("kaitai-struct-compiler@0.11.0", "yaml@2.8.1")
RUNTIME = "kaitaistruct==0.11"
UNSAID = 8
"""Samples of layouts whose sizes follow from what that language does not have."""
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
_ROWS = 64
"""Of a table that are compared."""


def fetched(name: str, *command: str | Path) -> Path:
    """A folder of the cache that a command filled, once."""
    home = cache() / name
    if not (home / "done").exists():
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run([*command], cwd=home, check=True, stdout=subprocess.DEVNULL)
        (home / "done").touch()
    return home


@pytest.fixture(scope="module")
def parsers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a Python parser of every layout, which can be imported."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no npm, which brings the compiler of Kaitai Struct")
    npm = ("npm", "install", "--no-audit", "--no-fund", "--prefix", ".", *COMPILER)
    compiler = fetched(COMPILER[0], *npm)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", ".")
    runtime = fetched(RUNTIME, *pip, RUNTIME)
    specs, made = tmp_path_factory.mktemp("specs"), tmp_path_factory.mktemp("parsers")
    for layout in all_layouts():
        (specs / f"{layout.id}.ksy").write_text(ksy(layout))
    script = compiler / "compile.js"
    script.write_text(COMPILE)
    subprocess.run(["node", script, specs, made], check=True)
    sys.path[:0] = [str(made), str(runtime)]
    yield made
    del sys.path[:2]


def test_every_layout_compiles(parsers: Path) -> None:
    assert len(list(parsers.glob("*.py"))) == len(all_layouts())


def test_samples_read_alike(parsers: Path) -> None:
    """To their ends and field by field, but for those of layouts that say that they cannot."""
    runtime = importlib.import_module("kaitaistruct")
    layouts = {layout.id: layout for layout in all_layouts()}
    unsaid, fields = [], 0
    for path in sorted((SAMPLES / "intact").iterdir()):
        if path.suffix in (".toml", ".json"):
            continue
        with opened(path) as source:
            reading = identify(source).reading
            if reading is None or reading.decoding.root.span.start:
                continue
            layout = layouts[reading.layout.id]
            decoding = decode(source, layout, source.whole())
            data = path.read_bytes()
            parsed, whole = parse(runtime, layout.id, data, decoding.end)
            if whole:
                seen = list(differences(decoding.root, parsed, layout.id, data))
                fields += sum(1 for one in seen if not one)
                wrong = [one for one in seen if one]
                assert not wrong, (path.name, wrong[:5])
                continue
            assert any(field.remark for one in types_of(layout) for field in one.fields), path.name
            unsaid.append(path.name)
    print(fields, unsaid)
    assert len(unsaid) <= UNSAID, json.dumps(unsaid)
    assert fields > 20_000


def parse(runtime: ModuleType, layout_id: str, data: bytes, end: int) -> tuple[Any, bool]:
    """What the parser of a layout makes of a file, and whether it ends where we end."""
    name = identifier(layout_id)
    kind = getattr(importlib.import_module(name), "".join(map(str.capitalize, name.split("_"))))
    stream = runtime.KaitaiStream(io.BytesIO(data))
    try:
        return kind(stream), stream.pos() == end
    except EOFError:
        return None, False


def differences(node: Node, parsed: Any, path: str, data: bytes) -> Iterator[str]:
    """For everything that both read: nothing if it is alike, else what is not."""
    for child in node.children:
        if child.kind is Kind.GAP:
            continue
        own = f"{path}.{child.name}"
        name = re.compile(rf"{identifier(child.name)}(_otherwise|_\d+)*")
        found = [value for key, value in vars(parsed).items() if name.fullmatch(key)]
        if not found:
            yield f"{own} is not there"
            continue
        yield from one_of(child, found[0], own, data)


def one_of(node: Node, parsed: Any, path: str, data: bytes) -> Iterator[str]:
    if isinstance(node.value, Rows):
        table = node.value.table[:_ROWS]
        yield "" if len(parsed) == len(node.value) else f"{path}: {len(parsed)} rows"
        for row, item in zip(table, parsed, strict=False):
            for column in table.dtype.names or ():
                name, _, place = column.partition("[")
                value = getattr(item, identifier(name), item)
                value = value[int(place[:-1])] if place else value
                same = value == row[column].item()
                yield "" if same else f"{path}.{column}: {value} instead of {row[column]}"
    elif node.kind is Kind.SERIES:
        yield "" if len(parsed) == len(node.children) else f"{path}: {len(parsed)} items"
        for child, item in zip(node.children, parsed, strict=False):
            yield from one_of(child, item, f"{path}{child.name}", data)
    elif node.kind is Kind.PAYLOAD:
        same = parsed == data[node.span.start : node.span.stop]
        yield "" if same else f"{path}: {len(parsed)} bytes, {len(node.span)} of ours"
    elif node.children:
        yield from differences(node, parsed, path, data)
    elif isinstance(node.value, int | float):
        yield "" if parsed == node.value else f"{path}: {parsed} instead of {node.value}"
