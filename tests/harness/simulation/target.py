"""The target of push: a machine that gives one-off links, and takes each message once.

What it has used is on its disk. An unused link is known for a while only. Requests come
over connections of their own, which break when either end dies, or as the plan says.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from qos.core.rest.forwarding import NoReply, PushReply
from simulation.items import ItemLedger
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.network import LATENCY_S, Network
from simulation.plan import REQUEST_FAULTS, Fault, Settings

__all__ = ["HOST", "Exchange", "PushTarget", "href_of"]

HOST = "https://target.example"

#: The path of the subscriber, what it is of, and the rest.
_PATH = re.compile(r"/(?P<subscriber>[^/]+)(?:/(?P<kind>[^/]+)(?:/(?P<rest>.+))?)?")

#: Seconds for which a target that is busy wants no request.
_RETRY_AFTER_S = 2


def href_of(rel: str, subscriber_id: str) -> str:
    """The URL of a subscriber with this relation."""
    path = {
        "post-message-once": "/once",
        "destination": "",
        "template": "/by-id/{id}",
    }.get(rel, "/messages")
    return f"{HOST}/{subscriber_id}{path}"


@dataclass(slots=True)
class Exchange:
    """A request to the target, and where its answer goes.

    Attributes:
        method: of the request.
        url: absolute.
        item_id: of the message in it, or ''.
        key: `Idempotency-Key`, or ''.
        answer: gets the answer; it may be called more than once.
        number: of the request, from 1.
        faults: of this request, by kind.
    """

    method: str
    url: str
    item_id: str
    key: str
    answer: Callable[[PushReply | NoReply], object] = field(repr=False)
    number: int = 0
    faults: dict[str, float] = field(default_factory=dict)


class PushTarget(Machine):
    """See the module."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        seed: int,
        *,
        settings: Settings,
        ledger: ItemLedger,
        faults: Sequence[Fault],
    ) -> None:
        super().__init__(loop, network, "target", "target@x/1", seed)
        self._ledger = ledger
        self._link_s = settings.link_s
        self._faults = [each for each in faults if each.kind in REQUEST_FAULTS]
        self._numbers = itertools.count(1)
        self._links = itertools.count(1)
        self._open: list[Exchange] = []
        self._mended = False
        #: On disk: the item that was posted to each link, or with each key.
        self._stored: dict[str, str] = {}

    def boot(self) -> None:
        """See Machine."""

    def receive(self, source: str, body: object) -> None:
        """See Machine: it speaks no XMPP."""

    def mend(self) -> None:
        """See Machine."""
        self._mended = True
        super().mend()

    def _died(self) -> None:
        super()._died()
        for each in self._open.copy():
            self._end(each, NoReply("the connection is reset"))

    # -- connections -------------------------------------------------------

    def request(self, exchange: Exchange, source: Machine) -> None:
        """Somebody makes a request."""
        exchange.number = next(self._numbers)
        if not self._mended:
            for fault in self._faults:
                if int(fault.at) == exchange.number:
                    exchange.faults[fault.kind] = fault.seconds
                    self.network.injected[fault.kind] += 1
        self.network.note(source.name, f"requests {exchange}")
        self._fly(partial(self._arrive, exchange, source))

    def _fly(self, arrive: Callable[[], object]) -> None:
        def arrived() -> None:
            self.network.flying -= 1
            arrive()

        self.network.flying += 1
        self.loop.outside(LATENCY_S * (1 + self.random.random()), arrived)

    def _arrive(self, exchange: Exchange, source: Machine) -> None:
        if self.network.is_apart(self.name) or self.network.is_apart(source.name):
            return
        if self.process is None:
            exchange.answer(NoReply("connection refused", unsent=True))
        elif "unheard" in exchange.faults:
            exchange.answer(NoReply("the connection is reset"))
        else:
            self._open.append(exchange)
            # A task: it may take a while.
            self.process.task(self._serve(exchange, source))

    def _end(self, exchange: Exchange, answer: PushReply | NoReply) -> None:
        self._open.remove(exchange)
        self._fly(partial(exchange.answer, answer))

    # -- what it does ------------------------------------------------------

    async def _serve(self, exchange: Exchange, source: Machine) -> None:
        await asyncio.sleep(exchange.faults.get("hang", 0.0))
        facts = self._ledger.items.get(exchange.item_id)
        works_s = facts.planned.works_s if facts is not None else 0.0
        # Some are done first and stored then, some the other way round.
        before_s = works_s if exchange.number % 2 else 0.0
        await asyncio.sleep(before_s)
        self.effect()
        status, headers = self._result(exchange)
        self.network.note(self.name, f"{exchange.method} {exchange.url}: {status}")
        await asyncio.sleep(works_s - before_s)
        self.effect()
        if self.network.is_apart(self.name) or self.network.is_apart(source.name):
            self._open.remove(exchange)
        elif "unanswered" in exchange.faults:
            self._end(exchange, NoReply("the connection is reset"))
        else:
            self._end(exchange, PushReply(exchange.url, status, headers))

    def _result(self, exchange: Exchange) -> tuple[int, Mapping[str, str]]:
        url = _PATH.fullmatch(exchange.url.removeprefix(HOST))
        assert url is not None, exchange
        subscriber_id, kind = url["subscriber"], url["kind"]
        own = f"{HOST}/{subscriber_id}/once"
        status = int(exchange.faults.get("status", 0))
        # A target that never has links for us would have to disable the subscriber.
        if status and (exchange.item_id or status != 400):
            if status == 400:
                self._ledger.items[exchange.item_id].refused = True
            return status, {"retry-after": f"{_RETRY_AFTER_S}"}
        if kind is None:
            assert exchange.method == "HEAD"
            return 200, {"link": f'<{own}>; rel="post-message-once"'}
        new = f"{next(self._links)}-{self.loop.time()}"
        links = {"link": f'<{own}/{new}>; rel="create-next"'}
        if not exchange.item_id:
            assert (kind, url["rest"]) == ("once", None), exchange
            return 200, links
        if kind == "once":
            if exchange.url in self._stored:
                return 405, links
            if self.loop.time() - float(url["rest"].partition("-")[2]) > self._link_s:
                return 410, links
            return self._store(exchange, subscriber_id, exchange.url), links
        place = exchange.key or exchange.url
        if place in self._stored:
            return 200, {}
        return self._store(exchange, subscriber_id, place), {}

    def _store(self, exchange: Exchange, subscriber_id: str, place: str) -> int:
        """Take a message, or fail; returns the status."""
        facts = self._ledger.items[exchange.item_id]
        if facts.failed < facts.planned.fails:
            facts.failed += 1
            return 500
        self._stored[place] = exchange.item_id
        self._ledger.arrived(facts, subscriber_id)
        return 201
