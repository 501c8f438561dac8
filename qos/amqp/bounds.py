"""The limits of the gateway: what AMQP peers can make it hold."""

from __future__ import annotations

from xep_0254.request_items import ITEM_BYTES_MAX

__all__ = [
    "CHANNELS_MAX",
    "CONNECTIONS_MAX",
    "CREDIT",
    "FRAME_BYTES_MAX",
    "IDLE_S",
    "LINKS_MAX",
    "LOGIN_S",
    "MESSAGE_BYTES_MAX",
    "PENDING_BYTES_MAX",
    "REASON_CHARS_MAX",
    "UNSETTLED_MAX",
]

#: Connections at a time, logged in or not: each takes a file descriptor.
CONNECTIONS_MAX = 1000

#: Seconds until a connection has to be logged in.
LOGIN_S = 10.0

#: The most bytes of a frame that we accept; a longer message comes in several.
FRAME_BYTES_MAX = 64 * 1024

#: Sessions of a connection, and links of all its sessions.
CHANNELS_MAX = 16
LINKS_MAX = 256

#: Seconds without a frame after which a peer counts as gone; peers are told half of it.
IDLE_S = 60.0

#: Messages that a publisher may send before one of them is accepted.
CREDIT = 500

#: The most items that one link holds unsettled, whatever its credit.
UNSETTLED_MAX = 1000

#: The most bytes of a message. Its item has them as base64, and its annotations.
MESSAGE_BYTES_MAX = ITEM_BYTES_MAX * 3 // 4 - 1024

#: The most bytes of messages of one connection that are being written; beyond them,
#: nothing is read from it.
PENDING_BYTES_MAX = 4 * 1024 * 1024

#: The most characters of the reason of a rejected outcome that are kept.
REASON_CHARS_MAX = 1000
