"""Command lines and running servers, and the targets that they are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.server.command import PHANTOMS
from inspector.server.target import BadTarget, FlashAttention, Target, target_of
from tests.support.gguf import model_file

LLAMA = {
    "block_count": 2,
    "context_length": 2048,
    "embedding_length": 64,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
}


def target(command: str | None = None, build: str | None = "b11549", **options: Any) -> Target:
    with target_of(command, build, **options) as found:
        return found


def refused(command: str | None = None, build: str | None = "b11549", **options: Any) -> str:
    with pytest.raises(BadTarget) as caught:
        target(command, build, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "attribute", "value"),
    [
        ("-c 8192", "n_ctx", 8192),
        ("--ctx-size 8192", "n_ctx", 8192),
        ("--ctx_size 8192", "n_ctx", 8192),
        ("--ctx-size=8192", "n_ctx", 8192),
        ("-c 0", "n_ctx", 0),
        ("-c 4096 -c 8192", "n_ctx", 8192),
        ("-np 3", "n_parallel", 3),
        ("--parallel 3", "n_parallel", 3),
        ("-np 3 -kvu", "kv_unified", True),
        ("-np 3 --kv-unified", "kv_unified", True),
        ("-kvu -no-kvu -np 3", "kv_unified", False),
        ("--no-kv-unified --parallel 3", "kv_unified", False),
        ("-ctk q8_0", "type_k", "q8_0"),
        ("--cache-type-k q8_0", "type_k", "q8_0"),
        ("-ctv q4_0", "type_v", "q4_0"),
        ("--cache-type-v iq4_nl", "type_v", "iq4_nl"),
        ("-fa on", "flash_attention", "on"),
        ("-fa 1", "flash_attention", "on"),
        ("--flash-attn off", "flash_attention", "off"),
        ("--flash-attn=auto", "flash_attention", "auto"),
        ("-fa off -fa on", "flash_attention", "on"),
        ("--swa-full", "swa_full", True),
        ("-ctxcp 5", "n_ctx_checkpoints", 5),
        ("--ctx-checkpoints 0", "n_ctx_checkpoints", 0),
        ("--swa-checkpoints 5", "n_ctx_checkpoints", 5),
        ("-cms 256", "checkpoint_min_step", 256),
        ("-b 512", "n_batch", 512),
        ("--ubatch-size 64", "n_ubatch", 64),
        ("-cram 0", "cache_ram", 0),
        ("--cache-ram -1", "cache_ram", -1),
        ("--cache-reuse 256", "cache_reuse", 256),
        ("--no-cache-idle-slots", "cache_idle_slots", False),
        ("--context-shift", "context_shift", True),
        ("--context-shift --no-context-shift", "context_shift", False),
        ("-mm p.gguf", "mmproj", True),
        ("--mmproj p.gguf --no-mmproj", "mmproj", False),
        ("--slot-save-path '/var/my slots'", "slot_save_path", "/var/my slots"),
    ],
)
def test_spellings(words: str, attribute: str, value: object) -> None:
    found = target(f"llama-server {words}")
    assert getattr(found, attribute) == value
    assert attribute in found.said or value in (False,)


@pytest.mark.parametrize(
    "program",
    [
        "",
        "llama-server",
        "./build/bin/llama-server",
        "C:\\llama\\llama-server.exe",
        "CUDA_VISIBLE_DEVICES=0 llama-server",
        "env A=1 llama-server",
        "sudo -u llm nice -n 5 /usr/bin/llama-server",
        "numactl --interleave=all llama-server",
        "docker run --rm -m 8g -v /m:/m ghcr.io/ggml-org/llama.cpp:server-cuda",
        "podman run -c 512 image llama-server",
        "my-server",
    ],
)
def test_what_stands_in_front_of_the_options(program: str) -> None:
    found = target(f"{program} -c 4096 -np 2")
    assert (found.n_ctx, found.n_parallel) == (4096, 2)
    looked_over = {"sudo", "numactl", "docker", "podman", "my-server", "env"}
    assert bool(found.notes) == (program.split(" ")[0] in looked_over)


def test_a_container_whose_image_is_unknown_is_not_guessed_at() -> None:
    found = target("docker run -c 512 registry.local/mine -c 4096")
    assert "n_ctx" not in found.said
    assert "not understood" in found.notes[0]


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -rf /srv/models/llama.gguf",
        "vllm serve some/model -c 4096",
        "/models/Llama-3-8B.gguf -c 4096",
        "numactl --interleave=all ollama -c 4096",
        "A=1 true",
    ],
)
def test_a_command_that_starts_no_server(command: str) -> None:
    program = next(word for word in command.split() if "=" not in word)
    assert refused(command).startswith(f"{program!r} is no llama-server")


@pytest.mark.parametrize(
    ("program", "noted"),
    [
        ("./my-llama", True),
        ("llamafile", True),
        ("D:\\ai\\Server.exe", False),
        ("B=2 A=1 ./server", False),
        ("env -i A=1 llama-server", True),
        ("docker compose run -c 512 llama.cpp:server", True),
    ],
)
def test_a_command_that_starts_a_server(program: str, noted: bool) -> None:
    found = target(f"{program} -c 4096")
    assert (found.n_ctx, bool(found.notes)) == (4096, noted)


def test_a_bare_flash_attention_takes_no_value_of_older_builds() -> None:
    assert "'maybe' belongs to no option" in refused("llama-server -fa maybe", "b6000")


def test_lines_are_joined_and_windows_paths_kept() -> None:
    found = target("llama-server \\\n  -c 4096 \\\n  --slot-save-path D:\\slots\\a")
    assert found.n_ctx == 4096
    assert found.slot_save_path == "D:\\slots\\a"


def test_options_that_do_not_matter_are_ignored_with_their_values() -> None:
    found = target(
        "llama-server -ngl 99 --temp -1 --chat-template-kwargs '{\"a\": 1}' --jinja -c 512 "
        "-ot exps=CPU --seed -1 --host 0.0.0.0 --jinja"
    )
    assert found.n_ctx == 512
    assert found.notes == (
        "ignored: -ngl, --temp, --chat-template-kwargs, --jinja, -ot, --seed, --host",
    )


@pytest.mark.parametrize("option", [*PHANTOMS])
def test_options_that_no_build_has(option: str) -> None:
    (note,) = target(f"llama-server {option} x -c 512").notes
    assert note.startswith(f"{option}: ")
    assert "/slots/ID" in note or "b11549" in note


def test_options_that_change_what_is_computed() -> None:
    found = target("llama-server --rope-freq-base 1e6 --lora a.gguf -c 512")
    assert found.changing == (("--rope-freq-base", "1e6"), ("--lora", "a.gguf"))
    assert all("no server notices" in note for note in found.notes)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("-c", "-c wants a value"),
        ("-c many", "a number of 32 bits is wanted"),
        ("-c 4294967296", "32 bits"),
        ("-c -5", "-c -5: a number of tokens is wanted"),
        ("-fa maybe", "-fa maybe: on, off or auto is wanted"),
        ("--flash-attn maybe -c 512", "--flash-attn maybe: on, off or auto is wanted"),
        ("--flash-attn=maybe", "--flash-attn maybe: on, off or auto is wanted"),
        ("--swa-full=maybe", "--swa-full maybe: on or off is wanted"),
        ("-np 0", "-np 0: 1 to 256 slots are wanted"),
        ("--parallel 300", "--parallel 300: 1 to 256 slots are wanted"),
        ("-ctk q9_9", "--cache-type-k q9_9: b11549 has f32, f16, q4_0"),
        ("-ctv q9_9", "--cache-type-v q9_9: b11549 has f32, f16, q4_0"),
        ("-ctk turbo4", "--cache-type-k turbo4: b11549 has f32, f16, q4_0"),
        ("-ctv q8_0 -fa off", "without flash attention"),
        ("-c 512 model.gguf", "'model.gguf' belongs to no option"),
        ("--slot-save-path 'a", "not complete"),
    ],
)
def test_what_no_server_starts_with(words: str, reason: str) -> None:
    message = refused(f"llama-server {words}")
    assert reason in message
    assert "\n" not in message


WORDS = st.sampled_from(
    ["llama-server", "docker", "-c", "-fa", "on", "-np", "4", "-kvu", "--slot-load-path", "=", "-"]
)


@given(
    st.lists(WORDS | st.text(max_size=8), max_size=12), st.sampled_from(["b5000", "b11549", "ik"])
)
def test_any_words_are_a_target_or_refused(words: list[str], build: str) -> None:
    with suppress(BadTarget):
        found = target(" ".join(words), build)
        assert found.n_parallel > 0
        assert found.n_ctx_slot is None or found.n_ctx_slot >= 0


def test_unknown_builds() -> None:
    assert "no build" in refused(build="newest")


@pytest.mark.parametrize(
    ("build", "words", "n_parallel", "n_stream"),
    [
        ("b5000", "", 1, 1),
        ("b5000", "-np 4", 4, 1),
        ("b5913", "-np 4", 4, 4),
        ("b6924", "", 1, 1),
        ("b6925", "", 4, 1),
        ("b6925", "-np 1", 4, 1),
        ("b6925", "-np 1 -kvu", 1, 1),
        ("b7432", "-np 1", 4, 1),
        ("b7433", "-np 1", 1, 1),
        ("b11549", "", 4, 1),
        ("b11549", "-np -1", 4, 1),
        ("b11549", "-np 4", 4, 4),
        ("b11549", "-np 4 -kvu", 4, 1),
        ("ik", "", 1, 1),
        ("ik", "-np 4", 4, 1),
    ],
)
def test_slots_by_build(build: str, words: str, n_parallel: int, n_stream: int) -> None:
    found = target(words, build)
    assert (found.n_parallel, found.n_stream) == (n_parallel, n_stream)


@pytest.mark.parametrize(
    ("build", "words", "flash_attention", "v_trans"),
    [
        ("b6324", "", "off", True),
        ("b6324", "-fa", "on", False),
        ("b6325", "", "auto", None),
        ("b11549", "-ctv q8_0", "auto", False),
        ("b11549", "-fa on", "on", False),
        ("b11549", "-fa off", "off", True),
        ("ik@2025-10-24", "", "off", True),
        ("ik@2025-10-24", "-fa", "on", False),
        ("ik", "", "on", False),
        ("ik", "-no-fa", "off", True),
        ("ik", "-fa off", "off", True),
    ],
)
def test_flash_attention_by_build(
    build: str, words: str, flash_attention: str, v_trans: bool | None
) -> None:
    found = target(words, build)
    assert found.flash_attention is FlashAttention(flash_attention)
    assert found.v_trans is v_trans
    assert not found.notes
    assert any("flash attention" in guess for guess in found.assumed) == (
        not words[:3].strip("-ctv ")
    )


@pytest.mark.parametrize(
    ("build", "n_ctx_checkpoints", "min_step"),
    [
        ("b6159", 0, 64),
        ("b6160", 3, 64),
        ("b6723", 8, 64),
        ("b8218", 32, 64),
        ("b9310", 32, 256),
        ("b11549", 32, 8192),
    ],
)
def test_checkpoints_by_build(build: str, n_ctx_checkpoints: int, min_step: int) -> None:
    found = target(None, build)
    assert (found.n_ctx_checkpoints, found.checkpoint_min_step) == (n_ctx_checkpoints, min_step)


def test_what_was_not_said_is_assumed_and_named() -> None:
    with target_of() as found:
        words = "\n".join(found.assumed)
    for what in ("b11549, the newest", "no model", "four slots", "context", "flash", "f16"):
        assert what in words
    assert found.said == frozenset()


def test_what_was_said_is_not_assumed(tmp_path: Path) -> None:
    model = model_file(tmp_path / "m.gguf", "llama", LLAMA)
    found = target(f"llama-server -m {model} -c 1024 -np 2 -kvu -ctk f16 -ctv f16 -fa on", "b11549")
    assert found.assumed == ()
    assert found.model_name == "m.gguf"
    assert found.memory is not None


def test_variables_count_only_when_asked_for_and_options_win() -> None:
    variables = {
        "LLAMA_ARG_CTX_SIZE": "2048",
        "LLAMA_ARG_KV_UNIFIED": "true",
        "LLAMA_ARG_N_PARALLEL": "2",
        "LLAMA_ARG_SWA_CHECKPOINTS": "7",
        "LLAMA_ARG_FLASH_ATTN": "off",
        "LLAMA_ATTN_ROT_DISABLE": "1",
        "OTHER": "x",
    }
    found = target("llama-server -np 3", environment=variables)
    assert (found.n_ctx, found.n_parallel, found.kv_unified) == (2048, 3, True)
    assert (found.n_ctx_checkpoints, found.flash_attention) == (7, FlashAttention.OFF)
    assert not found.rotation
    assert target("llama-server", environment={"LLAMA_ATTN_ROT_DISABLE": "0"}).rotation
    assert target("llama-server").n_ctx is None
    inline = target("LLAMA_ARG_CTX_SIZE=512 llama-server", environment=variables)
    assert inline.n_ctx == 512


def test_tokens_of_a_slot(tmp_path: Path) -> None:
    model = model_file(tmp_path / "m.gguf", "llama", LLAMA)

    def slot(words: str, build: str = "b11549") -> int | None:
        return target(words, build, model=model).n_ctx_slot

    assert slot("-c 2048 -np 4") == 512
    assert slot("-c 2048 -np 4 -kvu") == 2048
    assert slot("-c 0") == 2048
    assert slot("-c 8192 -np 1") == 2048
    assert slot("-c 8192 -np 1 --rope-scaling yarn") == 8192
    assert slot("-c 1000 -np 3") == 512  # measured, as the next two
    assert slot("-c 1000 -np 3 -kvu") == 1024
    assert slot("-c 5000 -np 1", "b10229") == 2048
    assert slot("-c 8192", "b6000") == 8192
    assert slot("-c 1000 -np 3", "b5000") == 333
    assert slot("-c 1000 -np 3", "ik") == 333
    assert slot("", "b6000") == 4096
    assert slot("") is None
    assert target("-c 0").n_ctx_slot is None


def test_model_files_that_are_none(tmp_path: Path) -> None:
    missing, damaged, empty = (tmp_path / name for name in ("missing", "damaged", "empty"))
    damaged.write_bytes(model_file(tmp_path / "m", "llama", LLAMA).read_bytes()[:40])
    model_file(empty, "llama", {})
    assert "No such file" in refused(model=missing)
    assert "No such file" in refused(f"llama-server -m {missing}")
    assert str(damaged) in refused(model=damaged)
    assert "no architecture with layers" in refused(model=empty)
    assert "directory" in refused(model=tmp_path)
    good = target(f"llama-server -m {missing}", model=tmp_path / "m")
    assert good.model_name == "m"


PROPS = {
    "default_generation_settings": {"n_ctx": 2048},
    "total_slots": 4,
    "model_path": "/models/llama.gguf",
    "modalities": {"vision": False, "audio": False},
    "build_info": "b11429-d81235049",
}
ANSWERS: dict[str, Any] = {
    "/health": {"status": "ok"},
    "/props": PROPS,
    "/slots": [{"id": n, "n_ctx": 2048} for n in range(4)],
}


@contextmanager
def serving(answers: dict[str, Any]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path)
            status, body = (200, answer) if self.path in answers else (404, {"error": "none"})
            if isinstance(answer, int):
                status, body = answer, {"error": {"message": "Loading model"}}
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_running_server_tells_of_itself(tmp_path: Path) -> None:
    model = model_file(tmp_path / "m.gguf", "llama", LLAMA)
    with serving(ANSWERS | {"/props": PROPS | {"model_path": str(model)}}) as url:
        found = target(None, None, url=url + "/")
    assert found.build.label == "b11429"
    assert (found.n_parallel, found.n_stream, found.n_ctx_slot) == (4, 1, 2048)
    assert found.model_name == "m.gguf"
    assert found.memory is not None
    assert any("four slots with one cell array" in guess for guess in found.assumed)
    assert not any("newest" in guess for guess in found.assumed)


def test_a_running_server_on_another_machine() -> None:
    split = ANSWERS | {"/props": PROPS | {"total_slots": 2, "modalities": {"vision": True}}}
    with serving(split) as url:
        found = target("llama-server -ctk q8_0", None, url=url)
        other = target(None, "b11549", url=url)
    assert (found.n_parallel, found.n_stream, found.n_ctx, found.n_ctx_slot) == (2, 2, 4096, 2048)
    assert found.type_k == "q8_0"
    assert found.mmproj
    assert found.model_name == "llama.gguf"
    assert found.model is None
    assert any("cannot be read here" in note for note in found.notes)
    assert other.build.label == "b11549"


def test_a_running_server_without_a_number_or_slots() -> None:
    answers = ANSWERS | {"/props": PROPS | {"build_info": "b1-abcdef0"}, "/slots": 501}
    with serving(answers) as url:
        found = target(None, None, url=url)
    assert found.build.label == "b11549"
    assert found.n_ctx_slot == 2048
    assert any("b1-abcdef0" in note for note in found.notes)
    assert any("newest" in guess for guess in found.assumed)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({}, "HTTP 404"),
        ({"/health": 503}, "HTTP 503: Loading model"),
        ({"/health": 401}, "set LLAMA_API_KEY to what the server has as --api-key"),
        ({"/health": {"status": "error"}}, "not ready"),
        ({"/health": b"<html>"}, "no JSON"),
        ({"/health": b"\xff\xfe"}, "no JSON"),
        ({"/health": []}, "no llama-server"),
        ({"/health": b"[" * 200_000}, "no JSON"),
        (ANSWERS | {"/props": PROPS | {"total_slots": -1}}, "no llama-server"),
        (ANSWERS | {"/props": {}}, "no llama-server"),
        (ANSWERS | {"/props": b" " * ((1 << 24) + 2)}, "longer than"),
    ],
)
def test_what_is_no_llama_server(answers: dict[str, Any], reason: str) -> None:
    with serving(answers) as url, pytest.raises(BadTarget) as caught:
        target(None, None, url=url)
    message = str(caught.value)
    assert url in message
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:8080", "begins with http"),
        ("file:///etc/passwd", "begins with http"),
        ("http://127.0.0.1:1", "refused"),
        ("http://[bad", "http"),
        ("http://", "http"),
        ("", "begins with http"),
    ],
)
def test_urls_that_lead_nowhere(url: str, reason: str) -> None:
    with pytest.raises(BadTarget, match=r"(?i)" + reason.replace("[", r"\[")):
        target(None, None, url=url, timeout=0.5)
