"""Checkpoint lists: beside a slot file, or behind it. One module a family."""
