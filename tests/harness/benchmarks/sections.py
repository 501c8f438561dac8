"""The rows that stand together in a report, and the rows they are compared with.

This module starts nothing and measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.gateway_rows import AmqpGateway, Gateway, PlainHttp
from benchmarks.mosquitto import LIBRARIES, Mqtt
from benchmarks.rabbitmq import RabbitMq
from benchmarks.sample import Contender
from benchmarks.settings import Settings
from qos.core.message.model import Level

__all__ = [
    "Section",
    "of_additions",
    "of_fan",
    "of_ours",
    "of_peers",
    "of_posting",
    "of_publishing",
    "of_queues",
    "of_the_same_promise",
]

#: The QoS at which MQTT with a reply gives the same promise as a level.
_QOS = {Level.ACKNOWLEDGED.value: 1, Level.ASSURED.value: 2}


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that stand together.

    Attributes:
        title: the title of the section.
        rows: their names, in order.
        bases: by the heading of a column of ratios, and then by the name of a row, the
            name of the row with which it is compared.
        wire: whether to show the bytes on the wire and the memory of the ends. Together
            with the columns of a comparison, the table would be too wide.
        confirms: whether to show the rate of a broker's confirms, in place of p99.9.
    """

    title: str
    rows: Sequence[str]
    bases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    wire: bool = True
    confirms: bool = False


def of_ours(rows: Sequence[Settings]) -> Section:
    """Our own rows and the floor, each compared with its floor."""
    floors = {each.name: each.floor for each in rows if each.floor}
    plain = [each.name for each in rows if not each.without]
    return Section("This library, and the floor", plain, {"floor": floors})


def of_additions(rows: Sequence[Settings]) -> Section:
    """Our own rows that add a feature, each compared with the same row without it."""
    without = {each.name: each.without for each in rows if each.without}
    return Section(
        "What is added, and the same without", [*without], {"without": without}
    )


def of_fan(rows: Sequence[Settings]) -> Section:
    """Our own rows with many peers, each compared with the same row with one."""
    one = {each.name: each.without for each in rows if each.without}
    title = "Many peers: addresses of one component"
    return Section(title, [each.name for each in rows], {"one": one})


def of_the_same_promise(ours: Sequence[Settings], peers: Sequence[Mqtt]) -> Section:
    """Our own rows, and each peer whose receiver replies: ours compared with theirs."""
    mine = [each for each in ours if each.level in _QOS and not each.without]
    names = [*(each.name for each in mine), *(each.name for each in peers)]
    return Section(
        "At the same promise: a message ends when the receiver has said that it has it",
        names,
        {
            LIBRARIES[library]: {
                one.name: other.name
                for one in mine
                for other in peers
                if (other.library, other.qos) == (library, _QOS[one.level])
            }
            for library in LIBRARIES
        },
        wire=False,
    )


def of_peers(peers: Sequence[Contender]) -> Section:
    """Peers in their common use; they are compared with nothing."""
    title = "Peers as commonly used: QoS 1 and 2 end when the broker has the message"
    return Section(title, [each.name for each in peers], wire=False)


def of_queues(
    ours: Sequence[Contender], gateways: Sequence[Gateway], peers: Sequence[Contender]
) -> Section:
    """Queues: ours compared with RabbitMQ."""
    return Section(
        "Queues, with four workers: an item ends when its worker has accepted it",
        [each.name for each in [*ours, *gateways, *peers]],
        _compared([*ours, *gateways], peers),
        wire=False,
        confirms=True,
    )


def of_publishing(gateways: Sequence[Gateway], peers: Sequence[Contender]) -> Section:
    """Queues to which somebody publishes, and nobody works at them."""
    return Section(
        "Queues, publish only: an item ends when the broker has confirmed it",
        [each.name for each in [*gateways, *peers]],
        _compared(gateways, peers),
        wire=False,
        confirms=True,
    )


def of_posting(gateways: Sequence[Gateway], floor: PlainHttp) -> Section:
    """Posts by HTTP, compared with those to a server that does nothing with them."""
    return Section(
        "HTTP, publish only, and a server that only answers",
        [each.name for each in [*gateways, floor]],
        {"floor": {each.name: floor.name for each in gateways}},
        wire=False,
        confirms=True,
    )


def _compared(
    ours: Sequence[Contender], peers: Sequence[Contender]
) -> dict[str, dict[str, str]]:
    """All are compared with aio-pika on RabbitMQ, and by AMQP with their own client."""
    (first,) = (each.name for each in peers if _is_rabbitmq(each, None))
    return {
        "aio-pika": {each.name: first for each in ours},
        "AMQP 1.0": {
            one.name: other.name
            for one in ours
            if isinstance(one, AmqpGateway)
            for other in peers
            if _is_rabbitmq(other, one.client)
        },
    }


def _is_rabbitmq(contender: Contender, client: str | None) -> bool:
    return isinstance(contender, RabbitMq) and contender.client == client
