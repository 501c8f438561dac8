"""The limits of a stream: read from what the server offers (XEP-0478), or learned from ends.

Each stream has one object for all parts on it. `qos.core.stanza_sizes` decides what an end
means; this module knows slixmpp's events, and which part of a stream can be believed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.stanza_sizes import StanzaSizes, is_for_size
from qos.stream.per_stream import one_per_stream

__all__ = ["StreamLimits"]

_LIMITS = "{urn:xmpp:stream-limits:0}"

#: The most digits of a limit; a larger one is none.
_DIGITS_MAX = 15

#: In the first tag of a stanza: that of an iq that is answered, and its id.
_ASKS = re.compile(r"<iq\b.* type=['\"](get|set)['\"]")
_ID = re.compile(r" id=(['\"])(.*?)\1")


class StreamLimits:
    """The limits of the server of one stream.

    Attributes:
        sizes: the sizes of stanzas.
        idle_s: the seconds after which the server ends a stream on which it gets nothing;
            None: it does not say.
        watch: called at each end because of a size, with the id of the iq that was
            certainly not taken, or ''.
    """

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> StreamLimits:
        """The limits of this stream."""
        return one_per_stream(cls, xmpp)

    def __init__(self, xmpp: BaseXMPP) -> None:
        """See `of`."""
        self.sizes = StanzaSizes()
        self.idle_s: int | None = None
        self.watch: list[Callable[[str], None]] = []
        self._xmpp = xmpp

    def offered(self, features: ET.Element) -> None:
        """Read the limits among the features of a stream, before or after the login.

        The latest count: a server may give more to whoever has logged in.

        Args:
            features: from the server itself, not from somebody on the network path.
        """
        limits = features.find(f"{_LIMITS}limits")
        self.idle_s = _whole(limits, "idle-seconds")
        self.sizes.announced(_whole(limits, "max-bytes"))

    def written(self, text: str) -> None:
        """Note that a stanza is written that is larger than all before it."""
        tag = text[: text.find(">")]
        match = _ID.search(tag) if _ASKS.match(tag) else None
        iq_id = "" if match is None else match[2]
        self.sizes.written(iq_id, len(text.encode()), time.time())

    def restore(self, text: str) -> None:
        """Take what an earlier process has learned; see `StanzaSizes.to_text`."""
        self.sizes.restore(text, time.time())

    def over(self, size: int) -> int | None:
        """The limit that a stanza of this size is over; None: it may be sent."""
        limit = self.sizes.limit
        if limit is None or size <= limit:
            return None
        self.sizes.refresh(time.time())
        limit = self.sizes.limit
        return None if limit is None or size <= limit else limit

    def stream_ended(self, error: StanzaBase) -> None:
        """Take a stream error, from the server itself."""
        if not is_for_size(error["condition"], error["text"]):
            return
        iq_id = self.sizes.ended(time.time())
        management = self._xmpp.plugin.get("xep_0198", None)
        if management is not None:
            # slixmpp would send the same again into the resumed stream (XEP-0198 §5).
            management.sm_id = None
        for watch in self.watch:
            watch(iq_id or "")


def _whole(limits: ET.Element | None, name: str) -> int | None:
    text = "" if limits is None else limits.findtext(f"{_LIMITS}{name}", "").strip()
    is_whole = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) or None if is_whole else None
