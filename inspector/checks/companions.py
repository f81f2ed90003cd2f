"""The companion files of a state: against the state, and among each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inspector.bundle import Beside, Bundle, Companion, File, Role
from inspector.checkpoints import CheckpointList
from inspector.checks.checkpoints.readers import READERS, Reader
from inspector.checks.checkpoints.state import State, beyond_state, is_foreign
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.span import Span

if TYPE_CHECKING:
    from inspector.containers import Container

_LISTS = "the loaders that formats/sidecars cites"
_IK = "ik_llama.cpp 5e8bb724c (PR #1584), examples/server/server-context.cpp; measured"

register(
    Code(
        "sidecar.unknown",
        Severity.WARNING,
        "A file that is named like a checkpoint sidecar is none of a known family",
        "no known server reads it; the turboquant fork at cff2ea367 crashes on any it cannot read",
        RemedyKind.NONE,
        "keep it with the server that wrote it, or delete it",
        _LISTS,
    ),
    Code(
        "sidecar.unreadable",
        Severity.WARNING,
        "A companion beside the state cannot be read",
        "what it holds counts as missing: a server that may not read it either evaluates prompts "
        "again",
        RemedyKind.NONE,
        "give yourself and the server the right to read it, or put a regular file in its place",
        _LISTS,
    ),
    Code(
        "sidecar.stale",
        Severity.WARNING,
        "The sidecar is of an earlier save under the same name",
        "its writer leaves an old sidecar in place when it has no checkpoints to save; on restore "
        "they are taken for those of this state, and answers come from another conversation",
        RemedyKind.LOSSY,
        "delete the sidecar, unless a tool that copies files changed the times",
        "the savers that formats/sidecars cites",
    ),
    Code(
        "sidecar.two-carriers",
        Severity.WARNING,
        "A state has more than one list of checkpoints",
        "which of them counts depends on the server; at most one is of the last save",
        RemedyKind.LOSSY,
        "keep the one that fits the state and the server, delete the others",
        _LISTS,
    ),
    Code(
        "sidecar.orphan",
        Severity.NOTE,
        "A companion without its state",
        "no server reads it",
        RemedyKind.LOSSY,
        "delete it, or put the state beside it",
        _LISTS,
    ),
    Code(
        "sidecar.leftover",
        Severity.NOTE,
        "A temporary file of a save that did not finish",
        "no server reads it; the save before it may be half replaced",
        RemedyKind.LOSSY,
        "inspect it as a state of its own, then delete it",
        "362132718/llamacpp-gfx906-slot-save daddd3beb, tools/server/server-context.cpp",
    ),
    Code(
        "sidecar.not-counted",
        Severity.NOTE,
        "The server's own number leaves the sidecar out",
        "n_written of the save is that of the state alone",
        RemedyKind.NONE,
        "not needed",
        _LISTS,
    ),
    Code(
        "sidecar.shared",
        Severity.NOTE,
        "The sidecar may be shared by several states",
        "the last save wins, for all of them",
        RemedyKind.NONE,
        "give every state a name of its own",
        _LISTS,
    ),
    Code(
        "sidecar.tokens-unreadable",
        Severity.ERROR,
        "The token list beside the state is no JSON, or lacks its map of media",
        "ik_llama.cpp's server aborts when it restores the state",
        RemedyKind.EXACT,
        "write the list anew from the tokens of the state, or delete it",
        _IK,
    ),
    Code(
        "sidecar.tokens-ignored",
        Severity.WARNING,
        "The token list beside the state has another magic, version or form",
        "ik_llama.cpp ignores it and takes the tokens of the state followed by zeros up to n_ctx: "
        "an exact continuation counts as a divergence",
        RemedyKind.EXACT,
        "write the list anew from the tokens of the state",
        _IK,
    ),
    Code(
        "sidecar.tokens-missing",
        Severity.WARNING,
        "The token list that belongs beside the state is missing",
        "ik_llama.cpp takes the tokens of the state followed by zeros up to n_ctx: an exact "
        "continuation counts as a divergence and goes back to a checkpoint",
        RemedyKind.EXACT,
        "write the list from the tokens of the state",
        _IK,
    ),
    Code(
        "sidecar.tokens-mismatch",
        Severity.WARNING,
        "The token list beside the state is not that of the state",
        "ik_llama.cpp believes the list: prompts are compared with tokens that are not in memory",
        RemedyKind.EXACT,
        "write the list anew from the tokens of the state",
        _IK,
    ),
    Code(
        "sidecar.marker-missing",
        Severity.WARNING,
        "The marker that commits an STCK save is missing",
        "the server does not trust the companions",
        RemedyKind.LOSSY,
        "the save did not finish: delete the companions",
        "formats/sidecars/stck.py",
    ),
    Code(
        "sidecar.marker-mismatch",
        Severity.WARNING,
        "The marker of an STCK save does not fit the files beside it",
        "the server does not trust the companions",
        RemedyKind.LOSSY,
        "the files are of different saves: delete the companions",
        "formats/sidecars/stck.py",
    ),
)

_SLACK_SECONDS = 5
_SLOWEST_WRITE = 20 << 20
"""Bytes a second at which a state may be written behind a sidecar that is already there."""

_UNCOUNTED = (("pkcl", 1), ("lsckpt2", None))


def check_companions(
    bundle: Bundle,
    beside: tuple[Beside, ...],
    state: State | None = None,
    appendix: CheckpointList | None = None,
) -> tuple[Finding, ...]:
    """Everything that is wrong with the companions of a file, but for the insides of their lists.

    Args:
        bundle: the file and the names beside it.
        beside: those of its companions that were looked into.
        state: what is known of the file if it is a state.
        appendix: the checkpoints in the file itself.
    """
    findings = [*_own_name(bundle, state)]
    findings += [
        _leftover(companion.file, companion.file.name)
        for companion in bundle.companions
        if companion.role is Role.LEFTOVER
    ]
    findings += [
        Finding(
            "sidecar.unreadable",
            "",
            Span(0, 0),
            f"{name} cannot be read: {why}",
            "a file that can be read",
            why,
            (),
            name,
        )
        for name, why in bundle.barred
    ]
    for other in beside:
        if other.companion.role is Role.CHECKPOINTS:
            findings += _sidecar(bundle.subject, other, state)
        elif other.container is not None and state is not None:
            findings += _tokens(other.companion, other.container, state)
    if state is not None:
        findings += _tokens_missing(bundle, beside)
        findings += _marker(bundle, beside, state)
        findings += _two_carriers(bundle, beside, appendix)
    return tuple(findings)


def _finding(
    code: str,
    file: File,
    message: str,
    expected: str,
    actual: str,
    *evidence: str,
    path: str = "",
    span: Span | None = None,
) -> Finding:
    span = span if span is not None else Span(0, file.size)
    return Finding(code, path, span, message, expected, actual, evidence, file.name)


def _own_name(bundle: Bundle, state: State | None) -> Iterator[Finding]:
    """What the name of the file itself says, if it is no state."""
    if state is not None or bundle.role is None:
        return
    if bundle.role is Role.LEFTOVER:
        yield _leftover(bundle.subject, "")
    elif bundle.state is None:
        yield Finding(
            "sidecar.orphan",
            "",
            Span(0, bundle.subject.size),
            "the file is named like a companion, and its state is not beside it",
            "a state beside it",
            "none",
        )


def _leftover(file: File, carrier: str) -> Finding:
    message = f"{file.name} was left behind by a save that did not finish"
    span = Span(0, file.size)
    return Finding("sidecar.leftover", "", span, message, "no such file", file.name, (), carrier)


def _sidecar(subject: File, beside: Beside, state: State | None) -> Iterator[Finding]:
    file, listing = beside.companion.file, beside.listing
    if listing is None:
        head = beside.source.read_at(0, 16).hex(" ")
        yield _finding(
            "sidecar.unknown",
            file,
            f"{file.name} begins with {head or 'nothing'}, as no known family does",
            "a checkpoint list",
            f"{file.size:,} bytes",
        )
        return
    yield from _sharing(subject, file, listing)
    if (listing.format, listing.version) in _UNCOUNTED:
        yield _finding(
            "sidecar.not-counted",
            file,
            f"n_written of the save leaves these {file.size:,} bytes out",
            f"{subject.size + file.size:,} bytes of both",
            f"{subject.size:,} bytes of the state",
        )
    if state is not None and _reader(listing).leaves_stale and not is_foreign(listing, state):
        yield from _stale(subject, file, listing, state)


def _stale(subject: File, file: File, listing: CheckpointList, state: State) -> Iterator[Finding]:
    """Records beyond the state prove it; times only hint at it, since copying changes them."""
    outside = [(record.index, beyond_state(record, state)) for record in listing.whole]
    evidence = [f"checkpoint {index} {found[1]}" for index, found in outside if found is not None]
    proven = bool(evidence)
    slack = _SLACK_SECONDS * 10**9
    if listing.format == "ik-checkpoints":  # written before the state
        slack += subject.size * 10**9 // _SLOWEST_WRITE
    age = subject.mtime_ns - file.mtime_ns
    if age > slack:
        evidence.append(f"{file.name} was last written {age / 10**9:.0f} s before {subject.name}")
    if evidence:
        message = (
            f"{file.name} is not of the save that wrote {subject.name}: {evidence[0]}"
            if proven
            else f"{evidence[0]}, so it is probably not of the same save"
        )
        yield _finding(
            "sidecar.stale",
            file,
            message,
            "a sidecar of the same save",
            "one that does not fit" if proven else "an older one",
            *evidence[1:8],
        )


def _sharing(subject: File, file: File, listing: CheckpointList) -> Iterator[Finding]:
    own = subject.n_links == 1 and not subject.link
    if own and (file.n_links > 1 or file.link):
        message = f"{file.name} is also reached under another name"
    elif (listing.format, listing.version) == ("llcp", 2):
        message = "automatic saves of the gfx906 fork give all slots of a model this one name"
    else:
        return
    yield _finding("sidecar.shared", file, message, "a sidecar of one state", "possibly several")


def _tokens(companion: Companion, container: Container, state: State) -> Iterator[Finding]:
    from inspector.containers import Trouble

    file = companion.file
    problems = [problem for problem in container.problems if problem.kind is not Trouble.LIMIT]
    fatal = [problem for problem in problems if problem.path in ("", "map_idx_to_media")]
    for problem in fatal[:1] or problems:
        yield _finding(
            "sidecar.tokens-unreadable" if fatal else "sidecar.tokens-ignored",
            file,
            f"{problem.path or 'the text'} of {file.name} is {problem.kind.value}",
            problem.expected,
            problem.actual,
            path=problem.path,
            span=problem.span,
        )
    if container.problems or container.tokens is None or state.tokens.rows is None:
        return
    listed, own = container.tokens, state.tokens.ids
    if len(listed) != len(own):
        message, expected, actual = (
            f"{file.name} lists {len(listed):,} tokens, the state {len(own):,}",
            f"{len(own):,} tokens",
            f"{len(listed):,} tokens",
        )
    else:
        text = (listed >= 0) & (own >= 0)
        differing = ((listed != own) & text).nonzero()[0]
        if not len(differing):
            return
        first = int(differing[0])
        message, expected, actual = (
            f"{file.name} differs from the state from token {first} on",
            f"token {first} as in the state",
            f"{len(differing):,} differing tokens",
        )
    yield _finding("sidecar.tokens-mismatch", file, message, expected, actual, path="tokens")


def _tokens_missing(bundle: Bundle, beside: tuple[Beside, ...]) -> Iterator[Finding]:
    if any(companion.role is Role.TOKENS for companion in bundle.companions):
        return
    for other in beside:
        if other.listing is not None and other.listing.format == "ik-checkpoints":
            yield Finding(
                "sidecar.tokens-missing",
                "",
                Span(0, 0),
                f"{bundle.subject.name}.tokens.json is missing: ik_llama.cpp will see a slot of "
                "n_ctx tokens",
                f"{bundle.subject.name}.tokens.json",
                "no such file",
                (f"{other.companion.file.name} shows that its server saved the state",),
            )


def _marker(bundle: Bundle, beside: tuple[Beside, ...], state: State) -> Iterator[Finding]:
    sizes = {companion.suffix: companion.file.size for companion in bundle.companions}
    marked = next((other for other in beside if other.companion.role is Role.MARKER), None)
    if marked is None:
        stck = any(other.listing is not None and other.listing.format == "stck" for other in beside)
        if ".gen" not in sizes and (stck or ".hbnd" in sizes or ".drft" in sizes):
            yield Finding(
                "sidecar.marker-missing",
                "",
                Span(0, 0),
                f"{bundle.subject.name}.gen is missing, which is written last",
                f"{bundle.subject.name}.gen",
                "no such file",
            )
        return
    file, reading = marked.companion.file, None
    if marked.identification is not None:
        reading = marked.identification.reading
    if reading is None or reading.layout.id != "stck-gen" or not reading.decoding.complete:
        message = f"{file.name} is no commit marker of 32 bytes"
        yield _finding(
            "sidecar.marker-mismatch", file, message, '32 bytes from "SGEN" on', f"{file.size}"
        )
        return
    root = reading.decoding.root
    for name, actual, what in (
        ("n_tokens", state.tokens.count, "tokens in the state"),
        ("n_hbnd", sizes.get(".hbnd", 0), "bytes of .hbnd"),
        ("n_drft", sizes.get(".drft", 0), "bytes of .drft"),
    ):
        node = root.get(name)
        if node is not None and node.value != actual:
            yield _finding(
                "sidecar.marker-mismatch",
                file,
                f"{file.name} is for {node.value} {what}, and there are {actual}",
                f"{actual}",
                f"{node.value}",
                path=name,
                span=node.span,
            )


def _two_carriers(
    bundle: Bundle, beside: tuple[Beside, ...], appendix: CheckpointList | None
) -> Iterator[Finding]:
    lists = [other.listing for other in beside if other.listing is not None]
    lists = [listing for listing in (appendix, *lists) if listing is not None and listing.count]
    if len(lists) < 2:
        return
    evidence = tuple(
        f"{listing.carrier}: {listing.count} checkpoints, read by {_reader(listing).name}"
        for listing in lists
    )
    yield Finding(
        "sidecar.two-carriers",
        "",
        Span(0, bundle.subject.size),
        f"{len(lists)} lists of checkpoints for one state",
        "one list",
        f"{len(lists)}",
        evidence,
    )


def _reader(listing: CheckpointList) -> Reader:
    return READERS.get((listing.format, listing.version), Reader("its own server"))
