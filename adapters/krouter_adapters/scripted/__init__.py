"""A provider that does what it is told: every dialect, every fault, no network."""
