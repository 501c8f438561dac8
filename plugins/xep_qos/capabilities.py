"""Capabilities of peers (XEP-0115), kept in the store over a restart.

The presence of a peer names its list of features by a hash, the verification string.
slixmpp caches a list once it has checked the hash, so a kept list is right whoever gave
it. With the list at hand a peer need not be asked (disco#info) before the first message:
that saves a round trip at each start.
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

#: A fleet has few kinds of clients; the least recently learned is forgotten.
_KEPT_MAX = 50

#: A list of a hundred features takes some 5 kB; a longer one is asked for each time.
_KEPT_BYTES_MAX = 8_192


class StoredCapabilities(Cache):
    """The cache of slixmpp's plugin `xep_0115`, as long as the store is open."""

    def __init__(
        self, xmpp: BaseXMPP, kept: str, remember: Callable[[str], None]
    ) -> None:
        """Take the place of the plugin's own cache, unless the application chose one.

        Args:
            xmpp: the stream, with xep_0115.
            kept: the value that was last given to `remember`, or ''.
            remember: keeps a value in the store.
        """
        self._remember = remember
        self._texts: dict[str, str] = json.loads(kept) if kept else {}
        # slixmpp's type of `cache` is that of its default.
        self._plugin = cast(Any, xmpp.plugin["xep_0115"])
        self._before: object = self._plugin.cache
        # An application may have chosen a cache of its own, also a subclass of this.
        if type(self._before) is MemoryCache:
            self._plugin.cache = self

    def close(self) -> None:
        """Give the plugin its own cache back."""
        if self._plugin.cache is self:
            self._plugin.cache = self._before

    def retrieve(self, key: str) -> DiscoInfo | None:
        """The list with this verification string, if it is kept."""
        text = self._texts.get(key)
        if text is None:
            return None
        xml = ET.fromstring(text)  # noqa: S314 - written by store()
        return DiscoInfo(xml=xml)

    def store(self, key: str, value: DiscoInfo) -> bool:
        """Keep a list that slixmpp has checked."""
        text = ET.tostring(value.xml, encoding="unicode")
        if key in self._texts or len(text.encode()) > _KEPT_BYTES_MAX:
            return False
        self._texts[key] = text
        if len(self._texts) > _KEPT_MAX:
            del self._texts[next(iter(self._texts))]
        self._remember(json.dumps(self._texts))
        return True

    def remove(self, key: str) -> bool:
        """Forget a list."""
        return self._texts.pop(key, None) is not None
