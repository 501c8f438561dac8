"""Access to a store without a connection, and the output for its records."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator

from qos.cli.output import time_text
from qos.cli.status import CommandError, Status
from qos.core.message.model import Ended, Incoming, Outgoing
from qos.errors import LocalProtocolError, StoreError, StoreInUse, UsageError
from qos.journal.messages import not_stored
from qos.journal.recorder import Recorder, recorder_of
from qos.journal.writer import JournalWriter
from qos.stores import FilesStore, SqliteStore, store_from_url
from qos.stores.base import Change, Store

__all__ = ["in_full", "opened", "recorder_for", "summary", "write"]


@contextlib.asynccontextmanager
async def opened(url: str, *, to_read: bool) -> AsyncIterator[Store]:
    """Open an existing store.

    Args:
        url: of the store.
        to_read: nothing is written; another process may have the store open.

    Raises:
        UsageError: the URL names no store of this kind.
        CommandError: another process has it open, and it is to be written.
        StoreError: the store does not exist, or cannot be opened.
    """
    store = _existing(url)
    if to_read:
        store.open_to_read()
    else:
        try:
            store.open()
        except StoreInUse as error:
            hint = "this command changes the store: stop the process that has it open"
            raise CommandError(f"{error}; {hint} first", Status.STORE) from None
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def recorder_for(
    arguments: argparse.Namespace, store: Store
) -> AsyncIterator[Recorder]:
    """A recorder in the journal that --journal names, for changes in the store.

    Raises:
        UsageError: --jid is missing, so the node of the journal is not known.
        JournalError: the journal cannot be written.
    """
    folder, jid = arguments.journal, arguments.jid
    if folder is not None and jid is None:
        raise UsageError("--journal needs --jid: a journal is that of an account")
    async with JournalWriter.opened(folder, jid or "", store.store_id) as journal:
        store.journal = journal
        if journal is not None:
            journal.note(*not_stored(journal.begun, store))
        try:
            yield recorder_of(journal)
        finally:
            store.journal = None


def _existing(url: str) -> SqliteStore | FilesStore:
    try:
        store = store_from_url(url)
    except LocalProtocolError as error:
        raise UsageError(f"--store: {error}") from None
    if not isinstance(store, SqliteStore | FilesStore):
        raise UsageError(f"--store {url}: such a store is empty at each start")
    if not store.exists():
        raise StoreError(url, "there is no such store")
    return store


async def write(store: Store, change: Change) -> None:
    """Write a change, and return when it is on disk."""
    commit = store.write((change,))
    if commit is not None:
        await commit


def summary(record: Outgoing | Ended | Incoming) -> dict[str, object]:
    """The fields of a record that a list shows."""
    if isinstance(record, Incoming):
        return {
            "msg_id": record.msg_id,
            "from": record.source,
            "to": record.to,
            "level": record.level.value,
            "state": record.state.value,
            "bytes": record.size,
            "received_at": time_text(record.received_at),
            "changed_at": time_text(record.changed_at),
        }
    fields = {
        "msg_id": record.msg_id,
        "to": record.to,
        "level": record.level.value,
        "state": record.state.value,
        "bytes": record.size,
        "attempts": record.attempts,
        "created_at": time_text(record.created_at),
    }
    if isinstance(record, Outgoing):
        return {**fields, "expires_at": time_text(record.expires_at)}
    return {
        **fields,
        "ended_at": time_text(record.ended_at),
        "condition": record.condition,
        "by": record.condition_by,
    }


def in_full(record: Outgoing | Incoming) -> dict[str, object]:
    """All fields of a record, the payload included."""
    if isinstance(record, Outgoing):
        return {
            **summary(record),
            "ordered": record.ordered,
            "delivers": record.delivers,
            "peer": record.peer,
            "own": record.own,
            "namespace": record.namespace,
            "hold": record.hold,
            "offer_id": record.offer_id,
            "deliver_id": record.deliver_id,
            "seq": record.seq,
            "payload": record.payload,
        }
    return {
        **summary(record),
        "sender": record.mark or None,
        "hold": record.hold or None,
        "handovers": record.handovers,
        "payload": record.payload,
    }
