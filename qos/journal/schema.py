"""What a line of the journal is: the one place that says so.

A journal is a folder of JSON Lines::

    DIR/date=2026-11-21/NODE-BOOT-N.jsonl     whole, and never changed again
    DIR/date=2026-11-21/.NODE-BOOT-N.jsonl    being written: not for readers

NODE is the JID of the node, percent-quoted; BOOT names one life of one writer; N
counts its files from 1. The date is that (UTC) of the first line in the file, so the
lines of a file may belong to the day after, and by a clock that was set to any.

A line is one JSON object in ASCII, its fields in the order of `FIELDS`, those that
say nothing left out. (boot, seq) tells a line from every other: seq counts the
lines of a boot from 1, and a hole in it is a line that could not be written.

What stands in the journal was decided, and is written before it is true: a process
that dies just then may leave a line whose change was never made. The line is then
followed, in the next boot, by the same event again or by how it really went on: of
several events that exclude each other the last counts.

This module knows nothing of files. It imports nothing of the project, so that what
reads journals may be far away from what writes them.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "EVENTS",
    "FIELDS",
    "LINE_BYTES_MAX",
    "SCHEMA_VERSION",
    "BadLine",
    "Entry",
    "Event",
    "Field",
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

#: The `v` of a line. A new event makes a new version. A new field alone does not:
#: readers leave out those that they do not know.
SCHEMA_VERSION: Final = 1

#: A longer line is not ours: none of the fields may be much longer than a JID
#: (3071 bytes, RFC 7622 §3.1), but for ids that a peer chose.
LINE_BYTES_MAX: Final = 256 * 1024


class Role(enum.Enum):
    """What the node does in this line."""

    SENDER = "sender"
    RECEIVER = "receiver"
    QUEUE = "queue"
    WORKER = "worker"


class SenderEvent(enum.Enum):
    """A message at its sender. All but the last four may come more than once."""

    #: It is in the outbox. Has `bytes`.
    ACCEPTED = "accepted"
    #: It goes out to be held (assured) or taken (acknowledged). `attempt` counts
    #: the iqs of a message, of whatever kind; what is sent again after a crash may
    #: have the same number.
    OFFERED = "offered"
    #: The peer holds it.
    RECEIVED = "received"
    #: `deliver` goes out: the peer may hand it over. Has `attempt`.
    RELEASED = "released"
    #: The four outcomes. `attempt`: how many in all; `condition`: the stanza error
    #: that decided, or came last.
    DELIVERED = "delivered"
    NOT_DELIVERED = "not-delivered"
    IN_DOUBT = "in-doubt"
    #: Taken back by its sender; certainly not delivered.
    WITHDRAWN = "withdrawn"


class ReceiverEvent(enum.Enum):
    """A message at its receiver."""

    #: It is kept until its sender releases it. Has `bytes`.
    HELD = "held"
    #: It may be handed over: `deliver` came. At level acknowledged the first event
    #: of all, with `bytes`.
    RELEASED = "released"
    #: It is handed to the application.
    HANDED_OVER = "handed-over"
    #: The same, after a restart: it may have been handed over before.
    REDELIVERED = "redelivered"
    #: The application has it, and the sender is told so. `condition`: the application
    #: has rejected the message for good, and its sender is told that.
    DONE = "done"
    #: It was not released in time, or could not be kept (`condition`).
    EXPIRED = "expired"
    #: A request that was refused, with this `condition`. May be without msg_id.
    REFUSED = "refused"


class QueueEvent(enum.Enum):
    """An item at the queue service."""

    #: Has `bytes`; from: who published it.
    PUBLISHED = "published"
    #: to: who has it now; `attempt`: the number of this delivery, from 1.
    ACQUIRED = "acquired"
    #: from: who had it. `condition` is the reason, where one is known, in all that
    #: follow.
    ACCEPTED = "accepted"
    #: Given back unhandled.
    RELEASED = "released"
    #: Given back as failed.
    MODIFIED = "modified"
    REJECTED = "rejected"
    #: Its lock was not renewed in time.
    TIMED_OUT = "timed-out"
    #: Who had it went away.
    GONE = "gone"
    #: It is out of the queue for good: in the dead-letter node, or kept as dead.
    DEAD = "dead"
    #: It was dead, and is in the queue again.
    REQUEUED = "requeued"
    #: Its publisher or an owner took it out.
    WITHDRAWN = "withdrawn"
    PURGED = "purged"
    EXPIRED = "expired"


class WorkerEvent(enum.Enum):
    """An item at a worker; from: the JID of the service (the node of its lines)."""

    #: The handler begins. Has `attempt`: the number of this delivery, from 1.
    STARTED = "started"
    #: What the worker told the queue. `condition`: why.
    ACCEPTED = "accepted"
    RELEASED = "released"
    MODIFIED = "modified"
    REJECTED = "rejected"
    #: It was not the worker's any more.
    LOST = "lost"


Event: TypeAlias = SenderEvent | ReceiverEvent | QueueEvent | WorkerEvent

#: The events of each role; the name of an event means something only with its role.
EVENTS: Final[Mapping[Role, type[Event]]] = {
    Role.SENDER: SenderEvent,
    Role.RECEIVER: ReceiverEvent,
    Role.QUEUE: QueueEvent,
    Role.WORKER: WorkerEvent,
}


class Field(NamedTuple):
    """A field of a line.

    Attributes:
        name: its key in the JSON object.
        kind: `int`, `text`, or `time` (text like 2026-11-21T20:19:04.000000Z).
        always: whether every line has it.
        doc: what it says.
    """

    name: str
    kind: str
    always: bool
    doc: str


FIELDS: Final = (
    Field("v", "int", True, "the version of the schema"),
    Field("at", "time", True, "when, UTC, by the clock of the node"),
    Field("boot", "text", True, "one life of one writer; never used again"),
    Field("seq", "int", True, "counts the lines of a boot from 1"),
    Field("node", "text", True, "whose journal it is: the JID of the endpoint"),
    Field("role", "text", True, "see Role"),
    Field("event", "text", True, "see EVENTS"),
    Field("level", "text", False, "of a message: acknowledged or assured"),
    Field(
        "msg_id",
        "text",
        False,
        "of a message: msgId, or the iq id of an acknowledged one; "
        "with the bare JID of its sender it is unique",
    ),
    Field("from", "text", False, "who sent it; only the bare JID is the same at both"),
    Field("to", "text", False, "whom it is for"),
    Field("queue", "text", False, "the name of its node"),
    Field("item", "text", False, "the id of the item"),
    Field("attempt", "int", False, "see the events"),
    Field("bytes", "int", False, "of the payload, in UTF-8"),
    Field("condition", "text", False, "the error or the reason, in a word or few"),
)


class Entry(NamedTuple):
    """What happened, as it is given to the writer; the rest of the line is its own.

    See FIELDS. `source` is the field `from`. None: nothing to say.
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


class BadLine(ValueError):
    """A line that is none of the journal's."""


class NewerSchema(BadLine):
    """A line by a newer version of this library."""


_NAMES = tuple(field.name for field in FIELDS)
_ALWAYS = tuple(field.name for field in FIELDS if field.always)
_EVENTS: Mapping[object, set[str]] = {
    role.value: {event.value for event in EVENTS[role]} for role in Role
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_INT_MAX = 2**63 - 1

_encode = json.JSONEncoder(separators=(",", ":")).encode
_quote = json.encoder.encode_basestring_ascii


def render_line(line: Mapping[str, str | int | None]) -> str:
    """The line of these fields, without the newline. Nothing is checked."""
    return _encode({name: line[name] for name in _NAMES if line.get(name) is not None})


class LineMaker:
    """Makes the lines of one boot: as `render_line` does, several times as fast."""

    def __init__(self, *, node: str, boot: str) -> None:
        self._boot = f'","boot":{_quote(boot)},"seq":'
        self._events = {
            event: f',"node":{_quote(node)},"role":"{role.value}","event":"{event.value}"'
            for role, events in EVENTS.items()
            for event in events
        }
        self._second = -1
        self._until_second = ""
        #: The date of the line made last.
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
        # One after the other: a loop over the fields would take twice the time.
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
        return line + "}\n"


def parse_line(line: str | bytes) -> dict[str, str | int]:
    """The fields of a line, checked; only those that it has.

    What a line has beyond FIELDS is left out.

    Raises:
        NewerSchema: it is by a newer version.
        BadLine: it is no line of a journal, or torn.
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
    if event not in _EVENTS.get(role, ()):
        raise BadLine(f"there is no event {event!r:.100} of {role!r:.100}")
    return fields


def time_text(seconds: float) -> str:
    """The `at` of a moment (seconds since the epoch)."""
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def time_of(at: str) -> float:
    """The moment of an `at`.

    Raises:
        ValueError: it is none.
    """
    return (datetime.fromisoformat(at) - _EPOCH).total_seconds()


def _checked(field: Field, value: object) -> str | int:
    if field.kind == "int":
        if type(value) is int and 0 <= value <= _INT_MAX:
            return value
    elif isinstance(value, str) and (field.kind == "text" or _is_time(value)):
        return value
    raise BadLine(f"{field.name} is no {field.kind}: {value!r:.100}")


def _is_time(text: str) -> bool:
    try:
        return _TIME.fullmatch(text) is not None and time_of(text) is not None
    except ValueError:
        return False
