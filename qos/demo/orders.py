"""The example of a queue: orders to be packed, bees that pack them, and their mishaps.

The seed decides what is ordered and which bee fails when. So this module knows the
truth, which is compared with the bees' books. It only computes: no I/O and no clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

__all__ = [
    "BEES",
    "FAILING",
    "KILLED",
    "Order",
    "fails",
    "kill_after",
    "orders",
    "packing_s",
    "pieces_of",
]

#: The names of the bees' accounts.
BEES: Final = ("anna", "ben", "carl")

#: The bee that sometimes fails, and the bee that is killed.
FAILING: Final = "ben"
KILLED: Final = "carl"

#: No number: a bee that converts it fails.
_POISON = "many"

_PIECES_MAX = 9

#: The share of the orders at which the sometimes failing bee fails.
_FAILING_SHARE = 0.2

#: The time to pack an order, in seconds.
_PACKING_S = (0.05, 0.15)

_NAMESPACE = "xmpp-qos:demo:0"


@dataclass(frozen=True, slots=True)
class Order:
    """An order to be packed.

    Attributes:
        item_id: the id of its item.
        pieces: the number of pieces; a text, since one of them is no number.
    """

    item_id: str
    pieces: str

    @property
    def poisoned(self) -> bool:
        """Whether no bee can pack it."""
        return not self.pieces.isdecimal()

    @property
    def payload(self) -> str:
        """The XML of the item."""
        return f"<order xmlns='{_NAMESPACE}' pieces='{self.pieces}'/>"


def orders(seed: int, count: int) -> list[Order]:
    """The orders: this many that can be packed, and one among them that cannot."""
    chance = _chance(seed, "orders")
    pieces = [str(chance.randint(1, _PIECES_MAX)) for _ in range(count)]
    pieces.insert(chance.randrange(count + 1), _POISON)
    return [Order(f"order-{number}", text) for number, text in enumerate(pieces, 1)]


def pieces_of(payload: ET.Element | None) -> int:
    """The number of pieces that an item asks for.

    Raises:
        ValueError: the item is poisoned.
    """
    return int(payload.get("pieces", "") if payload is not None else "")


def packing_s(seed: int, item_id: str) -> float:
    """The time to pack it, in seconds."""
    return _chance(seed, f"packing {item_id}").uniform(*_PACKING_S)


def fails(seed: int, item_id: str) -> bool:
    """Whether the sometimes failing bee fails at the first try of this item."""
    return _chance(seed, f"failing {item_id}").random() < _FAILING_SHARE


def kill_after(seed: int, count: int) -> int:
    """The number of items after which the bee is killed: at most half of its share."""
    return _chance(seed, "kill").randrange(1 + count // len(BEES) // 2)


def _chance(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{what}")  # noqa: S311 - repeatable, not secret
