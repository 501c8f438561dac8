"""An index in memory of a folder of messages, and the plan of the files for a change.

The index has ids, times and outcomes; the messages themselves are in the files. Pure:
it reads and writes no file. See `qos.stores.files` for the folder.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from qos.core.message.effects import End, Save
from qos.core.message.model import Ended, Incoming, Outgoing
from qos.stores.base import (
    ENDED_FIELDS,
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    ForgetEnded,
    Remember,
    is_kept,
)
from qos.stores.memory import QueueIndex

__all__ = [
    "LAST",
    "MARKER",
    "MESSAGE",
    "REMEMBERED",
    "TEMPORARY",
    "FilesIndex",
    "Move",
    "encode",
    "incoming_name",
    "name_of",
    "outgoing_name",
]

REMEMBERED: Final = "remembered.json"
TEMPORARY: Final = ".tmp"
LAST: Final = "last-"

MESSAGE: Final = re.compile(r"(\d{20}|[0-9a-f]{64})\.json")
MARKER: Final = re.compile(rf"{LAST}\d{{20}}")

#: A file to rename, and its new name; None: to remove.
Move: TypeAlias = tuple[str, str | None]


class FilesIndex:
    """The index of the folder.

    Attributes:
        queue: the messages that wait for their turn.
        ids: the msg_id of each message of the outbox, by seq; `seqs` is the reverse.
        ended: the ends of other messages, by seq.
        received: the time of the last change of each received message, by key.
        remembered: the named values.
        last: the largest seq so far.
    """

    def __init__(self) -> None:
        self.queue = QueueIndex()
        self.ids: dict[int, str] = {}
        self.seqs: dict[str, int] = {}
        self.ended: dict[int, Ended] = {}
        self.received: dict[str, float] = {}
        self.remembered: dict[str, str] = {}
        self.last = 0

    def received_keys(self) -> list[str]:
        """The keys of received messages, in the order of their last change."""
        return sorted(self.received, key=lambda key: (self.received[key], key))

    def how_ended(self, msg_id: str | None) -> Iterator[Ended]:
        """See Store.ended."""
        ends = [self.ended[seq] for seq in sorted(self.ended)]
        return (end for end in ends if msg_id in {None, end.msg_id})

    def plan(self, changes: Sequence[Change]) -> tuple[dict[str, Any], list[Move]]:
        """The content of each file to write, and the moves that make the changes."""
        content: dict[str, Any] = {}
        removed: dict[str, str | None] = {}
        for change in changes:
            if isinstance(change, Remember):
                values = content.setdefault(REMEMBERED, dict(self.remembered))
                values[change.name] = change.value
                continue
            if isinstance(change, ForgetEnded):
                for name in self._outlived(content, change):
                    content.pop(name, None)
                    removed[name] = None
                continue
            if isinstance(change, End):
                content[name_of(change.ended)] = change.ended
                removed.pop(name_of(change.ended), None)
                name = outgoing_name(change.ended.seq)
                content.pop(name, None)
                removed |= self._removed(name, change.ended.seq)
                continue
            record = change.record
            name = name_of(record)
            content.pop(name, None)
            removed.pop(name, None)
            if isinstance(change, Save):
                content[name] = record
            elif isinstance(record, Incoming):
                if record.key in self.received:
                    removed[name] = None
            else:
                removed |= self._removed(name, record.seq)
        moves: list[Move] = [(name + TEMPORARY, name) for name in content]
        return content, moves + list(removed.items())

    def _removed(self, name: str, seq: int) -> dict[str, str | None]:
        """The move that removes a message from the outbox, if it is there."""
        if seq not in self.ids:
            return {}
        return {name: _marker_name(seq) if seq == self.last else None}

    def _outlived(self, content: dict[str, Any], change: ForgetEnded) -> list[str]:
        """The files of ends to be forgotten, among the present and the new ones."""
        files = {name_of(end): end for end in self.ended.values()}
        files |= {n: end for n, end in content.items() if isinstance(end, Ended)}
        return [name for name, end in files.items() if not is_kept(end, change)]

    def note(self, changes: Sequence[Change]) -> None:
        """Update the index after the changes are made."""
        for change in changes:
            if isinstance(change, Remember):
                self.remembered[change.name] = change.value
                continue
            if isinstance(change, ForgetEnded):
                ends = [end for end in self.ended.values() if is_kept(end, change)]
                self.ended = {end.seq: end for end in ends}
                continue
            if isinstance(change, End):
                self._drop(change.ended.seq)
                self.ended[change.ended.seq] = change.ended
                continue
            record = change.record
            if isinstance(record, Incoming):
                self.received.pop(record.key, None)
                if isinstance(change, Save):
                    self.received[record.key] = record.changed_at
            else:
                self._drop(record.seq)
                if isinstance(change, Save):
                    self.ids[record.seq] = record.msg_id
                    self.seqs[record.msg_id] = record.seq
                    self.queue.update(record)
        # Last of all: a message that came and went in one commit has left no file.
        for change in changes:
            if isinstance(change, Save) and isinstance(change.record, Outgoing):
                seq = change.record.seq
                self.last = max(self.last, seq if seq in self.ids else 0)

    def _drop(self, seq: int) -> None:
        self.seqs.pop(self.ids.pop(seq, ""), None)
        self.queue.discard(seq)


def name_of(record: Outgoing | Incoming | Ended) -> str:
    """The file of a record."""
    if isinstance(record, Outgoing):
        return outgoing_name(record.seq)
    if isinstance(record, Ended):
        return f"ended/{record.seq:020d}.json"
    return incoming_name(record.key)


def outgoing_name(seq: int) -> str:
    """The file of a message of the outbox."""
    return f"outgoing/{seq:020d}.json"


def incoming_name(key: str) -> str:
    """The file of a received message."""
    # A key may have characters that no file name can have, and be longer than one.
    return f"incoming/{hashlib.sha256(key.encode()).hexdigest()}.json"


def _marker_name(seq: int) -> str:
    return f"outgoing/{LAST}{seq:020d}"


def encode(value: object) -> bytes:
    """The content of a file, readable by people too."""
    if isinstance(value, Outgoing):
        value = {name: getattr(value, name) for name in OUTGOING_FIELDS}
    elif isinstance(value, Incoming):
        value = {name: getattr(value, name) for name in INCOMING_FIELDS}
    elif isinstance(value, Ended):
        value = {name: getattr(value, name) for name in ENDED_FIELDS}
    text = json.dumps(value, ensure_ascii=False, indent=1, default=_plain)
    return text.encode() + b"\n"


def _plain(value: enum.Enum) -> object:
    return value.value
