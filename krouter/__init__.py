"""krouter: one model name in front of many models."""

from typing import TYPE_CHECKING, Any

from krouter._version import __version__

if TYPE_CHECKING:
    from krouter.sdk import (
        Router,
        SettingError,
        acompletion,
        aembedding,
        completion,
        embedding,
    )

__all__ = [
    "Router",
    "SettingError",
    "__version__",
    "acompletion",
    "aembedding",
    "completion",
    "embedding",
]


def __getattr__(name: str) -> Any:
    """The library is loaded when it is first named."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'krouter' has no attribute {name!r}")
    from krouter import sdk

    return getattr(sdk, name)
