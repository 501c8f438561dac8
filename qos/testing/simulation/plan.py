"""What a run is made of, all of it explicit: the same plan gives the same run.

A plan is made of a seed, and can be made smaller: without some of its faults or of its
work it is a plan as well. That is what makes a failure short (`shrinking`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from qos.core.model import Level

__all__ = [
    "FAILS_MAX",
    "FAULTS",
    "MACHINES",
    "RECEIVERS",
    "SENDERS",
    "STANZA_FAULTS",
    "TEXT_SENDERS",
    "TIMED_FAULTS",
    "TROUBLE_S",
    "WORKERS",
    "Fault",
    "Plan",
    "PlannedItem",
    "PlannedMessage",
    "Settings",
    "jid_of",
    "plan_of",
]

#: Faults begin in this time, seconds; then all is mended, and everything must end.
TROUBLE_S = 20.0

#: Longer than anything takes: a deadline that comes if nothing else does.
LONG_S = 300.0

#: Failed deliveries after which an item is dead.
FAILS_MAX = 3

#: Senders of ours, two devices that know the text alone, receivers, workers, and all.
SENDERS = ("ann",)
TEXT_SENDERS = ("bob-1", "bob-2")
RECEIVERS = ("lamp", "bell")
WORKERS = ("bee", "wasp")
MACHINES = (*SENDERS, *TEXT_SENDERS, *RECEIVERS, "hive", "shop", *WORKERS)

#: How each kind of fault reads. {at} is a moment, or the how many-th.
FAULTS = {
    "lose": "the network loses stanza {at:.0f} of {target}",
    "duplicate": "the network delivers stanza {at:.0f} of {target} twice, the second "
    "time {seconds:.2f} s later",
    "delay": "the network holds stanza {at:.0f} of {target} up for {seconds:.2f} s, "
    "and all behind it",
    "late": "the network delivers stanza {at:.0f} of {target} {seconds:.2f} s late, "
    "whoever has reconnected meanwhile",
    "unsure": "the network delivers stanza {at:.0f} of {target}, and says that it "
    "may not have",
    "cut": "at {at:.2f} s {target} loses its connection, for {seconds:.2f} s",
    "partition": "at {at:.2f} s nothing goes from or to {target}, for {seconds:.2f} s",
    "kill": "at {at:.2f} s {target} is killed, for {seconds:.2f} s{how}",
    "die": "{target} is killed at its effect {at:.0f}, for {seconds:.2f} s{how}",
    "stop": "at {at:.2f} s {target} is stopped, for {seconds:.2f} s",
    "jump": "at {at:.2f} s the clock of {target} is set by {seconds:+.0f} s",
    "leave": "at {at:.2f} s {target} is asked to stop, and starts again",
    "wipe": "at {at:.2f} s {target} is killed, for {seconds:.2f} s, and has a new disk",
    "full": "the disk of {target} is full at commit {at:.0f}, for {seconds:.0f} commits",
    "error": "the disk of {target} fails with EIO at commit {at:.0f}, for "
    "{seconds:.0f} commits",
}


#: Those that are about a stanza, and those that have their moment.
STANZA_FAULTS = frozenset({"lose", "duplicate", "delay", "late", "unsure"})
TIMED_FAULTS = frozenset({"cut", "partition", "kill", "stop", "jump", "wipe", "leave"})


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        kind: one of FAULTS.
        target: one of MACHINES.
        at: seconds after the start, or the how many-th stanza, effect or commit.
        seconds: how long, or by how much; of a disk, how many commits.
        how: `resource`: it comes back under another resource.
    """

    kind: str
    target: str
    at: float
    seconds: float = 0.0
    how: str = ""

    def __str__(self) -> str:
        how = ", and comes back under another resource" if self.how else ""
        return FAULTS[self.kind].format(
            target=self.target, at=self.at, seconds=self.seconds, how=how
        )


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message that an application wants to send.

    Attributes:
        number: names it.
        at: when, seconds after the start.
        sender: the machine.
        to: a JID, full or bare.
        level: acknowledged or assured.
        ordered: as for Outbox.submit.
        deadline_s: likewise.
        withdrawn_s: it is taken back so long after its acceptance; None: it is not.
        taking_s: how long the receiving application takes it.
    """

    number: int
    at: float
    sender: str
    to: str
    level: Level
    ordered: bool = False
    deadline_s: float | None = None
    withdrawn_s: float | None = None
    taking_s: float = 0.0

    def __str__(self) -> str:
        words = [f"at {self.at:.2f} s {self.sender} sends {self.number} to {self.to}"]
        words.append(self.level.value)
        words += ["ordered"] * self.ordered
        if self.deadline_s is not None:
            words.append(f"deadline {self.deadline_s:.2f} s")
        if self.withdrawn_s is not None:
            words.append(f"withdrawn {self.withdrawn_s:.2f} s later")
        if self.taking_s:
            words.append(f"taken in {self.taking_s:.2f} s")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """An item that is put into the queue.

    Attributes:
        item_id: names it.
        at: when, seconds after the start.
        works_s: how long a worker works on it.
        fails: how many times a worker fails on it.
    """

    item_id: str
    at: float
    works_s: float = 0.0
    fails: int = 0

    def __str__(self) -> str:
        fails = f", fails {self.fails} times" if self.fails else ""
        return (
            f"at {self.at:.2f} s {self.item_id} is published, takes "
            f"{self.works_s:.2f} s{fails}"
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """How the machines are set up.

    Attributes:
        quota: messages that a receiver holds for one account.
        window: messages under way to one account.
        hold_ttl_s: how long a receiver holds a message.
        lock_s: how long a lock of an item lasts.
        durable_locks: of the workers.
        shared: both receivers are devices of one account, and both workers.
    """

    quota: int = 20
    window: int = 8
    hold_ttl_s: float = 30.0
    lock_s: float = 10.0
    durable_locks: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        seed: decides what is left: latencies, jitter.
        settings: of the machines.
        faults: what goes wrong.
        messages: what is sent.
        items: what is published.
    """

    seed: int
    settings: Settings = Settings()
    faults: tuple[Fault, ...] = ()
    messages: tuple[PlannedMessage, ...] = ()
    items: tuple[PlannedItem, ...] = ()


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    settings = Settings(
        quota=chance.choice((3, 20)),
        window=chance.choice((2, 8)),
        hold_ttl_s=chance.choice((4.0, 30.0, LONG_S)),
        lock_s=chance.choice((3.0, 10.0)),
        durable_locks=chance.random() < 0.25,
        shared=chance.random() < 0.4,
    )
    # Now and then a quiet world: few faults find what many hide.
    busy = chance.choice((0.3, 1.0, 1.0, 2.0))
    wipes = chance.random() < 0.25
    makers = [_network, _network, _machine, _machine, _effect, _disk]
    count = 1 + int(busy * chance.randrange(4, 24))
    faults = [chance.choice(makers)(chance, wipes=wipes) for _ in range(count)]
    # What is not held any more may have no other end than its deadline (protocol.md §4).
    patient = settings.hold_ttl_s == LONG_S and not any(
        each.kind == "jump" and each.target in RECEIVERS for each in faults
    )
    return Plan(
        seed=seed,
        settings=settings,
        faults=tuple(sorted(faults, key=lambda each: (each.at, each.target))),
        messages=_messages(chance, settings, patient=patient),
        items=_items(chance),
    )


def _messages(
    chance: random.Random, settings: Settings, *, patient: bool
) -> tuple[PlannedMessage, ...]:
    ordered = chance.random() < 0.3
    # Some that go where others go: a window and a quota are of an account.
    lamp, bell = (jid_of(name, settings) for name in RECEIVERS)
    targets = chance.sample((lamp, lamp.partition("/")[0], bell), 2)
    longest = None if patient else LONG_S
    made = []
    for number in range(chance.randrange(5, 13)):
        acknowledged = chance.random() < 0.2
        made.append(
            PlannedMessage(
                number=number,
                at=chance.random() * chance.choice((1.0, 12.0)),
                sender=chance.choice((*SENDERS * 3, *TEXT_SENDERS)),
                to=chance.choice(targets),
                level=Level.ACKNOWLEDGED if acknowledged else Level.ASSURED,
                ordered=ordered,
                deadline_s=chance.choice((longest, longest, chance.uniform(0.05, 8.0))),
                withdrawn_s=chance.choice((*(None,) * 9, chance.uniform(0, 3.0))),
                taking_s=chance.choice((0.0, 0.0, chance.uniform(0.0, 1.0))),
            )
        )
    return tuple(sorted(made, key=lambda each: each.at))


def _items(chance: random.Random) -> tuple[PlannedItem, ...]:
    made = [
        PlannedItem(
            item_id=f"item-{number}",
            at=chance.random() * chance.choice((1.0, 12.0)),
            works_s=chance.choice(
                (0.0, chance.uniform(0, 1.0), chance.uniform(0, 6.0))
            ),
            fails=chance.choice((0, 0, 0, 1, FAILS_MAX)),
        )
        for number in range(chance.randrange(2, 7))
    ]
    return tuple(sorted(made, key=lambda each: each.at))


def jid_of(name: str, settings: Settings) -> str:
    """The full JID of a machine, as long as it has no reason for another."""
    return {
        "bob-1": "bob@x/1",
        "bob-2": "bob@x/2",
        "bell": "lamp@x/2" if settings.shared else "bell@x/1",
        "wasp": "bee@x/2" if settings.shared else "wasp@x/1",
    }.get(name, f"{name}@x/1")


# -- what goes wrong -------------------------------------------------------


def _network(chance: random.Random, *, wipes: bool) -> Fault:
    target = chance.choice(MACHINES)
    kinds = ["lose", "lose", "delay", "duplicate", "unsure", "cut", "partition"]
    # By the text alone, an old stanza that comes late is a new message.
    kinds += ["late", "late"] if target not in TEXT_SENDERS else []
    kind = chance.choice(kinds)
    if kind in {"cut", "partition"}:
        seconds = chance.choice((0.1, 1.0, 10.0)) * chance.random()
        return Fault(kind, target, chance.random() * TROUBLE_S, seconds)
    stanza = chance.randrange(1, chance.choice((6, 20, 60)))
    seconds = chance.choice((0.05, 1.0, 10.0)) * chance.random()
    if kind in {"lose", "unsure"} or (kind == "duplicate" and target in TEXT_SENDERS):
        seconds = 0.0
    return Fault(kind, target, stanza, seconds)


def _machine(chance: random.Random, *, wipes: bool) -> Fault:
    target = chance.choice(MACHINES)
    kinds = ["kill", "kill", "stop", "jump"]
    if wipes and target in RECEIVERS:
        kinds += ["wipe", "wipe"]
    if target in WORKERS:
        kinds += ["leave"]
    kind = chance.choice(kinds)
    seconds = chance.choice((0.1, 1.0, 10.0)) * chance.random()
    if kind == "jump":
        seconds = chance.choice((-3600.0, -5.0, 5.0, 1800.0))
    return Fault(
        kind,
        target,
        chance.random() * TROUBLE_S,
        seconds,
        _resource(chance, target) if kind == "kill" else "",
    )


def _effect(chance: random.Random, *, wipes: bool) -> Fault:
    target = chance.choice(MACHINES)
    effect = chance.randrange(1, chance.choice((10, 30, 80)))
    seconds = chance.choice((0.1, 1.0, 10.0)) * chance.random()
    return Fault("die", target, effect, seconds, _resource(chance, target))


def _resource(chance: random.Random, target: str) -> str:
    return "resource" if target != "hive" and chance.random() < 0.25 else ""


def _disk(chance: random.Random, *, wipes: bool) -> Fault:
    target = chance.choice(("ann", "bob-1", "bob-2", "lamp", "bell", "hive"))
    commit = chance.randrange(1, chance.choice((6, 20, 40)))
    return Fault(
        chance.choice(("full", "error")), target, commit, chance.randrange(1, 6)
    )
