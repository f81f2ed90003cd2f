"""The codes of findings about cells."""

from __future__ import annotations

from inspector.findings import Code, RemedyKind, Severity, register

_KV = "llama.cpp b10587, src/llama-kv-cache.cpp llama_kv_cache::state_read_meta"
_TRIED = "restores of such files on llama.cpp b10229, b10809, b11063 and b11549"
_REC = "llama.cpp b10587, src/llama-memory-recurrent.cpp llama_memory_recurrent::state_read_meta"

register(
    Code(
        "cells.n-seq-id",
        Severity.ERROR,
        "A cell has another number of sequence ids than this format allows",
        'the loader refuses the file ("invalid seq_id-agnostic kv cell") after it has emptied '
        "the slot",
        RemedyKind.EXACT,
        "write the number that all other cells have",
        _KV,
    ),
    Code(
        "cells.seq-id-out-of-range",
        Severity.ERROR,
        "A cell belongs to a sequence that no context can have",
        'the loader refuses the file ("invalid seq_id"); old builds write out of bounds (before '
        "b5485, recurrent cells before b8487)",
        RemedyKind.NONE,
        "which sequence the cell belonged to cannot be known",
        _KV,
    ),
    Code(
        "cells.pos-empty",
        Severity.ERROR,
        "A cell is marked as empty",
        "the restore is accepted, and every request after it aborts the server",
        RemedyKind.NONE,
        "the position follows from its neighbours only if they are in order: repair writes it then",
        "llama.cpp b10229, b10809 and b11549, restore of such a file; a recurrent cell at "
        "2147483647 counts as empty too",
    ),
    Code(
        "cells.end-mismatch",
        Severity.ERROR,
        "The cells end before the tokens do",
        'the restore is accepted, and a prompt that goes on from it fails: "Invalid input batch."',
        RemedyKind.NONE,
        "the positions of the cells, or the tokens, are damaged",
        "llama.cpp b10229, b10809 and b11549, restore of such a file",
    ),
    Code(
        "cells.pos-negative",
        Severity.WARNING,
        "A position is negative",
        "the file loads; the cell counts as empty but stays owned, or is attended to at a "
        "wrong place",
        RemedyKind.NONE,
        "the position follows from its neighbours only if they are in order: repair writes it then",
        _KV,
    ),
    Code(
        "cells.pos-unerasable",
        Severity.ERROR,
        "A cell stands where no erase reaches: below -1, or at 2147483647",
        "the file loads, and its slot is spoilt until the server is started again: neither an "
        "erase nor another restore removes the cell; below -1, all later prompts see it and get "
        "other answers; at 2147483647, all of them get HTTP 500",
        RemedyKind.NONE,
        "the position follows from its neighbours only if they are in order: repair writes it then",
        _TRIED,
    ),
    Code(
        "cells.pos-duplicate",
        Severity.WARNING,
        "Two text cells have the same position",
        "the file loads; both cells are attended to",
        RemedyKind.NONE,
        "which of them is right is known only where all other cells are in a row: repair puts one "
        "back into it",
        "llama.cpp b10229 and b11549, restore of such a file",
    ),
    Code(
        "cells.pos-not-ascending",
        Severity.NOTE,
        "Cells are not in the order of their positions",
        "nothing: cells are stored in cell order, which differs after a context shift or when "
        "a window has wrapped",
        RemedyKind.NONE,
        "not needed",
        _KV,
    ),
    Code(
        "cells.pos-gaps",
        Severity.NOTE,
        "Positions are missing between the lowest and the highest",
        "the file loads; what stood at those positions is not remembered",
        RemedyKind.NONE,
        "the missing cells were removed before the save",
        _KV,
    ),
    Code(
        "cells.pos-not-tokens",
        Severity.NOTE,
        "A token has no cell at its place, and later ones have",
        "the file loads; a prompt that goes on behind the gap is not answered as the same prompt "
        'without memory, one that goes on inside it gets HTTP 500: "Invalid input batch."',
        RemedyKind.NONE,
        "only what is in front of the gap can be reused: let the server evaluate the rest again",
        "llama.cpp b10229 and b11549, every prompt that shares a part of such a file",
    ),
    Code(
        "cells.ext-differs",
        Severity.NOTE,
        "The coordinates of some cells are not their position: tokens of an image",
        "nothing: the cells of an image share a position and differ in column and row",
        RemedyKind.NONE,
        "not needed",
        "llama.cpp b8215 (PR #20132)",
    ),
    Code(
        "cells.token-differs",
        Severity.WARNING,
        "The token id in a cell is not that of the token list",
        "the file loads; if the list was changed, prompts are compared with the wrong token; if "
        "the cell was, n-gram embeddings of later tokens are computed from the wrong history",
        RemedyKind.EXACT,
        "write it anew with slotscope repair and --model, which tells whose row it is where the "
        "first layer of the model has attention; without it which of the two was changed cannot be "
        "told",
        "llama.cpp b10644 (PR #27762)",
    ),
    Code(
        "streams.several-in-seq",
        Severity.ERROR,
        "More than one stream of a sequence save has cells",
        "the loader puts them all into one sequence: the last one overwrites the others",
        RemedyKind.NONE,
        "no writer does this; which stream is right cannot be known",
        _KV,
    ),
    Code(
        "swa.more-cells",
        Severity.WARNING,
        "The window holds positions that the full cache lacks",
        "the file loads; the two caches disagree about what was said",
        RemedyKind.NONE,
        "the sections come from different moments",
        _KV,
    ),
    Code(
        "swa.behind",
        Severity.WARNING,
        "The window ends before the full cache does",
        "the file loads; the last tokens see a window that is not theirs",
        RemedyKind.NONE,
        "the sections come from different moments",
        _KV,
    ),
    Code(
        "swa.gaps",
        Severity.WARNING,
        "Positions are missing inside the window",
        "the file loads; answers degrade, since the windowed layers lack context",
        RemedyKind.NONE,
        "the missing cells are not in the file",
        _KV,
    ),
    Code(
        "recurrent.several-cells",
        Severity.ERROR,
        "A recurrent section of a sequence save has more than one cell",
        "restoring it aborts the server, unless it has fewer slots than cells and is b11193 "
        "or newer: then it refuses",
        RemedyKind.NONE,
        "no writer does this",
        "llama.cpp b8672 to b11549, restore of such a file",
    ),
    Code(
        "recurrent.transposed",
        Severity.ERROR,
        "The recurrent state claims to be transposed",
        'llama.cpp refuses the file: "incompatible s transposition"',
        RemedyKind.NONE,
        "restore it with the program that wrote it: a gated-delta-net fork writes 2, upstream "
        "nothing but 0",
        _REC,
    ),
    Code(
        "recurrent.pos-mismatch",
        Severity.ERROR,
        "The recurrent state stands at another position than the attention cache or the tokens",
        "the file loads; the state and the keys describe different prefixes, and answers go wrong",
        RemedyKind.NONE,
        "the sections come from different moments, unless the model computes the state of the last "
        "tokens: repair writes its position then",
        _REC,
    ),
)
