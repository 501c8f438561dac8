"""The contract of a store.

A store keeps the records of one endpoint: its outbox (`Outgoing`), the messages that it
holds for others (`Incoming`), and a few named values. It decides nothing.
`qos.testing.store_contract` is this contract as tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from qos.core.record import record

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
    "accounts_of",
    "ended_from",
    "incoming_from",
    "is_kept",
    "outgoing_from",
    "stored",
]

#: The stored fields of a record, in the order of its class. The others are only in
#: memory, and have their defaults after a restart. A field added here needs a migration
#: in each store.
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
    "account",
    "digest",
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

#: All fields, in this order.
ENDED_FIELDS = tuple(each.name for each in fields(Ended))

#: Values that SQLite can bind to the parameters of a statement.
Value: TypeAlias = int | float | str | bytes | None
Parameters: TypeAlias = Sequence[Value] | Mapping[str, Value]

_FIELDS = {Outgoing: OUTGOING_FIELDS, Incoming: INCOMING_FIELDS}
_Record = TypeVar("_Record", Outgoing, Incoming)


@record(frozen=True, slots=True)
class Remember:
    """Keep a named value, such as the resource that was last bound."""

    name: str
    value: str


@record(frozen=True, slots=True)
class ForgetEnded:
    """Forget outcomes that are too old or too many.

    Attributes:
        before: those that ended at this time or before it.
        below: those with a smaller seq.
    """

    before: float
    below: int


Change: TypeAlias = Save | Forget | End | ForgetEnded | Remember


@dataclass(slots=True)
class Contents:
    """The contents of the store that an endpoint needs when it starts.

    Attributes:
        outgoing: the messages in state offered or releasing, by seq.
        queued: how many are queued for each flow (`Outgoing.flow`); a flow without any
            is left out.
        outbox_messages: how many messages the outbox holds, in any state.
        outbox_bytes: the sum of their sizes.
        accounts: how many of them, and bytes, are of each user of a gateway.
        next_seq: one more than the largest seq that was there at the end of any commit.
        incoming: every record of a received message, in the order of `changed_at`, then
            of `key`.
        remembered: the named values.
    """

    outgoing: list[Outgoing] = field(default_factory=list)
    queued: dict[str, int] = field(default_factory=dict)
    outbox_messages: int = 0
    outbox_bytes: int = 0
    accounts: dict[str, tuple[int, int]] = field(default_factory=dict)
    next_seq: int = 1
    incoming: list[Incoming] = field(default_factory=list)
    remembered: dict[str, str] = field(default_factory=dict)


class Journal(Protocol):
    """The methods of a journal that a store calls; see `qos.stores.group_commit`."""

    def commit_wanted(self) -> None:
        """Note that there will be a commit."""

    def commit_begins(self) -> Callable[[], None] | None:
        """Note that a commit begins, with everything that was noted before.

        Returns:
            A function that gives that to the kernel. It is called before the commit,
            from any thread, and raises nothing. None: the kernel has it already.
        """

    def commit_ended(self, *, idle: bool) -> None:
        """Note that a commit has ended, well or not; idle: no other is wanted."""


class NoJournal:
    """A null journal, for a store without one."""

    def commit_wanted(self) -> None:
        """Nothing to do."""

    def commit_begins(self) -> None:
        """Nothing to do before the commit."""

    def commit_ended(self, *, idle: bool) -> None:
        """Nothing to do."""


class Transaction(Protocol):
    """A transaction of an application in the file of a store, with a store's write.

    It begins with the first statement, and ends by `write` or `rollback`. Until then
    nothing else is written into the store: writes of others wait. A write by the code
    that has the transaction open fails, since it would wait for ever.
    """

    @property
    def is_open(self) -> bool:
        """Whether the transaction has begun, and has not ended."""

    async def begin(self) -> None:
        """Begin the transaction, if it has not begun.

        Its first statement does the same.

        While the transaction is open, a store write from a context that began it, or
        executed something in it, is refused: the write would wait for its own end.

        Raises:
            LocalProtocolError: the transaction has ended.
            StoreError: the store is not open.
        """

    async def execute(
        self, sql: str, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """Execute one statement, and return its rows.

        Raises:
            LocalProtocolError: it is about transactions, or would change the store's
                own data; or this transaction has ended.
            StoreError: the store is not open.
            sqlite3.Error: it fails.
        """

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """Commit, with these changes of the store, all or nothing; as Store.write."""

    def rollback(self) -> None:
        """Undo everything. Harmless if the transaction has ended, or has not begun."""


class Store(Protocol):
    """Keeps the records of one endpoint.

    A message of the outbox is identified by its seq (`find_outgoing` finds it by its
    msg_id), a received one by its key. Saving a record again replaces it; forgetting
    one that is not there does nothing. A record that is read back has only the fields
    that `stored` keeps.

    Used by one thread, that of the event loop; only `open` may run elsewhere.

    Attributes:
        url: the name for users: `memory:`, `files:DIR`, `sqlite:PATH`.
        store_id: random, made with the store and kept as long as it lives (a memory
            store: until it is closed). Valid once it is open.
        durable: whether its contents survive the process.
        journal: written before each commit, if there is one, so that the store never
            has a change that the journal does not have (`qos.stores.group_commit`).
    """

    url: str
    store_id: str
    durable: bool
    journal: Journal | None

    def open(self, now: float | None = None) -> Contents:
        """Open or create the store, and return its contents.

        Blocks; a matter of milliseconds unless the outbox is very long. A closed store
        may be opened again.

        Args:
            now: the time of the process. If it does not fit to the times in the store,
                all of these move by `qos.core.wall_clock.shift`, on disk, before the
                contents are read. None: nothing moves.

        Raises:
            StoreInUse: another process, or another store object of this one, has it
                open.
            StoreTooNew, StoreDamaged, StoreReadOnly, StoreFull, StoreError: as they
                say; the store is left as it was.
        """

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """Write the changes, all or none, after all earlier writes.

        Returns:
            None if they are already as safe as this store makes anything, or a future
            that is done when they are on disk. It may fail with a StoreError; then none
            of the changes was made, and the next write may succeed. (One exception: if
            the disk does not confirm changes that are already in place, a store of
            files refuses every write until it is opened again, and then shows what is
            there.) All writes of a commit share the future, which cannot be cancelled.
            If the code that writes has a transaction of this store open, for which the
            write would have to wait, the future has failed already.

        Raises:
            StoreError: it is not open.
        """

    def transaction(self) -> Transaction | None:
        """A transaction for an application; None: this store has none."""

    async def close(self) -> None:
        """Finish all writes, then let go of the store.

        May be repeated. A write that is not possible any more fails its own future.
        """

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """The queued messages of a flow with seq > after, by seq.

        It sees committed data, which may be a moment before the future of the write is
        done. A message that cannot be read is logged and left out, so that the others
        go on.

        Raises:
            StoreError: as for all methods below; the store is not open, or damaged.
        """

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """Queued messages whose `expires_at` is not after now, earliest first.

        A message that cannot be read is left out, as in `queued`.
        """

    def next_expiry(self) -> float | None:
        """The earliest `expires_at` of all queued messages."""

    def outgoing(self) -> Iterator[Outgoing]:
        """The whole outbox, by seq.

        The store may change between two steps; a message that is gone when its turn
        comes is left out.
        """

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """The message with this id, in any state."""

    def ended(self, msg_id: str | None = None) -> Iterator[Ended]:
        """The ends of messages, as far as they are kept, by seq.

        Args:
            msg_id: only those with this id; there may be several.
        """

    def find_ended(self, msg_id: str) -> Ended | None:
        """The end of the message with this id and a digest, accepted last; at once."""

    def incoming(self) -> Iterator[Incoming]:
        """Every record of a received message, ordered as in Contents."""


def accounts_of(outgoing: Iterable[Outgoing]) -> dict[str, tuple[int, int]]:
    """See Contents.accounts."""
    totals: dict[str, tuple[int, int]] = {}
    for message in outgoing:
        if message.account:
            messages, size = totals.get(message.account, (0, 0))
            totals[message.account] = (messages + 1, size + message.size)
    return totals


def is_kept(end: Ended, change: ForgetEnded) -> bool:
    """Whether this end stays."""
    return end.ended_at > change.before and end.seq >= change.below


def stored(record: _Record) -> _Record:
    """A record as the store keeps it: other fields are as after a restart."""
    names = _FIELDS[type(record)]
    return type(record)(**{name: getattr(record, name) for name in names})


def outgoing_from(plain: dict[str, Any]) -> Outgoing:
    """A record from the plain values of its stored fields (enums by value).

    Raises:
        KeyError, TypeError, ValueError: the values do not fit a record.
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
