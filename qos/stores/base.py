"""The contract of a store.

A store keeps the records of one endpoint: its outbox (`Outgoing`), what it
holds for others (`Incoming`), and a few named values. It decides nothing.
`qos.testing.store_contract` is this contract as tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias, TypeVar

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import (
    Ended,
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
    Rejection,
)

__all__ = [
    "ENDED_FIELDS",
    "INCOMING_FIELDS",
    "OUTGOING_FIELDS",
    "Change",
    "Contents",
    "ForgetEnded",
    "Journal",
    "Parameters",
    "Remember",
    "Store",
    "Transaction",
    "Value",
    "ended_from",
    "incoming_from",
    "is_kept",
    "outgoing_from",
    "stored",
]

#: What is stored of a record, in the order of its class. The rest lives in
#: memory and starts afresh. A field added here needs a migration in each store.
OUTGOING_FIELDS = (
    "msg_id",
    "seq",
    "to",
    "level",
    "payload",
    "size",
    "created_at",
    "expires_at",
    "ordered",
    "sender",
    "state",
    "offer_id",
    "deliver_id",
    "namespace",
    "peer",
    "hold",
    "own",
    "attempts",
    "delivers",
)
INCOMING_FIELDS = (
    "key",
    "msg_id",
    "source",
    "to",
    "level",
    "payload",
    "size",
    "received_at",
    "changed_at",
    "state",
    "mark",
    "hold",
    "handovers",
    "rejection",
)

#: All of it, in this order.
ENDED_FIELDS = tuple(each.name for each in fields(Ended))

#: What SQLite can bind to the parameters of a statement.
Value: TypeAlias = int | float | str | bytes | None
Parameters: TypeAlias = Sequence[Value] | Mapping[str, Value]

_FIELDS = {Outgoing: OUTGOING_FIELDS, Incoming: INCOMING_FIELDS}
_Record = TypeVar("_Record", Outgoing, Incoming)


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep a named value (the resource last bound, say)."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ForgetEnded:
    """Forget how messages have ended: those that did so long ago, or are old.

    Attributes:
        before: those that ended at this moment or before it.
        below: those whose seq is smaller.
    """

    before: float
    below: int


Change: TypeAlias = Save | Forget | End | ForgetEnded | Remember


@dataclass(slots=True)
class Contents:
    """The contents of the store that an endpoint needs when it starts.

    Attributes:
        outgoing: the messages in state offered or releasing, by seq.
        queued: how many are queued for each flow (`Outgoing.flow`); no flow
            that has none.
        outbox_messages: how many messages the outbox holds, in whatever state.
        outbox_bytes: the sum of their sizes.
        next_seq: one more than the largest seq that was ever there at the end
            of a commit.
        incoming: every record of a received message, in the order of
            `changed_at`, then of `key`.
        remembered: the named values.
    """

    outgoing: list[Outgoing] = field(default_factory=list)
    queued: dict[str, int] = field(default_factory=dict)
    outbox_messages: int = 0
    outbox_bytes: int = 0
    next_seq: int = 1
    incoming: list[Incoming] = field(default_factory=list)
    remembered: dict[str, str] = field(default_factory=dict)


class Journal(Protocol):
    """The methods of a journal that a store calls; see `qos.stores.group_commit`."""

    def commit_wanted(self) -> None:
        """There will be a commit."""

    def commit_begins(self) -> Callable[[], None] | None:
        """It is put together: of all that was noted before.

        Returns:
            What gives that to the kernel. To be called before the commit, by whatever
            thread; it raises nothing. None: the kernel has it.
        """

    def commit_ended(self, *, idle: bool) -> None:
        """Whether it succeeded or failed; idle: and no other is wanted."""


class NoJournal:
    """The `Journal` of a store that has none."""

    def commit_wanted(self) -> None:
        """Nothing to do."""

    def commit_begins(self) -> None:
        """Nothing to do before the commit."""

    def commit_ended(self, *, idle: bool) -> None:
        """Nothing to do."""


class Transaction(Protocol):
    """A transaction of an application in the file of a store, with what the store writes.

    It begins with the first statement, and ends by `write` or `rollback`. Until then
    nothing else is written into the store: what others write waits, and what the code
    that has it open writes fails, since that would wait for ever.
    """

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and not ended."""

    async def begin(self) -> None:
        """Begin it, if it has not begun: as its first statement does.

        A write into the store that is made in a context in which it was begun, or has
        executed something, is refused while it is open: it would wait for its own end.

        Raises:
            LocalProtocolError: it has ended.
            StoreError: the store is not open.
        """

    async def execute(
        self, sql: str, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """Execute one statement, and return its rows.

        Raises:
            LocalProtocolError: it is about transactions, or would change what is the
                store's own; or this transaction has ended.
            StoreError: the store is not open.
            sqlite3.Error: it fails.
        """

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """Commit, with these changes of the store: all of it or nothing. As Store's."""

    def rollback(self) -> None:
        """Undo it all. No harm if it has ended, or not begun."""


class Store(Protocol):
    """Keeps the records of one endpoint.

    A message of the outbox is known by its seq (`find_outgoing` finds it by its
    msg_id), a received one by its key. To save one anew replaces it, to forget
    one that is not there does nothing. What is read back is what `stored` leaves
    of what was written.

    Used by one thread, that of the event loop; only `open` may run elsewhere.

    Attributes:
        url: how the user names it: `memory:`, `files:DIR`, `sqlite:PATH`.
        store_id: random, made with the store and kept as long as it lives (a
            memory store: until it is closed). Valid once it is open.
        durable: whether what is written survives the process.
        journal: what is written before each commit, if there is one: so the store
            never remembers what the journal does not (`qos.stores.group_commit`).
    """

    url: str
    store_id: str
    durable: bool
    journal: Journal | None

    def open(self) -> Contents:
        """Open or create the store, and say what it holds.

        Blocks; a matter of milliseconds unless the outbox is very long. A store
        that was closed may be opened again.

        Raises:
            StoreInUse: another process, or another store object of this one,
                has it open.
            StoreTooNew, StoreDamaged, StoreReadOnly, StoreFull, StoreError:
                as they say; the store is left as it was.
        """

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """Write the changes, all or none, after all that was written before.

        Returns:
            None when they are already as safe as this store makes anything, or
            a future that is done when they are on disk. It fails with a
            StoreError; then none of the changes was made, and the next write
            may succeed. (The one exception: when the disk fails to confirm what
            is already in place, a store of files refuses every write until it
            is opened again, and shows then what is there.) The future is shared
            by all that went into one commit, and cannot be cancelled. Where code
            writes that has a transaction of this store open, which the write would
            have to wait for, it has failed already.

        Raises:
            StoreError: it is not open.
        """

    def transaction(self) -> Transaction | None:
        """A transaction for an application; None: this store has none."""

    async def close(self) -> None:
        """Finish what was written, then let go of the store.

        May be repeated. What cannot be written any more fails its own future.
        """

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """The queued messages of a flow with seq > after, by seq.

        Sees what has been committed, which may be a moment before the future of
        its write is done. One that cannot be read is logged and left out, so that the
        others go on.

        Raises:
            StoreError: as for all that follow; it is not open, or damaged.
        """

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """Queued messages whose `expires_at` is at or before now, earliest first.

        One that cannot be read is left out, as in `queued`.
        """

    def next_expiry(self) -> float | None:
        """The earliest `expires_at` of all queued messages."""

    def outgoing(self) -> Iterator[Outgoing]:
        """The whole outbox, by seq.

        Between two steps the store may change; what is not there any more when
        its turn comes is left out.
        """

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """The message with this id, in whatever state."""

    def ended(self, msg_id: str | None = None) -> Iterator[Ended]:
        """How messages have ended, as far as that is kept, by seq.

        Args:
            msg_id: of those with this id alone; there may be several.
        """

    def incoming(self) -> Iterator[Incoming]:
        """Every record of a received message, ordered as in Contents."""


def is_kept(ended: Ended, change: ForgetEnded) -> bool:
    """Whether this stays."""
    return ended.ended_at > change.before and ended.seq >= change.below


def stored(record: _Record) -> _Record:
    """What a store keeps of a record: the rest is as after a restart."""
    names = _FIELDS[type(record)]
    return type(record)(**{name: getattr(record, name) for name in names})


def outgoing_from(plain: dict[str, Any]) -> Outgoing:
    """A record from the plain values of its stored fields (enums by value).

    Raises:
        KeyError, TypeError, ValueError: they are not those of a record.
    """
    plain["level"] = Level(plain["level"])
    plain["state"] = OutgoingState(plain["state"])
    plain["ordered"] = bool(plain["ordered"])
    return Outgoing(**plain)


def ended_from(plain: dict[str, Any]) -> Ended:
    """See outgoing_from."""
    plain["level"] = Level(plain["level"])
    plain["state"] = OutgoingState(plain["state"])
    return Ended(**plain)


def incoming_from(plain: dict[str, Any]) -> Incoming:
    """See outgoing_from."""
    plain["level"] = Level(plain["level"])
    plain["state"] = IncomingState(plain["state"])
    if plain["state"] is IncomingState.REJECTED:
        Rejection.from_text(plain["rejection"])
    return Incoming(**plain)
