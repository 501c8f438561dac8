"""The capabilities of peers (XEP-0115), kept in the store over a restart.

The presence of a peer names its list of features by a hash, the verification string.
slixmpp stores a list only if the hash is right, so it does not matter which peer gave the
list. With a stored list the peer is not asked (disco#info) before the first message,
which saves a round trip at each start.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.xep_0030 import DiscoInfo
from slixmpp.util.cache import Cache, MemoryCache

__all__ = ["StoredCapabilities"]

#: In UTF-8, all lists together; the oldest are forgotten first. A list of twenty
#: features takes some 1 kB, and a fleet has few kinds of clients. Each new list writes
#: all of them, and any peer can send a new list: so the sum must be small.
_BYTES_MAX = 32_768


class StoredCapabilities(Cache):
    """The cache of slixmpp's plugin `xep_0115`, as long as the store is open."""

    def __init__(
        self, xmpp: BaseXMPP, kept: str, remember: Callable[[str], None]
    ) -> None:
        """Replace the plugin's own cache, unless the application has set one.

        Args:
            xmpp: the stream, with xep_0115.
            kept: the value that was last given to `remember`, or ''.
            remember: keeps a value in the store.
        """
        self._remember = remember
        self._texts: dict[str, str] = json.loads(kept) if kept else {}
        # Untyped, because slixmpp's type of `cache` is that of its default.
        self._plugin = cast(Any, xmpp.plugin["xep_0115"])
        self._before: object = self._plugin.cache
        # The exact type: the application's own cache may be a subclass of it.
        if type(self._before) is MemoryCache:
            self._plugin.cache = self

    def close(self) -> None:
        """Give the plugin its own cache back."""
        if self._plugin.cache is self:
            self._plugin.cache = self._before

    def retrieve(self, key: str) -> DiscoInfo | None:
        """Return the list with this verification string, or None."""
        text = self._texts.get(key)
        if text is None:
            return None
        xml = ET.fromstring(text)  # noqa: S314 - written by store()
        return DiscoInfo(xml=xml)

    def store(self, key: str, value: DiscoInfo) -> bool:
        """Store a list whose hash slixmpp has checked."""
        text = ET.tostring(value.xml, encoding="unicode")
        if key in self._texts or len(text.encode()) > _BYTES_MAX:
            return False
        self._texts[key] = text
        while sum(len(each.encode()) for each in self._texts.values()) > _BYTES_MAX:
            del self._texts[next(iter(self._texts))]
        self._remember(json.dumps(self._texts))
        return True

    def remove(self, key: str) -> bool:
        """Forget a list; return whether there was one."""
        return self._texts.pop(key, None) is not None
