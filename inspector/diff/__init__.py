"""Two files against each other: bytes, structure, cells by position, numbers by layer."""
