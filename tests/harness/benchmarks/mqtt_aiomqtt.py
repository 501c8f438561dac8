"""MQTT with aiomqtt: a task for each published message."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import aiomqtt

from benchmarks import mqtt_properties
from benchmarks.mqtt_roles import OnMessage, main
from qos.testing.ports import ADDRESS

# The most that MQTT 5 permits; the default is 20.
_INFLIGHT_MAX = 65_535

_V311, _V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5

_LOG = logging.getLogger("benchmarks.mqtt_aiomqtt")


class Aiomqtt:
    """See benchmarks.mqtt_roles.Library."""

    def __init__(self) -> None:
        self._client: aiomqtt.Client
        self._tasks: set[asyncio.Task[None]] = set()
        _LOG.setLevel(logging.ERROR)

    async def connect(self, port: int, *, replies: bool) -> None:
        """See Library."""
        self._client = aiomqtt.Client(
            ADDRESS,
            port,
            protocol=_V5 if replies else _V311,
            max_inflight_messages=_INFLIGHT_MAX,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            logger=_LOG,
        )
        self._client.pending_calls_threshold = sys.maxsize
        # It lives as long as this process.
        await self._client.__aenter__()

    async def subscribe(self, topic: str, qos: int, on_message: OnMessage) -> None:
        """See Library."""
        await self._client.subscribe(topic, qos)
        self._run(self._receive(on_message))

    def reply_to(self, message: aiomqtt.Message) -> tuple[str, bytes]:
        """See Library."""
        return mqtt_properties.read(message.properties)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        *,
        response_topic: str = "",
        correlation: bytes = b"",
        done: Callable[[], None] | None = None,
    ) -> None:
        """See Library."""
        properties = mqtt_properties.written(response_topic, correlation)
        self._run(self._publish(topic, payload, qos, properties, done))

    async def _publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: Any,
        done: Callable[[], None] | None,
    ) -> None:
        await self._client.publish(
            topic, payload, qos, properties=properties, timeout=math.inf
        )
        if done is not None:
            done()

    async def _receive(self, on_message: OnMessage) -> None:
        async for message in self._client.messages:
            on_message(message)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


if __name__ == "__main__":
    main(Aiomqtt)
