"""The resource of our JID: which one to ask for, and whether a server has changed it.

A server may give another resource than the one that was asked for. A name that is made
from the given one at each login would grow at each login.
"""

from __future__ import annotations

__all__ = ["is_changed", "resource_to_ask_for"]


def is_changed(requested: str, bound: str) -> bool:
    """Whether a server has given another resource than the one asked for, if any was."""
    return requested not in {"", bound}


def resource_to_ask_for(requested: str, bound: str) -> str:
    """The resource to ask for at the next login: the one asked for, or the first given."""
    return requested or bound
