"""Deliveries of proton, without the objects that its Python API makes for each.

An event of `proton.Collector` comes with six objects: the delivery, its link, session,
connection and transport, and the event. They take most of the time that proton needs
for a message. So for what is done with each message this module calls the C functions
of proton by their own names (`cproton`, which is under the Python API, and has the same
functions in all versions of it). All else is done by the Python API.
"""

from __future__ import annotations

from typing import Any

import cproton  # type: ignore[import-untyped]
import proton
from proton import Collector, Disposition, Link, Sender

__all__ = ["Delivery", "address_of", "next_delivery", "transfer"]


class Delivery:
    """A delivery; see proton.Delivery.

    Two are equal if they stand for the same one.
    """

    __slots__ = ("_impl", "_whole")

    ACCEPTED = proton.Delivery.ACCEPTED
    REJECTED = proton.Delivery.REJECTED
    RELEASED = proton.Delivery.RELEASED
    MODIFIED = proton.Delivery.MODIFIED

    def __init__(self, impl: Any) -> None:
        """Take the delivery of C, and keep it in memory."""
        self._impl = impl
        self._whole: proton.Delivery | None = None
        _keep(impl)

    def __del__(self) -> None:
        _let_go(self._impl)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delivery) and bool(self._impl == other._impl)

    def __hash__(self) -> int:
        return _address(self._impl)

    # -- what is done with each message --------------------------------------

    @property
    def link(self) -> int:
        """The address of its link, as long as that is there."""
        return _address(cproton.pn_delivery_link(self._impl))

    @property
    def tag(self) -> str:
        """The delivery-tag."""
        return str(cproton.pn_delivery_tag(self._impl))

    @property
    def aborted(self) -> bool:
        """Whether its sender has given it up."""
        return bool(cproton.pn_delivery_aborted(self._impl))

    @property
    def readable(self) -> bool:
        """Whether it comes in, and something of it has come."""
        return bool(cproton.pn_delivery_readable(self._impl))

    @property
    def partial(self) -> bool:
        """Whether more of its message is to come."""
        return bool(cproton.pn_delivery_partial(self._impl))

    @property
    def pending(self) -> int:
        """The bytes that have come and are not read, or that wait to be sent."""
        return int(cproton.pn_delivery_pending(self._impl))

    @property
    def settled(self) -> bool:
        """Whether the peer has settled it."""
        return bool(cproton.pn_delivery_settled(self._impl))

    @property
    def unasked(self) -> bool:
        """Whether it comes in, is the current one, and its link has no credit for it."""
        # Proton takes the credit of a delivery back with `advance`.
        link = cproton.pn_delivery_link(self._impl)
        return self.readable and int(cproton.pn_link_credit(link)) <= 0

    @property
    def remote_state(self) -> int:
        """The state at the peer."""
        return int(cproton.pn_delivery_remote_state(self._impl))

    def read(self) -> bytes:
        """Take the bytes that have come."""
        # Not more than there is: proton makes a buffer of the size that is asked for.
        size = self.pending
        if not size:
            return b""
        link = cproton.pn_delivery_link(self._impl)
        length, content = cproton.pn_link_recv(link, size)
        return bytes(content) if length > 0 else b""

    def advance(self) -> None:
        """Let the next delivery of the link be the current one."""
        cproton.pn_link_advance(cproton.pn_delivery_link(self._impl))

    def drop(self) -> None:
        """Drop the bytes that have come; the next delivery is the current one at the end."""
        if self.aborted:
            self.settle()
        elif self.readable:
            self.read()
            if not self.partial:
                self.advance()

    def update(self, state: int) -> None:
        """Set our state, with what was written into `local`."""
        if self._whole is not None:
            self._whole.update(state)
        else:
            cproton.pn_delivery_update(self._impl, state)

    def settle(self) -> None:
        """Settle it."""
        cproton.pn_delivery_settle(self._impl)

    # -- what is done with few -----------------------------------------------

    @property
    def whole(self) -> proton.Delivery:
        """The same by the Python API."""
        if self._whole is None:
            self._whole = proton.Delivery(self._impl)  # type: ignore[no-untyped-call]
        return self._whole

    @property
    def local(self) -> Disposition:
        """Our disposition, to be sent by `update`."""
        return self.whole.local

    @property
    def remote(self) -> Disposition:
        """The disposition of the peer."""
        return self.whole.remote


def next_delivery(collector: Collector) -> Delivery | None:
    """The delivery of the next event, which stays there.

    None: it is another event, or there is none.
    """
    event = cproton.pn_collector_peek(collector._impl)
    if _is_null(event) or cproton.pn_event_type(event) != cproton.PN_DELIVERY:
        return None
    return Delivery(cproton.pn_event_delivery(event))


def address_of(link: Link) -> int:
    """The address of a link, as long as that is there; see `Delivery.link`."""
    return _address(link._impl)


def transfer(link: Sender, tag: str, message: bytes) -> Delivery:
    """Send a message as a delivery of this tag."""
    impl = link._impl
    delivery = Delivery(cproton.pn_delivery(impl, tag))
    if message:
        cproton.pn_link_send(impl, message)
    cproton.pn_link_advance(impl)
    return delivery


_keep = cproton.pn_incref
_let_go = cproton.pn_decref


def _is_null(impl: Any) -> bool:
    return bool(_null(impl))


# Before proton 0.39, these two were not needed: an address is an int, and NULL is None.
_null = getattr(cproton, "isnull", lambda impl: impl is None)
_address = getattr(cproton, "addressof", int)
