"""What else brings messages from one process to another: for `xmpp-qos bench --peers`."""

from __future__ import annotations

from qos.bench.mosquitto import LIBRARIES, Mqtt
from qos.bench.sample import Contender

__all__ = ["peers"]


def peers() -> list[Contender]:
    """Return those that bring a message to one receiver."""
    published = [Mqtt(library, qos) for qos in (0, 1, 2) for library in LIBRARIES]
    replied = [
        Mqtt(library, qos, replies=True) for qos in (1, 2) for library in LIBRARIES
    ]
    return [*published, *replied]
