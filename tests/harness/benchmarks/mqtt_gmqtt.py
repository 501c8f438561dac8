"""MQTT with gmqtt: its own asyncio protocol, and its callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from gmqtt.storage import PersistentStorage

from benchmarks.mqtt_roles import ANSWER_S_MAX, OnMessage, main
from qos.testing.ports import ADDRESS


class _Storage(PersistentStorage):  # type: ignore[misc]  # gmqtt has no types
    """gmqtt's own store in memory.

    When a message is removed from it, the broker has it.

    There is no other way to learn this: `publish` returns nothing, and no callback is
    called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[int, Callable[[], None]] = {}
        self.next_done: Callable[[], None] | None = None

    def push_message(self, mid: int, raw_package: bytes) -> None:
        super().push_message(mid, raw_package)
        # It is called again in the second half of QoS 2.
        if self.next_done is not None:
            self.done[mid], self.next_done = self.next_done, None

    def remove_message_by_mid(self, mid: int) -> None:
        super().remove_message_by_mid(mid)
        if (done := self.done.pop(mid, None)) is not None:
            done()


class Gmqtt:
    """See benchmarks.mqtt_roles.Library."""

    def __init__(self) -> None:
        self._storage = _Storage()
        self._client = gmqtt.Client("", persistent_storage=self._storage)
        self._subscribed = asyncio.Event()
        self._client.on_subscribe = lambda *_: self._subscribed.set()

    async def connect(self, port: int, *, replies: bool) -> None:
        """See Library."""
        # asyncio sets TCP_NODELAY.
        version = MQTTv50 if replies else MQTTv311
        await self._client.connect(ADDRESS, port, version=version)

    async def subscribe(self, topic: str, qos: int, on_message: OnMessage) -> None:
        """See Library."""

        def received(
            _client: Any, _topic: str, _payload: bytes, _qos: int, got: dict[str, Any]
        ) -> int:
            on_message(got)
            return 0

        self._client.on_message = received
        self._client.subscribe(topic, qos)
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._subscribed.wait()

    def reply_to(self, message: dict[str, Any]) -> tuple[str, bytes]:
        """See Library."""
        (response_topic,) = message.get("response_topic", ("",))
        (correlation,) = message["correlation_data"]
        return response_topic, correlation

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
        properties: dict[str, object] = {}
        if correlation:
            properties["correlation_data"] = correlation
            if response_topic:
                properties["response_topic"] = response_topic
        self._storage.next_done = done
        self._client.publish(topic, payload, qos=qos, **properties)


if __name__ == "__main__":
    main(Gmqtt)
