"""What a sample is: files, and a card that says what they are and what is found in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.writer import Packed


@dataclass(frozen=True)
class Companion:
    """A file beside a sample.

    Attributes:
        suffix: what its name adds to that of the sample.
        layout: the layout it is written in; empty for bytes that have none.
        data: its bytes.
        seconds_older: how much earlier than the sample it was last written.
    """

    suffix: str
    layout: str
    data: bytes
    seconds_older: int = 0


@dataclass(frozen=True)
class Expected:
    """A finding: its code, its bytes, and the companion's suffix if they are in one."""

    code: str
    start: int
    stop: int
    suffix: str = ""


@dataclass(frozen=True)
class Sample:
    """A synthetic sample.

    Attributes:
        layout: the layout it is written in.
        name: what it shows; for a damaged one the code of the finding.
        about: a sentence about it, or two.
        data: its bytes.
        companions: files beside it.
        findings: everything that is found in it.
        folder: `intact`, `damaged` for one that stands for a code, or `crashes`.
        called: the name that it must have for that to be found; empty if any will do.
        link: the name that it must be a symbolic link to; empty for none.
        model: the model of `samples/models` that it is held against; empty for none.
        deep: whether the finding is only seen by who reads the stored numbers.
        server: what a server must serve to be harmed by it, and how that shows; empty for most.
    """

    layout: str
    name: str
    about: str
    data: bytes
    companions: tuple[Companion, ...] = ()
    findings: tuple[Expected, ...] = ()
    folder: str = "intact"
    called: str = ""
    link: str = ""
    model: str = ""
    deep: bool = False
    server: tuple[tuple[str, str], ...] = ()

    @property
    def stem(self) -> str:
        """The path below this folder, without the ending."""
        return f"{self.folder}/{self.layout}--{self.name}"

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Path below this folder and bytes of everything that belongs to it."""
        yield f"{self.stem}.slot", self.data
        yield f"{self.stem}.toml", "\n".join(self._card()).encode() + b"\n"
        for companion in self.companions:
            yield f"{self.stem}.slot{companion.suffix}", companion.data

    def _card(self) -> Iterator[str]:
        yield f'layout = "{self.layout}"'
        yield f"about = {json.dumps(self.about)}"
        yield f'sha256 = "{sha256(self.data)}"'
        yield 'licence = "CC0-1.0"'
        if self.called:
            yield f'called = "{self.called}"'
        if self.link:
            yield f'link = "{self.link}"'
        if self.model:
            yield f'model = "{self.model}"'
        if self.deep:
            yield "deep = true"
        if not self.findings:
            yield "findings = []"
        yield from ("", "[origin]", 'kind = "synthetic"', 'made_by = "python -m samples.make"')
        if self.server:
            yield from (
                "",
                "[server]",
                *(f"{key} = {json.dumps(value)}" for key, value in self.server),
            )
        for companion in self.companions:
            yield from ("", "[[companions]]", f'suffix = "{companion.suffix}"')
            yield f'layout = "{companion.layout}"'
            yield f'sha256 = "{sha256(companion.data)}"'
            if companion.seconds_older:
                yield f"seconds_older = {companion.seconds_older}"
        for finding in self.findings:
            yield from ("", "[[findings]]", f'code = "{finding.code}"')
            yield f"span = [{finding.start}, {finding.stop}]"
            if finding.suffix:
                yield f'suffix = "{finding.suffix}"'


def sha256(data: bytes) -> str:
    """The digest that cards carry."""
    return hashlib.sha256(data).hexdigest()


def part(packed: Packed, path: str) -> tuple[int, int]:
    """Where the field at `path` starts and stops, or all fields below it."""
    marks = [m for m in packed.marks if m.path == path or m.path.startswith(f"{path}.")]
    return min(mark.start for mark in marks), max(mark.stop for mark in marks)
