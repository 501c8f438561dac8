"""A machine: its clock, its connection, and its one program, which dies and comes back.

It knows when a program is started, killed, stopped, connected and cut off, but not what
the program does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from qos.engine.clock import Handle
from simulation.loop import Killed, Process, SimulatedLoop, current

if TYPE_CHECKING:
    from simulation.network import Network

__all__ = ["Machine", "MachineClock"]

#: Seconds from a start to a session.
_LOGIN_S = 0.05


#: The former name of a machine, which its random numbers still come from: so a seed that
#: once failed is still the same run.
_DICE = {"queue": "hive"}


class MachineClock:
    """The clock of a process: a copy of the machine's clock when the process started.

    Like `qos.engine.LoopClock`: when the machine's clock is set, only the next process
    sees it.
    """

    def __init__(self, loop: SimulatedLoop, skew_s: float) -> None:
        self._loop = loop
        self._skew_s = skew_s

    def now(self) -> float:
        """See Clock."""
        return self._loop.time() + self._skew_s

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        """See Clock."""
        true = when - self._skew_s
        while true + self._skew_s < when:
            true = math.nextafter(true, math.inf)
        return self._loop.call_at(true, callback)

    def stood_still(self, seconds: float) -> None:
        """Do as `qos.engine.ListeningClock` when its process has not listened so long."""
        if seconds > 2.0:
            self._skew_s -= seconds - 1.0


class Machine:
    """A machine with a program.

    Attributes:
        name: from the plan.
        jid: its full JID.
        online: it has a session.
        process: its program, if that runs.
        skew_s: by how much its clock is ahead.
        shown_s: by how much it was ahead at most, as its store can know. What it comes
            forward up to there is not a time that may have passed.
        sent: how many stanzas it has sent.
        cuts: how many connections it has lost without ending them itself.
        effects: how many effects its programs have begun.
        random: for its own decisions.
    """

    def __init__(
        self, loop: SimulatedLoop, network: Network, name: str, jid: str, seed: int
    ) -> None:
        self.loop = loop
        self.network = network
        self.name = name
        self.first_jid = self.jid = jid
        self.online = False
        self.process: Process | None = None
        self.skew_s = self.shown_s = 0.0
        self.sent = 0
        self.cuts = 0
        self.effects = 0
        self.random = random.Random(f"{seed} {_DICE.get(name, name)}")
        #: By the number of an effect: called in its place.
        self.dies_at: dict[int, Callable[[], None]] = {}
        #: Called when a process reads the clock that was set.
        self.set_clock: list[Callable[[], None]] = []
        self._starts = 0
        self._resources = 1
        self._wanted = True

    # -- what a program has ------------------------------------------------

    def boot(self) -> None:
        """Begin as a new process; there is no session yet."""
        raise NotImplementedError

    def connected(self) -> None:
        """A session has begun."""

    def disconnected(self) -> None:
        """The session has ended."""

    def receive(self, source: str, body: object) -> None:
        """A stanza has come from this full JID."""
        raise NotImplementedError

    def bounced(self, to: str, body: object, condition: str) -> None:
        """A stanza to this JID could not be delivered, or perhaps not."""

    def peer_arrived(self, jid: str) -> None:
        """A peer has come online."""

    @property
    def remembers(self) -> bool:
        """Whether its store has anything with a time."""
        return True

    def clock(self) -> MachineClock:
        """The clock of a process that starts now."""
        return MachineClock(self.loop, self.skew_s)

    def effect(self) -> None:
        """The program is about to do something that others will see.

        Raises:
            Killed: it is killed instead.
        """
        if self.process is None or self.process is not current():
            raise Killed
        self.effects += 1
        strike = self.dies_at.get(self.effects)
        if strike is not None:
            strike()
            raise Killed

    # -- its life ----------------------------------------------------------

    def start(self) -> None:
        """Start the program, if it does not run."""
        if self.process is not None:
            return
        self._starts += 1
        while self.set_clock:
            self.set_clock.pop(0)()
        process = Process(self.loop, self.name, self._starts, self._died)
        self.process = process
        self.network.note(self.name, "starts")
        process.start(self.boot)
        self.loop.outside(_LOGIN_S, lambda: self._log_in(process))

    def kill(self, seconds: float, *, resource: bool = False) -> bool:
        """Kill the program; it is started again after a while.

        Args:
            seconds: after how long.
            resource: it comes back under another resource.

        Returns:
            Whether there was a program; the same for the other methods here.
        """
        process = self.process
        if process is None:
            return False
        process.kill()
        if resource:
            self._move()
        self.loop.outside(seconds, self.start)
        return True

    def _move(self) -> None:
        self._resources += 1
        self.jid = f"{self.first_jid}-{self._resources}"

    def _died(self) -> None:
        self.network.note(self.name, "is killed")
        self._offline()
        self.process = None

    def stop(self, seconds: float) -> bool:
        """Stop the program for a while: nothing moves, and nobody notices."""
        process = self.process
        if process is None or process.waiting is not None:
            return False
        process.stop()
        self.loop.outside(seconds, lambda: self._go_on(process))
        return True

    def _go_on(self, process: Process) -> None:
        if process.alive and process.waiting is not None:
            process.go_on()
            self.loop.settle()

    # -- its connection ----------------------------------------------------

    def cut(self, seconds: float, *, resource: bool = False) -> bool:
        """Lose the connection; there is a new one after a while; see kill."""
        if not self.online:
            return False
        self.cuts += 1
        self._offline()
        process = self.process
        assert process is not None
        process.start(self.disconnected)
        if resource:
            self._move()
        self.loop.outside(seconds, lambda: self._log_in(process))
        return True

    def mend(self) -> None:
        """Run, be connected, under the first resource, and stay so."""
        process = self.process
        if process is not None and process.waiting is not None:
            self._go_on(process)
        if self.jid != self.first_jid:
            self.kill(0.0)
            self.jid = self.first_jid
        if self.process is None:
            self.start()

    def _log_in(self, process: Process) -> None:
        if process is self.process and process.alive and not self.online:
            self.online = True
            self.network.arrived(self)
            process.start(self.connected)

    def _offline(self) -> None:
        if self.online:
            self.online = False
            self.network.departed(self)

    def send(self, to: str, body: object) -> None:
        """Send a stanza, if there is a session. Its arrival is not certain."""
        self.effect()
        if self.online:
            self.network.send(self, to, body)
