"""Requests to the queue service and their answers, over the simulated network.

This stands for `xep_0254.channel`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from qos.core.queue.requests import Refusal, Request
from qos.core.queue.results import Result
from qos.errors import NoAnswer, RequestRefused
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.network import Network
from simulation.queue_machine import SERVICE, Answered, Asked, Ping

__all__ = ["QueueClient", "QueueUser"]

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
