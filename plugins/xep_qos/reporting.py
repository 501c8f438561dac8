"""Refusals and abuses, as events: in our log, and to a monitoring JID by XEP-0337.

Source: the proto-XEP, Security Considerations. An attacker must not use our log as an
amplifier, so each source causes only one event in an interval; the rest is counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP

from qos.core.message.effects import Report
from qos.core.rate import RateLimit
from qos.core.strings import bare

__all__ = ["Reporter"]

log = logging.getLogger(__name__)


class Reporter:
    """Reports forbidden actions of peers."""

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        to: str | None,
        interval_s: float,
        now: Callable[[], float],
    ) -> None:
        """Prepare to report.

        Args:
            xmpp: the stream.
            to: the JID that gets the events; None: they are only logged.
            interval_s: at most one event per source in this time.
            now: the clock.
        """
        self._xmpp = xmpp
        self._to = to
        self._now = now
        self._admitted = RateLimit(interval_s)
        if to is not None:
            import xep_0337  # noqa: F401 - makes the plugin known

            xmpp.register_plugin("xep_0337")

    def report(self, source: str, report: Report, *, online: bool) -> None:
        """Log the report, unless this source had one lately. Never raises."""
        left_out = self._admitted.admit(bare(source), self._now())
        if left_out is None:
            return
        log.warning("%s: %s (%d more left out)", source, report.text, left_out)
        if self._to is not None and online:
            try:
                self._send(self._to, source, report, left_out)
            except Exception:
                log.exception("the event could not be sent to %s", self._to)

    def _send(self, to: str, source: str, report: Report, left_out: int) -> None:
        from xep_0337 import XEP_0337, EventTag, EventType, LogEvent

        event = LogEvent(
            report.text,
            datetime.fromtimestamp(self._now(), UTC),
            id=report.condition or "unknown-message",
            type=EventType.WARNING,
            subject=source,
            module="xep_qos",
            tags=(EventTag("left_out", str(left_out), "xs:int"),),
        )
        XEP_0337.of(self._xmpp).send_event(JID(to), event)
