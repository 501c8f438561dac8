"""The properties of an MQTT 5 reply, as paho writes them; aiomqtt has the same."""

from __future__ import annotations

from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

__all__ = ["read", "written"]


def written(response_topic: str, correlation: bytes) -> Any:
    """Return the properties of a message; None: it needs none.

    See mqtt_roles.Library.
    """
    if not correlation:
        return None
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho's own gap
    properties.CorrelationData = correlation
    if response_topic:
        properties.ResponseTopic = response_topic
    return properties


def read(properties: Any) -> tuple[str, bytes]:
    """Return the response topic and the correlation data of an MQTT 5 message."""
    return getattr(properties, "ResponseTopic", ""), properties.CorrelationData
