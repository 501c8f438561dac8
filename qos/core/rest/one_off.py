"""One-off links: URLs for one post each. Nothing is stored for a link until it is used.

A link has a random item id, the time of its issue, and an HMAC over both of them, the use
of the link, the node and the account. So a link survives restarts, nobody can invent one,
and no other account can use it. The node knows whether a link was used: the item id is
there, or is remembered (`qos.core.queue.requests.Publish.issued_at`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re

from qos.core.record import record

__all__ = ["OneOff", "OneOffLinks"]

#: Half of SHA-256's: nobody tries 2**64 links.
_MAC_DIGITS = 32

_TOKEN = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{1,13})\.([0-9a-f]{32})")


@record(frozen=True, slots=True)
class OneOff:
    """A genuine link.

    Attributes:
        item_id: of the item that it may make.
        issued_at: when it was made.
    """

    item_id: str
    issued_at: float


class OneOffLinks:
    """Makes links, and recognises them."""

    def __init__(self, key: str, moved_s: float) -> None:
        """Begin.

        Args:
            key: a secret of the store, which never changes.
            moved_s: by how much all times in the store have moved since it was created
                (`qos.core.wall_clock`), in seconds. A link has its time as of then, so
                that it grows no older by a clock that was set.
        """
        self._key = key.encode()
        self._moved_s = moved_s

    def new(
        self, use: str, node: str, account: str, *, item_id: str, now: float
    ) -> str:
        """The last segment of the URL of a new link.

        Args:
            use: what the link is for.
            node: the name of the node.
            account: the bare JID that may use it.
            item_id: 128 random bits in hexadecimal.
            now: the time.
        """
        issued = f"{round(1000 * (now - self._moved_s)):x}"
        return f"{item_id}.{issued}.{self._mac(use, node, account, item_id, issued)}"

    def read(self, token: str, use: str, node: str, account: str) -> OneOff | None:
        """The link; None: it was not made here for this use, node and account."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        item_id, issued, mac = match.groups()
        expected = self._mac(use, node, account, item_id, issued)
        if not hmac.compare_digest(mac, expected):
            return None
        return OneOff(item_id, int(issued, 16) / 1000 + self._moved_s)

    def message_id(self, to: str, account: str, item_id: str) -> str:
        """The id of the message that a user sends with this link or key.

        It is the same at each repeat, nobody else can have it, and nobody can guess it.
        """
        return self._mac("message", to, account, item_id)

    def _mac(self, *parts: str) -> str:
        content = json.dumps(parts).encode()
        digest = hmac.new(self._key, content, hashlib.sha256).hexdigest()
        return digest[:_MAC_DIGITS]
