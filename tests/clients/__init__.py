"""Real clients at their real versions against `krouter serve`: `make clients`."""
