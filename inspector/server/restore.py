"""What a server does with a slot file: accepts it, refuses it, or dies, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from formats.ggml_types import IK
from inspector.builds import build_number
from inspector.checks import target as _codes  # noqa: F401 - registers the codes
from inspector.findings import Finding, Severity
from inspector.node import Node
from inspector.report import Report
from inspector.sections import Block, Section
from inspector.server.loader import Ended, Loader, Outcome, Own
from inspector.server.loader_ik import IkLoader
from inspector.server.servers import ggsq_version
from inspector.server.target import FlashAttention, Target, cache_type
from inspector.source import Source
from inspector.span import Span

if TYPE_CHECKING:
    from inspector.model.identity import Identity
    from inspector.model.section import SectionExpectation

_REFUSED = "Unable to restore slot: {}"
_INVALID_TOKENS = "Invalid tokens in slot save file"
_HEAD_BYTES = 12
_PADDING = 256


@dataclass(frozen=True, slots=True)
class Restore:
    """What becomes of a restore.

    Attributes:
        outcome: in one word.
        reason: code of the finding that decides; None for a clean acceptance.
        message: what the server logs or answers, or what happens in our words.
        findings: what decides, then what follows from it or comes with it.
        assumed: what had to be guessed beyond the target, in words.
    """

    outcome: Outcome
    reason: str | None
    message: str
    findings: tuple[Finding, ...] = ()
    assumed: tuple[str, ...] = ()


def restore(
    report: Report,
    target: Target,
    *,
    rotated: bool | None = None,
    identity: Identity | None = None,
) -> Restore:
    """Follow the server that the user named.

    Args:
        report: what is known of the file, still open.
        target: the server.
        rotated: whether quantized rows were found to be rotated; None if nobody looked.
        identity: what else the numbers showed; None if nobody looked.
    """
    source, assumed = report.source, list[str]()
    if ggsq_version(target.build) is None:
        return _undecided(report, f"{target.build.label} knows no slot files", assumed)
    try:
        _envelope(source, report, target)
        own = own_caches(report, target, assumed)
        if isinstance(own, str):
            return _undecided(report, own, assumed)
        if own is not None:
            loader = IkLoader if target.build.server == IK else Loader
            loader(source, _payload(source, report), target.build).run(own)
        _tokens(report, target)
        _fallback(report, target)
        _companions(report, target)
    except Ended as end:
        code = end.finding.code
        return Restore(end.outcome, code, end.message, (end.finding,), tuple(assumed))
    findings = tuple(_silent(report, target, rotated, identity))
    reason = findings[0].code if findings else None
    return Restore(Outcome.ACCEPTS, reason, "restored", findings, tuple(assumed))


def _undecided(report: Report, why: str, assumed: list[str]) -> Restore:
    code, span = "target.undecided", Span(0, report.size)
    finding = Finding(code, "", span, why, "a verdict", "none")
    return Restore(Outcome.UNKNOWN, code, why, (finding,), tuple(assumed))


def _refused(code: str, span: Span, message: str, logged: str, expected: str, actual: str) -> Ended:
    finding = Finding(f"target.{code}", "", span, message, expected, actual)
    return Ended(Outcome.REFUSES, finding, logged)


def _envelope(source: Source, report: Report, target: Target) -> None:
    """Magic, version, token count; then what a server tests before it loads at all."""
    head = source.read_at(0, _HEAD_BYTES)
    whole = Span(0, min(_HEAD_BYTES, report.size))
    version = int.from_bytes(head[4:8], "little")
    if head[:4] != b"qsgg" or len(head) < _HEAD_BYTES:
        raise _refused(
            "not-a-slot-file",
            whole,
            f"the file begins with {head[:4]!r}",
            "unknown (magic, version) for sequence state file",
            "'qsgg'",
            repr(head[:4]),
        )
    own = ggsq_version(target.build)
    if version != own:
        raise _refused(
            "version-mismatch",
            Span(4, 8),
            f"the file has version {version}, {target.build.label} reads {own}",
            f"unknown (magic, version) for sequence state file: 67677371, {version:08x}",
            str(own),
            str(version),
        )
    words = int.from_bytes(head[8:12], "little")
    room = (report.size - _HEAD_BYTES) // 4
    if target.build.has("packed-tokens") and words > room:
        message = f"{words:,} token words, the file has room for {room:,}"
        logged = "token count exceeds the file size"
        raise _refused(
            "tokens-exceed-file", Span(8, 12), message, logged, f"{room:,}", f"{words:,}"
        )
    n_ctx = target.n_ctx_slot
    if not target.build.has("packed-tokens") and n_ctx is not None and words > n_ctx:
        raise _too_many_tokens(words, n_ctx)
    if target.mmproj and target.build.has("no-slots-with-mmproj"):
        message = f"{target.build.label} has no slot files with a projector"
        logged = "This feature is not supported by multimodal"
        raise _refused("projector-refused", whole, message, logged, "no --mmproj", "--mmproj")


def _too_many_tokens(count: int, n_ctx: int) -> Ended:
    message = f"{count:,} tokens, a slot of this server holds {n_ctx:,}"
    logged = "token count in sequence state file exceeded capacity"
    return _refused(
        "tokens-exceed-context", Span(8, 12), message, logged, f"at most {n_ctx:,}", f"{count:,}"
    )


def _payload(source: Source, report: Report) -> Span:
    words = int.from_bytes(source.read_at(8, 4), "little")
    return Span(min(_HEAD_BYTES + 4 * words, report.size), report.size)


def own_caches(report: Report, target: Target, assumed: list[str]) -> Own | str | None:
    """The server's caches: by its model, or by the file itself where no model is named.

    Returns:
        They; or why they are not known; or None where the file's own writer is sure to take it.
    """
    from inspector.model.expectation import expected_state

    if target.caches_as_saved:
        target = _as_saved(report, target)
    v_trans = target.v_trans
    if v_trans is None:
        v_trans = False
        assumed.append("flash attention: on, which auto becomes where the backend has it")
    expected = expected_state(target)
    if not isinstance(expected, str):
        cell_bytes = expected.cell_bytes
        return Own(expected.sections, expected.n_stream or 1, cell_bytes, v_trans)
    if target.memory is not None:
        return expected
    if not report.sections:
        return "without a model nothing can be said of this file"
    assumed.append("the model: the one that the file was saved with")
    if target.build.server == IK:
        faults = any(finding.severity is Severity.ERROR for finding in report.findings)
        cells = report.sections[0].cells
        if faults or not cells or report.identification.writer != IK:
            return "ik_llama.cpp's loader is followed only with a model"
        return None
    sections = tuple(_stored(section, target) for section in report.sections)
    ext = max(section.cell_ext for section in report.sections)
    cell_bytes = 8 + ext + (4 if target.build.has("seq-id") else 0)
    return Own(sections, target.n_stream, cell_bytes, v_trans)


def _as_saved(report: Report, target: Target) -> Target:
    """The target with the options of the server that saved, as far as the file shows them."""
    attention = next((s for s in report.sections if s.kind in ("attention", "swa")), None)
    if attention is None:
        return target
    k = _type_of(attention.k, target, target.type_k)
    v = _type_of(attention.v, target, k)
    flash = FlashAttention.OFF if attention.v_trans == 1 else FlashAttention.ON
    n = max(1, attention.n_stream)
    return replace(
        target, type_k=k, type_v=v, flash_attention=flash, n_parallel=n, kv_unified=n == 1
    )


def _type_of(blocks: tuple[Block, ...], target: Target, otherwise: str) -> str:
    """The type of the first block, if the server can have a cache of it."""
    name = blocks[0].type_name if blocks else otherwise
    return name if cache_type(name, target.build) is not None else otherwise


def _stored(section: Section, target: Target) -> SectionExpectation:
    """A section as the file has it, for a model that nobody named."""
    from inspector.model.section import SectionExpectation

    recurrent = section.kind == "recurrent"
    k, v = (section.r, section.s) if recurrent else (section.k, section.v)
    count = max(1, len(section.streams))
    k, v = k[: len(k) // count], v[: len(v) // count]
    if section.kind in ("attention", "swa") and not target.build.has("mla-without-values"):
        v = v or k  # it stores values of every model, how wide ever
    words = next((body for body in _bodies(section)), section.node)
    capacity = target.n_parallel if recurrent else None
    if section.kind == "attention" and target.n_ctx_slot:
        capacity = -(-target.n_ctx_slot // _PADDING) * _PADDING
    return SectionExpectation(
        member=section.path,
        kind=section.kind,
        layers=tuple(range(max(len(k), len(v)))),
        n_layer=section.n_layer if section.n_layer is not None else len(k),
        type_k="f32" if recurrent else target.type_k,
        type_v=("f32" if recurrent else target.type_v) if v else None,
        k=tuple(block.row_bytes for block in k),
        v=tuple(block.row_bytes for block in v),
        n_rot_k=words.number("n_rot_k"),
        n_rot_v=words.number("n_rot_v"),
        capacity=capacity,
    )


def _bodies(section: Section) -> Iterator[Node]:
    streams = section.node.get("streams")
    for body in streams.children if streams is not None else (section.node,):
        if body.get("n_layer") is not None:
            yield body


def _tokens(report: Report, target: Target) -> None:
    """What a server from b10388 on tests when the memory is in place already."""
    tokens = report.tokens
    if tokens is None or not target.build.has("tokens-validated"):
        return
    span = tokens.span
    if (problem := _packing_problem(report.source)) is not None:
        logged, expected, actual = problem
        message = f"the packed tokens cannot be read: {actual}"
        raise _refused("tokens-invalid", span, message, _REFUSED.format(logged), expected, actual)
    if tokens.media and not target.mmproj:
        message = f"{tokens.media} media chunks, and no projector"
        logged = _REFUSED.format("Multimodal data in slot save file, but no projector is loaded")
        raise _refused("media-needs-projector", span, message, logged, "--mmproj", "none")
    n_ctx = target.n_ctx_slot
    if n_ctx is not None and tokens.count > n_ctx:
        raise _too_many_tokens(tokens.count, n_ctx)
    n_vocab = target.memory.n_vocab if target.memory is not None else 0
    bad = tokens.ids < (-1 if tokens.media else 0)
    if n_vocab:
        bad |= tokens.ids >= n_vocab
    n_bad = int(bad.sum())
    if n_bad:
        limit = f"ids from 0 to {n_vocab - 1:,}" if n_vocab else "ids of at least 0"
        message = f"{n_bad:,} of {tokens.count:,} tokens are no ids of this vocabulary"
        raise _refused(
            "tokens-invalid", span, message, _REFUSED.format(_INVALID_TOKENS), limit, f"{n_bad:,}"
        )


def _packing_problem(source: Source) -> tuple[str, str, str] | None:
    """What is wrong with packed tokens: what a server answers, what it wants, what is there.

    Source: ggml-org/llama.cpp PR #26640, tools/server/server-common.cpp `server_tokens`; answers
    of b11549.
    """
    n_words = int.from_bytes(source.read_at(8, 4), "little")
    field = source.read_at(_HEAD_BYTES, min(4 * n_words, source.size - _HEAD_BYTES))
    if field[:4] != b"\xff\xff\xff\xff":
        return None

    def word(at: int) -> int | None:
        return int.from_bytes(field[at : at + 4], "little") if at + 4 <= len(field) else None

    if (version := word(4)) != 1:
        logged = "Unsupported server tokens state version"
        return logged, "version 1", "nothing" if version is None else "another version"
    ended = "Unexpected end of server tokens state"
    n_tokens = word(8) or 0
    n_media = word(12 + 4 * n_tokens)
    if n_media is None:
        return ended, f"at most {len(field) // 4 - 4:,} tokens", f"{n_tokens:,} tokens"
    at = 12 + 4 * n_tokens + 4 + 4 * n_media
    for _ in range(n_media):
        if (size := word(at)) is None:
            return ended, f"{n_media:,} media chunks", "fewer"
        at += 4 + size
    if at > len(field):
        return ended, f"{len(field):,} bytes", f"{at:,} bytes of tokens and media"
    if len(field) - at >= 4:
        left = f"{len(field) - at:,} bytes behind them"
        return _INVALID_TOKENS, "at most three bytes behind them", left
    return None


def _fallback(report: Report, target: Target) -> None:
    """What one commit of a fork does where it finds no checkpoints."""
    if not target.build.has("tip-fallback-crashes"):
        return
    from inspector.server.restored import takes_list

    if not takes_list(report, target):
        message = f"{target.build.label} finds no checkpoint list that it takes"
        end = Span(report.size, report.size)
        finding = Finding("target.fallback-aborts", "", end, message, "a .ckpt companion", "none")
        raise Ended(Outcome.ABORTS, finding, "SIGSEGV in create_checkpoint")


_KILLERS = ("sidecar.tokens-unreadable", "sidecar.unchecked-size")


def _companions(report: Report, target: Target) -> None:
    """What ik_llama.cpp reads of the files beside the state, and trusts."""
    if not target.build.has("ik-companions"):
        return
    read = (f"{report.name}.tokens.json", f"{report.name}.checkpoints")
    for found in report.findings:
        if found.carrier in read and found.code in _KILLERS:
            finding = replace(found, code="target.companion-aborts")
            raise Ended(Outcome.ABORTS, finding, f"uncaught exception: {found.message}")


def _silent(
    report: Report, target: Target, rotated: bool | None, identity: Identity | None
) -> Iterator[Finding]:
    """What goes wrong although the restore is accepted."""
    tokens, build = report.tokens, target.build
    whole = Span(0, report.size)
    cells = sum(section.cells for section in report.sections)
    if tokens is not None and tokens.count and not cells and build.has("pos-min-asserted"):
        message = f"{tokens.count:,} tokens, no cells"
        yield Finding("target.pos-min-abort", "", whole, message, "cells", "none")
    if tokens is not None and not tokens.count and not cells:
        yield Finding("target.empty-state", "", whole, "no tokens, no cells", "a state", "nothing")
    if tokens is not None and tokens.packing == "packed" and not build.has("packed-tokens"):
        message = f"{build.label} takes the {tokens.words:,} words of packed tokens for tokens"
        yield Finding("target.tokens-packed", "", tokens.span, message, "a plain list", "packed")
    yield from _rotated_otherwise(report, target, rotated)
    yield from _ordered_otherwise(report, target, identity)


def _written(report: Report) -> tuple[int, int]:
    """The first and the last build that can have written the file."""
    builds = report.identification.builds
    return build_number(builds.since or ""), build_number(builds.until or "") or 1 << 30


def _rotated_otherwise(report: Report, target: Target, rotated: bool | None) -> Iterator[Finding]:
    """Quantized rows of a file that does not say whether they are rotated."""
    if target.build.has("rotation-words") or target.build.server == IK or not _divisible(report):
        return
    from inspector.model.expectation import expected_state

    since, until = _written(report)
    if rotated is None and (until < _ROTATION or since >= _ROTATION):
        rotated = since >= _ROTATION
    expected = expected_state(target)
    turns = isinstance(expected, str) or any(s.n_rot_k or s.n_rot_v for s in expected.sections)
    rotates = target.build.has("rotation") and target.rotation and turns
    if rotated is not None and rotated != rotates:
        section = report.sections[0]
        message = f"written by {report.identification.builds}, read by {target.build.label}"
        said = {True: "rotated rows", False: "rows as computed"}
        yield Finding(
            "target.rotation-unrecorded",
            section.path,
            section.span,
            message,
            said[rotates],
            said[rotated],
        )


_ROTATION = 8619


def _divisible(report: Report) -> bool:
    return any(
        block.readings
        and block.readings[0].block_elements > 1
        and (block.readings[0].elements(block.row_bytes) or 0) % 64 == 0
        for section in report.sections
        if section.kind != "recurrent"
        for block in section.k + section.v
    )


def _ordered_otherwise(
    report: Report, target: Target, identity: Identity | None
) -> Iterator[Finding]:
    """Latent keys and delta-net states whose order changed without a trace."""
    from inspector.arrays.order import orders

    for order in orders(report, target, identity):
        if order.differs:
            yield Finding(
                "target.layout-silent",
                order.section.path,
                order.section.span,
                f"{order.what.value}; written by {report.identification.builds}",
                f"the order of {target.build.label}",
                "the other",
            )
