"""The example of a queue: orders to be packed, bees that pack them, and what goes wrong.

It knows by the seed what is ordered and who fails when, and so the truth that the
bees' books are compared with. It does nothing itself: no I/O and no clock.
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

#: The one that fails at times, and the one that is killed.
FAILING: Final = "ben"
KILLED: Final = "carl"

#: Who takes this for a number fails.
_POISON = "many"

_PIECES_MAX = 9

#: Of the orders that a bee gets that fails at times.
_FAILING_SHARE = 0.2

#: What it takes to pack an order.
_PACKING_S = (0.05, 0.15)

_NAMESPACE = "xmpp-qos:demo:0"


@dataclass(frozen=True, slots=True)
class Order:
    """An order to be packed.

    Attributes:
        item_id: of the item that it is in.
        pieces: how many; text, since one of them is no number.
    """

    item_id: str
    pieces: str

    @property
    def poisoned(self) -> bool:
        """Whether nobody can pack it."""
        return not self.pieces.isdecimal()

    @property
    def payload(self) -> str:
        """The XML of the item."""
        return f"<order xmlns='{_NAMESPACE}' pieces='{self.pieces}'/>"


def orders(seed: int, count: int) -> list[Order]:
    """What is ordered: so many that can be packed, and one among them that cannot."""
    chance = _chance(seed, "orders")
    pieces = [str(chance.randint(1, _PIECES_MAX)) for _ in range(count)]
    pieces.insert(chance.randrange(count + 1), _POISON)
    return [Order(f"order-{number}", text) for number, text in enumerate(pieces, 1)]


def pieces_of(payload: ET.Element | None) -> int:
    """How many pieces an item asks for.

    Raises:
        ValueError: it is poisoned.
    """
    return int(payload.get("pieces", "") if payload is not None else "")


def packing_s(seed: int, item_id: str) -> float:
    """How long it takes to pack it."""
    return _chance(seed, f"packing {item_id}").uniform(*_PACKING_S)


def fails(seed: int, item_id: str) -> bool:
    """Whether the bee that fails at times fails at this item, if it is its first try."""
    return _chance(seed, f"failing {item_id}").random() < _FAILING_SHARE


def kill_after(seed: int, count: int) -> int:
    """The bee is killed when it has got so many items: none to half of its share."""
    return _chance(seed, "kill").randrange(1 + count // len(BEES) // 2)


def _chance(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{what}")  # noqa: S311 - repeatable, not secret
