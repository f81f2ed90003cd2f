"""What all checkpoint lists have in common: positions, and the blobs of a record."""

from __future__ import annotations

from typing import Any

from construct import this

from formats.scalars import I64, LLAMA_POS, U64
from formats.spans import Payload, Record, Series

N_RECORDS = 1 << 12
"""Records that a list is believed to hold; the largest limit of a known writer is 4096."""

N_TOKENS = "n_tokens" / I64 * "tokens of the prompt that the checkpoint returns to"
POS_MIN = (
    "pos_min" / LLAMA_POS * "lowest position that the memory held when the checkpoint was made"
)
POS_MAX = (
    "pos_max" / LLAMA_POS * "highest position that the memory held when the checkpoint was made"
)

N_TGT = "n_tgt" / U64 * "bytes of the target context's state"
N_DFT = "n_dft" / U64 * "bytes of the draft context's state"
N_SPEC = "n_spec" / U64 * "bytes of the speculative decoder's state"
TGT = "data_tgt" / Payload(this.n_tgt, holds="blob") * "partial state of the target context"
DFT = "data_dft" / Payload(this.n_dft, holds="draft") * "state of the draft context"
SPEC = "data_spec" / Payload(this.n_spec) * "state of the speculative decoder"


def checkpoints(*head: Any, record: tuple[Any, ...]) -> Record:
    """A checkpoint list: `head`, which counts the records as `count`, then the records.

    Args:
        head: members in front of the records.
        record: members of one record.
    """
    return Record(
        *head,
        "records"
        / Series(this.count, Record(*record), at_most=N_RECORDS, salvage=True)
        * "checkpoints, oldest first",
        role="checkpoints",
        facts={"record": tuple(declared.name for declared in record)},
    )
