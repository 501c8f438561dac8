"""The lines of a made-up journal about itself (role `journal`).

They follow from the node's other lines as for a real writer: `qos.journal.counts` makes
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time

from qos.journal.counts import WINDOW_S, WindowCounts
from qos.journal.schema import Entry, JournalEvent, ReceiverEvent, Role, SenderEvent

__all__ = ["own_lines"]

_WINDOW_US = int(WINDOW_S * 1_000_000)

#: The beginnings of lines that are counted.
_COUNTED = {
    f'"role":"{role.value}","event":"{event.value}",': event
    for role, event in (
        (Role.SENDER, SenderEvent.ACCEPTED),
        (Role.RECEIVER, ReceiverEvent.HANDED_OVER),
    )
}


def own_lines(
    jid: str,
    day: date,
    clock_us: int,
    lines: Sequence[tuple[int, str]],
    up: tuple[int, int],
) -> list[tuple[int, str]]:
    """The lines of role `journal` of a node; at equal times, they come first.

    Args:
        jid: the node.
        day: the day of the lines.
        clock_us: by how much the clock of the node is ahead.
        lines: the time of each line, by the true time in microseconds of the day, and
            the rest of the line; in any order. The result has the same form.
        up: from when to when the node is up, by the true time.
    """
    midnight = datetime.combine(day, time(), UTC).timestamp()
    began, ended = up
    # At these times only the passing of time is noted: a window may end.
    first = -(-(began + clock_us) // _WINDOW_US) * _WINDOW_US - clock_us
    noted: list[tuple[int, Entry | None]] = [
        (at, None) for at in range(first, ended, _WINDOW_US)
    ]
    for at, text in lines:
        entry = _entry(text)
        if entry is not None:
            noted.append((at, entry))
    noted.sort(key=lambda each: each[0])

    def seconds(at: int) -> float:
        return midnight + (at + clock_us) / 1_000_000

    counts = WindowCounts(jid, at=seconds(began))
    made = counts.with_counts((seconds(at), entry) for at, entry in noted)
    counted = [
        (round((at - midnight) * 1_000_000) - clock_us, entry)
        for at, entry in made
        if entry.event is JournalEvent.COUNTED
    ]
    return [
        (began, _text(Entry(JournalEvent.OPENED))),
        *((at, _text(entry)) for at, entry in counted),
        (ended, _text(Entry(JournalEvent.CLOSED))),
    ]


def _entry(text: str) -> Entry | None:
    """The entry of a line, if it is counted."""
    for begin, event in _COUNTED.items():
        if text.startswith(begin):
            words = text[len(begin) :].split('"')
            names = dict(zip(words[1::4], words[3::4], strict=False))
            return Entry(
                event, level=names["level"], source=names["from"], to=names["to"]
            )
    return None


def _text(entry: Entry) -> str:
    text = f'"role":"{Role.JOURNAL.value}","event":"{entry.event.value}"'
    if entry.level is not None:
        text += f',"level":"{entry.level}","from":"{entry.source}","to":"{entry.to}"'
    if entry.since is not None:
        text += f',"since":"{entry.since}"'
        text += f',"sent":{entry.sent},"received":{entry.received}'
    return text
