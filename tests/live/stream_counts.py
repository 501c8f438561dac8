"""A count of the stanzas that a server sends, read from the bytes, without our code.

sent = ServerSent(client)
...
assert sent.count == client.plugin["xep_0198"].handled
"""

from typing import Any, Final
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP

from raw_client import local

MANAGEMENT: Final = "{urn:xmpp:sm:3}"

#: XEP-0198 §4: only these are counted.
COUNTED: Final = frozenset({"iq", "message", "presence"})


class ServerSent:
    """The stanzas that came over one stream, including those after resumptions.

    Attributes:
        count: the number of stanzas since XEP-0198 was enabled.
        names: the names of those since the last resumption, in order.
    """

    def __init__(self, client: ClientXMPP) -> None:
        """Read along; the client is not connected yet."""
        self.count = 0
        self.names: list[str] = []
        self._client: Any = client
        self._theirs: object = None
        self._parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser()
        self._depth = 0
        self._received = client.data_received
        client.data_received = self._read  # type: ignore[method-assign]

    def _read(self, data: bytes | str) -> None:
        if self._client.parser is not self._theirs:
            # The stream is restarted: after a login, or over a new connection.
            self._theirs = self._client.parser
            self._parser = ET.XMLPullParser(("start", "end"))
            self._depth = 0
        self._parser.feed(data)
        if hasattr(self._parser, "flush"):  # Expat 2.6 would defer a tag
            self._parser.flush()
        events: Any = self._parser.read_events()
        for event, element in events:
            self._depth += 1 if event == "start" else -1
            if event == "end" and self._depth == 1:
                self._came(element)
        self._received(data)

    def _came(self, element: ET.Element) -> None:
        if element.tag == f"{MANAGEMENT}enabled":
            self.count = 0
        elif element.tag == f"{MANAGEMENT}resumed":
            self.names = []
        elif local(element) in COUNTED:
            self.count += 1
            self.names.append(local(element))
