"""A checkpoint list without its state: what of it is whole, in the form of another server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from formats.ggml_types import IK
from inspector.repair.actions.checkpoints import (
    CONVERT,
    IK_LIST,
    KINDS,
    converted,
    dropped,
    mended,
    with_prefix,
)
from inspector.repair.compose import PREFIX
from inspector.repair.draft import Options, Step
from inspector.repair.lists import (
    BY_NAME,
    Family,
    Record,
    binding_of,
    carried_in,
    composed,
    family_of,
    list_of,
    record_of,
)
from inspector.repair.segments import Composed, Keep, Write, joined
from inspector.repair.state import Cache, Refused, words
from inspector.report import Report
from inspector.server.servers import Build, carriers
from inspector.server.target import Target
from inspector.span import Span

_PREFIX_BYTES = 8


def is_list(report: Report) -> bool:
    """Whether a file is a checkpoint list."""
    return list_of(report) is not None


def repaired_list(
    report: Report, target: Target | None, options: Options, *, remaking: bool = True
) -> tuple[Composed, list[Step]]:
    """A list as it is to be written, and the steps that lead there.

    Args:
        report: of the file.
        target: the server that is to read it; None to repair it for its own.
        options: what the user asked for besides.
        remaking: whether blobs may be used that are right but for their first or last bytes.

    Raises:
        Refused: if nothing of it is whole, or it cannot become what was asked for.
    """
    if options.at is not None or options.prompt is not None:
        raise Refused("a list alone is not cut: repair its state, and the list goes along")
    carried = carried_in(report, remaking=remaking)[:1]
    (one,) = carried
    own = one.family
    if not one.records or own is None:
        raise Refused("none of its checkpoints is whole and of use")
    of_ik, family = own.format == IK_LIST, _family(own, target, options)
    if of_ik and family != own:
        raise Refused(KINDS)
    if target is not None and of_ik != (target.build.server == IK):
        raise Refused(KINDS)
    records, steps = [record_of(record, one.source) for record in one.records], dropped(carried)
    steps += mended(carried)
    kept, more = converted(
        carried,
        records,
        family,
        asked=target is None or options.to is not None,
        ik=of_ik,
    )
    if target is not None and not of_ik:
        _check_rotation(kept, target.build)
    if family.format == "sckp":  # only builds that want it read such lists
        kept = _prefixed(kept, more, wanted=True)
    elif target is not None and not of_ik:
        kept = _prefixed(kept, more, wanted=target.build.has("blob-prefix"))
    elif one.remade:
        kept = _prefixed(kept, [], wanted=any(record.prefixed for record in records))
    steps += more
    for step in steps:
        if not options.allows(step.action):
            raise Refused(f"{step.action} is what it needs, and that is not allowed")
    binding = binding_of(one.listing, one.source) if family == own else None
    why = steps[-1].action if steps else "copy"
    return Composed(joined(composed(kept, family, why, binding), one.source), ""), steps


def _family(own: Family, target: Target | None, options: Options) -> Family:
    if options.to is not None:
        return BY_NAME[options.to]
    if target is None:
        return own
    read = [family_of(carrier.format, carrier.version) for carrier in carriers(target.build)]
    if not read:
        raise Refused(f"{target.build.label} reads no checkpoint lists")
    beside = [family for family in read if family is not None and family.suffix]
    if not beside and own.suffix:
        raise Refused(
            f"{target.build.label} reads checkpoints behind a state alone: repair the state, and "
            "its list goes along"
        )
    return own if own in read or not beside else beside[0]


def _check_rotation(records: Sequence[Record], build: Build) -> None:
    """See that blobs are such as a server reads, but for their first bytes.

    Raises:
        Refused: if they are not.
    """
    for record in records:
        caches = [part for part in record.parts or () if isinstance(part, Cache)]
        if any((cache.rotation is not None) != build.has("rotation-words") for cache in caches):
            raise Refused(
                "its blobs hold windowed layers in a form that this server does not read: repair "
                "the state, and its list goes along"
            )


def _prefixed(records: Sequence[Record], steps: list[Step], *, wanted: bool) -> tuple[Record, ...]:
    """Records whose blobs begin with eight bytes of their own, or do not."""
    found, changed = [], 0
    for record in records:
        first = record.tgt[0] if record.tgt else None
        unknown = record.parts is None and wanted
        if unknown or record.prefixed == wanted or not isinstance(first, Keep):
            found.append(record)
            continue
        changed += 1
        if wanted:
            tgt = (Write(words(PREFIX, 0), CONVERT), *record.tgt)
        else:
            span = Span(first.span.start + _PREFIX_BYTES, first.span.stop)
            tgt = (Keep(first.source, span), *record.tgt[1:])
        found.append(replace(record, tgt=tgt, prefixed=wanted))
    if changed:
        with_prefix(steps, changed, added=wanted)
    return tuple(found)
