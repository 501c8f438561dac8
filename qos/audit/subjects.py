"""The lines that belong together: those of a message, or of an item at one node.

All lines of a subject make its rows. So the stored data of a stream, and the days that
are made again, depend on subjects, and not on the day of a line. Pure functions.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from qos.audit.endpoint_summary import OUTCOMES
from qos.audit.tables.columns import bare, event_is, role_is
from qos.audit.tables.items import ENDS
from qos.journal.schema import (
    JournalEvent,
    QueueEvent,
    ReceiverEvent,
    Role,
    SenderEvent,
)

__all__ = ["begun", "is_open", "message_is_open", "message_subject", "subject"]

_S, _R, _Q = SenderEvent, ReceiverEvent, QueueEvent


def subject() -> Column:
    """A number for the subject of a line.

    Two subjects may have the same number by chance: then more is stored, or made again,
    than necessary.
    """
    refused = role_is(Role.RECEIVER) & event_is(_R.REFUSED)
    of_message = role_is(Role.SENDER, Role.RECEIVER) & ~refused
    item = F.xxhash64(F.lit("item"), "node", "queue", "item")
    of_item = role_is(Role.QUEUE, Role.WORKER)
    # The nodes that count for the two ends of a route know nothing of each other.
    is_count = role_is(Role.JOURNAL) & event_is(JournalEvent.COUNTED)
    hour = F.xxhash64(F.lit("counted"), F.date_trunc("hour", "since"))
    return (
        F.when(of_message & F.col("msg_id").isNotNull(), message_subject())
        .when(of_item & F.col("item").isNotNull(), item)
        .when(is_count, hour)
        .otherwise(F.xxhash64(F.lit("line"), "boot", "seq"))
    )


def message_subject() -> Column:
    """The same for a message; also of a row of qos.audit.endpoint_summary."""
    account = bare(
        F.coalesce("source", F.when(role_is(Role.SENDER), F.col("node")), F.lit(""))
    )
    return F.xxhash64(F.lit("message"), account, "msg_id", "level")


def begun() -> Column:
    """An aggregate of a subject's lines: its beginning, as in its row."""
    sends = role_is(Role.SENDER)
    accepted = F.min(F.when(sends & event_is(_S.ACCEPTED), F.col("at")))
    published = role_is(Role.QUEUE) & event_is(_Q.PUBLISHED)
    return F.coalesce(
        accepted,
        F.min(F.when(sends, F.col("at"))),
        # An id may be used again.
        F.max(F.when(published, F.col("at"))),
        F.min("at"),
    )


def is_open() -> Column:
    """An aggregate of a subject's lines: whether one side of it has not ended."""
    sends, receives = role_is(Role.SENDER), role_is(Role.RECEIVER)
    has_ended = F.bool_or(sends & event_is(*OUTCOMES))
    is_held = F.bool_or(receives & ~event_is(_R.REFUSED))
    is_done = F.bool_or(receives & event_is(_R.DONE, _R.EXPIRED))
    at_queue = F.when(role_is(Role.QUEUE), F.struct("at", "boot", "seq"))
    last = F.max_by("event", at_queue)
    queued = F.coalesce(~last.isin(*(event.value for event in ENDS)), F.lit(False))
    return (F.bool_or(sends) & ~has_ended) | (is_held & ~is_done) | queued


def message_is_open() -> Column:
    """An aggregate of a message's rows of qos.audit.endpoint_summary: the same.

    No receiver ends it for another: several may say that they got this msg_id.
    """
    sends, receives = role_is(Role.SENDER), role_is(Role.RECEIVER)
    is_done = F.coalesce("done_at", "expired_at").isNotNull()
    account = F.xxhash64(bare(F.coalesce("to", "node")))
    accounts = F.collect_set(F.when(receives, account))
    ended = F.collect_set(F.when(receives & is_done, account))
    return (F.bool_or(sends) & ~F.bool_or(F.col("end").isNotNull())) | (
        F.size(F.array_except(accounts, ended)) > 0
    )
