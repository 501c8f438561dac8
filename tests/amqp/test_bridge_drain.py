"""A bridge from a broker has drained when the broker has said so."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from qos.amqp.source import Source
from qos.bridge.from_broker import FromBroker
from waiting import until


class StillLink:
    """A link to a broker that stands still, until the test says otherwise."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.lost: asyncio.Future[Exception] = (
            asyncio.get_running_loop().create_future()
        )
        self.answer = asyncio.Event()
        self.asked = 0

    async def ask(self) -> None:
        self.asked += 1
        waiting = asyncio.create_task(self.answer.wait())
        await asyncio.wait((waiting, self.lost), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def bridge() -> FromBroker:
    parts = cast(Any, None)
    return FromBroker(parts, parts, "queue.localhost", "orders", drain_s=0.01)


async def test_a_broker_that_stands_still_is_not_drained() -> None:
    """Silence says nothing: it has not been asked, or has not answered."""
    bridge_, link = bridge(), StillLink()
    publishing = asyncio.create_task(bridge_._publish_all(cast(Source, link)))
    await until(lambda: link.asked == 1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not publishing.done()
    assert not bridge_._stopping.is_set()
    link.answer.set()
    await publishing
    assert bridge_._stopping.is_set()


async def test_a_link_that_is_lost_while_it_is_asked_is_not_drained() -> None:
    """The bridge connects again, and asks there."""
    bridge_, link = bridge(), StillLink()
    publishing = asyncio.create_task(bridge_._publish_all(cast(Source, link)))
    await until(lambda: link.asked == 1)
    link.lost.set_result(ConnectionError())
    await publishing
    assert not bridge_._stopping.is_set()


async def test_a_bridge_is_stopped_while_it_asks() -> None:
    bridge_, link = bridge(), StillLink()
    publishing = asyncio.create_task(bridge_._publish_all(cast(Source, link)))
    await until(lambda: link.asked == 1)
    bridge_.stop()
    await publishing
