"""Copies that work: what to change, and how it is written without losing anything."""
