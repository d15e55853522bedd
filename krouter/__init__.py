"""krouter: one model name in front of many models."""

from krouter._version import __version__

__all__ = ["__version__"]
