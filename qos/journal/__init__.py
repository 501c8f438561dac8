"""The journal: one line for each event of a message or an item.

A line never contains a payload. `qos.journal.schema` defines a line; the writer and the
readers both use it. `qos.journal.writer` writes the lines.
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
