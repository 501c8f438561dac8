"""A queue of RabbitMQ with aio-pika: publisher confirms, and acknowledgements by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aio_pika
from aio_pika.abc import (
    AbstractExchange,
    AbstractIncomingMessage,
    AbstractRobustConnection,
)

from benchmarks.queue_roles import WORKERS, main
from qos.testing.ports import ADDRESS

_QUEUE = "bench"

# The most items that a worker has at once; RabbitMQ recommends 100 to 300.
_PREFETCH = 100


class AioPika:
    """See benchmarks.queue_roles.Library."""

    def __init__(self) -> None:
        self._connection: AbstractRobustConnection
        self._exchange: AbstractExchange

    async def connect(self, port: int, **_options: Any) -> None:
        """See Library."""
        self._connection = await aio_pika.connect_robust(
            f"amqp://guest:guest@{ADDRESS}:{port}/"
        )
        channel = await self._connection.channel(publisher_confirms=True)
        self._exchange = channel.default_exchange

    async def publish(self, item: bytes) -> None:
        """See Library."""
        message = aio_pika.Message(item, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, _QUEUE)

    async def work(self, done: Callable[[bytes], None]) -> None:
        """See Library."""

        async def handle(message: AbstractIncomingMessage) -> None:
            await message.ack()
            done(message.body)

        for _ in range(WORKERS):
            channel = await self._connection.channel()
            await channel.set_qos(prefetch_count=_PREFETCH)
            queue = await channel.declare_queue(_QUEUE, durable=True)
            await queue.consume(handle)


if __name__ == "__main__":
    main(AioPika)
