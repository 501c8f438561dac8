"""Journals of hostile nodes: each field of a line at its edges.

Every node has a folder of its own, which is tied to it. What it writes is made of a
number, so that a failure comes again.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from qos.journal.schema import EVENTS, FIELDS, LINE_BYTES_MAX, Role

__all__ = ["write_hostile"]

_DOMAIN = "hostile.example"

_INTS: tuple[Any, ...] = (
    *(0, 1, 2, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 10**400),
    *(-1, 1.0, 1.5, 1e308, float("nan"), float("inf"), True, None, "1", [], {}),
)
_YEARS = ("0000", "0001", "1582", "1900", "1969", "1970", "1999", "2000", "2038")
_LATE_YEARS = ("2199", "2200", "2201", "2262", "2263", "9998", "9999")
_TIMES: tuple[Any, ...] = (
    *(f"{year}-01-01T00:00:00.000000Z" for year in (*_YEARS, *_LATE_YEARS)),
    *(f"{year}-12-31T23:59:59.999999Z" for year in (*_YEARS, *_LATE_YEARS)),
    *("2026-01-05T12:00:00.000000Z", "2026-01-05T12:00:01.000000Z"),
    *("2026-02-29T00:00:00.000000Z", "2026-01-05T24:00:00.000000Z"),
    *("2026-12-31T23:59:60.000000Z", "2026-01-05T12:00:00Z", "-2026-01-05", ""),
    *("2026-01-05T12:00:00.000000+00:00", 0, -1, 1767614400, None, True),
)
_TEXTS: tuple[Any, ...] = (
    *("", " ", "@", "/", "%", "a@x", "a@x/1", "b@x/1", "x"),
    *("\x00", "\n", "\ud800", "\udc00", "\ufeff", "\u202e", "😀" * 500, "x" * 4000),
    *('"\\', "../..", "date=9999-12-31", "__HIVE_DEFAULT_PARTITION__", "NaN", "null"),
    *("x" * LINE_BYTES_MAX, 0, None, [], {}),
)
_LEVELS = ("assured", "acknowledged", "x", "", None)
_DAYS = (
    *("0000-00-00", "0001-01-01", "1970-01-01", "2000-01-01", "2026-01-05"),
    *("2026-02-31", "2200-12-31", "9999-12-31", "9999-99-99"),
)
_LINES = 40


def write_hostile(folder: Path, number: int) -> str:
    """Write the journal of a hostile node; returns it with its node, for an audit."""
    chance = random.Random(number)
    node = f"h{number}@{_DOMAIN}"
    journal = folder / f"hostile-{number}"
    names = (f"h{number}", "a%40x%2F1", "%00", "%ED%A0%80", "~0123456789abcdef", "x-y")
    for day in chance.sample(_DAYS, 3):
        (journal / f"date={day}").mkdir(parents=True)
        for end in ("", ".gz", ".zst", "."):
            hidden, end = (".", "") if end == "." else ("", end)
            count = chance.choice((0, 1, 10**30))
            name = f"{hidden}{chance.choice(names)}-b{end[1:]}-{count}.jsonl{end}"
            text = b"".join(_line(chance, node) for _ in range(_LINES))
            # A .zst is none.
            text = gzip.compress(text) if end == ".gz" else text
            (journal / f"date={day}" / name).write_bytes(text)
    return f"{node}={journal}"


def _line(chance: random.Random, node: str) -> bytes:
    role = chance.choice(list(Role))
    event = chance.choice(list(EVENTS[role]))
    boots = ("one", "two", "two", f"{chance.random()}")
    fields: dict[str, Any] = {
        "v": 2,
        "at": f"2026-01-05T12:00:{chance.randrange(60):02}.000000Z",
        "boot": chance.choice(boots),
        "seq": chance.randrange(1, 50),
        "node": f"{node}/1",
        "role": role.value,
        "event": event.value,
        "level": chance.choice(_LEVELS[:2]),
        # Also of a's messages to b: the node may say that it got them.
        "msg_id": chance.choice(("lost", "well", "doubled", "stuck", "orphaned")),
        "from": chance.choice((f"{node}/1", "a@x/1")),
        "to": chance.choice((f"{node}/1", "b@x/1")),
        "queue": "q",
        "item": chance.choice(("i", "j")),
        "attempt": 1,
        "bytes": 3,
        "condition": "why",
        "since": "2026-01-05T12:00:00.000000Z",
        "sent": 1,
        "received": 1,
    }
    for field in chance.sample(FIELDS, chance.choice((0, 1, 1, 2))):
        kinds = {"int": _INTS, "time": _TIMES, "text": _TEXTS}
        value = chance.choice(kinds[field.kind])
        if value is None and chance.random() < 0.5:
            del fields[field.name]
        else:
            fields[field.name] = value
    text = json.dumps(fields, separators=(",", ":"))
    if chance.random() < 0.1:
        begin, end = sorted(chance.choices(range(len(text)), k=2))
        text = text[:begin] + text[end:]
    return text.encode() + chance.choice((b"\n", b"\n", b"\n", b"\n", b"\r\n", b""))
