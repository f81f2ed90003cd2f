"""Many files: rows of them, in order, from folders, workers and clusters."""
