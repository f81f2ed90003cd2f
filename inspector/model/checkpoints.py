"""Checkpoints against the model: were they computed from the tokens that stand in front of them?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inspector.checkpoints import CheckpointRecord
from inspector.checks import in_order
from inspector.findings import Finding
from inspector.model.gguf import ModelFile
from inspector.model.identity import Identity, Outcome, judge
from inspector.node import join
from inspector.report import Report
from inspector.sections import Section
from inspector.tokens import Tokens

_MOST = 64
"""Checkpoints that are compared, the last ones: servers keep 32 unless they are told otherwise."""
_WRONG = {Outcome.DIFFERS, Outcome.MIXED, Outcome.OTHER_POSITIONS}
_RIGHT = {Outcome.MATCHES, Outcome.RELATED}


def tested(report: Report, tokens: Tokens | None, model: ModelFile, of_state: Outcome) -> Report:
    """The report with what the model says of each checkpoint: that it is right, or a finding.

    A recurrent layer keeps no more than the last few tokens, which may be those that end any
    message: beside checkpoints of another save that is no proof.

    Args:
        report: of a state.
        tokens: its token list.
        model: the header of its model, the file open.
        of_state: what the model says of the state itself.
    """
    if tokens is None or not report.checkpoints or of_state is Outcome.DIFFERS:
        return report
    wrong, checkpoints, findings = _WRONG - {of_state}, list(report.checkpoints), list[Finding]()
    briefly = set[int]()
    for at in range(max(0, len(checkpoints) - _MOST), len(checkpoints)):
        record = checkpoints[at].record
        found = None if _spoilt(report, record) else _judged(report, record, tokens, model)
        if found is None:
            continue
        if found.outcome in _RIGHT:
            checkpoints[at] = replace(checkpoints[at], tested=True)
            briefly |= {at} if all(side.name == "r" for side in found.sides) else set()
        elif found.outcome in wrong:
            checkpoints[at] = replace(checkpoints[at], usable=False)
            findings.append(_finding(report, record, found))
    others = {finding.carrier for finding in findings if finding.carrier}
    for at in briefly:
        if checkpoints[at].record.carrier in others:
            checkpoints[at] = replace(checkpoints[at], tested=False)
    return replace(
        report,
        checkpoints=tuple(checkpoints),
        findings=in_order((*report.findings, *findings)),
    )


def _spoilt(report: Report, record: CheckpointRecord) -> bool:
    """Whether it is known already that its cells are out of place."""
    return any(
        one.code.endswith("blob-cells")
        and one.path.startswith(record.path)
        and one.carrier == _beside(report, record)
        for one in report.findings
    )


def _beside(report: Report, record: CheckpointRecord) -> str:
    """The companion that a record is in, as findings name it; empty for the file itself."""
    return record.carrier if record.carrier != report.name else ""


def _judged(
    report: Report, record: CheckpointRecord, tokens: Tokens, model: ModelFile
) -> Identity | None:
    """What the model says of a checkpoint; None if it is not known which tokens it is of."""
    n_tokens = record.n_tokens
    if record.blob is None or not record.blob.ended:
        return None
    if report.aligned and (ends := list(_ends(record.blob.sections))):
        n_tokens = max(ends) + 1
    if n_tokens is None or not 0 < n_tokens <= tokens.count:
        return None
    own = (other.source for other in report.beside if other.companion.file.name == record.carrier)
    before = replace(tokens, given=tokens.ids[:n_tokens])
    writer = report.identification.writer
    return judge(next(own, report.source), record.blob.sections, before, model, writer=writer)


def _ends(parts: tuple[Section, ...]) -> Iterator[int]:
    """The last positions; a recurrent state is of one position, other parts may hold more."""
    states = [part for part in parts if part.kind == "recurrent"]
    for part in states or parts:
        if part.pos_max is not None:
            yield part.pos_max


def _finding(report: Report, record: CheckpointRecord, found: Identity) -> Finding:
    assert record.data_tgt is not None  # it was decoded
    return Finding(
        "identity.checkpoint-differs",
        join(record.path, "data_tgt"),
        record.data_tgt,
        f"checkpoint {record.index} is not of the tokens in front of it",
        "rows of these tokens",
        "others",
        (found.evidence,),
        _beside(report, record),
    )
