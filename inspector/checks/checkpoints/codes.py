"""The codes of findings about checkpoint lists."""

from __future__ import annotations

from inspector.findings import Code, RemedyKind, Severity, register

_B11549 = "llama.cpp b11549: answers to requests that pick a record with wrong numbers"
_LOAD = "llama.cpp b9109 (PR #22838), common/common.h load_tgt; measured on b11549"
_SCKP = "llama.cpp 033df86b6 (PR #26004), tools/server/server-context.cpp; measured on b11549"
_LISTS = "the loaders that formats/sidecars cites"
_IK = "ik_llama.cpp 5e8bb724c (PR #1584), examples/server/server-context.cpp; measured"

_DIES = (
    "the restore succeeds; the server aborts at the first request that picks the record "
    "(ik_llama.cpp evaluates that request from the start)"
)
_STARTS_OVER = "the restore succeeds; a request that picks the record is evaluated from the start"
_MISPLACED = (
    "the blob loads; a request that picks the record gets another answer, or HTTP 500, and with "
    "a negative position a later request aborts the server"
)

register(
    Code(
        "sidecar.truncated",
        Severity.WARNING,
        "A checkpoint sidecar ends before its records do",
        "its reader drops all of its checkpoints (bongo: those from the cut on): prompts that do "
        "not extend the saved one are evaluated again",
        RemedyKind.LOSSY,
        "drop the incomplete record and correct the count: the others become usable",
        _LISTS,
    ),
    Code(
        "sidecar.truncated-unchecked",
        Severity.ERROR,
        "A checkpoint sidecar ends before its records do, and its reader does not notice",
        "records behind the cut are made of leftovers in memory; a length among them can end the "
        "server with bad_alloc",
        RemedyKind.LOSSY,
        "drop the incomplete record and correct the count",
        _IK,
    ),
    Code(
        "sidecar.trailing-bytes",
        Severity.WARNING,
        "Bytes follow the last record of a checkpoint sidecar",
        "readers of PKCL 2 and STCK reject the sidecar, others ignore the bytes",
        RemedyKind.EXACT,
        "cut them off",
        _LISTS,
    ),
    Code(
        "sidecar.count-exceeds-file",
        Severity.WARNING,
        "A checkpoint sidecar claims more records than it holds",
        "its reader drops all of its checkpoints (bongo keeps those that are there)",
        RemedyKind.EXACT,
        "write the number of records that are there",
        _LISTS,
    ),
    Code(
        "sidecar.unchecked-size",
        Severity.ERROR,
        "A count or a length exceeds the sidecar, and its reader believes any",
        "the reader allocates without bound or loops over missing records: restoring can end the "
        "server with bad_alloc",
        RemedyKind.LOSSY,
        "drop what is incomplete and correct the count, or delete the sidecar",
        _LISTS,
    ),
    Code(
        "sidecar.count-above-limit",
        Severity.WARNING,
        "A checkpoint sidecar has more records than its reader takes",
        "the reader drops all of them",
        RemedyKind.LOSSY,
        "keep the newest records, as many as the limit allows",
        _LISTS,
    ),
    Code(
        "sidecar.length-above-limit",
        Severity.WARNING,
        "A blob of a checkpoint sidecar is larger than its reader takes",
        "the reader drops all checkpoints",
        RemedyKind.LOSSY,
        "drop the record",
        _LISTS,
    ),
    Code(
        "sidecar.empty",
        Severity.NOTE,
        "A checkpoint sidecar without records",
        "the reader succeeds with no checkpoints, and only that of PKCL 2 makes one of the "
        "restored end",
        RemedyKind.EXACT,
        "delete it",
        _LISTS,
    ),
    Code(
        "sidecar.unknown-version",
        Severity.WARNING,
        "The version of a checkpoint sidecar is none that a known program writes",
        "its reader rejects the sidecar: the restore goes on without checkpoints (the turboquant "
        "fork at cff2ea367 crashes)",
        RemedyKind.EXACT,
        "write the version whose layout explains the file",
        _LISTS,
    ),
    Code(
        "sidecar.hash-mismatch",
        Severity.WARNING,
        "The state is not the one that the sidecar was written for",
        "the reader rejects the sidecar",
        RemedyKind.EXACT,
        "write its hash if the records fit the state, else delete the sidecar",
        "commit 001d906a6 in the fork network of ggml-org/llama.cpp",
    ),
    Code(
        "sidecar.prompt-mismatch",
        Severity.WARNING,
        "The sidecar was written for another number of prompt tokens than the state has",
        "the reader rejects the sidecar",
        RemedyKind.LOSSY,
        "delete it",
        "formats/sidecars/stck.py",
    ),
    Code(
        "sidecar.foreign",
        Severity.WARNING,
        "The sidecar is of another program than the state",
        "the server that reads the state looks for another sidecar, or rejects this one",
        RemedyKind.LOSSY,
        "delete it: the blobs of ik_llama.cpp and of llama.cpp are no copies of each other",
        _IK,
    ),
    Code(
        "appendix.truncated",
        Severity.WARNING,
        "The checkpoint appendix ends before its records do",
        "the server ignores all of its records; the state itself restores",
        RemedyKind.LOSSY,
        "drop the incomplete record and correct the count, or cut the file at the payload's end",
        _SCKP,
    ),
    Code(
        "appendix.count-exceeds-file",
        Severity.WARNING,
        "The checkpoint appendix claims more records than it holds",
        "the server ignores all of its records; the state itself restores",
        RemedyKind.EXACT,
        "write the number of records that are there",
        _SCKP,
    ),
    Code(
        "appendix.magic",
        Severity.WARNING,
        "A checkpoint appendix whose magic is damaged: all else of it reads to the exact end",
        "the server takes it for bytes that are not its own and ignores them without a message",
        RemedyKind.EXACT,
        "write SCKP",
        _SCKP,
    ),
    Code(
        "appendix.unknown-version",
        Severity.WARNING,
        "The version of the checkpoint appendix is not 1",
        "the server ignores all of its records; the state itself restores",
        RemedyKind.EXACT,
        "write 1 if the records are whole",
        _SCKP,
    ),
    Code(
        "appendix.empty",
        Severity.NOTE,
        "A checkpoint appendix without records",
        "none: revisions before the merge wrote it for every model, and mainline accepts it",
        RemedyKind.EXACT,
        "cut it off",
        _SCKP,
    ),
    Code(
        "checkpoint.beyond-state",
        Severity.ERROR,
        "A checkpoint lies behind the end of the state",
        "it belongs to another save: a request that picks it is answered from another "
        "conversation. That happens if it ends right behind the state, and with servers from "
        "before b9593 that find it by pos_min alone; others forget it",
        RemedyKind.LOSSY,
        "drop the record; if the sidecar is from another save, delete it",
        _B11549,
    ),
    Code(
        "checkpoint.never-picked",
        Severity.WARNING,
        "No request can pick a checkpoint after the restore",
        "it is of no use: servers forget a record whose pos_max lies behind what is shared, and "
        "pass over one of a sliding window whose pos_min is neither 0 nor below the window in "
        "memory",
        RemedyKind.LOSSY,
        "drop the record; if its blob is of this save, write the positions of its cells, or a "
        "pos_min that is one lower",
        _B11549,
    ),
    Code(
        "checkpoint.positions-invalid",
        Severity.WARNING,
        "The positions of a checkpoint are negative or in the wrong order",
        "no writer writes this: a negative pos_min lets more requests pick the record, one above "
        "pos_max fewer. STCK and SLCK are dropped as a whole",
        RemedyKind.EXACT,
        "take the positions from the blob",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-invalid",
        Severity.WARNING,
        "A checkpoint that goes back to no tokens",
        "a request that picks the record is evaluated from the start, even if an earlier record "
        "would do. STCK and SLCK are dropped as a whole",
        RemedyKind.EXACT,
        "write the positions of the blob and n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-mismatch",
        Severity.ERROR,
        "A checkpoint's n_tokens is too small for its blob",
        "a request that picks the record goes on below it: a recurrent or hybrid model aborts the "
        "server (b9180 on), a sliding-window model answers from a window that lacks positions",
        RemedyKind.EXACT,
        "write n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-low",
        Severity.WARNING,
        "A checkpoint's n_tokens is too small, but its blob reaches down to there",
        "a few tokens more are evaluated, the first of them perhaps with a window that lacks a few "
        "positions: answers hardly change",
        RemedyKind.EXACT,
        "write n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.n-tokens-high",
        Severity.WARNING,
        "A checkpoint's n_tokens is larger than its last position + 1, or negative",
        "none while the positions are right: the server goes on from these",
        RemedyKind.EXACT,
        "write n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.not-ascending",
        Severity.NOTE,
        "Checkpoints are not in ascending order",
        "the search runs from the end of the list, so an earlier one can be picked and some "
        "tokens more are evaluated; llama-server itself leaves such lists after a prompt that "
        "went back",
        RemedyKind.EXACT,
        "sort the records by n_tokens",
        "llama.cpp b11549, sixth record of a saved slot whose prompt went back",
    ),
    Code(
        "checkpoint.recurrent-range",
        Severity.ERROR,
        "A recurrent checkpoint's pos_min lies below its blob",
        "the record is picked for a prompt that ends where it ends, and the server aborts (b9180 "
        "on)",
        RemedyKind.EXACT,
        "write pos_min = pos_max = the position in the blob",
        _B11549,
    ),
    Code(
        "checkpoint.window-gap",
        Severity.ERROR,
        "The blob of a sliding-window checkpoint does not cover the window",
        "answers after a return to the checkpoint are computed from a window with holes",
        RemedyKind.LOSSY,
        "drop the record",
        _B11549,
    ),
    Code(
        "checkpoint.window-short",
        Severity.NOTE,
        "The blob of a sliding-window checkpoint lacks the first position of the window",
        "the first token after a return to the checkpoint is computed with one cell less; "
        "llama-server itself leaves such records after it went back to a checkpoint",
        RemedyKind.LOSSY,
        "drop the record",
        _B11549,
    ),
    Code(
        "checkpoint.position-mismatch",
        Severity.ERROR,
        "The positions of a checkpoint are not those in its blob, and the server goes on from them",
        "too low: abort (recurrent, hybrid; b9180 on) or answers from a window that lacks "
        "positions; too high, with n_tokens too high as well: HTTP 500, or wrong answers of a "
        "model with M-RoPE",
        RemedyKind.EXACT,
        "trust the blob: write its positions and n_tokens = pos_max + 1 (text)",
        _B11549,
    ),
    Code(
        "checkpoint.positions-differ",
        Severity.WARNING,
        "The positions of a checkpoint are not those in its blob, but it goes on from a right one",
        "too high: requests that share less than they say do not pick the record, and n_tokens "
        "keeps the others in place; too low: a few tokens more are evaluated, answers hardly "
        "change",
        RemedyKind.EXACT,
        "trust the blob and write its positions",
        _B11549,
    ),
    Code(
        "checkpoint.other-content",
        Severity.WARNING,
        "The blob of a checkpoint holds other rows than the state at the same positions",
        "the checkpoint was taken in another conversation, or before a context shift: answers "
        "after a return to it come from there",
        RemedyKind.LOSSY,
        "drop the record; if all records differ, delete the sidecar",
        "rows of 13 checkpoints saved by llama.cpp b11549: equal byte for byte",
    ),
    Code(
        "checkpoint.full-blob",
        Severity.NOTE,
        "The blobs are complete attention caches",
        "none; a model whose memory can be cut back needs no checkpoints, the bytes are wasted",
        RemedyKind.LOSSY,
        "drop the records",
        "llama.cpp b10587, src/llama-kv-cache.cpp ignores PARTIAL_ONLY",
    ),
    Code(
        "checkpoint.draft-data",
        Severity.NOTE,
        "Checkpoints hold the state of a draft context or of a speculative decoder",
        "a server without that draft model ignores the bytes; the draft context itself is not in "
        "a slot file, so drafts are accepted less often until it is rebuilt",
        RemedyKind.NONE,
        "not needed",
        "llama.cpp b11549; issue ggml-org/llama.cpp#28619",
    ),
)

BLOB_PROBLEMS = (
    (
        "blob-empty",
        "A checkpoint without a target blob",
        RemedyKind.LOSSY,
        "drop the record",
    ),
    (
        "blob-truncated",
        "The blob of a checkpoint ends before its own counts say",
        RemedyKind.LOSSY,
        "drop the record",
    ),
    (
        "blob-trailing-bytes",
        "The blob of a checkpoint is longer than its own counts say",
        RemedyKind.EXACT,
        "cut the bytes off and lower the length",
    ),
    (
        "blob-unreadable",
        "The blob of a checkpoint is no state that a known program writes",
        RemedyKind.LOSSY,
        "drop the record",
    ),
    (
        "blob-geometry",
        "The blob of a checkpoint has other layers, types or row sizes than the state",
        RemedyKind.LOSSY,
        "drop the record: it is of another model or of another cache type",
    ),
    (
        "blob-prefix",
        "The blob of a checkpoint lacks the eight bytes in front that the server looks for",
        RemedyKind.EXACT,
        "put d8 3c 14 af and a zero in front, or in place of the first eight bytes if spoilt",
    ),
    (
        "blob-rotation",
        "The blob of a checkpoint is not in the dialect of the state: rotation words",
        RemedyKind.LOSSY,
        "drop the record, or take the words from the state's own section",
    ),
    (
        "blob-cells",
        "The blob of a checkpoint holds cells at negative positions, or two at one",
        RemedyKind.LOSSY,
        "drop the record: what stood there cannot be known from it",
    ),
)
"""End of a code, meaning, remedy and advice; each is one in a sidecar and one in an appendix."""

_APPENDED = {
    "blob-empty": (Severity.WARNING, "the restore succeeds and all records are ignored"),
    "blob-cells": (Severity.ERROR, _MISPLACED),
}
"""Severity and effect in an appendix, where the record does more harm, or less, than others."""

for _name, _meaning, _kind, _advice in BLOB_PROBLEMS:
    _severity, _effect = _APPENDED.get(_name, (Severity.WARNING, _STARTS_OVER))
    _beside = _MISPLACED if _name == "blob-cells" else _DIES
    register(
        Code(f"checkpoint.{_name}", Severity.ERROR, _meaning, _beside, _kind, _advice, _LOAD),
        Code(f"appendix.{_name}", _severity, _meaning, _effect, _kind, _advice, _SCKP),
    )
