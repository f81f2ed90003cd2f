"""What the manifest of a folder says of its files: the mutations, and what loaders must do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from inspector.fuzzing.mutators.kinds import Must

MANIFEST = "manifest.json"
"""What `fuzz generate` and `fuzz mutate` leave beside their files."""


@dataclass(frozen=True)
class Listing:
    """What a manifest says; nothing without one.

    Attributes:
        there: whether there is a manifest.
        fault: why it is left out of account; empty if it is not.
        names: of the files that it lists.
        mutations: file -> its mutation.
        musts: file -> what a correct loader does with it, where that is said.
    """

    there: bool = False
    fault: str = ""
    names: frozenset[str] = frozenset()
    mutations: Mapping[str, str] = field(default_factory=dict)
    musts: Mapping[str, Must] = field(default_factory=dict)


def listing_of(folder: Path) -> Listing:
    """The manifest of a folder, whatever it holds."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return Listing()
    try:
        if not S_ISREG(path.stat().st_mode):
            return Listing(there=True, fault="not a regular file")
        document = json.loads(path.read_bytes())
    except OSError as error:
        return Listing(there=True, fault=error.strerror or str(error))
    except (ValueError, RecursionError):
        return Listing(there=True, fault="not a JSON document")
    try:
        return _listing(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        return Listing(there=True, fault="not a manifest of fuzz generate or fuzz mutate")


def _listing(document: object) -> Listing:
    """What the document of a manifest says.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: if it has another form.
    """
    if not isinstance(document, dict) or not isinstance(document["files"], list):
        raise TypeError
    mutations, musts = {}, {}
    for one in document["files"]:
        if not isinstance(one["file"], str):
            raise TypeError
        if "mutator" in one:
            mutations[one["file"]] = str(one["mutator"])
        if "loader" in (expected := one.get("expected", {})):
            musts[one["file"]] = Must(expected["loader"])
    names = frozenset(one["file"] for one in document["files"])
    return Listing(there=True, names=names, mutations=mutations, musts=musts)
