"""Which of some models a state is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from inspector.findings import Finding, Severity
from inspector.model.identity import Outcome, judge
from inspector.report import corrected, examined
from inspector.server.target import BadTarget, target_of

SUFFIX = ".gguf"

_ORDER = (
    Outcome.MATCHES,
    Outcome.RELATED,
    Outcome.MIXED,
    Outcome.OTHER_POSITIONS,
    Outcome.UNDECIDABLE,
    Outcome.NOT_TESTED,
    Outcome.DIFFERS,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model, and whether the state is of it.

    Attributes:
        path: of its file.
        architecture: empty if the file is no model.
        outcome: the answer.
        why: how that is known.
    """

    path: Path
    architecture: str
    outcome: Outcome
    why: str

    @property
    def likely(self) -> bool:
        """Whether the state was computed with these weights, or with ones close to them."""
        return self.outcome in (Outcome.MATCHES, Outcome.RELATED)


def model_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files that are named, and all GGUF files below the folders that are named, each once."""
    seen = set[tuple[int, int]]()
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for file in sorted(p for p in path.rglob("*") if p.suffix == SUFFIX and p.is_file()):
            status = file.stat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield file


def candidates(file: Path, models: Iterable[Path]) -> list[Candidate]:
    """What is said of each model, the likeliest first.

    Args:
        file: a state.
        models: files of models.

    Raises:
        Unreadable: if the system does not give us the state.
    """
    found = [_candidate(file, model) for model in models]
    return sorted(found, key=lambda candidate: _ORDER.index(candidate.outcome))


def _candidate(file: Path, path: Path) -> Candidate:
    try:
        with target_of(None, None, path) as target, examined(file, model=target.memory) as found:
            assert target.model is not None
            report = corrected(found, target.memory)
            architecture, writer = target.model.architecture, report.identification.writer
            identity = judge(
                report.source, report.sections, report.tokens, target.model, writer=writer
            )
            outcome, why = identity.outcome, identity.evidence
            if (mend := found.identification.mend) is not None:
                why += f"; {mend.path} was read as {mend.value:,}, which makes the file whole"
            if target.model.cut is not None:
                why += f"; {target.model.cut}: no server starts with it"
            misfit = next((f.message for f in report.findings if _of_the_shape(f)), "")
            if misfit and outcome is Outcome.MATCHES:
                outcome, why = Outcome.RELATED, f"{why}; but {misfit}"
            elif misfit:
                outcome, why = Outcome.DIFFERS, misfit
            return Candidate(path, architecture, outcome, why)
    except BadTarget as error:
        return Candidate(path, "", Outcome.NOT_TESTED, str(error).removeprefix(f"{path}: "))


def _of_the_shape(finding: Finding) -> bool:
    return finding.code.startswith("model.") and finding.severity is Severity.ERROR
