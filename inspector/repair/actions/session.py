"""Whole-context files of one sequence as slot files, and the other way round.

Source: ggml-org/llama.cpp b10587, src/llama-context.cpp `state_save_file`, `state_write_data`.
"""

from __future__ import annotations

from dataclasses import replace

from inspector.render.page import counted
from inspector.repair.draft import Draft, Step
from inspector.repair.segments import Write
from inspector.repair.state import Refused, words

FROM, TO = "from-session", "to-session"
_VERSIONS = {8: 2, 9: 2, 10: 3, 11: 4}
"""Versions of whole-context files, and of the slot files that hold memory in the same form."""
_WITHOUT_RNG = 3681
"""Builds from which on whole-context files have version 9. Source: PR #9294."""


def from_session(draft: Draft) -> None:
    """The only sequence of a whole-context file as a slot file."""
    form = draft.form
    if not form.session or (draft.target is None and not draft.options.asks_for(FROM)):
        return
    recurrent = draft.state.recurrent
    if recurrent is not None and len(recurrent.pos) > 1:
        raise Refused(
            f"{recurrent.member} holds several sequences, and a slot file can have one: repair "
            "does not choose between them"
        )
    version = _VERSIONS[form.version]
    draft.take(
        Step(
            FROM,
            "servers restore slot files; a whole-context file is refused",
            f"the head: a slot file of version {version}, without the architecture and what else "
            "stands in front of the memory"
            + ("; no sequence id in the recurrent section" if recurrent is not None else ""),
            proven="files of 2024-09 to b11549 on b10229 and b11549",
        )
    )
    draft.stored = replace(draft.stored, version=version, session=False)
    draft.form = replace(form, version=version, session=False)
    if draft.target is None:
        draft.wanted = draft.stored
    draft.state = replace(draft.state, head=())


def to_session(draft: Draft) -> None:
    """A slot file as a whole-context file, where that was asked for."""
    form, target = draft.form, draft.target
    if form.session or not draft.options.asks_for(TO):
        return
    if draft.ik:
        raise Refused("whole-context files of ik_llama.cpp are not written")
    if target is None or target.memory is None:
        raise Refused("whole-context files name the architecture: name the model with --model")
    version = max((own for own, slot in _VERSIONS.items() if slot == form.version), default=0)
    until = target.build.number or 0
    if not version or (version == _VERSION_9 and until < _WITHOUT_RNG):
        raise Refused(f"slot files of version {form.version} have no such counterpart")
    architecture = target.memory.architecture.encode()
    head = words(len(architecture)) + architecture
    if version == _VERSION_9 and not target.build.has("outputs-dropped"):
        head += words(0) + bytes(16)  # no outputs, logits, embeddings
    n = len(draft.records)
    draft.take(
        Step(
            TO,
            "it was asked for: --prompt-cache and llama_state_load_file read whole contexts",
            f"the head: a whole-context file of version {version} of {target.memory.architecture}; "
            "sequence ids in every cell",
            f"{counted(n, 'checkpoint')}, for which such files have no place" if n else None,
            proven="the libraries of b10229 and b11549",
            confirm=n > 0,
        )
    )
    draft.records = ()
    draft.form = replace(form, version=version, session=True, seq_id=True, packed=False)
    tokens = replace(draft.state.tokens, packed=False)
    draft.state = replace(draft.state, head=(Write(head, TO),), tokens=tokens)


_VERSION_9 = 9
