"""The peers: other systems that deliver messages, for `--peers` and `--queue`."""

from __future__ import annotations

from benchmarks.amqp_clients import CLIENTS
from benchmarks.mosquitto import LIBRARIES, Mqtt
from benchmarks.nats_server import JetStream
from benchmarks.rabbitmq import RabbitMq
from benchmarks.sample import Contender

__all__ = ["as_used", "queue_peers", "rabbitmq_rows", "replying"]


def replying() -> list[Mqtt]:
    """Return the peers whose messages end with a reply, as this library promises."""
    return [Mqtt(library, qos, replies=True) for qos in (1, 2) for library in LIBRARIES]


def as_used() -> list[Mqtt]:
    """Return the peers in their common use."""
    return [Mqtt(library, qos) for qos in (0, 1, 2) for library in LIBRARIES]


def rabbitmq_rows(*, receives: bool = True) -> list[RabbitMq]:
    """Return RabbitMQ with each of its clients; see RabbitMq."""
    return [RabbitMq(client, receives=receives) for client in (None, *CLIENTS)]


def queue_peers() -> list[Contender]:
    """Return the peers that bring an item to one of several workers."""
    return [
        *rabbitmq_rows(),
        JetStream(confirmed=False),
        JetStream(confirmed=True),
        JetStream(confirmed=True, synced=True),
    ]
