"""Whose plain messages an application may act on, if it asks."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

from qos.core.message.effects import Report
from qos.core.message.trust import Trusted
from xep_qos.guard import Guard

__all__ = ["PlainMessages"]

_BODY = "{jabber:client}body"


class PlainMessages:
    """Decides on plain messages, and reports those of strangers."""

    def __init__(
        self, xmpp: BaseXMPP, guard: Guard, report: Callable[[str, Report], None]
    ) -> None:
        """Use the guard of a stream; `report` gets the sender of what is refused."""
        self._xmpp = xmpp
        self._guard = guard
        self._report = report

    def admits(self, xml: ET.Element) -> bool | None:
        """See XEP_QOS.admits."""
        decision = self._guard.plain(*self._ends(xml))
        return None if decision is None else self._told(xml, decision)

    async def admitted(self, xml: ET.Element) -> bool:
        """See XEP_QOS.admitted."""
        return self._told(xml, await self._guard.plain_later(*self._ends(xml)))

    def _ends(self, xml: ET.Element) -> tuple[str, str]:
        """The sender and the receiver.

        What has no sender is from our own account: RFC 6120 §8.1.2.1.
        """
        return xml.get("from") or self._xmpp.boundjid.bare, xml.get("to", "")

    def _told(self, xml: ET.Element, decision: Trusted) -> bool:
        # Without a body it is the event of a service, and no word of a stranger.
        if not decision.trusted and xml.find(_BODY) is not None:
            text = f"a plain message was dropped: {decision.reason}"
            self._report(xml.get("from", ""), Report("not-allowed", text))
        return decision.trusted
