"""Keeps XEP-0115 from slowing down stanzas other than presence.

slixmpp's plugin adds a coroutine as a filter for sent stanzas. For each stanza, slixmpp
makes a task of it and waits for the task, which is a fifth of the cost of an iq; yet
the filter handles only presence. While `PromptCaps` is there, a function replaces it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Presence

from qos.stream.internals import caps_filter

__all__ = ["PromptCaps"]


class PromptCaps:
    """A replacement for the filter of slixmpp's plugin."""

    def __init__(self, xmpp: BaseXMPP) -> None:
        """Replace the filter; the plugin `xep_0115` is loaded."""
        self._xmpp = xmpp
        self._add_caps = caps_filter(xmpp.plugin["xep_0115"])
        self._late: set[asyncio.Task[None]] = set()
        self._ready: list[Any] = []
        xmpp.del_filter("out", self._add_caps)
        xmpp.add_filter("out", self._filter)

    def close(self) -> None:
        """Put the plugin's own filter back."""
        self._xmpp.del_filter("out", self._filter)
        self._xmpp.add_filter("out", self._add_caps)

    def _filter(self, stanza: Any) -> Any:
        if not isinstance(stanza, Presence):
            return stanza
        if any(each is stanza for each in self._ready):
            self._ready = [each for each in self._ready if each is not stanza]
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
