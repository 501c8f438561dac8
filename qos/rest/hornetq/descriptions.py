"""The parameters, bodies and statuses of the dialect's routes, for `qos.rest.openapi`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qos.core.rest.waits import WAIT_S_MAX

__all__ = ["BODIES", "PARAMETERS", "STATUSES"]

_POSTED = (201, 400, 403, 404, 408, 413, 507)

STATUSES: Mapping[str, tuple[int, ...]] = {
    "hornetq-queues": (201, 400, 403, 408, 412, 413, 415, 507),
    "hornetq-queue": (200, 404),
    "hornetq-topics": (201, 400, 403, 408, 412, 413, 415, 507),
    "hornetq-topic": (200, 404),
    "hornetq-pull-subscriptions": (
        *(201, 204, 400, 403, 404, 408, 412, 413, 415, 507),
    ),
    "hornetq-create": (*_POSTED, 307),
    "hornetq-create-id": (*_POSTED, 410, 422),
    "hornetq-pull-consumers": (201, 400, 403, 404, 408, 413, 415),
    "hornetq-push-consumers": (201, 400, 403, 404, 408, 413, 415),
    "hornetq-push-consumer": (200, 204, 400, 403, 404, 408, 413),
    "hornetq-push-subscriptions": (201, 400, 403, 404, 408, 413, 415),
    "hornetq-push-subscription": (200, 204, 400, 403, 404, 408, 413),
    "hornetq-consumer": (204, 404, 405, 410),
    "hornetq-next": (200, 400, 403, 404, 405, 408, 410, 412, 413),
    "hornetq-acknowledgement": (204, 400, 405, 408, 410, 412, 413, 415),
}


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": text}


_INTEGER: dict[str, Any] = {"type": "integer"}

_MESSAGE = [
    _query("durable", {"enum": ["true", "false"]}, "each message is durable"),
    _query("ttl", _INTEGER, "milliseconds until it expires; 0: never"),
    _query("expiration", _INTEGER, "when it expires, in ms since 1970; before ttl"),
    _query("priority", _INTEGER, "0 to 9, larger is earlier; all else is ignored"),
]

PARAMETERS: Mapping[str, list[dict[str, Any]]] = {
    "hornetq-create": _MESSAGE,
    "hornetq-create-id": _MESSAGE,
    "hornetq-next": [
        {
            "name": "Accept-Wait",
            "in": "header",
            "schema": {"type": "integer", "minimum": 0, "maximum": WAIT_S_MAX},
            "description": "seconds to wait for a message",
        }
    ],
}

_ANY = "application/octet-stream"
_FORM = "application/x-www-form-urlencoded"

_BOOLEAN: dict[str, Any] = {"enum": ["true", "false"]}


def _form(**fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return {_FORM: {"schema": schema}}


BODIES: Mapping[str, dict[str, Any]] = {
    "hornetq-queues": {
        "application/hornetq.jms.queue+xml": {"schema": {"type": "string"}}
    },
    "hornetq-topics": {
        "application/hornetq.jms.topic+xml": {"schema": {"type": "string"}}
    },
    "hornetq-pull-subscriptions": _form(
        **{
            "autoAck": _BOOLEAN,
            "selector": {"type": "string"},
            "durable": _BOOLEAN,
            "name": {"type": "string"},
            "idle-timeout": {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"},
            "delete-when-idle": _BOOLEAN,
        }
    ),
    "hornetq-create": {_ANY: {}},
    "hornetq-create-id": {_ANY: {}},
    "hornetq-pull-consumers": _form(autoAck=_BOOLEAN, selector={"type": "string"}),
    "hornetq-push-consumer": _form(enabled=_BOOLEAN),
    "hornetq-push-subscription": _form(enabled=_BOOLEAN),
    "hornetq-push-consumers": {"application/xml": {"schema": {"type": "string"}}},
    "hornetq-push-subscriptions": {"application/xml": {"schema": {"type": "string"}}},
    "hornetq-acknowledgement": _form(acknowledge=_BOOLEAN),
}
