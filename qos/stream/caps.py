"""Keeps XEP-0115 from slowing down stanzas other than presence, and from asking peers.

slixmpp's plugin adds a coroutine as a filter for sent stanzas. For each stanza, slixmpp
makes a task of it and waits for the task, which is a fifth of the cost of an iq; yet
the filter handles only presence. And it asks each peer whose presence has a new version
what it supports: a flood of versions is a flood of questions. While `PromptCaps` is
there, a function replaces the filter, and no question is asked by this plugin.
"""

from __future__ import annotations

import asyncio
from typing import Any

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Presence

from qos.core.strings import bare
from qos.stream.internals import caps_filter, caps_handler

__all__ = ["PromptCaps"]


#: The most accounts that are remembered because presence was sent to them.
_ADDRESSED_MAX = 10_000

_CAPS_EVENT = "entity_caps"


class PromptCaps:
    """A replacement for the filter of slixmpp's plugin.

    Attributes:
        addressed: the accounts to which presence was sent, such as rooms; the latest.
    """

    def __init__(self, xmpp: BaseXMPP) -> None:
        """Replace the filter; the plugin `xep_0115` is loaded."""
        self._xmpp = xmpp
        self._add_caps = caps_filter(xmpp.plugin["xep_0115"])
        self._ask_peer = caps_handler(xmpp.plugin["xep_0115"])
        self._late: set[asyncio.Task[None]] = set()
        self._ready: list[Any] = []
        self.addressed: dict[str, None] = {}
        xmpp.del_event_handler(_CAPS_EVENT, self._ask_peer)
        xmpp.del_filter("out", self._add_caps)
        xmpp.add_filter("out", self._filter)

    def close(self) -> None:
        """Put the plugin's own filter back."""
        self._xmpp.del_filter("out", self._filter)
        self._xmpp.add_filter("out", self._add_caps)
        self._xmpp.add_event_handler(_CAPS_EVENT, self._ask_peer)

    def _filter(self, stanza: Any) -> Any:
        if not isinstance(stanza, Presence):
            return stanza
        self._note_address(bare(stanza.xml.get("to", "")))
        if any(presence is stanza for presence in self._ready):
            self._ready = [
                presence for presence in self._ready if presence is not stanza
            ]
            return stanza
        adding = self._add_caps(stanza)
        try:
            # As a rule it waits for nothing: it ends at its first step.
            adding.send(None)
        except StopIteration as over:
            return over.value
        adding.close()
        self._later(stanza)
        return None

    def _note_address(self, account: str) -> None:
        if account:
            self.addressed.pop(account, None)
            self.addressed[account] = None
            if len(self.addressed) > _ADDRESSED_MAX:
                del self.addressed[next(iter(self.addressed))]

    def _later(self, stanza: Any) -> None:
        """Send the stanza later.

        An application has put something slow behind the plugin.
        """

        async def send() -> None:
            ready = await self._add_caps(stanza)
            if ready is not None:
                self._ready.append(ready)
                self._xmpp.send(ready)

        task = self._xmpp.loop.create_task(send())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
