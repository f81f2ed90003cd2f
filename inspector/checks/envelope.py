"""Head, version and layout: whether the words that name the format agree with what follows."""

from __future__ import annotations

from collections.abc import Iterator

from formats.layouts import all_layouts
from inspector.bundle import File
from inspector.checks.subject import Subject
from inspector.findings import Code, Finding, RemedyKind, Severity, register
from inspector.node import Node
from inspector.span import Span

register(
    Code(
        "file.unrecognised",
        Severity.ERROR,
        "No known layout explains the bytes",
        "no llama.cpp-family server can restore this file",
        RemedyKind.NONE,
        "the first bytes are shown; if a known program wrote it, its format is not covered",
        "the layout table (`slotscope layouts`)",
    ),
    Code(
        "file.empty",
        Severity.ERROR,
        "The file has no bytes",
        "a restore is refused; the slot's old contents stay",
        RemedyKind.NONE,
        "delete it: a save that failed at once leaves this",
        "llama.cpp b11549, restore of an empty file",
    ),
    Code(
        "file.big-endian",
        Severity.ERROR,
        "The file was written on a big-endian machine",
        "a restore on any other machine is refused with an unknown magic",
        RemedyKind.NONE,
        "states are written in the byte order of their machine, and are not converted",
        "llama.cpp, llama_file::write_u32",
    ),
    Code(
        "file.named-like-a-model",
        Severity.WARNING,
        "A file named like a model is a state",
        "a server that loads it as a model fails; the model that had this name may be gone",
        RemedyKind.NONE,
        "a save that followed a symbolic link in the slot folder does this",
        "llama.cpp issue #26315",
    ),
    Code(
        "file.symlink",
        Severity.NOTE,
        "The name of a state is a symbolic link",
        "a save under this name empties and overwrites the file that the link points to, wherever "
        "it is, and reports success",
        RemedyKind.NONE,
        "put the file itself there, if nobody meant it to be elsewhere",
        "llama.cpp issue #26315",
    ),
    Code(
        "envelope.magic-wrong",
        Severity.ERROR,
        "The magic contradicts everything behind it",
        "a restore is refused with an unknown magic; the slot's old contents stay",
        RemedyKind.EXACT,
        "write the magic that belongs to the layout",
        "llama.cpp b10587, llama_context::state_seq_load_file",
    ),
    Code(
        "envelope.version-unknown",
        Severity.ERROR,
        "The version word is one that no known writer writes",
        "every known loader takes only its own version and refuses the file",
        RemedyKind.EXACT,
        "restamp with the version that the body belongs to, if no unknown fork wrote it",
        "llama.cpp b10587, llama_context::state_seq_load_file",
    ),
    Code(
        "envelope.version-contradicts-body",
        Severity.ERROR,
        "The body is that of another version",
        "a loader of the stamped version misreads or refuses the body",
        RemedyKind.EXACT,
        "restamp with the version that the body belongs to",
        "llama.cpp b10587, llama_context::state_seq_load_file",
    ),
    Code(
        "layout.ambiguous",
        Severity.WARNING,
        "Several layouts explain the file equally well",
        "what the sections are called here may be wrong; their bytes are not",
        RemedyKind.NONE,
        "give the model with --model: its header settles it",
        "the layout table (`slotscope layouts`)",
    ),
    Code(
        "layout.one-word-away",
        Severity.ERROR,
        "With one word changed the file reads whole",
        "a loader stops where this reading stops, or misreads what follows",
        RemedyKind.EXACT,
        "write the value given as expected",
        "every other fact about the file agrees with it, to its exact end",
    ),
    Code(
        "layout.key-only",
        Severity.NOTE,
        "Keys without values: a model with latent attention (MLA)",
        "nothing, if the model is one; a file of another model that was cut exactly behind "
        "its keys looks the same",
        RemedyKind.NONE,
        "give the model with --model to be sure",
        "llama.cpp b7832 (PR #19067)",
    ),
)

_BIG_ENDIAN = (b"ggsq", b"ggsn")


def check_envelope(subject: Subject) -> Iterator[Finding]:
    """Magic, version, and how sure the layout is."""
    root, layout = subject.root, subject.reading.layout
    failed = {fact.path: fact for fact in subject.reading.failed}
    if "magic" in failed and (node := root.get("magic")) is not None:
        yield Finding(
            "envelope.magic-wrong",
            "magic",
            node.span,
            f"the magic is not that of {layout.id}, as which the rest of the file reads",
            repr(layout.magic.decode("latin-1")),
            _characters(node),
        )
    if "version" in failed and (node := root.get("version")) is not None:
        known = {other.version for other in all_layouts() if other.format == layout.format}
        code = (
            "envelope.version-contradicts-body"
            if node.value in known
            else "envelope.version-unknown"
        )
        yield Finding(
            code,
            "version",
            node.span,
            f"the version word says {node.value}, the body is laid out as {layout.id}",
            str(layout.version),
            str(node.value),
        )
    if subject.is_state and subject.name.lower().endswith(".gguf"):
        yield Finding(
            "file.named-like-a-model",
            "",
            root.span,
            f"the name ends in .gguf, the contents are those of a {layout.title}; a save overwrote "
            "the model, or was given such a name",
            "GGUF",
            layout.format,
        )
    competing = subject.identification.competing
    if competing:
        yield Finding(
            "layout.ambiguous",
            "",
            root.span,
            f"{layout.id} explains every byte, and so does "
            f"{', '.join(r.layout.id for r in competing)}",
            "one layout",
            f"{1 + len(competing)} layouts",
        )
    mend = subject.identification.mend
    if mend is not None and not mend.path.startswith("appendix"):  # which restores have no need of
        yield Finding(
            "layout.one-word-away",
            mend.path,
            mend.span,
            f"{mend.path} says {mend.stored}; with {mend.value} every byte of the file is "
            "explained",
            str(mend.value),
            str(mend.stored),
        )
    attention = subject.section("attention")
    if attention is not None and layout.memory in ("mla", "hybrid-mla") and attention.k:
        yield Finding(
            "layout.key-only",
            attention.path,
            attention.span,
            f"{len(attention.k)} layers have keys of {attention.k[0].row_bytes} bytes a cell, "
            "none has values",
            "values, unless the model has latent attention",
            "no V blocks",
        )


def check_link(subject: Subject, file: File) -> Iterator[Finding]:
    """Whether the name of a state or of a list of checkpoints stands for another file."""
    if not file.link or subject.reading.layout.format == "gguf":
        return
    yield Finding(
        "file.symlink",
        "",
        Span(0, file.size),
        f"{file.name} is a symbolic link to {file.target}",
        "a file of that name",
        f"a link to {file.target}",
    )


def _characters(magic: Node) -> str:
    value = magic.value if isinstance(magic.value, int) else 0
    return repr(value.to_bytes(len(magic.span), "little").decode("latin-1"))


def unrecognised(size: int, head: bytes) -> Finding:
    """The finding for bytes that nothing explains."""
    if not size:
        return Finding("file.empty", "", Span(0, 0), "the file is empty", "a state", "0 bytes")
    if head[:4] in _BIG_ENDIAN:
        message = f"the magic reads {head[:4].decode()}, as on a big-endian machine"
        expected = repr(head[3::-1].decode())
        return Finding(
            "file.big-endian", "", Span(0, 4), message, expected, repr(head[:4].decode())
        )
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in head)
    return Finding(
        "file.unrecognised",
        "",
        Span(0, size),
        f"{size:,} bytes that begin with {head.hex(' ')} ({text}) are no known state, sidecar "
        "or model file",
        "a known magic, or a body that a known layout explains to its end",
        head.hex(" "),
    )
