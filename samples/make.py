"""Rebuilds the synthetic samples and their cards byte for byte: `python -m samples.make`.

The samples of real programs are kept as they were written; only their cards tell where they are
from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from samples.crashing import crashing
from samples.sample import sha256
from samples.small import MODELS, header
from samples.spoilt import spoilt_states
from samples.spoilt_lists import spoilt_lists
from samples.spoilt_seals import spoilt_seals
from samples.whole import intact

HERE = Path(__file__).parent


def models() -> Iterator[tuple[str, bytes]]:
    """The headers of the models that some samples are held against, and their cards."""
    for architecture, metadata in MODELS.items():
        data = header(architecture)
        about = f"Metadata of a {architecture} model of {metadata['block_count']} layers."
        yield f"models/{architecture}.gguf", data
        yield (
            f"models/{architecture}.toml",
            f"""layout = "gguf3"
about = {json.dumps(about)}
sha256 = "{sha256(data)}"
licence = "CC0-1.0"
findings = []

[origin]
kind = "synthetic"
made_by = "python -m samples.make"
""".encode(),
        )


def files() -> dict[str, bytes]:
    """Path below this folder -> bytes, of every file that this script writes."""
    made = dict(models())
    for sample in (*intact(), *spoilt_states(), *spoilt_lists(), *spoilt_seals(), *crashing()):
        for path, data in sample.files():
            if path in made:
                raise ValueError(path)
            made[path] = data
    return made


def main() -> None:
    """Write the synthetic samples."""
    for path, data in files().items():
        file = HERE / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)


if __name__ == "__main__":
    main()
