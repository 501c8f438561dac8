"""The results of the installed commands, read from their stdout as a user does.

A line torn off by a kill or a full disk does not count; the next one must begin on a
new line. So each line is a whole JSON object, or the beginning of one and nothing else.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.commands import BY_MESSAGE, ERRANDS, TRAP, VAULT, HomeFiles
from campaign.count import Tally, compare, examples_of
from hostile_roles import ASKED, CROWDED
from message_roles import read_log
from qos.core.message.model import Level, OutgoingState
from queue_roles import query

__all__ = [
    "CROWD",
    "FORGED",
    "GREEDY_REFUSED",
    "LINE_TORN",
    "SQUATTED",
    "Printed",
    "came_to_pass",
    "count_commands",
    "missing",
    "questions",
    "read_printed",
]

#: Faults that are not injected at a moment of our choice.
LINE_TORN = "line torn off"
GREEDY_REFUSED = "no room for the greedy"
SQUATTED = "dead letters to another's name"
CROWD = "presence of strangers"

#: The first word of each body that an attacker has written without TLS.
FORGED = "forged"

#: The beginning of a line of `listen`. No body contains it.
_BEGINS = '{"'


@dataclass(frozen=True, slots=True)
class Printed:
    """The contents of a file to which stdout was appended.

    Attributes:
        whole: the objects of complete lines, in order.
        torn: how many lines are the beginning of one.
        glued: the lines that are neither: for example, a torn one with another behind
            it.
    """

    whole: list[dict[str, Any]] = field(default_factory=list)
    torn: int = 0
    glued: list[str] = field(default_factory=list)

    def __add__(self, other: Printed) -> Printed:
        return Printed(
            self.whole + other.whole,
            self.torn + other.torn,
            self.glued + other.glued,
        )


def read_printed(*paths: Path) -> Printed:
    """Read these files; a missing file has no lines."""
    found = Printed()
    for path in paths:
        if path.exists():
            text = path.read_text(errors="replace")
            found += _read(text.split("\n"))
    return found


def _read(lines: Iterable[str]) -> Printed:
    whole, torn, glued = [], 0, []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            if not line:
                continue
            if _is_beginning(line):
                torn += 1
            else:
                glued.append(line)
        else:
            whole.append(value)
    return Printed(whole, torn, glued)


def _is_beginning(line: str) -> bool:
    """Whether this text, which is not JSON, may be the beginning of a single line."""
    with contextlib.suppress(ValueError):
        json.JSONDecoder().raw_decode(line)
        return False
    return line.startswith(_BEGINS[: len(line)]) and _BEGINS not in line[1:]


def count_commands(files: HomeFiles, queue_store: Path) -> dict[str, Tally]:
    """Compare the output of the commands with other records, by subject."""
    return {
        "messages, listen": _listened(files),
        "messages, send": _sent(files),
        "items, worker": _worked(files, queue_store),
    }


def missing(files: HomeFiles, queue_store: Path) -> int:
    """The accepted messages and items that are not printed or done yet."""
    listened, worked = _listened(files), _worked(files, queue_store)
    return listened.lost + worked.open


def came_to_pass(files: HomeFiles, queue_store: Path) -> dict[str, int]:
    """The faults, by kind, that we did not inject, or that show only in the results."""
    paths = (*files.printed, files.desk_printed, files.errand_printed)
    refused = files.refused.read_text() if files.refused.exists() else ""
    sql = f"SELECT 1 FROM item WHERE origin = '{TRAP}' OR node = '{TRAP}'"  # noqa: S608
    return {
        LINE_TORN: read_printed(*paths).torn,
        GREEDY_REFUSED: refused.count("\n"),
        SQUATTED: len(query(queue_store, sql)),
        CROWD: _crowd(files).count(CROWDED),
    }


def questions(files: HomeFiles) -> list[str]:
    """Who has asked a stranger something, whose presence alone had come."""
    asked = Counter(line for line in _crowd(files) if line.startswith(ASKED))
    return [f"a stranger's presence was {line}, {n} times" for line, n in asked.items()]


def _crowd(files: HomeFiles) -> list[str]:
    return files.crowd.read_text().splitlines() if files.crowd.exists() else []


def _listened(files: HomeFiles) -> Tally:
    """The hub's outcomes, and the lines of `listen`.

    Compared by bodies, which are unique.
    """
    log = [entry for entry in read_log(files.hub) if entry["event"] not in _TAKEN]
    ids = {entry["body"]: entry["id"] for entry in log}
    printed = read_printed(*files.printed)
    lines: dict[str, list[bool]] = {}
    for line in printed.whole:
        # A server gives a plain message for a missing resource to another resource.
        plain = line["level"] == Level.UNACKNOWLEDGED.value
        if plain and not str(line["body"]).startswith(FORGED):
            continue
        lines.setdefault(line["body"], []).append(line["redelivered"])
    got: list[dict[str, Any]] = []
    for body, redelivered in lines.items():
        # The line before the first of these may have been torn off.
        times = redelivered.count(False) or 1
        again = len(redelivered) - times
        msg_id = ids.get(body, f"nobody sent {body!r}")
        events = ["took"] * times + ["skipped"] * again
        got += [{"event": event, "id": msg_id} for event in events]
    return compare(log, got, false=_shown(printed.glued))


def _sent(files: HomeFiles) -> Tally:
    """The outcomes that `desk` has printed, and the messages that the hub took."""
    printed = read_printed(files.desk_printed)
    outcomes = [line for line in _outcomes(printed) if "@" in line["to"]]
    log = read_log(files.hub)
    taken = Counter(entry["id"] for entry in log if entry["event"] == "took")
    said: dict[str, set[str]] = {}
    for line in outcomes:
        said.setdefault(line["msg_id"], set()).add(line["outcome"])
    of = {
        state: {msg_id for msg_id, words in said.items() if state.value in words}
        for state in OutgoingState
    }
    delivered = of[OutgoingState.DELIVERED]
    found = {
        "lost": delivered - taken.keys(),
        "doubled": {msg_id for msg_id, times in taken.items() if times > 1},
        "false": {
            *(of[OutgoingState.NOT_DELIVERED] & taken.keys()),
            *(msg_id for msg_id, words in said.items() if len(words) > 1),
            *(line["id"] for line in log if str(line["body"]).startswith(FORGED)),
            *_shown(printed.glued),
        },
    }
    return Tally(
        accepted=len(said.keys() | taken.keys()),
        delivered=len(delivered),
        not_delivered=len(of[OutgoingState.NOT_DELIVERED]),
        again=sum(entry["event"] == "skipped" for entry in log),
        in_doubt=len(of[OutgoingState.IN_DOUBT]),
        lost=len(found["lost"]),
        doubled=len(found["doubled"]),
        false=len(found["false"]),
        examples=examples_of(found, {}),
    )


def _outcomes(printed: Printed) -> list[dict[str, Any]]:
    """The lines of `desk` that show the end of a message."""
    return [line for line in printed.whole if line.keys() >= {"outcome", "attempts"}]


def _worked(files: HomeFiles, queue_store: Path) -> Tally:
    """The output of `queue publish` and the worker, and the items that were done."""
    published = read_printed(files.desk_printed)
    ids = {line["id"] for line in published.whole if line.keys() == {"id"}}
    worker = read_printed(files.errand_printed)
    accepted = Counter(
        line["id"] for line in worker.whole if line["outcome"] == "accepted"
    )
    done = set(files.done.read_text().split()) if files.done.exists() else set()
    sql = f"SELECT item_id, outcome FROM item WHERE node = '{ERRANDS}'"  # noqa: S608
    outcomes: dict[str, str | None] = dict(query(queue_store, sql))
    confirmed = {
        line["msg_id"]
        for line in _outcomes(published)
        if "@" not in line["to"] and line["outcome"] == OutgoingState.DELIVERED.value
    }
    by_messages = [item for item in outcomes if item.startswith(BY_MESSAGE)]
    in_vault = f"SELECT item_id FROM item WHERE node = '{VAULT}'"  # noqa: S608
    open_ = {item for item, outcome in outcomes.items() if outcome is None}
    found = {
        "lost": {
            *(ids - done - open_),
            # Of these it is not known which is which.
            *(f"{each}, or another" for each in sorted(confirmed)[len(by_messages) :]),
        },
        # Another worker does the items of a killed worker again.
        "doubled": {item for item, times in accepted.items() if times > 1},
        "false": {
            *(accepted.keys() - done),
            *(item for item in accepted if outcomes.get(item) != "accepted"),
            *(f"{item} in {VAULT}" for (item,) in query(queue_store, in_vault)),
            *_shown(worker.glued),
        },
        "open": open_,
    }
    return Tally(
        accepted=len(outcomes),
        delivered=sum(outcome == "accepted" for outcome in outcomes.values()),
        lost=len(found["lost"]),
        doubled=len(found["doubled"]),
        false=len(found["false"]),
        open=len(found["open"]),
        examples=examples_of(found, {}),
    )


#: The messages that the hub itself received, by its log.
_TAKEN = frozenset({"took", "skipped"})

_SHOWN_CHARS = 60


def _shown(glued: Iterable[str]) -> list[str]:
    """Each is a false result of its own.

    The middle of a line shows where it was glued.
    """
    shown = []
    for number, line in enumerate(glued):
        place = max(line.find(_BEGINS, 1) - _SHOWN_CHARS // 2, 0)
        part = line[place : place + _SHOWN_CHARS]
        shown.append(f"no line, but …{part}… ({number})")
    return shown
