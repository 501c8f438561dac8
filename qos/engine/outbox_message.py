"""A message in flight, its flow and latest request, and the port that sends it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from qos.core.message.effects import Transmit
from qos.core.message.flow import Flow, Pace
from qos.core.message.model import Outgoing, Route
from qos.core.message.sender_table import Reply, SenderInput
from qos.core.stanza_sizes import StanzaSizes

__all__ = [
    "OVERHEAD_BYTES",
    "AccountFlow",
    "Copy",
    "Message",
    "News",
    "Port",
    "Stanzas",
]

#: A request has about so many bytes more than its payload.
OVERHEAD_BYTES: Final = 300


def _about(transmit: Transmit) -> int:
    return transmit.record.size + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Stanzas:
    """The stanzas of a stream, by their size.

    Attributes:
        sizes: what is known of the sizes that the server takes.
        measure: the bytes of the stanza of a request, exactly.
    """

    sizes: StanzaSizes = field(default_factory=StanzaSizes)
    measure: Callable[[Transmit], int] = _about


class Port(Protocol):
    """The methods that the outbox needs of the connection."""

    def route(self, record: Outgoing) -> Route | None:
        """The resource to address an attempt to, by the present knowledge.

        None: no resource yet. The port calls InFlight.route_found when this changes.
        """

    def transmit(self, transmit: Transmit) -> bool:
        """Send the iq. The port drops it when there is no session.

        Returns:
            False: it is certain that nothing of it was sent, nor will be.
        """

    def ping(self) -> bool:
        """Ask our server for an answer, which it gives when it has read all before.

        The port calls InFlight.answered_ping when it comes.

        Returns:
            False: there is no session.
        """

    def new_id(self) -> str:
        """128 random bits as text; never the same twice."""

    def new_msg_id(self) -> str:
        """An id for a message; never the same twice."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""


#: News about the connection: the input that they are depends on the record when the
#: message takes them, and not when they come.
News: TypeAlias = Callable[[Outgoing], SenderInput | None]


class AccountFlow(Flow):
    """The messages in flight to one account, their window, order and pace."""

    def __init__(self, name: str, window: int, pace: Pace) -> None:
        super().__init__(window)
        self.name = name
        self.pace = pace
        #: The bytes of the requests that were not answered; and when an answer is taken
        #: for the round trip again, and a repeat for a sign of a slower link.
        self.unanswered = 0
        self.samples_at = self.slows_at = 0.0
        #: In the order of their acceptance, by msg_id.
        self.messages: dict[str, Message] = {}


@dataclass(slots=True, eq=False)
class Copy:
    """A copy of a request, from the attempt until its answer.

    Attributes:
        size: its bytes; 0 for one that waits for no room.
        ahead: the bytes to its peer up to this one that were not answered; both are
            set for a suspect when it is written.
        look_at: when to ask `not_before` at first: there is still time for a ping.
        transmit: the request, until it is written.
        written_at: when it was written, or given to the server again.
        read_at: when it was known that the server has read it; inf: it is not known.
    """

    size: int
    ahead: int
    look_at: float
    transmit: Transmit | None = None
    written_at: float = math.inf
    read_at: float = math.inf


class Message:
    """A message in flight, and what has still to be done for it."""

    __slots__ = (
        "accepted",
        "busy",
        "copy",
        "flow",
        "inputs",
        "no_route",
        "record",
        "unqueued",
        "withdrawn",
    )

    def __init__(self, record: Outgoing, flow: AccountFlow) -> None:
        self.record = record
        self.flow = flow
        #: Whether effects are being performed. Inputs that come meanwhile wait in
        #: inputs.
        self.busy = False
        self.inputs: deque[SenderInput | Reply | News] = deque()
        #: Whether there was no resource to address the last attempt to.
        self.no_route = False
        #: Of its latest request; None: it was answered, or may be sent again at once.
        self.copy: Copy | None = None
        #: Set during its first write; called with the error of the write, or None.
        self.accepted: Callable[[BaseException | None], None] | None = None
        self.withdrawn: asyncio.Future[None] | None = None
        #: Whether it was taken out of the queue before its turn, only to end.
        self.unqueued = False

    def drop_news(self) -> None:
        """Forget the news that came before an attempt is sent: they ask for just that."""
        self.inputs = deque(input_ for input_ in self.inputs if not callable(input_))
