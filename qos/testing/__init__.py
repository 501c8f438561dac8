"""What applications need to test their own use of this library."""

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
