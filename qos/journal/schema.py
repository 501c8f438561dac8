"""The schema of a line of the journal, and its only definition.

A journal is a folder of JSON Lines::

    DIR/date=2026-11-21/NODE-BOOT-N.jsonl     complete, and never changed again
    DIR/date=2026-11-21/.NODE-BOOT-N.jsonl    being written: not for readers

NODE is the JID of the node, percent-quoted. BOOT identifies one life of one writer. N
counts the files of this boot from 1. The date is the date (UTC) of the first line in
the file. Later lines of the file may belong to the next day, or to any day if the clock
was set.

A node may have several writers at a time: a queue service has one of items, and one of
the messages that it sends and receives. The boots of a writer of items end with `ITEMS`.
They have no line of a message, so their silence says nothing of messages.

A line is one JSON object in ASCII. Its fields have the order of `FIELDS`, and fields
without a value are left out. The pair (boot, seq) is unique: seq counts the lines of a
boot from 1, and a gap in it is a line that could not be written. Times are of the years
2000 to 2200, and numbers are below 2**53; a reader takes any other line for a bad one.

A line is written after its event is decided and before it comes true. If the process
dies in between, the journal may have a line for a change that was never made. The next
boot then writes either the same event again or what really happened: of several events
that exclude each other, the last one counts.

A boot also writes lines about the journal itself (role `journal`): that it was opened,
what it counted in each window of 300 seconds, and that it was closed. They prove that
the journal was kept from one such line to the next, even at a node where nothing
happens. A boot without `closed` was killed, or is still running.

This module knows nothing of files. It imports nothing of the project, so readers of
journals need not have the rest of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from qos.core.quick_enum import QuickEnum

__all__ = [
    "EVENTS",
    "FIELDS",
    "INT_MAX",
    "ITEMS",
    "LINE_BYTES_MAX",
    "REQUIRED",
    "SCHEMA_VERSION",
    "YEARS",
    "BadLine",
    "Entry",
    "Event",
    "Field",
    "JournalEvent",
    "LineMaker",
    "NewerSchema",
    "QueueEvent",
    "ReceiverEvent",
    "Role",
    "SenderEvent",
    "WorkerEvent",
    "parse_line",
    "render_line",
    "time_of",
    "time_text",
]

#: The `v` of a line. A new event needs a new version. A new field alone does not:
#: readers ignore fields that they do not know. Version 2 added the role `journal`; a
#: line of version 1 is read as one of version 2.
SCHEMA_VERSION: Final = 2

#: A longer line is not ours. No field is much longer than a JID (3071 bytes, RFC 7622
#: §3.1), except for ids chosen by a peer.
LINE_BYTES_MAX: Final = 256 * 1024


#: The first and the last year of a time in a line. A clock that was never set says 1970;
#: such a line cannot be compared with others.
YEARS: Final = (2000, 2200)


class Role(QuickEnum):
    """The role of the node in this line."""

    SENDER = "sender"
    RECEIVER = "receiver"
    QUEUE = "queue"
    WORKER = "worker"
    #: A line about the journal itself.
    JOURNAL = "journal"


class SenderEvent(QuickEnum):
    """The events of a message at its sender.

    All but the last four may come more than once.
    """

    #: The message is in the outbox. Has `bytes`.
    ACCEPTED = "accepted"
    #: The message goes out, to be held (assured) or taken (acknowledged). `attempt`
    #: counts the iqs of a message of every kind; an iq that is sent again after a crash
    #: may have the same number.
    OFFERED = "offered"
    #: The peer holds the message.
    RECEIVED = "received"
    #: `deliver` goes out: the peer may hand it over. Has `attempt`.
    RELEASED = "released"
    #: The four outcomes. `attempt`: the total number of attempts; `condition`: the
    #: stanza error that decided, or the last one.
    DELIVERED = "delivered"
    NOT_DELIVERED = "not-delivered"
    IN_DOUBT = "in-doubt"
    #: Withdrawn by its sender; certainly not delivered.
    WITHDRAWN = "withdrawn"


class ReceiverEvent(QuickEnum):
    """The events of a message at its receiver."""

    #: The message is kept until its sender releases it. Has `bytes`.
    HELD = "held"
    #: The message may be handed over: `deliver` came. At level acknowledged this is the
    #: first event, and has `bytes`.
    RELEASED = "released"
    #: The message is handed to the application.
    HANDED_OVER = "handed-over"
    #: The same after a restart: it may have been handed over before.
    REDELIVERED = "redelivered"
    #: The application has the message, and the sender is told so. With `condition`: the
    #: application has rejected the message for good, and the sender is told that.
    DONE = "done"
    #: The message was not released in time, or could not be kept (`condition`).
    EXPIRED = "expired"
    #: A request was refused, with this `condition`. May lack msg_id.
    REFUSED = "refused"


class QueueEvent(QuickEnum):
    """The events of an item at the queue service."""

    #: Has `bytes`; from: its publisher.
    PUBLISHED = "published"
    #: to: the new holder; `attempt`: the number of this delivery, from 1.
    ACQUIRED = "acquired"
    #: from: the last holder. In this event and those below, `condition` is the
    #: reason, if one is known.
    ACCEPTED = "accepted"
    #: Given back unhandled.
    RELEASED = "released"
    #: Given back as failed.
    MODIFIED = "modified"
    REJECTED = "rejected"
    #: Its lock timed out.
    TIMED_OUT = "timed-out"
    #: Its holder left.
    GONE = "gone"
    #: The item has left the queue for good: it is in the dead-letter node, or is kept
    #: as dead.
    DEAD = "dead"
    #: The item was dead, and is in the queue again.
    REQUEUED = "requeued"
    #: Its publisher or an owner removed it.
    WITHDRAWN = "withdrawn"
    PURGED = "purged"
    EXPIRED = "expired"


class WorkerEvent(QuickEnum):
    """The events of an item at a worker.

    from: the JID of the service, which is the node of the service's own lines.
    """

    #: The handler begins. Has `attempt`: the number of this delivery, from 1.
    STARTED = "started"
    #: The outcome that the worker sent to the queue. `condition`: the reason.
    ACCEPTED = "accepted"
    RELEASED = "released"
    MODIFIED = "modified"
    REJECTED = "rejected"
    #: The item did not belong to the worker any more.
    LOST = "lost"


class JournalEvent(QuickEnum):
    """The events of the journal of this boot; see `qos.journal.counts`."""

    #: The first line of a boot.
    OPENED = "opened"
    #: The end of a window: the messages that this node accepted (`sent`) or handed over
    #: for the first time (`received`) since `since`, on the route given by `level`,
    #: `from` and `to` (accounts). A line without a route means no message at all, or
    #: the messages of all routes beyond the limit. Several lines of a boot about the
    #: same window and route add up.
    COUNTED = "counted"
    #: The last line of a boot that ended normally.
    CLOSED = "closed"


Event: TypeAlias = SenderEvent | ReceiverEvent | QueueEvent | WorkerEvent | JournalEvent

#: The events of each role. The name of an event is unique only within its role.
EVENTS: Final[Mapping[Role, type[Event]]] = {
    Role.SENDER: SenderEvent,
    Role.RECEIVER: ReceiverEvent,
    Role.QUEUE: QueueEvent,
    Role.WORKER: WorkerEvent,
    Role.JOURNAL: JournalEvent,
}

_MESSAGE = ("level", "msg_id", "from")
_SENT = (*_MESSAGE, "to")
_ITEM = ("queue", "item")
_JOB = ("from", *_ITEM)

#: The fields that a line of an event must have, besides those of every line. Writers of
#: every version have written them. A line without one of them would be counted as
#: nothing without notice.
REQUIRED: Final[Mapping[Event, tuple[str, ...]]] = {
    **dict.fromkeys(SenderEvent, _SENT),
    SenderEvent.ACCEPTED: (*_SENT, "bytes"),
    SenderEvent.OFFERED: (*_SENT, "attempt"),
    SenderEvent.RELEASED: (*_SENT, "attempt"),
    # `not-delivered` is not here: a message that could not be stored was never
    # attempted.
    SenderEvent.DELIVERED: (*_SENT, "attempt"),
    SenderEvent.IN_DOUBT: (*_SENT, "attempt"),
    SenderEvent.WITHDRAWN: (*_SENT, "attempt"),
    # `to` is left out if the request had none.
    **dict.fromkeys(ReceiverEvent, _MESSAGE),
    ReceiverEvent.HELD: (*_MESSAGE, "bytes"),
    ReceiverEvent.REFUSED: ("condition",),
    **dict.fromkeys(QueueEvent, _ITEM),
    QueueEvent.PUBLISHED: ("from", *_ITEM, "bytes"),
    QueueEvent.ACQUIRED: ("to", *_ITEM, "attempt"),
    **dict.fromkeys(WorkerEvent, _JOB),
    WorkerEvent.STARTED: (*_JOB, "attempt"),
    **dict.fromkeys(JournalEvent, ()),
    JournalEvent.COUNTED: ("since", "sent", "received"),
}


class Field(NamedTuple):
    """A field of a line.

    Attributes:
        name: its key in the JSON object.
        kind: `int` (0 to 2**53 - 1), `text`, or `time` (text like
            2026-11-21T20:19:04.000000Z, in YEARS).
        always: whether every line has it.
        doc: its meaning.
    """

    name: str
    kind: str
    always: bool
    doc: str


#: The end of each boot of a writer of items, of a queue service or a worker.
ITEMS: Final = "items"

FIELDS: Final = (
    Field("v", "int", True, "the version of the schema"),
    Field("at", "time", True, "the time of the event (UTC), by the clock of the node"),
    Field("boot", "text", True, "the id of one life of one writer; never used again"),
    Field("seq", "int", True, "the number of the line in its boot, from 1"),
    Field("node", "text", True, "the JID of the endpoint whose journal this is"),
    Field("role", "text", True, "the role of the node in this line; see Role"),
    Field("event", "text", True, "the event; see EVENTS"),
    Field("level", "text", False, "the level of a message: acknowledged or assured"),
    Field(
        "msg_id",
        "text",
        False,
        "the msgId of an assured message, or the iq id of an acknowledged one; "
        "with the bare JID of its sender it is unique",
    ),
    Field(
        "from", "text", False, "the sender; only its bare JID is the same at both ends"
    ),
    Field("to", "text", False, "the recipient"),
    Field("queue", "text", False, "the name of the node of an item"),
    Field("item", "text", False, "the id of an item"),
    Field(
        "attempt",
        "int",
        False,
        "the number of an attempt or a delivery; see the events",
    ),
    Field("bytes", "int", False, "the size of the payload in UTF-8"),
    Field("condition", "text", False, "the stanza error or the reason, in a few words"),
    Field("since", "time", False, "the begin of the window that was counted"),
    Field("sent", "int", False, "messages accepted in the window"),
    Field("received", "int", False, "messages handed over in the window"),
)


class Entry(NamedTuple):
    """An event as it is given to the writer, which adds the rest of the line.

    See FIELDS and REQUIRED. `source` is the field `from`. None: the field is left out.
    """

    event: Event
    level: str | None = None
    msg_id: str | None = None
    source: str | None = None
    to: str | None = None
    queue: str | None = None
    item: str | None = None
    attempt: int | None = None
    bytes: int | None = None
    condition: str | None = None
    since: str | None = None
    sent: int | None = None
    received: int | None = None


class BadLine(ValueError):
    """A line that is no line of a journal, or has a time or number out of range."""


class NewerSchema(BadLine):
    """A line written by a newer version of this library."""


_NAMES = tuple(field.name for field in FIELDS)
_ALWAYS = tuple(field.name for field in FIELDS if field.always)
_REQUIRED: Mapping[tuple[object, object], tuple[str, ...]] = {
    (role.value, event.value): REQUIRED[event]
    for role in Role
    for event in EVENTS[role]
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
#: Differences and sums of a few hundred such numbers are integers of SQL, too; and each
#: is exact as a float.
INT_MAX: Final = 2**53 - 1

_encode = json.JSONEncoder(separators=(",", ":")).encode
_quote = json.encoder.encode_basestring_ascii


def render_line(line: Mapping[str, str | int | None]) -> str:
    """The line with these fields, without the newline. Nothing is checked."""
    return _encode({name: line[name] for name in _NAMES if line.get(name) is not None})


class LineMaker:
    """Makes the lines of one boot: the same as `render_line`, several times as fast."""

    def __init__(self, *, node: str, boot: str) -> None:
        self._boot = f'","boot":{_quote(boot)},"seq":'
        self._events = {
            event: f',"node":{_quote(node)},"role":"{role.value}","event":"{event.value}"'
            for role, events in EVENTS.items()
            for event in events
        }
        self._second = -1
        self._until_second = ""
        #: The date of the line that was made last.
        self.day = ""

    def make(self, at: float, seq: int, entry: Entry) -> str:
        """The line, newline included."""
        micros = round(at * 1_000_000)
        second = micros // 1_000_000
        if second != self._second:
            self._second = second
            text = time_text(second)
            self.day = text[:10]
            self._until_second = f'{{"v":{SCHEMA_VERSION},"at":"{text[:20]}'
        line = (
            f"{self._until_second}{micros % 1_000_000:06}Z{self._boot}{seq}"
            f"{self._events[entry.event]}"
        )
        # The fields are written out: a loop over them would take twice the time.
        if entry.level is not None:
            line += f',"level":{_quote(entry.level)}'
        if entry.msg_id is not None:
            line += f',"msg_id":{_quote(entry.msg_id)}'
        if entry.source is not None:
            line += f',"from":{_quote(entry.source)}'
        if entry.to is not None:
            line += f',"to":{_quote(entry.to)}'
        if entry.queue is not None:
            line += f',"queue":{_quote(entry.queue)}'
        if entry.item is not None:
            line += f',"item":{_quote(entry.item)}'
        if entry.attempt is not None:
            line += f',"attempt":{entry.attempt}'
        if entry.bytes is not None:
            line += f',"bytes":{entry.bytes}'
        if entry.condition is not None:
            line += f',"condition":{_quote(entry.condition)}'
        if entry.since is not None:
            line += f',"since":{_quote(entry.since)}'
            # Only for this event: for most lines these fields are not even looked at.
            if entry.sent is not None:
                line += f',"sent":{entry.sent}'
            if entry.received is not None:
                line += f',"received":{entry.received}'
        return line + "}\n"


def parse_line(line: str | bytes) -> dict[str, str | int]:
    """The fields of a line, checked; only those that the line has.

    Keys that are not in FIELDS are left out.

    Raises:
        NewerSchema: a newer version wrote the line.
        BadLine: the text is no line of a journal, or is torn.
    """
    if len(line) > LINE_BYTES_MAX:
        raise BadLine(f"longer than {LINE_BYTES_MAX} bytes")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadLine("no JSON object")
    version = value.get("v")
    if type(version) is not int or version < 1:
        raise BadLine(f"v is no version: {version!r:.100}")
    if version > SCHEMA_VERSION:
        raise NewerSchema(f"by version {version}; this one reads {SCHEMA_VERSION}")
    missing = [name for name in _ALWAYS if name not in value]
    if missing:
        raise BadLine(f"has no {', '.join(missing)}")
    fields = {
        field.name: _checked(field, value[field.name])
        for field in FIELDS
        if field.name in value
    }
    role, event = fields["role"], fields["event"]
    required = _REQUIRED.get((role, event))
    if required is None:
        raise BadLine(f"there is no event {event!r:.100} of {role!r:.100}")
    missing = [name for name in required if name not in fields]
    if missing:
        raise BadLine(f"{event} of {role} has no {', '.join(missing)}")
    return fields


def time_text(seconds: float) -> str:
    """The text of a time (seconds since the epoch) for the field `at`."""
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def time_of(at: str) -> float:
    """The time (seconds since the epoch) of a text of the field `at`.

    Raises:
        ValueError: the text is no time.
    """
    return (datetime.fromisoformat(at) - _EPOCH).total_seconds()


def _checked(field: Field, value: object) -> str | int:
    if field.kind == "int":
        if type(value) is int and 0 <= value <= INT_MAX:
            return value
    elif isinstance(value, str) and (field.kind == "text" or _is_time(value)):
        return value
    raise BadLine(f"{field.name} is no {field.kind}: {value!r:.100}")


def _is_time(text: str) -> bool:
    if _TIME.fullmatch(text) is None:
        return False
    try:
        year = datetime.fromisoformat(text).year
    except ValueError:
        return False
    return YEARS[0] <= year <= YEARS[1]
