"""The error where an extra of this package is not installed."""

from __future__ import annotations

__all__ = ["how_to_install"]


def how_to_install(extra: str) -> str:
    """Say how to install an extra.

    The package is not on PyPI yet, so `pip install xmpp-qos` would find nothing, or what
    somebody else has put there.
    """
    return f"pip install '.[{extra}]' in the folder of xmpp-qos"
