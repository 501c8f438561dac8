"""The full JIDs of the consumers of gateways, which are no clients of an XMPP server."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

__all__ = ["Door", "consumer_jid", "is_consumer_jid"]

#: The protocol of a consumer: AMQP 1.0, HTTP, or HTTP with messages pushed to it.
Door: TypeAlias = Literal["amqp", "http", "http-push"]

_FORM: Final = re.compile(r"[^/]+/(?:amqp|http|http-push)-[0-9a-f]{32}")


def consumer_jid(account: str, door: Door, consumer_id: str) -> str:
    """The full JID of a consumer.

    Args:
        account: the bare JID of its user.
        door: its protocol.
        consumer_id: 128 random bits, in hexadecimal.
    """
    return f"{account}/{door}-{consumer_id}"


def is_consumer_jid(jid: str) -> bool:
    """Whether a full JID has this form; an XMPP client has it on purpose only."""
    return _FORM.fullmatch(jid) is not None
