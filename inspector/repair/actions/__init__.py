"""What a repair can do, one module a subject."""
