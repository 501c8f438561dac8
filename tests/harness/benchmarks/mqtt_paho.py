"""MQTT with paho-mqtt: its own network thread, and its callbacks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks import mqtt_properties
from benchmarks.mqtt_roles import ANSWER_S_MAX, OnMessage, main
from qos.testing.ports import ADDRESS

# The most that MQTT 5 permits; paho's own default is 20.
_INFLIGHT_MAX = 65_535


class Paho:
    """See benchmarks.mqtt_roles.Library."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._answered = asyncio.Event()
        self._client: mqtt.Client
        # The callback for a message; or None if the message ended before the callback
        # was known.
        self._done: dict[int, Callable[[], None] | None] = {}

    async def connect(self, port: int, *, replies: bool) -> None:
        """See Library."""
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            protocol=mqtt.MQTTv5 if replies else mqtt.MQTTv311,
        )
        self._client.max_inflight_messages_set(_INFLIGHT_MAX)
        self._client.max_queued_messages_set(0)
        self._client.on_socket_open = self._opened
        self._client.on_connect = self._answer
        self._client.on_subscribe = self._answer
        self._client.on_publish = self._published
        self._client.connect(ADDRESS, port)
        self._client.loop_start()
        await self._answer_of_broker()

    async def subscribe(self, topic: str, qos: int, on_message: OnMessage) -> None:
        """See Library."""

        def received(_client: mqtt.Client, _data: Any, got: mqtt.MQTTMessage) -> None:
            on_message(got)

        self._client.on_message = received
        self._client.subscribe(topic, qos)
        await self._answer_of_broker()

    def reply_to(self, message: mqtt.MQTTMessage) -> tuple[str, bytes]:
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
        info = self._client.publish(topic, payload, qos, properties=properties)
        if done is not None and self._done.setdefault(info.mid, done) is None:
            del self._done[info.mid]
            done()

    def _published(self, _client: mqtt.Client, _data: Any, mid: int, *_: Any) -> None:
        # This runs in another thread than `publish`, and may come before `publish` has
        # got the number. `setdefault` is one step for both.
        if (done := self._done.setdefault(mid, None)) is not None:
            del self._done[mid]
            done()

    def _answer(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._answered.set)

    async def _answer_of_broker(self) -> None:
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._answered.wait()
        self._answered.clear()

    def _opened(self, _client: mqtt.Client, _data: Any, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


if __name__ == "__main__":
    main(Paho)
