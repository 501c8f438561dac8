"""A client of HornetQ's dialect: it goes from link to link, and repeats what is unanswered.

It writes down each message that it has handled, with the next link, in one transaction.
Now and then it posts again to a link whose answer it has seen.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from qos.rest.calls import Answer, Call
from qos.rest.handlers import handled
from qos.rest.hornetq.paths import PATHS, url
from qos.rest.paths import find
from qos.rest.routes import ROUTES
from simulation import invariants
from simulation.items import ItemLedger
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.network import LATENCY_S, Network
from simulation.plan import REQUEST_FAULTS, Fault

if TYPE_CHECKING:
    from simulation.queue_machine import QueueMachine

__all__ = ["PULLER", "PullClient"]

#: The account of the client.
PULLER = "kim@x"

_NEXT = ("msg-consume-next", "msg-acknowledge-next")
_ACKNOWLEDGEMENT = "msg-acknowledgement"

#: Seconds until a request is repeated, and between requests that give nothing: longer than
#: a world is silent before its end.
_ANSWER_S = 5.0
_AGAIN_S = 0.5
_IDLE_S = 3.0

#: The share of answers with a message after which it posts to the same link once more.
_TWICE = 0.3


@dataclass(slots=True)
class _Exchange:
    """A request; `answer` gets its answer, or None: the connection has broken."""

    path: str
    body: str
    answer: Callable[[Answer | None], object] = field(repr=False)
    faults: dict[str, float] = field(default_factory=dict)
    #: Its client waits for the answer.
    open: bool = True


class PullClient(Machine):
    """See the module."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        seed: int,
        *,
        node: str,
        selector: str,
        service: QueueMachine,
        ledger: ItemLedger,
        faults: Sequence[Fault],
    ) -> None:
        super().__init__(loop, network, "puller", "puller@x/1", seed)
        self._node = node
        self._selector = selector
        self._service = service
        self._ledger = ledger
        self._auto = seed % 2 == 0
        own = [each for each in faults if each.target == self.name]
        self._faults = [each for each in own if each.kind in REQUEST_FAULTS]
        self._numbers = itertools.count(1)
        self._open: list[_Exchange] = []
        self._mended = False
        #: On its disk: the link that it is at; '': it has no consumer.
        self._link = ""

    def boot(self) -> None:
        """See Machine."""
        assert self.process is not None
        self.process.task(self._run())

    def receive(self, source: str, body: object) -> None:
        """See Machine: it speaks no XMPP."""

    def mend(self) -> None:
        """See Machine."""
        self._mended = True
        super().mend()

    def _died(self) -> None:
        super()._died()
        for each in self._open:
            each.open = False
        self._open.clear()

    # -- what it does ------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not self._link:
                path = url("hornetq-pull-consumers", node=self._node)
                form = {"autoAck": str(self._auto).lower(), "selector": self._selector}
                answer = await self._post(path, urlencode(form))
                self._follow(answer)
            elif "/acknowledgement/" in self._link:
                answer = await self._post(self._link, "acknowledge=true")
                if answer is not None and answer.status in {204, 412}:
                    self._link = ""
                    self._follow(answer)
            else:
                answer = await self._take()
            if answer is not None and answer.status >= 500:
                await asyncio.sleep(_IDLE_S)

    def _follow(self, answer: Answer | None) -> None:
        """Write down the link that is due."""
        if answer is not None:
            for name in (*_NEXT, _ACKNOWLEDGEMENT):
                self._link = answer.headers.get(name, self._link)

    async def _take(self) -> Answer | None:
        link = self._link
        answer = await self._post(link, "")
        if answer is not None and answer.status == 200:
            if self.random.random() < _TWICE:
                again = await self._post(link, "")
                if again is not None and again.status == 200:
                    before = _delivery_in(answer)
                    live = self._service.holds(*before)
                    check = invariants.an_old_link_gives_the_same
                    self._ledger.check(check, before, _delivery_in(again), live)
                    answer = again
            _, item_id = _delivery_in(answer)
            await asyncio.sleep(self._ledger.items[item_id].planned.works_s)
            self.effect()
            self._ledger.pulled(item_id)
            self._follow(answer)
        elif answer is not None and answer.status == 412:
            self._follow(answer)
        elif answer is not None and answer.status == 410:
            # It was made again without its selector.
            self._link = ""
        return answer

    # -- connections -------------------------------------------------------

    async def _post(self, path: str, body: str) -> Answer | None:
        """The answer; None: there was none."""
        self.effect()
        answered: asyncio.Future[Answer | None]
        answered = asyncio.get_running_loop().create_future()

        def answer(found: Answer | None) -> None:
            if not answered.done():
                answered.set_result(found)

        exchange = _Exchange(path, body, answer)
        number = next(self._numbers)
        for fault in () if self._mended else self._faults:
            if int(fault.at) == number:
                exchange.faults[fault.kind] = fault.seconds
                self.network.injected[fault.kind] += 1
        self.network.note(self.name, f"requests {exchange}")
        self._open.append(exchange)
        self._fly(partial(self._arrive, exchange))
        try:
            async with asyncio.timeout(_ANSWER_S):
                found = await answered
        except TimeoutError:
            found = None
        exchange.open = False
        if exchange in self._open:
            self._open.remove(exchange)
        shown = "nothing" if found is None else f"{found.status} {found.headers}"
        self.network.note(self.name, f"is answered {shown}")
        if found is None:
            await asyncio.sleep(_AGAIN_S)
        return found

    def _fly(self, arrive: Callable[[], object]) -> None:
        def arrived() -> None:
            self.network.flying -= 1
            arrive()

        self.network.flying += 1
        self.loop.outside(LATENCY_S * (1 + self.random.random()), arrived)

    def _arrive(self, exchange: _Exchange) -> None:
        service = self._service
        if self.network.is_apart(self.name) or self.network.is_apart(service.name):
            return
        if service.process is None or "unheard" in exchange.faults:
            exchange.answer(None)
        else:
            service.process.task(self._serve(exchange))

    async def _serve(self, exchange: _Exchange) -> None:
        """Answer a request, in the process of the service."""
        await asyncio.sleep(exchange.faults.get("hang", 0.0))
        gateway = self._service.gateway
        assert gateway is not None
        found = find(exchange.path, PATHS)
        assert found is not None, exchange.path
        name, variables = found
        wait = "" if exchange.body else f"{self.random.randrange(2)}"
        there = self._service.available()
        answer = await handled(
            ROUTES[name],
            Call(
                services=gateway,
                method="POST",
                base="",
                account=PULLER,
                topic=False,
                path=variables,
                query={},
                headers={"accept-wait": wait} if wait else {},
                body=exchange.body.encode(),
            ),
        )
        self._service.effect()
        if any(name in answer.headers for name in _NEXT) and answer.status == 503:
            still = [each for each in self._service.available() if each in there]
            self._ledger.check(invariants.nothing_is_there, still, self._selector)
        if answer.status == 200:
            check = invariants.given_outlives_the_service
            self._ledger.check(
                check, _delivery_in(answer), self._service.is_link(PULLER)
            )
        apart = self.network.is_apart(self.name)
        # The service hears of a client that has gone, or of a broken connection, in time or
        # too late.
        whole = exchange.open and exchange.faults.get("unanswered", 1.0) > 0
        if answer.sent is not None:
            answer.sent(whole)
        if whole and not apart and "unanswered" not in exchange.faults:
            self._fly(partial(exchange.answer, answer))
        elif not apart:
            self._fly(partial(exchange.answer, None))


def _delivery_in(answer: Answer) -> tuple[str, str]:
    """The token and the item of the delivery that an answer gives."""
    headers: Mapping[str, str] = answer.headers
    link = headers.get(_NEXT[0]) or headers[_ACKNOWLEDGEMENT]
    token, _, item_id = link.rpartition("/")[2].partition(".")
    return token, item_id
