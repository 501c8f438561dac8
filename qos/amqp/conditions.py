"""The error conditions of AMQP 1.0 for the refusals of a queue service."""

from __future__ import annotations

from typing import Final

from proton import Condition

from qos.core.amqp.messages import MustDetach
from qos.core.amqp.values import DecodeError
from qos.core.queue.requests import Refusal
from qos.errors import RemoteProtocolError

__all__ = [
    "DECODE_ERROR",
    "DELETED",
    "FORCED",
    "FRAMING_ERROR",
    "INTERNAL_ERROR",
    "NOT_ALLOWED",
    "NOT_FOUND",
    "NOT_IMPLEMENTED",
    "RESOURCE_LIMIT",
    "STOLEN",
    "TOO_LARGE",
    "TRANSFER_LIMIT",
    "UNAUTHORIZED",
    "condition_of",
    "text_of",
]

DECODE_ERROR: Final = "amqp:decode-error"
DELETED: Final = "amqp:resource-deleted"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
FORCED: Final = "amqp:connection:forced"
INTERNAL_ERROR: Final = "amqp:internal-error"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_FOUND: Final = "amqp:not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
PRECONDITION: Final = "amqp:precondition-failed"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
STOLEN: Final = "amqp:link:stolen"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
TOO_LARGE: Final = "amqp:link:message-size-exceeded"
UNAUTHORIZED: Final = "amqp:unauthorized-access"

#: By the condition of RFC 6120 of a refusal.
_CONDITIONS = {
    "bad-request": INVALID_FIELD,
    "conflict": PRECONDITION,
    "feature-not-implemented": NOT_IMPLEMENTED,
    "forbidden": UNAUTHORIZED,
    "internal-server-error": INTERNAL_ERROR,
    "item-not-found": NOT_FOUND,
    "not-acceptable": INVALID_FIELD,
    "not-allowed": UNAUTHORIZED,
    "policy-violation": RESOURCE_LIMIT,
    "resource-constraint": RESOURCE_LIMIT,
}


def condition_of(error: RemoteProtocolError) -> Condition:
    """The condition with which AMQP tells a refusal; its description is the text."""
    if isinstance(error, DecodeError):
        name = DECODE_ERROR
    elif isinstance(error, MustDetach):
        name = NOT_IMPLEMENTED
    elif isinstance(error, Refusal) and error.pubsub == "payload-too-big":
        name = TOO_LARGE
    else:
        name = _CONDITIONS.get(error.condition, NOT_ALLOWED)
    return Condition(name, str(error))


def text_of(condition: Condition | None) -> str:
    """A condition that a peer tells, with its description; '': it tells none."""
    if condition is None:
        return ""
    return ": ".join(filter(None, (condition.name, condition.description)))
