"""Repairs on servers here and now: a save that fails or serves nothing, and its repaired copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.state import Refused
from inspector.report import examined
from inspector.server.target import target_of
from tests.oracle.repairs import (
    DIES,
    NEW,
    PLAIN,
    REFUSED,
    WRONG,
    Case,
    Save,
    Stored,
    Workshop,
    model_of,
    outcomes,
    ran,
    repaired,
    steps_left,
)
from tests.oracle.trial import Bench
from tests.oracle.whole import Whole

pytestmark = pytest.mark.oracle

FOUR = "-c 2048 -np 4 --no-kv-unified --cache-ram 0"
OFF = f"-c 512 {PLAIN} -fa off"
ON = f"-c 512 {PLAIN} -fa on"
BATCHES = f"-c 512 {PLAIN} -ub 64"
"""With batches so small that prompts have several, and that windowed caches have 256 cells."""
BARE = f"{BATCHES} --ctx-checkpoints 0"
"""Saves of it hold no checkpoints; it reads none."""


def last_record(member: str, by: int) -> Callable[[Whole], bytes]:
    """The last checkpoint with another number."""
    return lambda whole: whole.changed(
        f"appendix.records[{whole.last_record}].{member}", lambda n: n + by
    )


def all_numbers_lower(whole: Whole) -> bytes:
    """The last checkpoint with numbers none of which is that of its blob."""
    record = f"appendix.records[{whole.last_record}]"
    paths = [f"{record}.{name}" for name in ("n_tokens", "pos_min", "pos_max")]
    return whole.with_numbers({path: whole.number(path) - 2 for path in paths})


def word(path: str, by: int) -> Callable[[Whole], bytes]:
    """A word with another number."""
    return lambda whole: whole.changed(path, lambda n: n + by)


def cut(whole: Whole) -> bytes:
    """Without the last byte, which a full disk did not take."""
    return whole.data[:-1]


def zeros(whole: Whole) -> bytes:
    """With the rest of a block behind it."""
    return whole.data + bytes(64)


def last_blob(change: Callable[[bytes], bytes]) -> Callable[[Whole], bytes]:
    """The last checkpoint with another blob, and the length of that."""

    def changed(whole: Whole) -> bytes:
        record = f"appendix.records[{whole.last_record}]"
        size, blob = (whole.nodes[f"{record}.{name}"].span for name in ("n_tgt", "data_tgt"))
        new = change(whole.data[blob.start : blob.stop])
        length = len(new).to_bytes(len(size), "little")
        return whole.data[: size.start] + length + new + whole.data[blob.stop :]

    return changed


VERSIONS = [
    Case(Save("llama-gqa", 10809), 10566, "restamp", {"append": (REFUSED, 100)}),
    Case(Save("llama-gqa", 10566), 10809, "restamp", {"append": (REFUSED, 100)}),
    Case(Save("llama-gqa", 10229), 11063, "restamp", {"append": (REFUSED, 100)}),
    Case(Save("deepseek2-mla", 10229), 10809, "restamp", {"append": (REFUSED, 100)}),
    Case(Save("llama-gqa", 10566), 10229, "unpack-tokens", {"append": (0, 100)}),
    Case(Save("lfm2", 10566), 9538, "unpack-tokens", {"append": (0, 100)}),
    Case(Save("mamba", 11063), 10229, "restamp unpack-tokens", {"append": (REFUSED, 100)}),
    *(
        Case(Save(model, before), 11549, "relayout", {"append": (REFUSED, 100)})
        for model, before in (
            ("llama-gqa", 7551),
            ("llama-gqa", 10229),
            ("llama-gqa", 11063),
            ("qwen2vl", 7551),
            ("qwen2vl", 8672),
            ("qwen2vl", 10229),
            ("qwen2vl", 11063),
            ("deepseek2-mla", 8672),
            ("deepseek2-mla", 10229),
        )
    ),
    Case(
        Save("deepseek2-mla", 7551),
        10229,
        "drop-values swap-latent-keys",
        {"append": (WRONG, 100)},
    ),
    Case(Save("qwen35", 8156), 8672, "transpose-states relayout", {"append": (REFUSED, 100)}),
    *(
        Case(Save(model, 10229), 11549, "relayout synthesize-tip", {"append": (REFUSED, 99)})
        for model in ("gemma3-iswa", "gptoss")
    ),
    *(
        Case(Save(model, 10229), 11549, "relayout synthesize-tip", {"append": (REFUSED, 100)})
        for model in ("lfm2", "jamba", "qwen35")
    ),
    Case(Save("mamba", 10229), 11549, "restamp synthesize-tip", {"append": (REFUSED, 100)}),
    *(
        Case(Save(model, 11549), reads, "relayout unpack-tokens", {"append": (REFUSED, 100)})
        for model, reads in (
            ("llama-gqa", 7551),
            ("llama-gqa", 10229),
            ("qwen2vl", 7551),
            ("qwen2vl", 8672),
            ("qwen2vl", 10229),
            ("deepseek2-mla", 10229),
        )
    ),
    *(
        Case(
            Save(model, 11549),
            10229,
            "relayout unpack-tokens drop-checkpoints",
            {"append": (REFUSED, 100)},
        )
        for model in ("lfm2", "jamba", "qwen35")
    ),
    *(
        Case(
            Save(model, 11549),
            10229,
            "relayout unpack-tokens drop-checkpoints window-anchor",
            {"append": (REFUSED, 100)},
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
    Case(
        Save("mamba", 11549),
        10229,
        "restamp unpack-tokens drop-checkpoints",
        {"append": (REFUSED, 100)},
    ),
]

AGES = [
    Case(
        Stored(model, f"corpus/{model}.{age}.lib-plain.seq.bin"),
        11549,
        steps,
        {"append": (REFUSED, 10)},
        ON,
    )
    for model, age, steps in (
        ("llama-gqa", "2024-06", "relayout transpose-values"),
        ("llama-gqa", "2024-09", "relayout transpose-values"),
        ("qwen2vl", "b5671", "relayout transpose-values"),
        ("mamba", "b3889", "restamp synthesize-tip"),
    )
]
"""More of them are in `test_old_layouts`."""

SESSIONS = [
    Case(Stored(model, f"corpus/{name}.session.bin"), reads, steps, {"append": (REFUSED, n)}, ON)
    for model, name, reads, steps, n in (
        ("llama-gqa", "llama-gqa.b3889.lib-fa", 10229, "from-session relayout", 10),
        ("llama-gqa", "llama-gqa.b5937.lib-plain", 10229, "from-session transpose-values", 10),
    )
]
"""More of them are in `test_old_layouts`, and the other way round in `test_sessions`."""

LAYERS = [
    Case(Save("glm4moe-nextn", wrote), reads, steps, {"append": (REFUSED, 100)})
    for wrote, reads, steps in (
        (10809, 11063, "drop-layers"),
        (10809, 11549, "drop-layers relayout"),
        (10229, 11063, "drop-layers restamp"),
        (10229, 11549, "drop-layers relayout"),
    )
]

STREAMS = [
    Case(Save("llama-gqa", 10229, 100, FOUR, 2), 10229, "fit-streams", {"append": (REFUSED, 100)}),
    Case(Save("llama-gqa", 11549, 100, FOUR, 2), 11549, "fit-streams", {"append": (REFUSED, 100)}),
    Case(Save("llama-gqa", 11549), 11549, "fit-streams", {"append": (REFUSED, 100)}, FOUR),
    *(
        Case(
            Save(model, 11549, 100, FOUR, 2),
            11549,
            "fit-streams",
            {"append": (REFUSED, append), "identical": (REFUSED, identical)},
        )
        for model, append, identical in (
            ("gemma3-iswa", 95, 95),
            ("lfm2", 100, 96),
            ("qwen35", 100, 96),
            ("jamba", 100, 96),
        )
    ),
    Case(
        Save("lfm2", 11549),
        11549,
        "fit-streams",
        {"append": (REFUSED, 100), "identical": (REFUSED, 96)},
        FOUR,
    ),
]

VALUES = [
    *(
        Case(
            Save(model, 11549, 100, wrote),
            11549,
            "transpose-values",
            {"append": (REFUSED, append)},
            reads,
        )
        for wrote, reads in ((OFF, ON), (ON, OFF))
        for model, append in (
            ("llama-gqa", 100),
            ("gemma3-iswa", 95),
            ("qwen2vl", 100),
            ("lfm2", 100),
            ("qwen35", 100),
            ("jamba", 100),
        )
    ),
    Case(
        Save("llama-gqa", 10229, 100, OFF),
        10229,
        "transpose-values",
        {"append": (REFUSED, 100)},
        ON,
    ),
]

ENDS = [
    *(
        Case(
            Save("llama-gqa", build, 300),
            build,
            "trim",
            {"back to 230": (REFUSED, 230)},
            f"-c 256 {PLAIN}",
            "--allow-loss",
        )
        for build in (10229, 11549)
    ),
    Case(
        Save("gemma3-iswa", 7551, 300),
        10229,
        "trim",
        {"back to 230": (REFUSED, 230)},
        f"-c 256 {PLAIN}",
        "--allow-loss",
    ),
    Case(
        Save("gemma3-iswa", 7551, 400),
        10229,
        "trim-window window-anchor",
        {"append": (REFUSED, 400)},
        BATCHES,
    ),
    Case(
        Save("gemma3-iswa", 7551, 400),
        11549,
        "relayout trim-window synthesize-tip",
        {"append": (REFUSED, 399)},
        BATCHES,
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11549,
            "materialize",
            {"back 8": (0, 232), "append": (300, 232)},
            BARE,
            "--at 292 --only materialize",
        )
        for model in ("lfm2", "mamba", "qwen35", "jamba")
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11063,
            "materialize relayout drop-checkpoints",
            {"back 8": (REFUSED, 232)},
            options="--at 292",
        )
        for model in ("lfm2", "qwen35")
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11063,
            "materialize relayout drop-checkpoints window-anchor",
            {"back 8": (REFUSED, 232)},
            options="--at 292",
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
    *(
        Case(
            Stored(model, f"corpus-fork/{name}/slot.bin"),
            10229,
            steps,
            {"back 8": (0, n)},
            options="--at 255" if n < 200 else "--at 295",
        )
        for model, name, steps, n in (
            ("qwen35", "qwen35-pkcl", "materialize drop-checkpoints", 236),
            ("mamba", "mamba-pkcl", "materialize drop-checkpoints", 196),
            ("jamba", "jamba-llcp", "materialize drop-checkpoints", 196),
        )
    ),
]

CHECKPOINTS = [
    *(
        Case(
            Stored(model, f"corpus-fork/{name}/slot.bin"),
            11549,
            f"{form} convert-checkpoints",
            {"append": (REFUSED, append), "back 8": (REFUSED, back)},
        )
        for model, name, form, append, back in (
            ("qwen35", "qwen35-pkcl", "relayout", 303, 236),
            ("mamba", "mamba-pkcl", "restamp", 263, 196),
            ("jamba", "jamba-llcp", "relayout", 263, 196),
            ("gemma3-iswa", "gemma3-pkcl", "relayout", 303, 295),
        )
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11549,
            steps,
            {"identical": (DIES, reused)},
            BATCHES,
            damage=damage,
        )
        for steps, damage, reused in (
            ("mend-list", last_record("n_tokens", -1), 296),
            ("drop-checkpoints", all_numbers_lower, 232),
        )
        for model in ("lfm2", "mamba", "qwen35", "jamba")
    ),
]

LISTS = [
    *(
        Case(Save(model, 11549, 300, BATCHES), 11549, steps, reused, BATCHES, damage=damage)
        for steps, damage, ends in (
            ("mend-list", word("appendix.version", 1), (0, 296)),
            ("drop-checkpoints mend-list", cut, (0, 232)),
            ("correct-word", word("appendix.magic", 32), (0, 296)),
            ("correct-word", word("appendix.count", 1), (0, 296)),
        )
        for model, reused in (
            *((name, {"identical": ends}) for name in ("lfm2", "mamba", "qwen35", "jamba")),
            *(
                (name, {"append": (0, ends[1] - 1)})
                for name in ("gemma3-iswa", "gptoss")
                if damage is not cut
            ),
        )
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11549,
            "drop-checkpoints mend-list window-anchor",
            {"append": (0, 300), "identical": (0, 231)},
            BATCHES,
            damage=cut,
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11549,
            "mend-list",
            {"identical": (0, 296)},
            BATCHES,
            damage=last_blob(change),
        )
        for model in ("lfm2", "mamba", "qwen35", "jamba")
        for change in (lambda blob: blob[8:], lambda blob: blob + b"behind")
    ),
    *(
        Case(
            Save(model, 11549, 300, BATCHES),
            11549,
            "mend-list",
            {"identical": (0, 295)},
            BATCHES,
            damage=last_blob(lambda blob: blob + b"behind"),
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
    *(
        Case(
            Save(model, 11549, 100, BARE),
            11549,
            "strip-trailing synthesize-tip",
            {request: (0, 100 - windowed)},
            BATCHES,
            damage=zeros,
        )
        for model, request, windowed in (
            ("gemma3-iswa", "append", 1),
            ("gptoss", "append", 1),
            ("lfm2", "append 100, then back", 0),
            ("mamba", "append 100, then back", 0),
            ("qwen35", "append 100, then back", 0),
        )
    ),
]

TIPS = [
    *(
        Case(
            Save(model, 11549, 100, BARE),
            11549,
            "synthesize-tip",
            {"append": (0, 99), "append 100, then back": (100, 99)},
            BATCHES,
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
    *(
        Case(
            Save(model, 11549, 100, BARE),
            11549,
            "synthesize-tip",
            {"append": (100, 100), "append 100, then back": (0, 100)},
            BATCHES,
        )
        for model in ("lfm2", "mamba", "qwen35", "jamba")
    ),
]

ANCHORS = [
    *(
        Case(
            Save(model, 11549, 100, BATCHES),
            11549,
            "drop-checkpoints window-anchor",
            {"append": (0, 100)},
            BARE,
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
    *(
        Case(
            Save(model, build, 100, BARE),
            build,
            "window-anchor",
            {
                "append": (0, 100),
                "append 150, then back": (100, 100),
                "append 300, then back": (0, 0),
            },
            BATCHES,
            "--only window-anchor" if build == 11549 else "",
        )
        for model in ("gemma3-iswa", "gptoss")
        for build in (9538, 10566, 10809, 11063, 11549)
    ),
    *(
        Case(
            Save(model, 11549, 100, n_predict=101),
            11549,
            "window-anchor",
            {"append": (95, 200), "identical": (95, 95)},
        )
        for model in ("gemma3-iswa", "gptoss")
    ),
]

WORDS = [
    Case(
        Save("llama-gqa", 11549),
        11549,
        "correct-word",
        {"append": (REFUSED, 100)},
        damage=word("attn.streams[0].cell_count", 1),
    ),
    Case(
        Save("qwen35", 11549),
        11549,
        "correct-word",
        {"append": (REFUSED, 100)},
        damage=word("n_token_count", 1),
    ),
    Case(
        Save("gemma3-iswa", 10229),
        10229,
        "correct-word window-anchor",
        {"append": (REFUSED, 100)},
        damage=word("swa.streams[0].cell_count", -1),
    ),
]

CASES: list[Case] = [
    *VERSIONS,
    *AGES,
    *SESSIONS,
    *LAYERS,
    *STREAMS,
    *VALUES,
    *ENDS,
    *CHECKPOINTS,
    *LISTS,
    *TIPS,
    *ANCHORS,
    *WORDS,
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Saves and answers that were made so far in this process."""
    return Workshop(tmp_path_factory.mktemp("saves"))


def test_every_case_gains() -> None:
    for case in CASES:
        pairs = case.reused.values()
        assert any(isinstance(before, str) or before < after for before, after in pairs), str(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_repaired_copy_serves(case: Case, bench: Bench, workshop: Workshop) -> None:
    workshop.put(case.save, bench)
    whole = Whole(bench.path)
    if case.damage is not None:
        bench.path.write_bytes(case.damage(whole))
    said = repaired(case, bench.path)
    assert " ".join(one["action"] for one in said["actions"]) == case.steps, said["refused"]
    assert said["exit"] == 0
    assert not steps_left(case, bench.folder / NEW)
    wrong = list(outcomes(case, whole.tokens, bench, workshop))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", [case for case in VERSIONS if case.steps == "restamp"], ids=str)
def test_a_restamp_changes_four_bytes(case: Case, bench: Bench, workshop: Workshop) -> None:
    old = workshop.put(case.save, bench).read_bytes()
    assert repaired(case, bench.path)["exit"] == 0
    new = (bench.folder / NEW).read_bytes()
    assert len(new) == len(old)
    assert [at for at in range(len(old)) if old[at] != new[at]] == [4]  # of a word of four bytes


REFUSALS = [
    *(
        (Case(Save(model, 10229, 300), 10229, "", {}, f"-c 256 {PLAIN}"), "trim", "no checkpoint")
        for model in ("gemma3-iswa", "gptoss", "lfm2", "mamba", "qwen35", "jamba")
    ),
    (
        Case(Save("llama-gqa", 11549), 11549, "", {}, options="--only synthesize-tip"),
        "synthesize-tip",
        "plain attention can be cut anywhere",
    ),
    (
        Case(Save("gemma3-iswa", 10229), 10229, "", {}, options="--only synthesize-tip"),
        "synthesize-tip",
        "reads no checkpoint lists",
    ),
    (
        Case(Save("lfm2", 10229), 10229, "", {}, options="--only window-anchor"),
        "window-anchor",
        "windowed layers alone",
    ),
    (
        Case(Save("gemma3-iswa", 10229, 20), 10229, "", {}, options="--only window-anchor"),
        "window-anchor",
        "inside the window",
    ),
]


@pytest.mark.parametrize(
    ("case", "action", "why"), REFUSALS, ids=lambda one: getattr(one, "save", None) and str(one)
)
def test_what_cannot_be_is_refused(
    case: Case, action: str, why: str, bench: Bench, workshop: Workshop
) -> None:
    workshop.put(case.save, bench)
    said = repaired(case, bench.path)
    assert [(one["action"], why in one["why"]) for one in said["refused"]] == [(action, True)], said
    assert said["exit"] == 1
    assert said["after"]["restore"]["outcome"] == ("refuses" if action == "trim" else "accepts")


HOPELESS = [
    (Case(Save("deepseek2-mla", 8672), 7551, "", {}), "values are not added"),
    (Case(Save("deepseek2-mla", 10229), 7551, "", {}), "values are not added"),
    (Case(Save("glm4moe-nextn", 11063), 10809, "", {}), "rows are not added"),
]


@pytest.mark.parametrize(("case", "why"), HOPELESS, ids=str)
def test_nothing_is_written_without_what_the_server_stores(
    case: Case, why: str, bench: Bench, workshop: Workshop
) -> None:
    path = workshop.put(case.save, bench)
    command = f"llama-server -m {case.model} {case.flags}"
    with (
        target_of(command, str(case.build)) as target,
        pytest.raises(Refused, match=why),
        planned(path, target, Options(), NEW),
    ):
        pass
    with bench.serve(case.build, case.model, case.flags.split()) as server:
        answer = server.restore(path.name)
    assert (answer.status, answer.death) == (400, ""), answer


FORK = [
    ("qwen35", "qwen35-pkcl", ".ckpt", "pkcl1"),
    ("mamba", "mamba-pkcl", ".ckpt", "pkcl1"),
    ("gemma3-iswa", "gemma3-pkcl", ".ckpt", "pkcl1"),
    ("jamba", "jamba-llcp", ".checkpoints", "llcp1"),
]


@pytest.mark.parametrize(("model", "name", "suffix", "family"), FORK)
def test_a_pair_of_a_fork_comes_back_as_it_was(
    model: str, name: str, suffix: str, family: str, bench: Bench, workshop: Workshop
) -> None:
    path = workshop.put(Stored(model, f"corpus-fork/{name}/slot.bin"), bench)
    server = f"llama-server -m {model_of(model)} -c 512 {PLAIN}"
    there, back = bench.folder / "there.slot", bench.folder / "back.slot"
    said = ran(path, there, "--for", server, "--build", "b11549")
    assert said["exit"] == 0
    assert not there.with_name(there.name + suffix).exists()
    said = ran(there, back, "--for", server, "--build", "turboquant@b9079", "--to", family)
    assert said["exit"] == 0
    assert back.read_bytes() == path.read_bytes()
    beside = back.with_name(back.name + suffix), path.with_name(path.name + suffix)
    assert beside[0].read_bytes() == beside[1].read_bytes()


@pytest.mark.parametrize("model", ["gemma3-iswa", "lfm2", "mamba", "qwen35"])
def test_checkpoints_survive_the_fork(model: str, bench: Bench, workshop: Workshop) -> None:
    path = workshop.put(Save(model, 11549, 300, BATCHES), bench)
    server = f"llama-server -m {model_of(model)} {BATCHES}"
    there = bench.folder / "there.slot"
    said = ran(path, there, "--for", server, "--build", "turboquant@b9079")
    assert said["after"]["restore"]["outcome"] == "accepts"
    assert said["exit"] == 0
    assert [one["action"] for one in said["actions"]][-1] == "convert-checkpoints"
    back = bench.folder / "back.slot"
    assert ran(there, back, "--for", server, "--build", "b11549")["exit"] == 0
    assert records_of(back) == records_of(path)
    assert memory_of(back) == memory_of(path)


def records_of(path: Path) -> list[tuple[object, ...]]:
    """The checkpoints of a file, without the tasks that made them."""
    with examined(path) as report:
        return [
            (one.n_tokens, one.pos_min, one.pos_max, report.source.read_at(span.start, len(span)))
            for one in (held.record for held in report.checkpoints if held.usable)
            if (span := one.data_tgt) is not None
        ]


def memory_of(path: Path) -> bytes:
    """A file behind its tokens and in front of its checkpoints."""
    whole = Whole(path)
    return whole.data[whole.nodes[whole.sections[0]].span.start : whole.end]
