"""Unsettled deliveries of suspended links, kept in memory for their next links (messaging §3.4.6).

At a link to a consumer we are the sender: a delivery is held, or has an outcome. At a
link from a publisher we are the receiver: a delivery has an outcome, or is being
written, and of one delivery there may be a part of its message.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from proton import Condition, Session

from qos.amqp.termini import Expiry
from qos.core.amqp.positions import position_of
from qos.core.amqp.resuming import State
from qos.core.queue.item import ItemOutcome
from qos.core.strings import bare

__all__ = [
    "KEPT_MAX",
    "KEPT_PER_ACCOUNT_MAX",
    "Publication",
    "Publications",
    "Sent",
    "Unsettled",
]

#: The most suspended links of each direction whose deliveries are kept, and those of one
#: account. Of the account that has the most the oldest link is forgotten first, and a
#: delivery that is forgotten is sent again as a new one.
KEPT_MAX = 250
KEPT_PER_ACCOUNT_MAX = KEPT_MAX // 2

#: By token, the outcome of a delivery to a consumer; None: it has none that we know.
Sent: TypeAlias = dict[str, ItemOutcome | None]

#: The account, the container-id and the link name.
LinkName: TypeAlias = tuple[str, str, str]

_Link = TypeVar("_Link")
_Kept = TypeVar("_Kept")


@dataclass(slots=True)
class Publication:
    """A message from a publisher, which has not settled it.

    Attributes:
        outcome: of the delivery; None: it is being written.
        condition: with rejected.
    """

    outcome: ItemOutcome | None = None
    condition: Condition | None = None


@dataclass(slots=True, eq=False)
class Publications:
    """The unsettled deliveries of one link from a publisher.

    Attributes:
        deliveries: by delivery-tag.
        part_tag: the tag of the delivery of which only a part has come.
        part: that part.
        node: of the link; None: each message names its own.
        until: when they are forgotten.
    """

    node: str | None
    deliveries: dict[bytes, Publication] = field(default_factory=dict)
    part_tag: bytes = b""
    part: bytes = b""
    until: float = math.inf
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def states(self) -> dict[bytes, State]:
        """The states of the deliveries, for our map of unsettled ones."""
        states: dict[bytes, State] = {
            tag: publication.outcome for tag, publication in self.deliveries.items()
        }
        if self.part:
            states[self.part_tag] = position_of(self.part)
        return states

    def forget(self, keep: Callable[[bytes], bool]) -> None:
        """Forget all deliveries whose tags are not to be kept."""
        self.deliveries = {
            tag: publication
            for tag, publication in self.deliveries.items()
            if keep(tag)
        }
        if not keep(self.part_tag):
            self.part = b""

    def when_known(self, call: Callable[[], None]) -> None:
        """Call when every delivery has its outcome."""
        self._waiting.append(call)
        self.known()

    def known(self) -> None:
        """Note that a delivery has its outcome."""
        if all(
            publication.outcome is not None for publication in self.deliveries.values()
        ):
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()


class Unsettled:
    """The unsettled deliveries of all suspended links."""

    def __init__(self) -> None:
        # To consumers, by the full JID of their terminus.
        self._sent: dict[str, Sent] = {}
        self._published: dict[LinkName, Publications] = {}

    def clear(self) -> None:
        """Forget all."""
        self._sent.clear()
        self._published.clear()

    def keep_sent(self, jid: str, deliveries: Sent) -> None:
        """Keep the unsettled deliveries of a link to a consumer."""
        self._sent[jid] = deliveries
        _make_room(self._sent, bare, bare(jid))

    def sent(self, jid: str) -> Sent:
        """Take out the unsettled deliveries of the link of this full JID."""
        return self._sent.pop(jid, {})

    def keep_published(self, name: LinkName, published: Publications) -> None:
        """Keep the unsettled deliveries of a link from a publisher."""
        published.until = math.inf
        self._published[name] = published
        _make_room(self._published, _account, _account(name))

    def published(
        self, name: LinkName, node: str | None, now: float
    ) -> Publications | None:
        """Take out the unsettled deliveries of a publisher's link by its name; None: none kept."""
        for old in [
            key
            for key, publications in self._published.items()
            if publications.until <= now
        ]:
            del self._published[old]
        publications = self._published.pop(name, None)
        return (
            None if publications is None or publications.node != node else publications
        )


def _account(name: LinkName) -> str:
    return name[0]


def _make_room(
    links: dict[_Link, _Kept], account_of: Callable[[_Link], str], account: str
) -> None:
    """Forget a link if there are too many, now that this account has one more."""
    counts = Counter(map(account_of, links))
    if counts[account] <= KEPT_PER_ACCOUNT_MAX:
        if len(links) <= KEPT_MAX:
            return
        ((account, _),) = counts.most_common(1)
    del links[next(link for link in links if account_of(link) == account)]


@dataclass(slots=True)
class Away:
    """A link from a publisher that is suspended, on a connection that is there.

    Attributes:
        published: its deliveries.
        expiry: of its terminus.
        session: its session.
    """

    published: Publications
    expiry: Expiry
    session: Session | None

    def ended(self, scope: int, now: float) -> None:
        """Start the expiry timer, if this event starts it."""
        seconds = self.expiry.after(scope)
        if seconds is not None:
            self.published.until = min(self.published.until, now + seconds)
