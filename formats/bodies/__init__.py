"""What is wrapped: the memory of a context, section by section."""
