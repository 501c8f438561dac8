"""The data of a stream is counted correctly, however it arrives."""

from typing import Any, cast

import pytest
from slixmpp import ClientXMPP

from benchmarks.meter import Meter

ANSWER = b"<iq type='result' id='1'><received msgId='1'/></iq>"
REQUEST = b"<iq><assured msgId='1'><message><body>x</body></message></assured></iq>"
PLAIN = b"<message to='a@b'><body>x</body></message>"
MANAGED = b"<r xmlns='urn:xmpp:sm:3'/>"


class Stream:
    """The parts of a client that the meter uses."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""

    def connection_made(self, transport: Any, send_event: bool = True) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 20, 1000])
def test_stanzas_are_counted_however_they_are_cut(size: int) -> None:
    """TCP knows no stanzas; and the message in a request does not count."""
    stream = Stream()
    meter = Meter(cast(ClientXMPP, stream))
    data = ANSWER + REQUEST + MANAGED + PLAIN + ANSWER
    for start in range(0, len(data), size):
        stream.data_received(data[start : start + size])
    assert meter.stanzas == 4
    assert meter.wire_bytes == len(data)
    assert stream.received == data
