"""The journal: a line for each thing that happens to a message or an item.

Never a payload. `qos.journal.schema` says what a line is; writer and reader both
go by it. `qos.journal.writer` writes them.
"""

from qos.journal.schema import (
    EVENTS,
    FIELDS,
    LINE_BYTES_MAX,
    REQUIRED,
    SCHEMA_VERSION,
    BadLine,
    Entry,
    Event,
    Field,
    JournalEvent,
    NewerSchema,
    QueueEvent,
    ReceiverEvent,
    Role,
    SenderEvent,
    WorkerEvent,
    parse_line,
    render_line,
)

__all__ = [
    "EVENTS",
    "FIELDS",
    "LINE_BYTES_MAX",
    "REQUIRED",
    "SCHEMA_VERSION",
    "BadLine",
    "Entry",
    "Event",
    "Field",
    "JournalEvent",
    "NewerSchema",
    "QueueEvent",
    "ReceiverEvent",
    "Role",
    "SenderEvent",
    "WorkerEvent",
    "parse_line",
    "render_line",
]
