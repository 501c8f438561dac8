"""The example of the proto-XEP: people who pass two doors of a closed space.

This module knows who passes which door and when. So it knows the truth, which is
compared with the counter. It only computes: no I/O and no clock.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CHANGES",
    "DOORS",
    "ENTERED",
    "LEFT",
    "Passing",
    "inside",
    "kills",
    "people",
]

#: Event ids of the proto-XEP ("Counting cars or individuals in a closed space").
ENTERED: Final = "Entered"
LEFT: Final = "Left"

#: The event that each door reports, by the name of its account.
DOORS: Final = {"entrance": ENTERED, "exit": LEFT}

#: The change of the number of people inside, for each event.
CHANGES: Final = {ENTERED: 1, LEFT: -1}

#: More enter than leave, so that losing an event at random shows in the result.
_ENTERING = 0.75


@dataclass(frozen=True, slots=True)
class Passing:
    """A person passes a door.

    Attributes:
        number: 0, 1, 2, … in the order of time.
        door: the door that is passed.
        at_s: the time, in seconds from the beginning.
    """

    number: int
    door: str
    at_s: float

    @property
    def event(self) -> str:
        """The id of the event that the door reports."""
        return DOORS[self.door]


def people(seed: int, count: int, *, per_s: float) -> list[Passing]:
    """The passings, in the order of time.

    Args:
        seed: decides everything.
        count: the number of people.
        per_s: the average number of people in a second; they come at random times.
    """
    chance = random.Random(f"{seed}/people")  # noqa: S311 - repeatable, not secret
    passings: list[Passing] = []
    at_s = 0.0
    within = 0
    for number in range(count):
        at_s += chance.expovariate(per_s)
        entering = chance.random() < _ENTERING or within == 0
        within += 1 if entering else -1
        passings.append(Passing(number, "entrance" if entering else "exit", at_s))
    return passings


def kills(seed: int, count: int, *, among: int) -> list[int]:
    """The passings at which a kill is due, one in each of ``count`` stretches."""
    chance = random.Random(f"{seed}/kills")  # noqa: S311 - repeatable, not secret
    edges = [among * place // count for place in range(count + 1)] if count else []
    return [chance.randrange(begin, end) for begin, end in itertools.pairwise(edges)]


def inside(events: Sequence[str]) -> int:
    """How many people are inside after these events."""
    return sum(CHANGES[event] for event in events)
