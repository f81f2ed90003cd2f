"""What is fuzzed of our own: the report on a file, the verdict on it, the plan of its repair."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from inspector.check import checked
from inspector.render.as_json import to_dict
from inspector.repair.draft import Options
from inspector.repair.plan import planned
from inspector.repair.state import Refused
from inspector.report import examined
from inspector.server.target import BadTarget, Target, target_of

COMMANDS = (
    "-c 512 -np 1 -fa on",
    "-c 1024 -np 2 -fa off",
    "-c 512 -np 1 -fa on -ctk q8_0 -ctv q4_0",
)
BUILDS = ("b11549", "b10229", "b11063", "b8156", "b3889", "turboquant@b9079", "ik@2026-08-15")
MODELS = sorted((Path(__file__).parents[1] / "oracle" / "models").glob("*.gguf"))


def inspect(path: Path) -> None:
    with examined(path, deep=True) as report:
        to_dict(report)


def check(path: Path) -> None:
    with suppress(BadTarget), server_for(path) as target, checked(path, target):
        pass


def repair(path: Path) -> None:
    with (
        suppress(Refused, BadTarget),
        server_for(path) as target,
        planned(path, target, Options(allow_loss=True), "new"),
    ):
        pass


def server_for(path: Path) -> AbstractContextManager[Target]:
    """A server that is chosen by the bytes of a file."""
    dice = random.Random(path.read_bytes())
    model = dice.choice([*MODELS, None])
    return target_of(f"llama-server {dice.choice(COMMANDS)}", dice.choice(BUILDS), model)


ENTRIES: dict[str, Callable[[Path], None]] = {"inspect": inspect, "check": check, "repair": repair}
