"""The words that a shell completes in the place of options' values."""

from __future__ import annotations


def actions() -> list[str]:
    """What repair can do."""
    from inspector.repair.plan import NAMES

    return list(NAMES)


def families() -> list[str]:
    """The checkpoint lists that repair can write."""
    from inspector.repair.lists import BY_NAME

    return list(BY_NAME)


def explained() -> list[str]:
    """What can be explained: codes of findings, and what repair can do."""
    from inspector.checks import all_codes

    return [*all_codes(), *actions()]


def layout_ids() -> list[str]:
    """Every known layout."""
    from formats.layouts import all_layouts

    return [layout.id for layout in all_layouts()]


def languages() -> list[str]:
    """What a layout is exported to."""
    return ["ksy", "hexpat"]


def severities() -> list[str]:
    """What --fail-on takes."""
    from inspector.findings import Severity

    return [*Severity, "never"]


def builds() -> list[str]:
    """The newest build, releases, and the builds of forks that are known."""
    from inspector.server.servers import FORKS, NEWEST, NEWEST_IK, RELEASES

    forks = [f"{fork.name}@{own}" for fork in FORKS.values() for own in fork.follows]
    return [f"b{NEWEST}", *(f"v{release}" for release in RELEASES), *forks, f"ik@{NEWEST_IK}"]


def orders() -> list[str]:
    """What scan sorts by; with - in front, the largest first."""
    from inspector.scanning.choice import FIELDS

    return [*FIELDS, *(f"-{name}" for name in FIELDS)]
