"""Test data for loaders of these files: valid ones, and named mutations of them."""
