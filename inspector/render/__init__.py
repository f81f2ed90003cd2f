"""A report as text for people, or as JSON for programs."""
