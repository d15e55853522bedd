"""Many callers at once over a provider that fails, for long: `make soak`, and a minute of it."""
