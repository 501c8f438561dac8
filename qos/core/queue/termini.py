"""The termini of links of gateways, by full JID and by name."""

from __future__ import annotations

from collections.abc import Iterable

from qos.core.queue.effects import QueueEffect, RemoveTerminus, SaveTerminus
from qos.core.queue.requests import Refusal
from qos.core.queue.terminus import ExpiryPolicy, Terminus, TerminusName, kept_for
from qos.core.quota import Tally
from qos.core.record import replace
from qos.core.strings import bare

__all__ = ["Termini"]


class Termini(dict[str, Terminus]):
    """The termini by full JID; changed by its methods only.

    Only durable ones are written, and count for their accounts. Whoever keeps one ends
    another one of its name before.
    """

    def __init__(self, termini: Iterable[Terminus], durable: Tally) -> None:
        """Start with the contents of the store.

        Args:
            termini: all are durable.
            durable: counts them.
        """
        super().__init__()
        self._durable = durable
        self._names: dict[TerminusName, str] = {}
        for terminus in termini:
            self._put(terminus)

    def named(self, name: TerminusName) -> Terminus | None:
        """The terminus of this name."""
        return self.get(self._names.get(name, ""))

    def check(self, terminus: Terminus) -> None:
        """Check that this terminus may be kept.

        Raises:
            Refusal: its account has too many durable ones.
        """
        before = self.get(terminus.jid)
        if not terminus.durability or (before is not None and before.durability):
            return
        if self._durable.refusal(bare(terminus.jid)) is not None:
            raise Refusal(
                "there are as many durable termini as are possible here; one must end "
                "first",
                condition="resource-constraint",
                type="wait",
            )

    def keep(self, terminus: Terminus) -> list[QueueEffect]:
        """Keep the terminus, replacing the one of this full JID."""
        before = self.get(terminus.jid)
        effects: list[QueueEffect] = []
        if before is not None:
            effects += self.end(before.jid)
        self._put(terminus)
        return [SaveTerminus(terminus)] if terminus.durability else effects

    def time(self, jid: str, until: float | None) -> list[QueueEffect]:
        """Let the timer of this full JID run until then, or (None) stop it."""
        terminus = self.get(jid)
        if terminus is None or terminus.until == until:
            return []
        return self.keep(replace(terminus, until=until))

    def end(self, jid: str) -> list[QueueEffect]:
        """End the terminus of this full JID; harmless if there is none."""
        terminus = self.pop(jid, None)
        if terminus is None:
            return []
        del self._names[terminus.name]
        if not terminus.durability:
            return []
        self._durable.add(bare(jid), -1)
        return [RemoveTerminus(jid)]

    def end_at(self, node: str) -> None:
        """End the termini at this node, which is deleted, and they with it."""
        for jid in [
            terminus.jid for terminus in self.values() if terminus.node == node
        ]:
            self.end(jid)

    def start(self, now: float) -> list[QueueEffect]:
        """Let the timers run after a start: no connection has outlived it."""
        effects: list[QueueEffect] = []
        for terminus in list(self.values()):
            seconds = kept_for(
                terminus.policy, terminus.timeout_s, ExpiryPolicy.CONNECTION_CLOSE
            )
            if terminus.until is None and seconds is not None:
                effects += self.time(terminus.jid, now + seconds)
        return effects

    def _put(self, terminus: Terminus) -> None:
        self[terminus.jid] = terminus
        self._names[terminus.name] = terminus.jid
        if terminus.durability:
            self._durable.add(bare(terminus.jid))
