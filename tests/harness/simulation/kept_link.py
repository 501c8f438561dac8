"""The terminus of the worker behind the gate: kept while it is away (messaging §3.5.6).

This stands for `qos.amqp.links`. When the connection of the worker is lost, its link,
its session and its connection end one after the other, so that each policy has its
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING

from qos.core.queue.requests import (
    KeepTerminus,
    Refusal,
    Request,
    Settlement,
    Subscribe,
    Suspend,
    Unsubscribe,
)
from qos.core.queue.results import Result
from qos.core.queue.terminus import ExpiryPolicy, Terminus, kept_for
from qos.core.record import replace
from simulation import invariants

if TYPE_CHECKING:
    from simulation.gate import Gate
    from simulation.queue_machine import QueueMachine

__all__ = ["KeptLink"]

#: Seconds between the end of the link, of the session and of the connection.
_APART_S = 1.0

#: What has to end until the timer of a policy starts: the standard's table, and not ours.
_STARTED_BY = {
    ExpiryPolicy.LINK_DETACH: ("link-detach", "session-end", "connection-close"),
    ExpiryPolicy.SESSION_END: ("session-end", "connection-close"),
    ExpiryPolicy.CONNECTION_CLOSE: ("connection-close",),
    ExpiryPolicy.NEVER: (),
}

#: Seconds after which a terminus whose time is over must be gone from the disk.
_LATE_S = (1.0,) * 5

#: Seconds until it looks again at a clock that stands still.
_LEAST_S = 0.05


class KeptLink:
    """Keeps the terminus of one full JID, at one node."""

    def __init__(
        self,
        machine: QueueMachine,
        gate: Gate,
        node: str,
        policy: ExpiryPolicy,
        *,
        timeout_s: int,
        durable: bool,
        released: bool,
    ) -> None:
        self._machine = machine
        self._gate = gate
        self._policy = policy
        self._released = released
        self._terminus = Terminus(
            jid=gate.jid,
            container="c",
            link="l",
            node=node,
            address=node,
            durability=int(durable),
            policy=policy,
            timeout_s=timeout_s,
        )
        #: The worker is connected, as the service knows it.
        self.attached = False
        # It has subscribed since it was last connected.
        self._subscribed = False
        # When the terminus ends; None: its timer does not run.
        self._until: float | None = None
        # How often it was attached or begun again.
        self._times = 0

    def started(self) -> None:
        """A process of the service, or its core, begins with what is on disk."""
        self._leave()
        self._times += 1
        kept = self._machine.disk.kept.termini.get(self._gate.jid)
        if kept is None:
            self._ended()
            self._task(self._ends(0.0))
        elif kept.until is not None:
            self._until = kept.until
            self._task(self._ends(kept.until - self._machine.engine.now()))
        else:
            self._starts(ExpiryPolicy.CONNECTION_CLOSE)

    def heard(self) -> None:
        """Something has come from the worker: the timer stops."""
        self.look()
        self.attached, self._until = True, None
        self._times += 1

    def link(self, request: Request) -> Request:
        """The request of the worker as its gateway makes it."""
        self.heard()
        if isinstance(request, Subscribe):
            self._subscribed = True
            return replace(request, link=True)
        if isinstance(request, Unsubscribe):
            self._subscribed = False
        return request

    def keep(self) -> None:
        """The worker has subscribed in this turn: keep its terminus."""
        self._ask(KeepTerminus(self._terminus))

    def away(self) -> bool:
        """The connection of the worker is gone; False: with all that it has."""
        self.look()
        subscribed = self._subscribed
        self._leave()
        if not subscribed:
            return False
        self._task(self._expire(ExpiryPolicy.LINK_DETACH))
        return True

    def look(self) -> None:
        """Note the end of the terminus, if its time is over."""
        if self._until is not None and self._until <= self._machine.engine.now():
            self._until = None
            self._ended()

    async def _ends(self, seconds: float, last: int | None = None) -> None:
        """Look whether all of the terminus is gone, when its time is over.

        Args:
            seconds: until then.
            last: the commit that ends it at the latest; None: not known yet.
        """
        times = self._times
        machine, jid, node = self._machine, self._gate.jid, self._terminus.node
        until = machine.engine.now() + seconds
        await asyncio.sleep(seconds)
        # The clock of the service may have stood still.
        left_s = until - machine.engine.now()
        while left_s > 0:
            await asyncio.sleep(max(left_s, _LEAST_S))
            left_s = until - machine.engine.now()
        # In steps, so that a process that was stopped has some time for itself.
        for pause_s in _LATE_S:
            await asyncio.sleep(pause_s)
        if times != self._times:
            return
        if last is None:
            # What has waited for a slow commit is in the next one.
            last = machine.disk.commits + 1
        busy_s = machine.busy_s
        if busy_s >= 0 and machine.disk.commits <= last:
            await self._ends(busy_s, last)
            return
        # Without a core everything is allowed, even where there is nothing.
        if machine.engine.rights("nowhere", jid) is None:
            kept = machine.disk.kept
            here = (node, jid) in kept.subscriptions or jid in kept.termini
            machine.check(invariants.ends_in_time, jid, here)

    async def _expire(self, ended: ExpiryPolicy) -> None:
        terminus = self._terminus
        while not self.attached:
            seconds = kept_for(self._policy, terminus.timeout_s, ended)
            if seconds == 0:
                self._ended()
                self._machine.engine.departed(self._gate.jid)
                return
            defaults: tuple[Settlement, ...] = ()
            if self._released and ended is ExpiryPolicy.LINK_DETACH:
                defaults = self._machine.defaults(self._gate.jid)
            self._ask(Suspend(terminus.node, seconds, defaults))
            self._starts(ended)
            if seconds is not None or ended is ExpiryPolicy.CONNECTION_CLOSE:
                return
            await asyncio.sleep(_APART_S)
            policies = list(ExpiryPolicy)
            ended = policies[policies.index(ended) + 1]

    def _starts(self, ended: ExpiryPolicy) -> None:
        """The timer runs, if this starts it."""
        if ended.value in _STARTED_BY[self._policy]:
            self._until = self._machine.engine.now() + self._terminus.timeout_s
            self._task(self._ends(self._terminus.timeout_s))

    def _leave(self) -> None:
        self.attached = self._subscribed = False
        self._until = None

    def _ended(self) -> None:
        """Nothing is left of it: what it had has failed."""
        self._machine.departed(self._gate.jid)

    def _task(self, coroutine: Coroutine[None, None, None]) -> None:
        assert self._machine.process is not None
        self._machine.process.task(coroutine)

    def _ask(self, request: Request) -> None:
        self._machine.engine.request(request, self._gate.jid, _ignore)


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """A refusal comes with that of the subscription."""
