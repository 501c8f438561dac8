"""The place of a pull consumer in its sequence of messages.

A link to the next message names the delivery that it comes after. So a post to it says
that this delivery has arrived; the same post again asks for the same message; and a link
of earlier in the sequence asks for something that is over.

::

            take                        settle
    BEGUN ────────▶ GIVEN ───────────────────────▶ SETTLED
                      ▲                               │
                      └────────────── take ───────────┘

BEGUN is a new consumer too, and one that is made again after a restart: nothing is known
of its earlier links, so that each of them goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from qos.core.record import record

__all__ = ["ALLOWED", "START", "Link", "Place", "Position"]

#: The delivery before the first one.
START = "0"


class Place(Enum):
    """The states of a consumer."""

    BEGUN = "begun"
    GIVEN = "given"
    SETTLED = "settled"


class Link(Enum):
    """The place of a link in the deliveries of a consumer."""

    #: It comes after the latest delivery.
    NEXT = "next"
    #: It has given the latest delivery.
    AGAIN = "again"
    #: It is of earlier, or of nobody.
    OTHER = "other"


#: Which links can be posted to, by the place and by whether a post acknowledges what came
#: before. All others are out of step.
ALLOWED: Mapping[tuple[Place, bool], frozenset[Link]] = {
    (Place.BEGUN, True): frozenset(Link),
    (Place.BEGUN, False): frozenset(Link),
    (Place.GIVEN, True): frozenset({Link.NEXT, Link.AGAIN}),
    # The delivery has to be acknowledged first.
    (Place.GIVEN, False): frozenset({Link.AGAIN}),
    (Place.SETTLED, True): frozenset({Link.NEXT}),
    (Place.SETTLED, False): frozenset({Link.NEXT}),
}


@record(frozen=True, slots=True)
class Position:
    """A place in the sequence.

    Attributes:
        auto: a post for the next message acknowledges the one before.
        place: what was last.
        last: the latest delivery.
        asked: the delivery that the link named which gave the latest one; None: unknown,
            so that it may be any but the latest one itself.
    """

    auto: bool
    place: Place = Place.BEGUN
    last: str = START
    asked: str | None = None

    def allows(self, after: str) -> bool:
        """Whether the link after this delivery can be posted to."""
        return self._link(after) in ALLOWED[self.place, self.auto]

    def acknowledges(self, after: str) -> bool:
        """Whether a post to this link says that its delivery has arrived."""
        is_first = self.place is Place.BEGUN and after != START
        return self.auto and (
            is_first or (self.place is Place.GIVEN and after == self.last)
        )

    def given(self, delivery: str, after: str) -> Position:
        """The place after a delivery by the link after another one."""
        return Position(self.auto, Place.GIVEN, delivery, after)

    def settled(self, delivery: str) -> Position:
        """The place after a delivery has ended; unchanged if the delivery is an earlier one."""
        if self.place is Place.GIVEN and delivery != self.last:
            return self
        return Position(self.auto, Place.SETTLED, delivery)

    def nothing(self, after: str) -> Position:
        """The place after a post to this link that gave no message: the link is due again."""
        return Position(self.auto, Place.SETTLED, after)

    def _link(self, after: str) -> Link:
        if after == self.last:
            return Link.NEXT
        if self.place is Place.GIVEN and self.asked in {None, after}:
            return Link.AGAIN
        return Link.OTHER
