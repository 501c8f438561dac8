"""The publisher of the simulated world: with requests, one-off links and a bridge."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

from qos.core.queue.properties import Properties, content_digest
from qos.core.queue.publishing import ONCE_S_MAX
from qos.core.queue.requests import Publish, PublishedItem
from qos.errors import RequestFailed, RequestRefused
from simulation.bridging import SimulatedBridge, SimulatedBroker
from simulation.items import ItemFacts, ItemLedger
from simulation.loop import SimulatedLoop
from simulation.network import Network
from simulation.queue_client import QueueUser
from simulation.queue_machine import NODE

__all__ = ["Shop"]

_ANSWER_S = 2.0
_AGAIN_S = 0.5


class Shop(QueueUser):
    """Publishes, and repeats unanswered requests, even after a restart.

    Half of the items go to one-off links, as by HTTP: then each attempt has another
    content, and some links are too old when they are used first. In every third
    run a quarter of them go to a broker, from which a bridge in the same process takes
    them.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        name: str,
        jid: str,
        seed: int,
        *,
        ledger: ItemLedger,
        issue: Callable[[], float],
    ) -> None:
        super().__init__(loop, network, name, jid, seed)
        self._ledger = ledger
        self._due: list[ItemFacts] = []
        self._planned = 0
        # By item, the time of issue of its link. Nothing is stored for a link, so the
        # service's clock is all that it takes to get one.
        self._issue = issue
        self._links: dict[str, float] = {}
        self._attempts = itertools.count(1)
        self._has_bridge = not seed % 3
        self._broker = SimulatedBroker(self._published)

    def boot(self) -> None:
        """See Machine."""
        super().boot()
        assert self.process is not None
        if self._has_bridge:
            self.process.task(self._carry())
        for facts in self._due:
            if not facts.published:
                self.process.task(self._publish(facts))

    def publish(self, facts: ItemFacts) -> None:
        """Publish this item, now or when the machine is up again."""
        place = self._planned
        self._planned += 1
        if self._has_bridge and place % 4 == 2:
            self._broker.publish(facts)
            if self.process is not None and self._queue_client is not None:
                self.process.start(self._broker.deliver)
            return
        self._due.append(facts)
        if place % 2:
            age_s = 2 * ONCE_S_MAX if place % 4 == 3 else 0.0
            self._links[facts.planned.item_id] = self._issue() - age_s
        if self.process is not None and self._queue_client is not None:
            self.process.task(self._publish(facts))

    async def _publish(self, facts: ItemFacts) -> None:
        item_id, queue_client = facts.planned.item_id, self.queue_client
        while True:
            try:
                request = self._request(facts, self._links.get(item_id))
                await queue_client.ask(request, "publish", _ANSWER_S)
            except RequestFailed as error:
                if isinstance(error, RequestRefused) and error.condition == "gone":
                    self._links[item_id] = self._issue()
                await queue_client.pause(_AGAIN_S)
            else:
                break
        self._published(facts)

    async def _carry(self) -> None:
        """Run the bridge; it is started again when it gives up, as a service is."""
        queue_client = self.queue_client
        while True:
            with contextlib.suppress(RequestFailed):
                await SimulatedBridge(self, queue_client, self._broker).run()
            await queue_client.pause(_AGAIN_S)

    def _published(self, facts: ItemFacts) -> None:
        self.network.note(self.name, f"{facts} is published")
        self._ledger.published(facts)

    def _request(self, facts: ItemFacts, issued_at: float | None) -> Publish:
        item_id, color = facts.planned.item_id, facts.planned.color
        payload = f"<work>{item_id}</work>"
        if issued_at is not None:
            payload = f"<work attempt='{next(self._attempts)}'>{item_id}</work>"
        properties: Properties = {"color": color} if color else {}
        entry = PublishedItem(
            item_id=item_id,
            payload=payload,
            digest=content_digest(payload.encode(), properties),
            size=len(payload),
            properties=properties,
        )
        return Publish(NODE, (entry,), issued_at)
