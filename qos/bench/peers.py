"""What else brings messages from one process to another: for `xmpp-qos bench --peers`."""

from __future__ import annotations

from qos.bench.mosquitto import LIBRARIES, Mqtt
from qos.bench.nats_server import JetStream
from qos.bench.rabbitmq import RabbitMq
from qos.bench.sample import Contender

__all__ = ["peers", "queue_peers"]


def peers() -> list[Contender]:
    """Return those that bring a message to one receiver."""
    published = [Mqtt(library, qos) for qos in (0, 1, 2) for library in LIBRARIES]
    replied = [
        Mqtt(library, qos, replies=True) for qos in (1, 2) for library in LIBRARIES
    ]
    return [*published, *replied]


def queue_peers() -> list[Contender]:
    """Return those that bring an item to one of several workers."""
    return [
        RabbitMq(),
        JetStream(confirmed=False),
        JetStream(confirmed=True),
        JetStream(confirmed=True, synced=True),
    ]
