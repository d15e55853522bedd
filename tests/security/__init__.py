"""Safe by default: what is promised in docs/security.md."""
