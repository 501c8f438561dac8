"""Records for tests of a store, and how such a test opens, fills and reads one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from qos.core.message.model import (
    Ended,
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
    Rejection,
)
from qos.stores.base import Change, Contents, Store

__all__ = [
    "NASTY_TEXTS",
    "ended",
    "everything",
    "incoming",
    "opened",
    "outgoing",
    "records",
    "write",
]

#: Texts that are often handled wrongly: quotes, slashes, texts that look like a path or
#: SQL, the ends of the ranges that XML permits, and an id of 1 kB.
NASTY_TEXTS = (
    "'",
    '"; DROP TABLE outgoing; --',
    "../../etc/passwd",
    "a/b\\c",
    "\t\r\n x \u0085\u2028",
    "\U0001f4a1 lämp@exämple.org/\U0001f3e0",
    "\u0020\ud7ff\ue000\ufffd\U00010000\U0010ffff",
    "NULL",
    "%s?#&<>]]>",
    "\U0001f4a1" * 256,
)


def outgoing(seq: int, **changes: Any) -> Outgoing:
    """A message of the outbox."""
    record = Outgoing(
        msg_id=f"msg-{seq}",
        seq=seq,
        to=f"lamp{seq % 2}@example.org/1",
        level=Level.ASSURED,
        payload=f"<message xmlns='jabber:client'><body>{seq}</body></message>",
        size=10 + seq,
        created_at=1_700_000_000.125 + seq,
        offer_id=f"offer-{seq}",
        deliver_id=f"deliver-{seq}",
    )
    return replace(record, **changes)


def ended(seq: int, **changes: Any) -> Ended:
    """The end of a message of the outbox."""
    record = outgoing(seq, state=OutgoingState.DELIVERED, attempts=2)
    return replace(Ended.of(record, 1_800_000_000.5), **changes)


def incoming(key: str, **changes: Any) -> Incoming:
    """A received message."""
    record = Incoming(
        key=key,
        msg_id="1",
        source="controller@example.org/1",
        to="lamp@example.org/1",
        level=Level.ASSURED,
        payload="<message xmlns='jabber:client'><body>on</body></message>",
        size=55,
        received_at=1_700_000_000.125,
        changed_at=1_700_000_000.125,
        mark="mark",
        hold="hold",
    )
    if changes.get("state") is IncomingState.REJECTED:
        why = Rejection("conflict", "cancel", "'ä'\n", redelivered=True)
        record = replace(record, rejection=why.to_text())
    return replace(record, **changes)


async def write(store: Store, *changes: Change) -> None:
    """Write, and wait until it is on disk."""
    commit = store.write(changes)
    if commit is not None:
        await commit


@asynccontextmanager
async def opened(store: Store, now: float | None = None) -> AsyncIterator[Contents]:
    """Open the store, and close it in any case."""
    contents = store.open(now)
    try:
        yield contents
    finally:
        await store.close()


def records(store: Store) -> tuple[list[Outgoing], list[Incoming]]:
    """All messages that an open store holds."""
    return list(store.outgoing()), list(store.incoming())


def everything(store: Store) -> tuple[list[Outgoing], list[Incoming], list[Ended]]:
    """All messages that an open store holds, and all ended ones."""
    return (*records(store), list(store.ended()))
