"""A network that loses, doubles, delays and reorders the stanzas between machines.

It carries anything, and looks into nothing. Between two JIDs stanzas stay in order, as
in XMPP, except those that a fault makes *late*. A machine that is not there cannot be
reached, and its sender is told so, unless that too is lost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from qos.core.strings import bare
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.plan import STANZA_FAULTS, Fault

__all__ = ["LATENCY_S", "Network"]

#: The delay between two machines: the least, and the random part.
LATENCY_S = 0.01
_MORE_S = 0.02

#: The number of stanzas of a machine that a server may deliver again.
_KEPT = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """A stanza in flight, and how often the connections had been cut before."""

    source: Machine
    sender: str
    to: str
    body: object
    target: Machine | None
    cuts: tuple[int, int]
    copy: bool = False
    late: bool = False
    unsure: bool = False
    bounce_s: float | None = None


class Network:
    """All connections, and a server in the middle.

    Attributes:
        there: the machines that can be reached, by full JID.
        injected: faults that really happened, by kind.
        repeated: machines with stanzas that were delivered more than once.
        trace: the events, a line each; None: not recorded.
        flying: the number of stanzas in flight.
        watch_presence: called when a machine has come, or left (False).
    """

    def __init__(
        self, loop: SimulatedLoop, faults: tuple[Fault, ...], *, traced: bool
    ) -> None:
        self._loop = loop
        self.there: dict[str, Machine] = {}
        self.injected: Counter[str] = Counter()
        self.trace: list[str] | None = [] if traced else None
        self.watch_presence: list[Callable[[Machine, bool], None]] = []
        self._faults: dict[tuple[str, int], list[Fault]] = {}
        for fault in faults:
            if fault.kind not in STANZA_FAULTS:
                continue
            key = (fault.target, int(fault.at))
            self._faults.setdefault(key, []).append(fault)
        self.repeated: set[str] = set()
        #: The end of each partition, and the call when it loses a stanza.
        self._apart: dict[str, tuple[float, Callable[[], None]]] = {}
        self._latest: dict[tuple[str, str], float] = {}
        self._sent: dict[str, deque[_Flight]] = {}
        self._mended = False
        self.flying = 0

    def note(self, who: str, what: object) -> None:
        """Record an action, if wanted."""
        if self.trace is not None:
            self.trace.append(f"{self._loop.time():10.4f} {who:6} {what}")

    def mend(self) -> None:
        """From now on deliver everything."""
        self._mended = True
        self._apart.clear()

    def part(self, name: str, seconds: float, lost: Callable[[], None]) -> None:
        """Let nothing go from or to a machine for a while.

        Args:
            name: of the machine.
            seconds: how long.
            lost: called whenever a stanza does not arrive.
        """
        self._apart[name] = self._loop.time() + seconds, lost

    def replay(self, name: str, count: int) -> bool:
        """Deliver a machine's last stanzas again, even those that have arrived.

        A server does so if it had not heard of their arrival (XEP-0198) when a
        connection was lost. Returns whether there was anything.
        """
        flights = list(self._sent.get(name, ()))[-count:]
        for flight in flights:
            self.repeated.add(name)
            self._carry(replace(flight, copy=True, late=True), LATENCY_S)
        return bool(flights)

    # -- who is there ------------------------------------------------------

    def arrived(self, machine: Machine) -> None:
        """A machine has a session now."""
        self.there[machine.jid] = machine
        self.note(machine.name, f"is {machine.jid}")
        for watch in self.watch_presence:
            watch(machine, True)

    def departed(self, machine: Machine) -> None:
        """A machine has no session any more."""
        self.there.pop(machine.jid, None)
        self.note(machine.name, "is away")
        for watch in self.watch_presence:
            watch(machine, False)

    def resources(self, account: str) -> list[Machine]:
        """The machines of an account that are there."""
        return [each for jid, each in self.there.items() if bare(jid) == account]

    # -- stanzas -----------------------------------------------------------

    def send(self, source: Machine, to: str, body: object) -> None:
        """Carry a stanza."""
        source.sent += 1
        faults = self._faults.get((source.name, source.sent), [])
        if self._mended:
            faults = []
        kinds = {fault.kind: fault.seconds for fault in faults}
        self.note(source.name, f"sends {source.sent} to {to}: {body} {kinds or ''}")
        if "lose" in kinds:
            self.injected["lose"] += 1
            return
        target = self.there.get(to)
        flight = _Flight(
            source=source,
            sender=source.jid,
            to=to,
            body=body,
            target=target,
            cuts=(source.cuts, target.cuts if target is not None else 0),
            copy="duplicate" in kinds,
            late="late" in kinds,
            unsure="unsure" in kinds,
            bounce_s=kinds.get("bounce"),
        )
        self._sent.setdefault(source.name, deque(maxlen=_KEPT)).append(flight)
        delay_s = LATENCY_S + _MORE_S * source.random.random()
        if "late" in kinds:
            self.injected["late"] += 1
            self._carry(flight, delay_s + kinds["late"], in_order=False)
            return
        self.injected["delay"] += "delay" in kinds
        self._carry(flight, delay_s + kinds.get("delay", 0.0))
        if "duplicate" in kinds:
            self.injected["duplicate"] += 1
            self.repeated.add(source.name)
            more_s = kinds["duplicate"]
            self._carry(flight, delay_s + more_s, in_order=more_s == 0.0)

    def say_for(self, machine: Machine, to: str, body: object) -> None:
        """Carry a server's answer for a machine that has just gone."""
        flight = _Flight(machine, machine.jid, to, body, None, (0, 0), True, late=True)
        self._carry(flight, LATENCY_S)

    def _carry(self, flight: _Flight, delay_s: float, *, in_order: bool = True) -> None:
        when = self._loop.time() + delay_s
        if in_order:
            pair = (flight.sender, flight.to)
            when = max(when, self._latest.get(pair, 0.0))
            self._latest[pair] = when
        self.flying += 1
        self._loop.outside(when - self._loop.time(), lambda: self._arrive(flight))

    def _arrive(self, flight: _Flight) -> None:
        self.flying -= 1
        source, target = flight.source, self.there.get(flight.to)
        for machine in (source, target):
            if machine is not None and self.is_apart(machine.name):
                return
        before = flight.target
        if not flight.late and (
            source.cuts != flight.cuts[0]
            or (before is not None and before.cuts != flight.cuts[1])
        ):
            return
        if target is None or target.process is None:
            # Of a stanza that went twice it is not known how it fared the other time.
            if not flight.copy:
                self._bounce(flight, "service-unavailable")
            return
        sender, body = flight.sender, flight.body
        self.note(target.name, f"gets from {sender}: {body}")
        target.process.start(lambda: target.receive(sender, body))
        if flight.unsure:
            self.injected["unsure"] += 1
            self._bounce(flight, "recipient-unavailable")
        if flight.bounce_s is not None:
            # As ejabberd does with stanzas that a lost connection had received
            # (XEP-0198).
            self.injected["bounce"] += 1
            target.cut(flight.bounce_s)
            self._bounce(flight, "service-unavailable")

    def is_apart(self, name: str) -> bool:
        """Whether a partition keeps this from or to a machine; it is counted then."""
        until_s, lost = self._apart.get(name, (0.0, None))
        if lost is None or until_s <= self._loop.time():
            return False
        lost()
        return True

    def _bounce(self, flight: _Flight, condition: str) -> None:
        source, to, body = flight.source, flight.to, flight.body
        kept = self._sent.get(source.name)
        if condition == "service-unavailable" and kept and flight in kept:
            kept.remove(flight)  # it does not deliver what it has given back

        def arrive() -> None:
            self.flying -= 1
            process = source.process
            if source.online and source.jid == flight.sender and process is not None:
                process.start(lambda: source.bounced(to, body, condition))

        self.flying += 1
        self._loop.outside(LATENCY_S, arrive)
