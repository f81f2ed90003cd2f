"""Servers: what they are told, what they accept, hold and reuse."""
