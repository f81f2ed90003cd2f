"""A page for people who would rather look than read: one file, no network, scripts or not."""
