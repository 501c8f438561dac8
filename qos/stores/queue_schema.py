"""The tables of a queue service's database, and how they have come to be."""

from __future__ import annotations

from qos.stores import queue_counts
from qos.stores.queue_conditions import HAS_DELAY, IN_MEMORY, LETTER, PLAIN
from qos.stores.sqlite_file import ABOUT, Migrations

__all__ = ["APPLICATION_ID", "MIGRATIONS"]

#: "QoSq", by which `file` and we recognize our files.
APPLICATION_ID = 0x516F5371

MIGRATIONS: Migrations = (
    (
        ABOUT,
        """CREATE TABLE node (
            name TEXT PRIMARY KEY,
            created_at REAL NOT NULL,
            config TEXT NOT NULL,
            affiliations TEXT NOT NULL,
            accepted INTEGER NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE subscription (
            node TEXT NOT NULL,
            jid TEXT NOT NULL,
            subid TEXT NOT NULL,
            via TEXT NOT NULL,
            queue_requests INTEGER NOT NULL,
            batch INTEGER NOT NULL,
            durable_locks INTEGER NOT NULL,
            acknowledged INTEGER NOT NULL,
            PRIMARY KEY (node, jid)
        ) WITHOUT ROWID""",
        # AUTOINCREMENT keeps the largest seq ever, for QueueContents.next_seq.
        """CREATE TABLE item (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            node TEXT NOT NULL,
            item_id TEXT NOT NULL,
            origin TEXT NOT NULL,
            origin_id TEXT NOT NULL,
            publisher TEXT NOT NULL,
            digest TEXT NOT NULL,
            size INTEGER NOT NULL,
            priority INTEGER NOT NULL,
            published_at REAL NOT NULL,
            available_at REAL NOT NULL,
            expires_at REAL,
            state TEXT NOT NULL,
            delivery_count INTEGER NOT NULL,
            releases INTEGER NOT NULL,
            "order" INTEGER NOT NULL,
            receivers TEXT NOT NULL,
            excluded TEXT NOT NULL,
            last_holder TEXT NOT NULL,
            token TEXT NOT NULL,
            holder TEXT NOT NULL,
            durable INTEGER NOT NULL,
            locked_at REAL NOT NULL,
            deadline REAL NOT NULL,
            outcome TEXT,
            ended_at REAL,
            forget_at REAL,
            history TEXT NOT NULL
        )""",
        """CREATE INDEX item_by_id ON item (node, item_id)""",
        # The lock of a live item does not touch these two.
        """CREATE INDEX item_archived ON item (outcome, node, seq)
            WHERE state = 'archived'""",
        """CREATE INDEX item_forgotten ON item (forget_at)
            WHERE forget_at IS NOT NULL""",
        """CREATE TABLE item_payload (
            seq INTEGER PRIMARY KEY, payload TEXT NOT NULL
        )""",
        """CREATE TABLE ended (
            node TEXT NOT NULL,
            item_id TEXT NOT NULL,
            publisher TEXT NOT NULL,
            digest TEXT NOT NULL,
            ended_at REAL NOT NULL,
            forget_at REAL NOT NULL,
            token TEXT NOT NULL,
            account TEXT NOT NULL,
            outcome TEXT,
            PRIMARY KEY (node, item_id)
        ) WITHOUT ROWID""",
        """CREATE INDEX ended_forgotten ON ended (forget_at)""",
    ),
    # Several ends are kept for an id that is used again, and for an item that is
    # requeued.
    (
        "ALTER TABLE ended RENAME TO ended_by_id",
        """CREATE TABLE ended (
            seq INTEGER NOT NULL,
            node TEXT NOT NULL,
            item_id TEXT NOT NULL,
            publisher TEXT NOT NULL,
            digest TEXT NOT NULL,
            ended_at REAL NOT NULL,
            forget_at REAL NOT NULL,
            token TEXT NOT NULL,
            account TEXT NOT NULL,
            outcome TEXT,
            PRIMARY KEY (node, item_id, token, seq)
        ) WITHOUT ROWID""",
        """INSERT INTO ended
            SELECT 0, node, item_id, publisher, digest, ended_at, forget_at, token,
                account, outcome
            FROM ended_by_id""",
        "DROP TABLE ended_by_id",
        """CREATE INDEX ended_forgotten ON ended (forget_at)""",
    ),
    # Identities of nodes, and the accounts they count for; dormant subscriptions.
    (
        "ALTER TABLE node ADD COLUMN identity TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN creator TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN dead_letter TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN dead_letter_by TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE subscription ADD COLUMN dormant_since REAL",
        "UPDATE node SET identity = lower(hex(randomblob(16)))",
        # The account that set a dead-letter node is not known. The setting stays if
        # every owner of the one node is an owner or a publisher of the other, so that
        # the unknown account may certainly publish there. Any other setting is dropped,
        # and dead items then stay in their node.
        """UPDATE node SET dead_letter = COALESCE((
                SELECT target.identity FROM node AS target
                WHERE target.name = json_extract(
                        node.config, '$."queue#dead_letter_node"'
                    )
                    AND NOT EXISTS (
                        SELECT 1 FROM json_each(node.affiliations) AS owner
                        WHERE owner.value = 'owner' AND NOT EXISTS (
                            SELECT 1 FROM json_each(target.affiliations) AS other
                            WHERE other.key = owner.key
                                AND other.value IN ('owner', 'publisher')
                        )
                    )
            ), '')""",
        """UPDATE node SET dead_letter_by = (
                SELECT MIN(key) FROM json_each(node.affiliations) WHERE value = 'owner'
            )
            WHERE dead_letter <> ''""",
        """UPDATE node SET config = json_remove(config, '$."queue#dead_letter_node"')
            WHERE dead_letter = ''""",
        # Nodes that were open by default stay open.
        """UPDATE node SET config = json_insert(
                config, '$."pubsub#access_model"', 'open'
            )""",
    ),
    # Properties of items, and selectors of subscriptions.
    (
        "ALTER TABLE item ADD COLUMN properties TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE subscription ADD COLUMN selector TEXT NOT NULL DEFAULT ''",
    ),
    # What AMQP 1.0 clients add: annotations of items, lifetimes of nodes.
    (
        "ALTER TABLE item ADD COLUMN annotations TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE node ADD COLUMN lifetime TEXT NOT NULL DEFAULT ''",
    ),
    # Links of AMQP 1.0 clients, and their durable termini.
    (
        "ALTER TABLE subscription ADD COLUMN link INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE terminus (
            jid TEXT PRIMARY KEY,
            container TEXT NOT NULL,
            link TEXT NOT NULL,
            node TEXT NOT NULL,
            address TEXT NOT NULL,
            selector TEXT NOT NULL,
            copies INTEGER NOT NULL,
            durability INTEGER NOT NULL,
            policy TEXT NOT NULL,
            timeout_s INTEGER NOT NULL,
            cursor INTEGER NOT NULL,
            until REAL
        ) WITHOUT ROWID""",
    ),
    # What topics have dropped, and what the queues that copy from them have missed.
    (
        "ALTER TABLE node ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE node ADD COLUMN missed INTEGER NOT NULL DEFAULT 0",
    ),
    # Consumers to which the service pushes by HTTP.
    (
        """CREATE TABLE push_subscriber (
            subscriber_id TEXT PRIMARY KEY,
            node TEXT NOT NULL,
            account TEXT NOT NULL,
            rel TEXT NOT NULL,
            href TEXT NOT NULL,
            base TEXT NOT NULL,
            authorization TEXT NOT NULL,
            digest TEXT NOT NULL,
            selector TEXT NOT NULL,
            headers TEXT NOT NULL,
            method TEXT NOT NULL,
            content_type TEXT NOT NULL,
            sessions INTEGER NOT NULL,
            max_retries INTEGER NOT NULL,
            retry_wait_s REAL NOT NULL,
            disable_on_failure INTEGER,
            durable INTEGER NOT NULL,
            created_at REAL NOT NULL,
            enabled INTEGER NOT NULL,
            reason TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE push_link (
            subscriber_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            url TEXT NOT NULL,
            kept_at REAL NOT NULL,
            PRIMARY KEY (subscriber_id, seq)
        ) WITHOUT ROWID""",
    ),
    # Locks that a worker takes up again when its connection was lost.
    (
        "ALTER TABLE item ADD COLUMN resumable INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE subscription ADD COLUMN resumable_locks INTEGER NOT NULL DEFAULT 0",
    ),
    # Generations of nodes; and the purges whose items are still there, each with the item
    # that was looked at last. No row of an item is written again.
    (
        "ALTER TABLE node ADD COLUMN gen INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE item ADD COLUMN gen INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE purged (
            node TEXT NOT NULL,
            gen INTEGER NOT NULL,
            purged_at REAL NOT NULL,
            forget_at REAL NOT NULL,
            after_id TEXT NOT NULL DEFAULT '',
            after_seq INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (node, gen)
        ) WITHOUT ROWID""",
    ),
    # What is old is found without a look at the rest.
    ("CREATE INDEX push_link_by_age ON push_link (kept_at)",),
    # Letters know their node by its identity, so that a delete leaves them alone; and what
    # this service has lost by its own death kills no item.
    (
        "ALTER TABLE item ADD COLUMN lost INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE item ADD COLUMN origin_identity TEXT NOT NULL DEFAULT ''",
        """UPDATE item SET origin_identity = COALESCE(
                (SELECT identity FROM node WHERE name = origin), ''
            )
            WHERE origin <> ''""",
    ),
    # The deleted nodes whose items and ends are still there: those up to this generation.
    # While items are looked at, there is no token; then it is that of the last end.
    (
        "ALTER TABLE ended ADD COLUMN gen INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE deleted (
            node TEXT PRIMARY KEY,
            gen INTEGER NOT NULL,
            after_id TEXT NOT NULL DEFAULT '',
            after_token TEXT,
            after_seq INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID""",
    ),
    # Versions 14 and 15 had the first three of the indices below, without what has a ttl,
    # then without what has a delay.
    (),
    (),
    # Plain items in the order of delivery; all others that have not ended; plain items by
    # the end of their ttl, and by that of their delay; and those that were given back, by
    # seq. A lock writes to the second index alone.
    (
        "DROP INDEX IF EXISTS item_fresh",
        "DROP INDEX IF EXISTS item_in_memory",
        "DROP INDEX IF EXISTS item_expiring",
        f"""CREATE INDEX item_plain ON item (
                node, gen, priority, "order", seq, available_at, published_at, size,
                expires_at
            ) WHERE {PLAIN}""",
        f"CREATE INDEX item_in_memory ON item (seq) WHERE {IN_MEMORY}",
        f"""CREATE INDEX item_expiring ON item (node, gen, expires_at, seq)
            WHERE {PLAIN} AND expires_at IS NOT NULL""",
        f"""CREATE INDEX item_delayed ON item (
                node, gen, available_at, -priority, "order", seq
            ) WHERE {PLAIN} AND {HAS_DELAY}""",
        f"""CREATE INDEX item_given_back ON item (node, gen, seq, releases)
            WHERE {PLAIN} AND "order" > 0""",
        # Dead letters by the node where they died, and by their id there.
        f"""CREATE INDEX item_letter ON item (node, gen, origin_identity, seq)
            WHERE {LETTER}""",
        f"""CREATE INDEX item_letter_by_id ON item (
                node, gen, origin_identity, origin_id, seq
            ) WHERE {LETTER}""",
    ),
    # The counts of items, and the largest order.
    (
        *queue_counts.MIGRATION,
        'CREATE INDEX item_order ON item ("order") WHERE "order" > 0',
    ),
)
