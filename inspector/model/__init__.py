"""Model files: what a state of theirs must look like, and whether one is theirs."""
