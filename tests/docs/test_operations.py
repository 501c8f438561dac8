"""The page on operations: a backup of a store that is open, and what comes back of it."""

import sqlite3
from pathlib import Path

from slixmpp.stanza import Message

from qos.testing import friends, logged_in
from xep_qos import XEP_QOS


async def test_a_store_that_is_open_can_be_backed_up_by_sqlite(tmp_path: Path) -> None:
    """By SQLite's online backup, which is what `.backup` of its shell does."""
    store, backup = tmp_path / "lamp.db", tmp_path / "lamp-backup.db"
    open_store = {"xep_qos": {"store": f"sqlite:{store}"}}
    restored = {"xep_qos": {"store": f"sqlite:{backup}"}}
    async with friends("me", "lamp") as server:
        async with logged_in(server, "me/1", open_store) as me:
            message = Message(sto="lamp@localhost/1")  # type: ignore[no-untyped-call]
            message["body"] = "on"
            sent = await XEP_QOS.of(me).submit(message)
            source, copy = sqlite3.connect(store), sqlite3.connect(backup)
            source.backup(copy)
            source.close()
            copy.close()
        async with logged_in(server, "me/1", restored) as me:
            assert [each.msg_id for each in XEP_QOS.of(me).outstanding()] == [
                sent.msg_id
            ]
