"""`slotscope layouts ID --export`; tests/oracle compiles what is exported."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from formats.layouts import all_layouts, by_id
from inspector.cli.app import app
from inspector.export import identifier, types_of
from inspector.render.imhex import hexpat
from inspector.render.kaitai import ksy

WORDS_OF_IMHEX = re.compile(
    r"if|else|while|for|match|return|break|continue|struct|enum|union|fn|bitfield|unsigned|signed|"
    r"le|be|parent|namespace|using|this|in|out|ref|null|const|try|catch|import|as|is|true|false|"
    r"nan|inf|addressof|sizeof|typenameof|padding|auto|any|float|double|bool|char|char16|str"
)
"""Source: WerWolv/PatternLanguage, lib/include/pl/core/tokens.hpp."""
DECLARED = re.compile(r"^ *(?:be )?\w+(?:<.*>)? (\w+)(?:\[.*\])?(?: \[\[.*)?;$", re.MULTILINE)


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
        named = DECLARED.findall(pattern)
        assert len(named) >= sum(len(one.fields) for one in types)
        assert not [name for name in named if WORDS_OF_IMHEX.fullmatch(name)]
        assert pattern.count("{") == pattern.count("}")
        declared = re.findall(r"^struct (\w+)", pattern, re.MULTILINE)
        assert declared[-1] == "File"
        assert len(declared) == len(set(declared))


def test_command() -> None:
    done = CliRunner().invoke(app, ["layouts", "ggsq2.kv", "--export", "ksy"])
    assert done.exit_code == 0
    assert "size: (k_size_row * _parent.cell_count)" in done.output
    done = CliRunner().invoke(app, ["layouts", "ggsq2.kv", "--export", "hexpat"])
    assert "u8 data[(k_size_row * parent.cell_count)]" in done.output
    for wrong in (["layouts", "--export", "ksy"], ["layouts", "ggsq2.kv", "--export", "xml"]):
        assert CliRunner().invoke(app, wrong).exit_code == 2


def test_pattern_asks_for_what_is_there() -> None:
    """What is there on a condition is asked for within it; frames end what is in them."""
    layout = by_id("ggsq4.hybrid.xyt")
    assert layout is not None
    pattern = re.sub(r" \[\[.*\]\]", "", hexpat(layout))
    assert (
        """        if ((v_trans == 1)) {
            FileAttnStreamsItemVItem v[n_layer];
        }
        else {
            FileAttnStreamsItemVOtherwiseItem v_otherwise[n_layer];
        }
    }
};"""
        in pattern
    )
    assert "    u8 padding_[frame - ($ - addressof(this))];" in pattern
    assert "        FileTokens<(4 * n_token_count)> tokens;" in pattern
