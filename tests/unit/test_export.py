"""`slotscope layouts ID --export`; tests/oracle compiles what is exported."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from formats.layouts import all_layouts
from inspector.cli.app import app
from inspector.export import identifier, types_of
from inspector.render.imhex import hexpat
from inspector.render.kaitai import ksy


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
