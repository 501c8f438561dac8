"""The parts of frames that an AMQP engine hides, as values; `frame_shim` reads and writes them.

A link knows these, and need not know how they pass by the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from qos.core.amqp import values
from qos.core.amqp.delivery_states import PeerOutcome, PeerState
from qos.core.amqp.values import DecodeError
from qos.core.record import record

__all__ = ["Attach", "AttachAnswer", "InUse", "LinkKey", "Part", "Transfer"]

#: A link by the peer's channel of its session, its name, and whether our end is the
#: sender. A name alone may be used on several sessions.
LinkKey: TypeAlias = tuple[int, str, bool]


class InUse(DecodeError):
    """The peer begins a session or a link with what a living one has."""


@record(frozen=True, slots=True)
class Attach:
    """An attach of the peer.

    Attributes:
        key: of the link.
        unsettled: what the peer has not settled, by delivery-tag; None: no map, so the
            link is not resumed.
        incomplete: there is more than in the map.
        default_outcome: of its source; None: none.
        default_bytes: likewise, encoded.
        room: the bytes that our map may have in the answer.
    """

    key: LinkKey
    unsettled: Mapping[bytes, PeerState] | None
    incomplete: bool
    default_outcome: PeerOutcome | None
    default_bytes: bytes
    room: int


@record(frozen=True, slots=True)
class Transfer:
    """The first transfer of a delivery of the peer.

    Attributes:
        key: of the link.
        tag: the delivery-tag.
        message_format: 0 is the usual one.
        state: at the peer.
        resume: the delivery is resumed.
    """

    key: LinkKey
    tag: bytes
    message_format: int
    state: PeerState
    resume: bool


@record(frozen=True, slots=True)
class AttachAnswer:
    """Additions to our attach.

    Attributes:
        unsettled: an encoded map, or null.
        incomplete: it is not complete.
        default_outcome: of the source, encoded; b'': as the engine has it.
    """

    unsettled: bytes = values.NULL
    incomplete: bool = False
    default_outcome: bytes = b""


#: What the engine is to get, what is told before, and why there is no more.
Part: TypeAlias = bytes | Attach | Transfer | DecodeError
