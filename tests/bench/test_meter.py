"""What a stream sends and receives is counted as it is, however it comes in."""

from typing import Any, cast

import pytest
from slixmpp import ClientXMPP

from qos.bench.meter import Meter

ANSWER = b"<iq type='result' id='1'><received msgId='1'/></iq>"
REQUEST = b"<iq><assured msgId='1'><message><body>x</body></message></assured></iq>"
PLAIN = b"<message to='a@b'><body>x</body></message>"
MANAGED = b"<r xmlns='urn:xmpp:sm:3'/>"


class Stream:
    """What the meter knows of a client."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""

    def connection_made(self, transport: Any, send_event: bool = True) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 20, 1000])
def test_stanzas_are_counted_however_they_are_cut(size: int) -> None:
    """TCP knows no stanzas; and the message in a request is none."""
    stream = Stream()
    meter = Meter(cast(ClientXMPP, stream))
    data = ANSWER + REQUEST + MANAGED + PLAIN + ANSWER
    for start in range(0, len(data), size):
        stream.data_received(data[start : start + size])
    assert meter.stanzas == 4
    assert meter.wire_bytes == len(data)
    assert stream.received == data
