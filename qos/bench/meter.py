"""Counts what a slixmpp stream sends and receives, below slixmpp.

It knows bytes, and how stanzas begin; it does not parse.
"""

from __future__ import annotations

from asyncio import BaseTransport
from typing import Any, cast

from slixmpp import ClientXMPP

__all__ = ["Meter"]

#: How a stanza begins. Each request of ours holds a message, which is none.
_BEGINS = ((b"<iq", 1), (b"<message", 1), (b"<assured ", -1), (b"<acknowledged ", -1))

#: So much of what came before can be the beginning of one of them.
_CUT_OFF = max(len(word) for word, _ in _BEGINS) - 1


class Meter:
    """Counts for one client, from its next connection on.

    Attributes:
        wire_bytes: sent and received, before TLS.
        stanzas: iqs and messages, sent and received.
    """

    def __init__(self, client: ClientXMPP) -> None:
        self.wire_bytes = 0
        self.stanzas = 0
        self._client = client
        self._connected = client.connection_made
        self._received = client.data_received
        self._before = b""
        client.connection_made = self._connection_made  # type: ignore[method-assign]
        client.data_received = self._data_received  # type: ignore[method-assign]

    def sent(self, transport: object, data: bytes) -> None:
        """Something is written to a transport."""
        # With STARTTLS there are two of them, and the inner one has what is encrypted.
        if transport is self._client.transport:
            self.wire_bytes += len(data)
            self.stanzas += _stanzas_in(data)

    def _connection_made(
        self, transport: BaseTransport, send_event: bool = True
    ) -> None:
        counted = cast(BaseTransport, _Counted(transport, self))
        self._connected(counted, send_event)

    def _data_received(self, data: bytes | str) -> None:
        assert isinstance(data, bytes)
        self.wire_bytes += len(data)
        joined = self._before + data
        self.stanzas += _stanzas_in(joined) - _stanzas_in(self._before)
        self._before = joined[-_CUT_OFF:]
        self._received(data)


class _Counted:
    """A transport that says what is written to it."""

    def __init__(self, transport: BaseTransport, meter: Meter) -> None:
        self._transport = transport
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """See asyncio.Transport."""
        self._meter.sent(self, data)
        self._transport.write(data)  # type: ignore[attr-defined]


def _stanzas_in(data: bytes) -> int:
    return sum(data.count(word) * weight for word, weight in _BEGINS)
