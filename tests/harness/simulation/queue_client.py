"""Requests to the queue service and their answers, over the simulated network.

This stands for `xep_0254.channel`; also the publisher, which needs nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable

from qos.core.queue.properties import Properties, content_digest
from qos.core.queue.publishing import ONCE_S_MAX
from qos.core.queue.requests import Publish, PublishedItem, Refusal, Request, Result
from qos.errors import NoAnswer, RequestFailed, RequestRefused
from simulation.items import ItemFacts, ItemLedger
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.network import Network
from simulation.queue_machine import NODE, SERVICE, Answered, Asked, Ping

__all__ = ["QueueClient", "QueueUser", "Shop"]

_ANSWER_S = 2.0
_AGAIN_S = 0.5


class QueueClient:
    """Sends the requests of one process.

    Attributes:
        own: our full JID while there is a session.
        in_session: set while there is one.
    """

    def __init__(self, machine: QueueUser) -> None:
        self.own: str | None = None
        self.in_session = asyncio.Event()
        self._machine = machine
        self._pending: dict[str, asyncio.Future[Result | Refusal | None]] = {}

    async def ask(self, request: Request, what: str, timeout_s: float) -> Result:
        """Send a request; returns the answer.

        Raises:
            RequestRefused: the answer is an error.
            NoAnswer: none came in this time, or the session was lost.
        """
        if self.own is None:
            raise NoAnswer("there is no session", to=SERVICE, what=what)
        iq_id = self._machine.new_id()
        answer: asyncio.Future[Result | Refusal | None]
        answer = asyncio.get_running_loop().create_future()
        self._pending[iq_id] = answer
        try:
            self._machine.send(SERVICE, Asked(iq_id, request))
            async with asyncio.timeout(timeout_s):
                result = await answer
        except TimeoutError:
            raise NoAnswer("nothing came", to=SERVICE, what=what) from None
        finally:
            self._pending.pop(iq_id, None)
        if result is None:
            raise NoAnswer("the session was lost", to=SERVICE, what=what)
        if isinstance(result, Refusal):
            raise RequestRefused(
                result.condition, to=SERVICE, what=what, type=result.type, by=SERVICE
            )
        return result

    async def pause(self, delay_s: float) -> None:
        """Wait before an attempt.

        Without a session, no longer than until the next one.
        """
        if self.own is not None:
            await asyncio.sleep(delay_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self.in_session.wait()

    def answered(self, iq_id: str, result: Result | Refusal | None) -> None:
        """Handle an answer; None: there will be none."""
        pending = self._pending.get(iq_id)
        if pending is not None and not pending.done():
            pending.set_result(result)

    def bounced(self, body: object, condition: str) -> None:
        """A server reports that the service could not be reached."""
        if isinstance(body, Asked):
            refusal = Refusal("it is away", condition=condition, type="cancel")
            self.answered(body.iq_id, refusal)

    def session_started(self, own: str) -> None:
        """A session begins."""
        self.own = own
        self.in_session.set()

    def session_lost(self) -> None:
        """The session is lost."""
        self.own = None
        self.in_session.clear()
        for iq_id in list(self._pending):
            self.answered(iq_id, None)


class QueueUser(Machine):
    """A machine that sends requests."""

    def __init__(
        self, loop: SimulatedLoop, network: Network, name: str, jid: str, seed: int
    ) -> None:
        super().__init__(loop, network, name, jid, seed)
        self._ids = itertools.count(1)
        self._queue_client: QueueClient | None = None

    @property
    def queue_client(self) -> QueueClient:
        """The requests of the present process."""
        assert self._queue_client is not None
        return self._queue_client

    def boot(self) -> None:
        """See Machine."""
        self._queue_client = QueueClient(self)

    def connected(self) -> None:
        """See Machine."""
        self.queue_client.session_started(self.jid)

    def disconnected(self) -> None:
        """See Machine."""
        self.queue_client.session_lost()

    def receive(self, source: str, body: object) -> None:
        """See Machine."""
        match body:
            case Answered(iq_id, result) if source == SERVICE:
                self.queue_client.answered(iq_id, result)
            case Ping(iq_id, False):
                self.send(source, Ping(iq_id, answer=True))

    def bounced(self, to: str, body: object, condition: str) -> None:
        """See Machine."""
        self.queue_client.bounced(body, condition)

    def new_id(self) -> str:
        """An id that was never used."""
        return f"{self.name}-{next(self._ids)}"


class Shop(QueueUser):
    """Publishes, and repeats unanswered requests, even after a restart.

    Half of the items go to one-off links, as by HTTP: then each attempt has another
    content, and some links are too old when they are used first.
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
        # By item, the time of issue of its link. Nothing is stored for a link, so the
        # service's clock is all that it takes to get one.
        self._issue = issue
        self._links: dict[str, float] = {}
        self._attempts = itertools.count(1)

    def boot(self) -> None:
        """See Machine."""
        super().boot()
        assert self.process is not None
        for facts in self._due:
            if not facts.published:
                self.process.task(self._publish(facts))

    def publish(self, facts: ItemFacts) -> None:
        """Publish this item, now or when the machine is up again."""
        place = len(self._due)
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
