"""A small fleet from a seed: its events, and the journals of its nodes.

It has hubs and devices, siblings of one account, pairs of devices with the same full
JID, a component, strangers without journals, a queue service and its workers. Nodes are restarted, killed, or cut off from
power; journals are off for a while; clocks differ; messages take days. Without planted
faults, none of this is an anomaly.

Written only from the documented schema of the journal: it imports nothing of the
product.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from items import ItemTraffic
from nodes import SECOND, Boot, Line, Node
from traffic import Message, Traffic

__all__ = ["FAULTS", "HIDDEN", "TWIN", "Fault", "Fleet", "Plan", "fleet"]

#: The folders of journals, besides the one of all other nodes. In HIDDEN no file is
#: closed.
TWIN, HIDDEN = "twin", "hidden"

#: The faults that can be planted, and the verdict that each deserves.
FAULTS = ("lost", "duplicated", "orphaned", "stuck", "in-doubt")

#: 2026-01-05T22:00:00Z.
START = 1_767_650_400 * SECOND
HOUR = 3600 * SECOND

#: The times at which the fleet works: three nights, the second followed by a day of
#: rest.
SHIFTS = tuple(
    (START + day * 24 * HOUR, START + (day * 24 + 4) * HOUR) for day in (0, 1, 3)
)

#: A clock is off by less, so that two of them differ by less than a minute. One clock
#: is the exception: it is wrong for a while, and then is set back.
OFFSET_MAX = 25 * SECOND
SET_BACK = 24 * HOUR

#: Nodes whose last lines are always given. Other nodes have no message that waits for
#: hours: it could not be known whether it waits forever.
PATIENT = ("hub@{}/main", "dev1@{}/a", "dev3@{}/a", "gate.{}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a fleet.

    Attributes:
        versions: of the schema, one of them for each node.
        faults: the number of each of FAULTS.
        domain: the domain of its nodes, so that several fleets can be told apart.
    """

    seed: int
    messages: int = 200
    items: int = 20
    faults: int = 0
    versions: tuple[int, ...] = (1, 2)
    domain: str = "x"

    @property
    def patient(self) -> list[str]:
        """The nodes of PATIENT."""
        return [jid.format(self.domain) for jid in PATIENT]


class Fault(NamedTuple):
    """A message that really went wrong: its sender's account and id."""

    kind: str
    sender: str
    msg_id: str


@dataclass(slots=True)
class Fleet:
    """The history of a fleet.

    Attributes:
        now: the time of the audit.
        boots: the lines of each boot, as they were written.
        running: the boots that have not ended: their last file is not closed.
        patient: nodes whose last lines are given.
        faults: all messages that really went wrong.
    """

    now: int
    boots: list[list[Line]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    patient: list[str] = field(default_factory=list)
    faults: set[Fault] = field(default_factory=set)


def fleet(plan: Plan) -> Fleet:
    """Make a fleet, and let it work."""
    chance = random.Random(f"fleet {plan.seed} {plan.domain}")
    nodes = _nodes(plan, chance)
    strangers = [Node(f"s{n}@{plan.domain}.elsewhere/1", 1) for n in (1, 2)]
    for stranger in strangers:
        _life(stranger, chance, plan)
    made = Fleet(now=SHIFTS[-1][1] + 600 * SECOND, patient=plan.patient)
    patient = [node for node in nodes if node.jid in plan.patient]
    traffic = Traffic(chance, nodes, strangers, patient, SHIFTS)
    for _ in range(plan.messages):
        traffic.normal()
    for kind in FAULTS:
        for _ in range(plan.faults):
            message: Message = traffic.faulty(kind)
            made.faults.add(Fault(kind, message.account, message.msg_id))
    service, *workers = (node for node in nodes if "queue" in node.jid)
    queue = ItemTraffic(chance, service, workers, nodes[0], SHIFTS)
    for _ in range(plan.items):
        queue.item()
    _set_back(nodes[4], chance)
    for node in nodes:
        made.boots += node.journal()
        made.running |= {boot.name for boot in node.boots if boot.ending == "open"}
    return made


def _nodes(plan: Plan, chance: random.Random) -> list[Node]:
    jids = (
        *("hub@{}/main", "dev1@{}/a", "dev1@{}/b", "dev2@{}/a", "dev3@{}/a"),
        *("dev4@{}/a", "gate.{}", "queue.{}", "worker1@queue.{}/w"),
        "worker2@queue.{}/w",
    )
    nodes = [
        Node(jid.format(plan.domain), chance.choice(plan.versions)) for jid in jids
    ]
    for node in nodes:
        node.offset = chance.randint(-OFFSET_MAX, OFFSET_MAX)
        _life(node, chance, plan)
    nodes += _namesakes(plan, chance)
    # The sibling has no journal at first, and another device never has one.
    for boot in nodes[2].boots:
        boot.kept = boot.begin > SHIFTS[1][0]
    for boot in nodes[5].boots:
        boot.kept = False
    # The journal of one node is off for a while: none of its boots of a night are kept.
    for boot in nodes[3].boots:
        boot.kept = not SHIFTS[1][0] <= boot.begin < SHIFTS[1][1]
    return nodes


def _namesakes(plan: Plan, chance: random.Random) -> list[Node]:
    """Two pairs of devices with the same full JID, each with a folder of its own.

    Of the second pair, one device has a single boot with a journal, in the last night.
    """
    nodes = [
        Node(jid.format(plan.domain), max(plan.versions), folder=folder)
        for jid, folder in (
            *(("dev5@{}/a", ""), ("dev5@{}/a", TWIN)),
            *(("dev6@{}/a", ""), ("dev6@{}/a", HIDDEN)),
        )
    ]
    for node in nodes:
        node.offset = chance.randint(-OFFSET_MAX, OFFSET_MAX)
        _life(node, chance, plan)
    # The journal of a twin is off in the second night.
    for boot in nodes[1].boots:
        boot.kept = not SHIFTS[1][0] <= boot.begin < SHIFTS[1][1]
    *former, last = nodes[3].boots
    for boot in former:
        boot.kept = False
    last.ending, last.lost_tail = "open", 0
    return nodes


def _set_back(node: Node, chance: random.Random) -> None:
    """At the beginning of the first night, its clock shows the second night, until it
    is set right.
    """
    boot = node.boots[0]
    boot.lost_tail = 0
    times = sorted(at for at, *_ in boot.happened)
    if len(times) > 1:
        # There are events before and after; otherwise it could not be noticed.
        node.set_back = (boot.begin, chance.choice(times[1:]), SET_BACK)


def _life(node: Node, chance: random.Random, plan: Plan) -> None:
    """Boots for all shifts: restarts and kills between them."""
    for begin, end in SHIFTS:
        time = begin + chance.randint(0, 60 * SECOND)
        parts = chance.choice((1, 1, 2, 3))
        cuts = [chance.randint(begin, end - HOUR // 4) for _ in range(parts - 1)]
        for cut in (*sorted(cuts), end):
            if cut - time < 300 * SECOND:
                continue
            ending = chance.choice(("closed", "killed"))
            if cut == SHIFTS[-1][1] and node.jid in plan.patient:
                ending = "closed"
            elif cut == SHIFTS[-1][1]:
                ending = chance.choice(("open", "closed"))
            boot = Boot(f"{chance.getrandbits(64):016x}", time, cut, ending)
            if ending == "killed":
                # A power cut also loses lines that were not on the disk yet.
                boot.lost_tail = chance.choice((0, 0, 1, 2, 3))
            node.boots.append(boot)
            time = cut + chance.randint(3 * SECOND, 60 * SECOND)
