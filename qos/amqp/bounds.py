"""The limits of the gateway: what AMQP peers can make it hold."""

from __future__ import annotations

from xep_0254.request_items import ITEM_BYTES_MAX

__all__ = [
    "BEAT_S",
    "CHANNELS_MAX",
    "CREDIT",
    "FRAME_BYTES_MAX",
    "IDLE_S",
    "LINKS_MAX",
    "MESSAGE_BYTES_MAX",
    "PENDING_BYTES_MAX",
    "READ_BYTES_MAX",
    "REASON_CHARS_MAX",
    "SEND_BYTES_MAX",
    "UNFINISHED_BYTES_MAX",
    "UNSETTLED_MAX",
]

#: The most bytes of a frame that we accept; a longer message comes in several.
FRAME_BYTES_MAX = 64 * 1024

#: Sessions of a connection, and links of all its sessions.
CHANNELS_MAX = 64
LINKS_MAX = 256

#: Seconds within which a peer has to send a frame, as it is told. It counts as gone after
#: twice that time.
IDLE_S = 60.0

#: Seconds between two empty frames to a peer that asks for none. haproxy ends a connection
#: in which one end has sent nothing for 50 s, and nginx after 60 s.
BEAT_S = 30.0

#: Messages that a publisher may send before one of them is accepted.
CREDIT = 500

#: The most items that one link holds unsettled, whatever its credit.
UNSETTLED_MAX = 1000

#: The most bytes of a message. Its item has them as base64, and its annotations.
MESSAGE_BYTES_MAX = ITEM_BYTES_MAX * 3 // 4 - 1024

#: The most bytes of messages of one connection that are being written; beyond them,
#: nothing is read from it.
PENDING_BYTES_MAX = 4 * 1024 * 1024

#: The most bytes of messages of one connection of which the end has not come. The link
#: whose message goes beyond them ends: the other ones may never end.
UNFINISHED_BYTES_MAX = 2 * 1024 * 1024

#: Bytes of a connection that wait to be handled; beyond them, nothing is read from it. A
#: read of asyncio has up to 256 KiB more.
READ_BYTES_MAX = 64 * 1024

#: Bytes of messages to the consumers of a session that are not written yet; beyond them,
#: items that are locked for these wait in the store, and not in memory.
SEND_BYTES_MAX = 256 * 1024

#: The most characters of the reason of a rejected outcome that are kept.
REASON_CHARS_MAX = 1000
