"""The links that are attached, each found by its own identity.

A name tells which terminus a link goes on with, and nothing else: a peer may use one name
on several sessions and connections. So a link is found by its frames (the channel, the
name and the role of its attach) or by proton's link, and links of one name stand beside
each other until the earlier one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proton import Link, Session

from qos.amqp.deliveries import Delivery, address_of
from qos.amqp.termini import Expiry
from qos.core.amqp.frame_parts import Attach, LinkKey
from qos.core.registry import register

__all__ = [
    "Attached",
    "AttachedLinks",
    "FullName",
    "LinkOwner",
    "LinksByName",
    "OurLink",
]

#: The account, the container-id, the name of a link, and whether we are the sender.
FullName: TypeAlias = tuple[str, str, str, bool]


class OurLink(Protocol):
    """Our end of a link, of any kind."""

    def flow(self) -> None:
        """Take the flow of the peer: its credit, or its wish to drain the link."""

    def delivery(self, delivery: Delivery) -> None:
        """Take the news of a delivery: bytes, or a state."""

    def end(self, *, released: bool) -> None:
        """The link is gone; `released`: the peer has ended it in order."""


class LinkOwner(Protocol):
    """The links of a connection, as other connections know them."""

    def stolen(self, attached: Attached, *, released: bool) -> None:
        """End a link whose name is attached elsewhere; `released`: by the same peer."""


@dataclass(slots=True, eq=False)
class Attached:
    """A link that is attached, or waits for its node.

    Attributes:
        owner: the links of its connection.
        link: proton's.
        full_name: the name of its terminus, and its direction.
        attach: the attach of the peer.
        jid: a full JID of its own: of 128 random bits, and nobody else's.
        session: its session.
        expiry: of a terminus that may outlive the link; None: it cannot.
        node: the node that counts it as a link; '': none.
        ours: its end here; None: its node is being made.
    """

    owner: LinkOwner
    link: Link
    full_name: FullName
    attach: Attach
    jid: str
    session: Session
    expiry: Expiry | None
    node: str = ""
    ours: OurLink | None = None

    @property
    def keeps(self) -> bool:
        """Whether its terminus may outlive the link."""
        return self.expiry is not None and self.expiry.keeps


class AttachedLinks:
    """The attached links of one connection."""

    def __init__(self) -> None:
        # By the address of proton's link, which lives as long as its entry.
        self._by_address: dict[int, Attached] = {}
        self._by_key: dict[LinkKey, Attached] = {}

    def __len__(self) -> int:
        return len(self._by_address)

    def __iter__(self) -> Iterator[Attached]:
        return iter(list(self._by_address.values()))

    def __contains__(self, attached: Attached) -> bool:
        return self.at(address_of(attached.link)) is attached

    def add(self, attached: Attached) -> None:
        """Add a link."""
        register(self._by_address, address_of(attached.link), attached)
        register(self._by_key, attached.attach.key, attached)

    def remove(self, attached: Attached) -> None:
        """Remove a link."""
        del self._by_address[address_of(attached.link)]
        del self._by_key[attached.attach.key]

    def at(self, address: int) -> Attached | None:
        """The link of this address of proton; None: it is refused, or has ended."""
        return self._by_address.get(address)

    def of_key(self, key: LinkKey) -> Attached | None:
        """The link of these frames; None: it is refused, or has ended."""
        return self._by_key.get(key)


class LinksByName:
    """The attached links of all connections by their names."""

    def __init__(self) -> None:
        self._links: dict[FullName, list[Attached]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._links.values()))

    def of(self, name: FullName) -> list[Attached]:
        """The links of this name, the earliest first."""
        return list(self._links.get(name, ()))

    def add(self, attached: Attached) -> None:
        """Add a link beside those of its name."""
        self._links.setdefault(attached.full_name, []).append(attached)

    def remove(self, attached: Attached) -> None:
        """Remove a link, and no other one of its name."""
        links = self._links[attached.full_name]
        links.remove(attached)
        if not links:
            del self._links[attached.full_name]
