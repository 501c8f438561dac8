"""The comments of the tables and of their columns, as Delta's schema has them.

The guide's page *Tables* is made from them. A column means the same in each table that
has it, so most columns are described once. This module imports nothing: it also serves
where neither Spark nor deltalake is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["COLUMNS", "FORMER", "TABLES", "of_column"]

#: What a row of each table is; in the order of the guide.
TABLES: Final[Mapping[str, str]] = {
    "deliveries": "A message: its route, the times of its steps at both ends, its outcome, "
    "and the verdict on it.",
    "anomalies": "A message that was lost, duplicated or orphaned, is stuck or in doubt, with "
    "all that is known of it.",
    "routes_hourly": "An hour of a sender, a receiver and a level: how its messages ended, "
    "and how long they took.",
    "unproven_hourly": "An hour of a route and a reason why messages that look wrong are not "
    "proven.",
    "windows_hourly": "An hour of a route as both its ends have counted it, in windows of 5 "
    "minutes.",
    "refusals": "An hour of a source, a receiver and a condition: requests that were refused.",
    "queue_items": "A life of an item of a queue. An id that is published again after its end "
    "begins another life.",
    "queues_hourly": "An hour of a queue: how the items that were published in it ended, and "
    "how long they waited.",
    "workers_hourly": "An hour of a worker at a queue: how what it began has ended.",
    "problems": "A problem of the journals, by its kind and place.",
    "data_quality": "A rule for the journals, whether it was broken or not.",
    "audits": "An audit that has ended, and the versions of the tables that belong together.",
}

_STEP: Final = "by the clock of the sender; null: no line of it"
_HELD: Final = "by the clock of the receiver; null: no line of it"
_UPPER: Final = "(see latency_counts for sums of rows); null: nothing was measured"

#: What a column means, in each table that has one of this name.
COLUMNS: Final[Mapping[str, str]] = {
    # Of most tables.
    "date": "The day in UTC of what the row is about; the tables are partitioned by it.",
    "hour": "The hour of that day, 0 to 23, in UTC.",
    "level": "The level of the messages: assured or acknowledged; null: the line does not tell.",
    "sender": "The account, or component, that sent the message.",
    "receiver": "The account, or component, that the message was for.",
    "msg_id": "The id of the message, unique for its sender and receiver.",
    "bytes": "The bytes of the content of the messages, without headers.",
    # Of a message.
    "to": "The address to which the message was sent; null: only its receiver has a line of it.",
    "sender_node": "The device whose journal has the sender's lines; null: none has.",
    "receiver_node": "The device whose journal has the receiver's lines; null: none has.",
    "source": "The sending device as the receiver knows it; null: no line, or several devices.",
    "handed_over_by": "The devices that handed the message over, the first and the last by "
    "name; empty: none has a line of it.",
    "begun_at": "When the sender accepted the message, or else the time of its first line.",
    "accepted_at": f"When the sender accepted the message, {_STEP}.",
    "offered_at": f"When it was first offered to the receiver, {_STEP}.",
    "received_at": f"When the receiver first confirmed that it holds it, {_STEP}.",
    "released_at": f"When the sender first released it for the hand-over, {_STEP}.",
    "outcome": "How it ended, as its sender or its queue says: for a message delivered, "
    "not-delivered, in-doubt or withdrawn, for an item accepted, dead, withdrawn, purged or "
    "expired; null: it has not ended, or no such line is here.",
    "ended_at": "The time of the outcome; null: there is none.",
    "condition": "The word that a node gave for an end or a refusal, such as a condition of "
    "XMPP; null: it gave none.",
    "sender_last_at": f"The last line of the sender about the message, {_STEP}.",
    "held_at": f"When the receiver first held it, {_HELD}.",
    "to_hand_over_at": f"When the receiver first learned that it may hand it over, {_HELD}.",
    "handed_over_at": f"When it was first handed over, marked as a repeat or not, {_HELD}.",
    "done_at": f"When its application had it, or had rejected it for good, {_HELD}.",
    "expired_at": f"When the receiver last gave it up: it was not released in time, or could not be "
    f"kept; {_HELD}.",
    "held_again_at": f"When the receiver last held it newly, {_HELD}.",
    "handed_over_last_at": f"When it was last handed over, {_HELD}.",
    "receiver_first_at": f"The first line of the receiver about the message, {_HELD}.",
    "receiver_last_at": f"The last line of the receiver about the message, {_HELD}.",
    "attempts": "Requests (iq) that the sender sent for the message; null: no line of its sender.",
    "retries": "Requests (iq) beyond those that are needed without any loss; null: no line of "
    "the sender.",
    "holds": "How often the receiver held it newly.",
    "hand_overs": "How often it was handed over without a mark that it is a repeat.",
    "redeliveries": "How often it was handed over with the mark that it is a repeat.",
    "latency_s": "Seconds from accepted to delivered, by the clock of the sender; null: not "
    "delivered, or its clock was wrong by more than a year.",
    # Of a verdict.
    "verdict": "ok, unproven, or an accusation: lost, duplicated, orphaned, stuck, in-doubt.",
    "reason": "Why it is not proven that the messages are what they look like, such as "
    "no-journal; null: nothing looks wrong, or it is proven.",
    "rests_on": "The nodes whose lines the verdict rests on; null: the verdict is ok.",
    "suspected": "The accusation that the messages look like, without proof; null: none.",
    "uncovered": "The node whose lines are missing for a proof; null: no lines are "
    "missing.",
    "real_outcome": "How a message in doubt ended, as far as a journal tells: delivered, "
    "not-delivered or unknown; null: it is not in doubt.",
    "judged_at": "The time of the audit that first found this verdict. It changes with the "
    "verdict only.",
    "kind": "The accusation: lost, duplicated, orphaned, stuck or in-doubt.",
    "evidence": "All that is known of the message: the columns of deliveries.",
    "found_at": "The time of the audit that found the anomaly first.",
    "withdrawn_at": "The time of the audit that found it no more; null: it stands.",
    "history": "The verdicts on the message since it was suspected first, the oldest first.",
    "history.at": "The time of the audit.",
    "history.verdict": "The verdict of that audit, or withdrawn.",
    "history.reason": "Why it was not proven or was withdrawn; null: it was proven.",
    # Of an hour of a route.
    "messages": "Messages. Those of a route are those that the sender has a line of.",
    "delivered": "Messages with this outcome.",
    "not_delivered": "Messages with the outcome not-delivered.",
    "in_doubt": "Messages with the outcome in-doubt.",
    "withdrawn": "Messages with this outcome.",
    "open": "Messages, or items, that have not ended.",
    "one_sided": "Messages that only the receiver has a line of; they are not in `messages`.",
    "judged": "Messages of both kinds with another verdict than unproven.",
    "unproven": "Messages of both kinds with the verdict unproven.",
    "retried": "Messages with a retry.",
    "retry_rate": "The part of the messages that was retried, 0 to 1; null: no message.",
    "latency_p50": f"Half of latency_s were at most so many seconds {_UPPER}.",
    "latency_p95": f"95 % of latency_s were at most so many seconds {_UPPER}.",
    "latency_p99": f"99 % of latency_s were at most so many seconds {_UPPER}.",
    "latency_counts": "How many messages had a latency_s in each bucket. Entry i, from 0 to "
    "100, has those of at most 0.001 * 10^(i / 10) seconds that are in no entry before; entry "
    "101 has all longer ones. null: written by a version without this column.",
    "latency_sketch": "latency_s as a KLL sketch of Apache DataSketches, for "
    "kll_merge_agg_double of Spark.",
    "node": "The node whose lines are missing for a proof; null: it is not known.",
    # Of windows.
    "sent": "Messages sent to the receiver, as the sender has counted them.",
    "received": "Messages received of the sender, as the receiver has counted them.",
    "windows": "Windows in which one end or both counted a message.",
    "complete": "Those of the windows that both ends have counted.",
    "without_sender": "Those of the windows without a certain count of the sender.",
    "without_receiver": "Those of the windows without a certain count of the receiver.",
    # Of refusals.
    "refusals": "Requests that were refused.",
    "first_at": "The first of them, by the clock of the receiver.",
    "last_at": "The last of them, by the clock of the receiver.",
    # Of queues.
    "service": "The queue service whose journal tells of the queue.",
    "queue": "The name of the queue.",
    "item": "The id of the item.",
    "life": "The number of this life of the id, from 1.",
    "publisher": "The account that published the item; null: no line of it.",
    "published_at": "When the item was published; null: no line of it.",
    "first_acquired_at": "When it was first given to a worker; null: never.",
    "handled_by": "The worker that accepted it; null: none did.",
    "holders": "The workers that had it, by name, at most 20.",
    "deliveries": "How often it was given to a worker.",
    "released": "How often its worker gave it back unhandled.",
    "modified": "How often its worker gave it back as failed.",
    "rejected": "How often its worker rejected it.",
    "timed_out": "How often its lock timed out.",
    "gone": "How often its worker was gone.",
    "requeued": "How often it was put into its queue again after it was dead.",
    "wait_s": "Seconds from published to first given to a worker; null: never, or the clock was "
    "wrong by more than a year.",
    "total_s": "Seconds from published to its end; null: it has not ended, or the clock was "
    "wrong by more than a year.",
    "items": "Items that were published in this hour.",
    "accepted": "Items that ended accepted.",
    "dead": "Items that ended dead.",
    "again": "Items that were given to a worker more than once.",
    "oldest_open_at": "When the oldest item without an end was published; null: there is none.",
    "wait_p50": "Half of wait_s were at most so many seconds; null: nothing was measured.",
    "wait_p95": "95 % of wait_s were at most so many seconds; null: nothing was measured.",
    "wait_p99": "99 % of wait_s were at most so many seconds; null: nothing was measured.",
    "wait_counts": "How many items had a wait_s in each bucket; the buckets are those of "
    "latency_counts. null: written by a version without this column.",
    "wait_sketch": "wait_s as a KLL sketch of Apache DataSketches, for kll_merge_agg_double of "
    "Spark.",
    # Of workers.
    "worker": "The worker, by the name of its journal.",
    "started": "Items that it began to handle in this hour.",
    "lost": "Items that it lost while it handled them.",
    "busy_s": "Seconds of all its handlers together; more than 3,600 if several ran at a time.",
    "handling_p50": "Half of its handlers took at most so many seconds; null: none has ended.",
    "handling_p95": "95 % of its handlers took at most so many seconds; null: none has ended.",
    "handling_p99": "99 % of its handlers took at most so many seconds; null: none has ended.",
    # Of the journals.
    "place": "Where it is: a file, a folder, or a node with a start of it.",
    "count": "How many lines, or files, it is.",
    "example": "One of them, cut off, or why it could not be read; null: the kind says all.",
    "rule": "The rule, by the kind of problem that breaks it.",
    "meaning": "What the rule demands.",
    "success": "Whether nothing broke it.",
    "places": "In how many places it was broken.",
    # Of audits.
    "number": "The number of the audit in this folder, from 1.",
    "finished_at": "When the audit ended, by the clock of its machine.",
    "first_day": "The first audited day; null: there was no line.",
    "last_day": "The last audited day; null: there was no line.",
    "versions": "The version of each table, by its name.",
}

#: What a column means in one table only, by the table and the column.
_OF_TABLE: Final[Mapping[tuple[str, str], str]] = {
    (
        "deliveries",
        "bytes",
    ): "The bytes of its content; null: no line of its beginning.",
    (
        "queue_items",
        "bytes",
    ): "The bytes of its content; null: no line of its beginning.",
    ("refusals", "source"): "The account that asked; empty: the line does not tell.",
    ("refusals", "receiver"): "The account that refused.",
    ("refusals", "bytes"): "The bytes of the requests, as far as the lines tell.",
    ("workers_hourly", "released"): "Items that it gave back unhandled.",
    ("workers_hourly", "modified"): "Items that it gave back as failed.",
    ("workers_hourly", "rejected"): "Items that it rejected.",
    ("problems", "kind"): "The kind of problem; data_quality says what it means.",
    ("data_quality", "count"): "How many lines, or files, broke it.",
    ("data_quality", "example"): "One of them, cut off; null: none.",
}

#: Columns of earlier versions, which a table keeps for its old rows.
FORMER: Final[Mapping[tuple[str, str], str]] = {
    ("deliveries", "ended"): "Only rows of an earlier version: now real_outcome.",
    ("queue_items", "reason"): "Only rows of an earlier version: now condition.",
}


def of_column(table: str, column: str) -> str:
    """The comment of a column; "" if the table is none of an audit, or has no such column.

    Args:
        table: the name of the table.
        column: the name of the column, or of a part of it: `history.at`.
    """
    if table not in TABLES:
        return ""
    name = (table, column.removeprefix("evidence."))
    if column.startswith("evidence."):
        name = ("deliveries", name[1])
    return FORMER.get(name) or _OF_TABLE.get(name) or COLUMNS.get(name[1], "")
