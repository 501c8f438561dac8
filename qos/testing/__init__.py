"""A kit with which applications test their use of this library.

Each part is imported on first use: the server needs most of this library, but
`free_ports` needs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qos.testing.clients import friends, logged_in
    from qos.testing.clock import ManualClock
    from qos.testing.link import Link
    from qos.testing.queues import queue_service
    from qos.testing.server import LoopbackServer

__all__ = [
    "Link",
    "LoopbackServer",
    "ManualClock",
    "friends",
    "logged_in",
    "queue_service",
]

_WHERE = {
    "Link": "link",
    "LoopbackServer": "server",
    "ManualClock": "clock",
    "friends": "clients",
    "logged_in": "clients",
    "queue_service": "queues",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
