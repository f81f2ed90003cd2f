"""A file on the screen, to look around in: tree, bytes, findings. Needs textual."""
