"""Counts the bytes and stanzas that a slixmpp stream sends and receives, below slixmpp.

It knows the beginnings of stanzas, and does not parse them. It costs one to two
microseconds for each stanza of our own rows and of the floor alike. Peers are not
counted, so they pay nothing.
"""

from __future__ import annotations

from asyncio import BaseTransport
from typing import Any, cast

from slixmpp import ClientXMPP, ComponentXMPP

__all__ = ["Meter"]

#: The most bytes of earlier data that can be the beginning of a searched word.
_CUT_OFF = len(b"<acknowledged ") - 1


class Meter:
    """Counts for one client, from its next connection on.

    Attributes:
        wire_bytes: bytes sent and received, before TLS.
        stanzas: iqs and messages, sent and received.
    """

    def __init__(self, client: ClientXMPP | ComponentXMPP) -> None:
        self.wire_bytes = 0
        self.stanzas = 0
        self._client = client
        self._connected = client.connection_made
        self._received = client.data_received
        self._before = b""
        client.connection_made = self._connection_made  # type: ignore[method-assign]
        client.data_received = self._data_received  # type: ignore[method-assign]

    def sent(self, transport: object, data: bytes) -> None:
        """Note data written to a transport."""
        # With STARTTLS there are two transports; the inner one gets the encrypted data.
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
        if self._before:
            self.stanzas -= _stanzas_in(self._before)
            self.stanzas += _stanzas_in(self._before + data)
        else:
            self.stanzas += _stanzas_in(data)
        # In most cases the received data ends with a stanza.
        ended = data.endswith(b">")
        self._before = b"" if ended else (self._before + data)[-_CUT_OFF:]
        self._received(data)


class _Counted:
    """A transport that reports the data written to it."""

    def __init__(self, transport: BaseTransport, meter: Meter) -> None:
        self._transport = transport
        self._meter = meter
        # It is called for each incoming stanza.
        self.get_extra_info = transport.get_extra_info

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """See asyncio.Transport."""
        self._meter.sent(self, data)
        self._transport.write(data)  # type: ignore[attr-defined]


def _stanzas_in(data: bytes) -> int:
    """The number of stanzas that begin there.

    The message inside our requests does not count.
    """
    return (
        data.count(b"<iq")
        + data.count(b"<message")
        - data.count(b"<assured ")
        - data.count(b"<acknowledged ")
    )
