"""The notebook of a worker that has no library of ours: a line before each step.

It is in a file of the worker's own, and outlives its process. What the worker has done is
told by the notebook and by what the service has answered, and by nothing else.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from role import open_log

__all__ = ["ACCEPTED", "REJECTED", "Deed", "Deeds", "Notebook", "read_deeds"]

#: What a worker tells the service of an item that ends.
ACCEPTED, REJECTED = "accepted", "rejected"

_TOOK, _GIVES_BACK, _ENDS, _ANSWERED = "took", "gives back", "ends", "answered"


@dataclass(frozen=True, slots=True)
class Deed:
    """The end of an item, as a worker tells it to the service.

    Attributes:
        item: its id.
        outcome: ACCEPTED or REJECTED.
        delivery: tells this delivery from all others.
    """

    item: str
    outcome: str
    delivery: str


@dataclass
class Deeds:
    """The contents of some notebooks.

    Attributes:
        shown: the deliveries of each item with each delivery count.
        given_back: likewise, those that were given back without counting as failed.
        told: the ends that the service was told, or would have been but for a kill.
        answers: whether the service has confirmed them, or refused: then the delivery
            was not the worker's any more.
    """

    shown: Counter[tuple[str, int]] = field(default_factory=Counter)
    given_back: Counter[tuple[str, int]] = field(default_factory=Counter)
    told: dict[str, Deed] = field(default_factory=dict)
    answers: dict[str, bool] = field(default_factory=dict)

    def certain(self, outcome: str) -> Counter[str]:
        """How often each item has this end, as the service has confirmed."""
        return Counter(
            deed.item
            for delivery, deed in self.told.items()
            if deed.outcome == outcome and self.answers.get(delivery)
        )

    @property
    def unanswered(self) -> list[Deed]:
        """The ends that the service has neither confirmed nor refused."""
        return [deed for each, deed in self.told.items() if each not in self.answers]

    @property
    def unmarked(self) -> set[str]:
        """The items that came again and did not say so, by a higher delivery count."""
        return {
            item
            for (item, count), times in self.shown.items()
            if times > 1 + self.given_back[item, count]
        }


class Notebook:
    """Writes a notebook.

    Args:
        path: its file; what is there stays.
    """

    def __init__(self, path: str) -> None:
        self._log = open_log(path)

    def took(self, item: str, count: int) -> None:
        """An item has come, with this delivery count."""
        self._write(what=_TOOK, item=item, count=count)

    def gives_back(self, item: str, count: int) -> None:
        """The item will be given back; that does not count as failed."""
        self._write(what=_GIVES_BACK, item=item, count=count)

    def ends(self, deed: Deed) -> None:
        """The service will be told this."""
        self._write(what=_ENDS, **asdict(deed))

    def answered(self, delivery: str, *, confirmed: bool) -> None:
        """The service has confirmed or refused what it was told."""
        self._write(what=_ANSWERED, delivery=delivery, confirmed=confirmed)

    def _write(self, **entry: object) -> None:
        # One call: a kill leaves a whole line or none.
        os.write(self._log, f"{json.dumps(entry)}\n".encode())


def read_deeds(paths: Iterable[Path]) -> Deeds:
    """Read these notebooks; a missing one is empty."""
    found = Deeds()
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            _take(found, json.loads(line))
    return found


def _take(found: Deeds, entry: dict[str, object]) -> None:
    what = entry.pop("what")
    if what in {_TOOK, _GIVES_BACK}:
        counts = found.shown if what == _TOOK else found.given_back
        counts[str(entry["item"]), int(str(entry["count"]))] += 1
    elif what == _ENDS:
        deed = Deed(**{name: str(value) for name, value in entry.items()})
        found.told[deed.delivery] = deed
    else:
        found.answers[str(entry["delivery"])] = bool(entry["confirmed"])
