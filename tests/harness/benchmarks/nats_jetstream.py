"""A work queue of NATS JetStream with nats-py: confirmed publishes, explicit acks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from benchmarks.queue_roles import WORKERS, main
from qos.testing.ports import ADDRESS

_STREAM = "bench"
_SUBJECT = "bench.items"
_ANSWER_S_MAX = 20.0


class JetStream:
    """See benchmarks.queue_roles.Library."""

    def __init__(self) -> None:
        self._client: Client
        self._jetstream: JetStreamContext
        self._confirmed = False

    async def connect(self, port: int, **options: Any) -> None:
        """See Library."""
        self._confirmed = options["confirmed"]
        self._client = await nats.connect(f"nats://{ADDRESS}:{port}")
        self._jetstream = self._client.jetstream()

    async def publish(self, item: bytes) -> None:
        """See Library."""
        confirmation = await self._jetstream.publish_async(_SUBJECT, item)
        await confirmation

    async def work(self, done: Callable[[bytes], None]) -> None:
        """See Library."""

        async def handle(message: Msg) -> None:
            if self._confirmed:
                await message.ack_sync(timeout=_ANSWER_S_MAX)
            else:
                await message.ack()
            done(message.data)

        await self._jetstream.add_stream(
            StreamConfig(
                _STREAM,
                subjects=[_SUBJECT],
                retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.FILE,
            )
        )
        for _ in range(WORKERS):
            await self._jetstream.subscribe(
                _SUBJECT,
                queue="workers",
                cb=handle,
                manual_ack=True,
                config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT),
            )


if __name__ == "__main__":
    main(JetStream)
