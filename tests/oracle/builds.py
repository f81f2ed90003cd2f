"""Real builds of llama.cpp with their server inside, installed into a cache when first needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Build:
    """An upstream build and the Python package that carries it.

    Attributes:
        number: of the build, without the `b`.
        package: its requirement for pip.
        version: of the slot files it writes and takes.
    """

    number: int
    package: str
    version: int

    def __str__(self) -> str:
        """As upstream names it."""
        return f"b{self.number}"


BUILDS = (
    Build(10229, "xllamacpp==2026.8.10229", 2),
    Build(10809, "xllamacpp==2026.9.10809", 3),
    Build(11063, "xllamacpp==2026.9.11063", 3),
    Build(11549, "xllamacpp==2026.10.11549", 4),
)
EARLIER = (
    Build(7551, "xllamacpp==0.2.8", 2),
    Build(8156, "xllamacpp==0.2.12", 2),
    Build(8672, "xllamacpp==2026.4.8672", 2),
    Build(9538, "xllamacpp==2026.6.9538", 2),
    Build(10566, "xllamacpp==2026.8.10566", 2),
)
"""For trials that need servers of their time; everything else is tried on `BUILDS`."""


def build_of(number: int) -> Build:
    """The build of a number."""
    return next(build for build in (*BUILDS, *EARLIER) if build.number == number)


def cache() -> Path:
    """Where builds are kept: `SLOTSCOPE_ORACLE_CACHE`, or a folder of the user's cache."""
    chosen = os.environ.get("SLOTSCOPE_ORACLE_CACHE")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "slotscope-oracle")


def installed(build: Build) -> Path:
    """The folder that holds a build, about 100 MB; downloaded (34 MB) if it is not there yet."""
    home = cache() / build.package
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as room:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        target = Path(room, "wheel")
        subprocess.run([*pip, "--no-deps", "--target", target, build.package], check=True)
        try:
            target.rename(home)
        except OSError:  # another worker was quicker
            if not home.is_dir():
                raise
    return home
