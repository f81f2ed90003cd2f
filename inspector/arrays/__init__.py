"""Numbers as they are stored: types, quantizers, rotations and orders of bulk arrays."""
