"""Names of builds, and what the builds of these names do."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.server.servers import (
    CHANGES,
    FORKS,
    NEWEST,
    RELEASES,
    Build,
    Carrier,
    build_named,
    carriers,
    ggsq_version,
    uncertain,
)


def named(text: str | None) -> Build:
    found = build_named(text)
    assert isinstance(found, Build), found
    return found


@pytest.mark.parametrize(
    ("text", "server", "label", "number", "day"),
    [
        (None, "llama.cpp", "b11549", 11549, None),
        ("b11549", "llama.cpp", "b11549", 11549, None),
        ("8156", "llama.cpp", "b8156", 8156, None),
        (" b8156 ", "llama.cpp", "b8156", 8156, None),
        ("llama.cpp@b8156", "llama.cpp", "b8156", 8156, None),
        ("b11429-d81235049", "llama.cpp", "b11429", 11429, None),
        ("v0.6.0", "llama.cpp", "b11429", 11429, None),
        ("0.4.0", "llama.cpp", "b10809", 10809, None),
        ("turboquant@b9079", "turboquant", "turboquant@b9079", 8871, None),
        ("turboquant@69d8e4be4", "turboquant", "turboquant@69d8e4be4", 8871, None),
        ("llama-hdd@b9600", "llama-hdd", "llama-hdd@b9600", 9600, None),
        ("bongo", "bongo", "bongo", 11223, None),
        ("ik", "ik_llama.cpp", "ik@2026-08-15", None, "2026-08-15"),
        ("ik@2026-03-01", "ik_llama.cpp", "ik@2026-03-01", None, "2026-03-01"),
        ("ik_llama.cpp@20260301", "ik_llama.cpp", "ik@20260301", None, "2026-03-01"),
        ("ik@528cadb", "ik_llama.cpp", "ik@528cadb", None, "2026-02-15"),
        ("ik@8337e4cd3abc", "ik_llama.cpp", "ik@8337e4cd3abc", None, "2026-08-15"),
    ],
)
def test_names(
    text: str | None, server: str, label: str, number: int | None, day: str | None
) -> None:
    build = named(text)
    assert (build.server, build.label, build.number, build.date) == (server, label, number, day)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no build"),
        ("b0", "is no build"),
        ("b1234567", "is no build"),
        ("newest", "is no build"),
        ("v9.9.9", "v9.9.9 is not known"),
        ("koboldcpp@1", "no server is called 'koboldcpp'"),
        ("ik@yesterday", "no day of ik_llama.cpp"),
        ("ik@2026-13-01", "no day of ik_llama.cpp"),
        ("turboquant@newest", "no build of turboquant"),
        ("@", "no server is called ''"),
    ],
)
def test_names_of_nothing(text: str, reason: str) -> None:
    found = build_named(text)
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("b12000", "b11549"),
        ("ik@2027-01-01", "2026-08-15"),
        ("llama-hdd", "b9473"),
        ("turboquant@b9600", "b8871"),
        ("turboquant@cff2ea367", "b8871"),
        ("turboquant@b9079", "pull request 206"),
    ],
)
def test_guesses_are_named(text: str, guess: str) -> None:
    assert any(guess in words for words in named(text).assumed)


@given(st.text())
def test_any_text_is_a_build_or_none(text: str) -> None:
    assert isinstance(build_named(text), Build | str)
    assert isinstance(build_named(f"ik@{text}"), Build | str)
    assert isinstance(build_named(f"turboquant@{text}"), Build | str)


def test_known_builds_need_no_guess() -> None:
    for text in (None, "b8156", "v0.5.0", "ik@2026-08-15"):
        assert named(text).assumed == ()


def test_bounds_of_changes() -> None:
    for name, first in (("packed-tokens", 10388), ("truncation-aborts", 7725), ("seq-id", 5485)):
        assert not named(f"b{first - 1}").has(name)
        assert named(f"b{first}").has(name)
        assert named(None).has(name)
    assert named("b9057").has("blob-seq-id-checked")
    assert not named("b9058").has("blob-seq-id-checked")


def test_a_build_inside_an_interval_is_uncertain() -> None:
    assert not uncertain(named("b11192"), "cell-count-first")
    for number in (11193, 11199):
        assert named(f"b{number}").has("cell-count-first")
        assert uncertain(named(f"b{number}"), "cell-count-first")
    assert not uncertain(named("b11200"), "cell-count-first")
    assert not uncertain(named("b11193"), "packed-tokens")
    assert not uncertain(named("ik"), "cell-count-first")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("b2629", None),
        ("b2630", 1),
        ("b3483", 2),
        ("b10587", 2),
        ("v0.3.0", 2),
        ("v0.4.0", 3),
        ("v0.5.0", 3),
        ("v0.6.0", 4),
        ("turboquant@b9079", 2),
        ("ik@2024-08-12", 2),
        ("ik@2026-02-16", 3),
        ("ik@2026-07-17", 3),
        ("ik@2026-07-18", 4),
    ],
)
def test_every_build_reads_one_version(text: str, version: int | None) -> None:
    assert ggsq_version(named(text)) == version


def test_forks_differ_from_what_they_follow() -> None:
    turboquant, upstream = named("turboquant@b9079"), named("b8871")
    assert upstream.has("rotation")
    assert not turboquant.has("rotation")
    assert turboquant.has("truncation-aborts")
    assert turboquant.has("tip-fallback")
    assert not upstream.has("tip-fallback")
    assert not turboquant.has("tip-fallback-crashes")
    assert named("turboquant@cff2ea36").has("tip-fallback-crashes")


def test_ik_has_little_of_upstream() -> None:
    ik = named("ik")
    assert ik.has("cell-count-first")
    assert not named("ik@2026-08-05").has("cell-count-first")
    for name in ("packed-tokens", "n-stream", "truncation-aborts", "sckp", "rotation-words"):
        assert not ik.has(name)


def test_what_reads_which_checkpoints() -> None:
    assert carriers(named("b11434")) == ()
    assert carriers(named("b11549")) == (Carrier("sckp", 1, ""),)
    assert carriers(named("turboquant@b9079")) == (Carrier("pkcl", 1, ".ckpt"),)
    assert carriers(named("ik@2026-04-04")) == ()
    assert carriers(named("ik@2026-04-05")) == (Carrier("ik-checkpoints", 3, ".checkpoints"),)
    assert carriers(named("siliang")) == (Carrier("slck", 1, ".ckpt"), Carrier("sckp", 1, ""))


def test_the_table_is_in_order() -> None:
    for name, change in CHANGES.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert change.says
        assert change.source
        for day in (change.ik, change.ik_until):
            assert day is None or date.fromisoformat(day)
        if change.since is None:
            assert change.sure is None
            continue
        assert 0 < change.since <= (change.sure or change.since) <= NEWEST
        assert change.until is None or change.since <= change.until < NEWEST


def test_every_fork_is_a_build() -> None:
    for fork in FORKS.values():
        assert named(fork.name).number == fork.otherwise
        assert fork.adds | fork.lacks | set(fork.at.values()) <= CHANGES.keys()
        for own, number in fork.follows.items():
            assert named(f"{fork.name}@{own}").number == number
    for release, number in RELEASES.items():
        assert named(f"v{release}").number == number
