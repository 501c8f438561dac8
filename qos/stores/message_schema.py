"""The tables of an endpoint's database, and how they have come to be."""

from __future__ import annotations

from qos.stores.sqlite_file import ABOUT, Migrations

__all__ = ["APPLICATION_ID", "MIGRATIONS"]

#: "QoSx", by which `file` and we recognize our files.
APPLICATION_ID = 0x516F5378

MIGRATIONS: Migrations = (
    (
        ABOUT,
        """CREATE TABLE remembered (name TEXT PRIMARY KEY, value TEXT NOT NULL)""",
        # AUTOINCREMENT keeps the largest seq ever, for Contents.next_seq.
        """CREATE TABLE outgoing (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            msg_id TEXT NOT NULL,
            "to" TEXT NOT NULL,
            flow TEXT NOT NULL,
            level TEXT NOT NULL,
            size INTEGER NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            ordered INTEGER NOT NULL,
            sender TEXT NOT NULL,
            state TEXT NOT NULL,
            offer_id TEXT NOT NULL,
            deliver_id TEXT NOT NULL,
            namespace TEXT,
            peer TEXT,
            hold TEXT,
            own TEXT,
            attempts INTEGER NOT NULL,
            delivers INTEGER NOT NULL
        )""",
        """CREATE INDEX outgoing_by_msg_id ON outgoing (msg_id)""",
        """CREATE INDEX outgoing_queued ON outgoing (flow, seq)
            WHERE state = 'queued'""",
        """CREATE INDEX outgoing_expiring ON outgoing (expires_at, seq)
            WHERE state = 'queued' AND expires_at IS NOT NULL""",
        """CREATE TABLE outgoing_payload (
            seq INTEGER PRIMARY KEY, payload TEXT NOT NULL
        )""",
        """CREATE TABLE incoming (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            msg_id TEXT NOT NULL,
            source TEXT NOT NULL,
            "to" TEXT NOT NULL,
            level TEXT NOT NULL,
            size INTEGER NOT NULL,
            received_at REAL NOT NULL,
            changed_at REAL NOT NULL,
            state TEXT NOT NULL,
            mark TEXT NOT NULL,
            hold TEXT NOT NULL
        )""",
        """CREATE TABLE incoming_payload (
            id INTEGER PRIMARY KEY, payload TEXT NOT NULL
        )""",
    ),
    (
        # It has no index except its seq: it is rarely read, but always written.
        """CREATE TABLE ended (
            seq INTEGER PRIMARY KEY,
            msg_id TEXT NOT NULL,
            "to" TEXT NOT NULL,
            level TEXT NOT NULL,
            size INTEGER NOT NULL,
            created_at REAL NOT NULL,
            ended_at REAL NOT NULL,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            condition TEXT,
            condition_by TEXT
        )""",
    ),
    ("ALTER TABLE incoming ADD COLUMN handovers INTEGER NOT NULL DEFAULT 0",),
    (
        "ALTER TABLE incoming ADD COLUMN rejection TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE ended ADD COLUMN condition_text TEXT",
    ),
    (
        "ALTER TABLE outgoing ADD COLUMN account TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE outgoing ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE ended ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        # The ends of messages for users of a gateway, who ask by id.
        """CREATE INDEX ended_by_msg_id ON ended (msg_id) WHERE digest <> ''""",
    ),
)
