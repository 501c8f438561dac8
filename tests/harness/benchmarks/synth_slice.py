"""Makes the journals of one hub and its devices in a part of a day.

The lines are put together as text: rendering each with `qos.journal.render_line` would
take several times as long. A test checks that they are the same.
"""

from __future__ import annotations

import bisect
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from urllib.parse import quote

from benchmarks.synth_journal import own_lines
from qos.journal.schema import SCHEMA_VERSION

__all__ = ["Anomaly", "Slice", "write_slice"]

#: As for the writer of journals.
_FILE_BYTES_MAX = 16 * 2**20

_DOMAIN = "fleet.example"
_DAY_US = 86_400 * 1_000_000

#: All nodes are up for this time before the first line of a slice and after its last
#: one, but not at its ends, where the boots of another slice begin. No anomaly begins
#: near the ends. So the journals prove each anomaly: clocks differ by less, and the
#: time of an hour for a stuck message is covered.
_BEFORE_US = 600 * 1_000_000
_AFTER_US = 7200 * 1_000_000
_APART_US = 10 * 1_000_000

#: If a slice is not the last one of its day, nothing begins this close to its end,
#: because messages take some time.
_TAIL_US = 1800 * 1_000_000

#: The relative load of each hour of the day.
_HOURS = (2, 1, 1, 1, 1, 2, 5, 8, 10, 10, 9, 9, 8, 9, 10, 10, 9, 9, 8, 6, 5, 4, 3, 2)

#: Shares of all messages.
_COMMANDS = 0.2
_ACKNOWLEDGED = 0.12
_NOT_DELIVERED = 0.004
_WITHDRAWN = 0.0005
_REDELIVERED = 0.001
_OVER_QUOTA = 0.002
#: A stranger's refused requests, and items in the queue, for each message.
_STRANGERS = 0.003
_ITEMS = 0.05

_WORKERS = 3


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly that an audit has to find."""

    kind: str
    level: str
    sender: str
    receiver: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the journals to make; see benchmarks.synth.Plan.

    Attributes:
        seed: the seed of all slices.
        day: the day.
        hub: the number of the hub.
        devices: the numbers of its devices.
        hours: the hours of the day in which messages begin.
        part: the number of the part of the day, from 0.
        parts: the number of parts.
        messages: the number of messages to make.
        kinds: the kind of anomaly of each affected message.
    """

    seed: int
    day: date
    hub: int
    devices: tuple[int, ...]
    hours: int
    part: int
    parts: int
    messages: int
    kinds: Mapping[int, str]

    @property
    def span(self) -> tuple[int, int]:
        """The time in which its nodes may be up, in microseconds of the day."""
        begin = self.moment(0.0) if self.part else 0
        return begin, self.moment(1.0) if self.part < self.parts - 1 else _DAY_US

    def moment(self, share: float) -> int:
        """When this share of its work is done, in microseconds of the day."""
        where = (self.part + share) / self.parts * _BUSY[-1]
        hour = min(bisect.bisect_right(_BUSY, where), len(_HOURS)) - 1
        hour_us = _DAY_US // 24 * self.hours // 24
        return int((hour + (where - _BUSY[hour]) / _HOURS[hour]) * hour_us)


def write_slice(each: Slice, out: Path) -> tuple[int, int, list[Anomaly]]:
    """Write the journals of a slice; returns the lines, the files and the anomalies."""
    maker = _Maker(each)
    maker.make()
    lines = files = 0
    times = [at for node in maker.nodes for at, _ in node.lines]
    if times:
        first, last = min(times), max(times)
        begin, end = each.span
        up = (
            min(first, max(first - _BEFORE_US, begin + _APART_US)),
            max(last, min(last + _AFTER_US, end - _APART_US)),
        )
        # Nodes without messages keep a journal too.
        for node in maker.nodes:
            own = own_lines(node.jid, each.day, node.clock_us, node.lines, up)
            # At equal times, the end of a window comes first.
            node.lines = sorted(own + node.lines, key=lambda line: line[0])
            lines += len(node.lines)
            files += _write(node, each, out)
    return lines, files, maker.anomalies


@dataclass(slots=True)
class _Node:
    """A node that keeps a journal.

    Attributes:
        jid: its name.
        lag: by how much longer its stanzas take than those of others.
        loss: the probability that a stanza has to be repeated.
        clock_us: by how much its clock is ahead.
        lines: the time of each line, by the true time in microseconds of the day, and
            the rest of the line.
    """

    jid: str
    lag: float = 1.0
    loss: float = 0.02
    clock_us: int = 0
    lines: list[tuple[int, str]] = field(default_factory=list)

    @property
    def account(self) -> str:
        return self.jid.partition("/")[0]


class _Maker:
    """Makes the lines of a slice."""

    def __init__(self, each: Slice) -> None:
        self._slice = each
        self.anomalies: list[Anomaly] = []
        # The properties of a device are the same in all slices.
        fleet = random.Random(f"{each.seed}/{each.hub}")
        name = f"{each.hub:02d}"
        self._hub = _Node(f"hub-{name}@{_DOMAIN}/1", clock_us=_skew(fleet))
        self._devices = [
            _Node(
                f"dev-{number:05d}@{_DOMAIN}/1",
                lag=fleet.choices((1.0, 3.0, 12.0), (90, 8, 2))[0],
                loss=fleet.choices((0.01, 0.04, 0.2), (80, 16, 4))[0],
                clock_us=_skew(fleet),
            )
            for number in each.devices
        ]
        self._queue = _Node(f"queue-{name}.{_DOMAIN}", clock_us=_skew(fleet))
        self._workers = [
            _Node(f"worker-{name}-{number}@{_DOMAIN}/w", clock_us=_skew(fleet))
            for number in range(_WORKERS)
        ]
        self._rng = random.Random(f"{each.seed}/{each.day}/{each.hub}/{each.part}")

    @property
    def nodes(self) -> list[_Node]:
        return [self._hub, *self._devices, self._queue, *self._workers]

    def make(self) -> None:
        rng = self._rng
        for number in range(self._slice.messages):
            kind = self._slice.kinds.get(number)
            device = rng.choice(self._devices)
            chance = rng.random()
            if kind is not None:
                self._assured(device, self._hub, device, kind)
            elif chance < _COMMANDS:
                self._assured(self._hub, device, device)
            elif chance < _COMMANDS + _ACKNOWLEDGED:
                self._acknowledged(device, self._hub)
            else:
                self._assured(device, self._hub, device)
        for _ in range(round(self._slice.messages * _STRANGERS)):
            self._stranger()
        for _ in range(round(self._slice.messages * _ITEMS)):
            self._item()

    # -- messages ----------------------------------------------------------

    def _assured(
        self, sender: _Node, receiver: _Node, device: _Node, kind: str | None = None
    ) -> None:
        rng = self._rng
        msg_id = f"{rng.getrandbits(128):032x}"
        size = 180 + rng.getrandbits(9)
        ids = (
            f'"level":"assured","msg_id":"{msg_id}",'
            f'"from":"{sender.jid}","to":"{receiver.jid}"'
        )
        out, into = sender.lines, receiver.lines
        at = self._moment()
        if kind is not None:
            begin, end = self._slice.span
            at = max(min(at, end - _AFTER_US), begin + 2 * _BEFORE_US)
        out.append((at, f'"role":"sender","event":"accepted",{ids},"bytes":{size}'))
        at += 400 + rng.getrandbits(9)
        fate = 1.0 if kind else rng.random()
        if fate < _NOT_DELIVERED + _WITHDRAWN:
            self._not_delivered(out, at, ids, withdrawn=fate >= _NOT_DELIVERED)
            return
        attempt = 1
        out.append((at, f'"role":"sender","event":"offered",{ids},"attempt":1'))
        while rng.random() < device.loss:
            if fate > 1 - _OVER_QUOTA:
                refused = f'"role":"receiver","event":"refused",{ids},"bytes":{size}'
                text = f'{refused},"condition":"resource-constraint"'
                into.append((at + self._hop(device), text))
            attempt += 1
            at += self._retry(attempt)
            text = f'"role":"sender","event":"offered",{ids},"attempt":{attempt}'
            out.append((at, text))
        at += self._hop(device)
        into.append((at, f'"role":"receiver","event":"held",{ids},"bytes":{size}'))
        at += self._hop(device)
        out.append((at, f'"role":"sender","event":"received",{ids}'))
        if kind is not None:
            self.anomalies.append(
                Anomaly(kind, "assured", sender.account, receiver.account, msg_id)
            )
        if kind == "stuck":
            return
        attempt += 1
        at += 300 + rng.getrandbits(8)
        text = f'"role":"sender","event":"released",{ids},"attempt":{attempt}'
        out.append((at, text))
        at += self._hop(device)
        into.append((at, f'"role":"receiver","event":"released",{ids}'))
        at += 200 + rng.getrandbits(8)
        if kind != "lost":
            into.append((at, f'"role":"receiver","event":"handed-over",{ids}'))
        if kind == "duplicated":
            again = at + 900_000 + rng.getrandbits(20)
            into.append((again, f'"role":"receiver","event":"handed-over",{ids}'))
        elif kind is None and fate < _NOT_DELIVERED + _WITHDRAWN + _REDELIVERED:
            at += 2_000_000 + rng.getrandbits(22)
            into.append((at, f'"role":"receiver","event":"redelivered",{ids}'))
        at += 500 + rng.getrandbits(10)
        into.append((at, f'"role":"receiver","event":"done",{ids}'))
        while rng.random() < device.loss:
            attempt += 1
            at += self._retry(2)
            text = f'"role":"sender","event":"released",{ids},"attempt":{attempt}'
            out.append((at, text))
        at += self._hop(device)
        text = f'"role":"sender","event":"delivered",{ids},"attempt":{attempt}'
        out.append((at, text))

    def _not_delivered(
        self, out: list[tuple[int, str]], at: int, ids: str, *, withdrawn: bool
    ) -> None:
        attempts = self._rng.randint(2, 6)
        for attempt in range(1, attempts + 1):
            text = f'"role":"sender","event":"offered",{ids},"attempt":{attempt}'
            out.append((at, text))
            at += self._retry(attempt)
        if withdrawn:
            end = f'"withdrawn",{ids},"attempt":{attempts}'
        else:
            why = self._rng.choice(("deadline", "recipient-unavailable"))
            end = f'"not-delivered",{ids},"attempt":{attempts},"condition":"{why}"'
        out.append((at, f'"role":"sender","event":{end}'))

    def _acknowledged(self, sender: _Node, receiver: _Node) -> None:
        # The receiver knows only the id of the iq.
        rng = self._rng
        sent = f'"level":"acknowledged","msg_id":"{rng.getrandbits(128):032x}"'
        taken = f'"level":"acknowledged","msg_id":"{rng.getrandbits(128):032x}"'
        route = f'"from":"{sender.jid}","to":"{receiver.jid}"'
        size = 90 + rng.getrandbits(7)
        out, into = sender.lines, receiver.lines
        at = self._moment()
        text = f'"role":"sender","event":"accepted",{sent},{route},"bytes":{size}'
        out.append((at, text))
        at += 400
        attempt = 1
        text = f'"role":"sender","event":"offered",{sent},{route},"attempt":1'
        out.append((at, text))
        while rng.random() < sender.loss:
            attempt += 1
            at += self._retry(attempt)
            text = f'"offered",{sent},{route},"attempt":{attempt}'
            out.append((at, f'"role":"sender","event":{text}'))
        at += self._hop(sender)
        text = f'"role":"receiver","event":"released",{taken},{route},"bytes":{size}'
        into.append((at, text))
        into.append(
            (at + 200, f'"role":"receiver","event":"handed-over",{taken},{route}')
        )
        into.append((at + 700, f'"role":"receiver","event":"done",{taken},{route}'))
        at += self._hop(sender)
        text = f'"delivered",{sent},{route},"attempt":{attempt}'
        out.append((at, f'"role":"sender","event":{text}'))

    def _stranger(self) -> None:
        who = f"stranger-{self._rng.randrange(8)}@elsewhere.example/x"
        self._hub.lines.append(
            (
                self._moment(),
                '"role":"receiver","event":"refused","level":"assured",'
                f'"from":"{who}","to":"{self._hub.jid}","condition":"not-allowed"',
            )
        )

    # -- the queue ---------------------------------------------------------

    def _item(self) -> None:
        rng = self._rng
        item = f"{rng.getrandbits(64):016x}"
        publisher = rng.choice(self._devices)
        here = f'"queue":"orders","item":"{item}"'
        there = f'"from":"{self._queue.jid}",{here}'
        service = self._queue.lines
        at = self._moment()
        size = 300 + rng.getrandbits(10)
        text = f'"event":"published","from":"{publisher.jid}",{here},"bytes":{size}'
        service.append((at, f'"role":"queue",{text}'))
        for attempt in (1, 2, 3):
            worker = rng.choice(self._workers)
            at += int(rng.lognormvariate(13.1, 1.2))
            text = f'"event":"acquired","to":"{worker.jid}",{here},"attempt":{attempt}'
            service.append((at, f'"role":"queue",{text}'))
            at += self._hop(worker)
            text = f'"role":"worker","event":"started",{there},"attempt":{attempt}'
            worker.lines.append((at, text))
            at += int(rng.lognormvariate(12.2, 0.8))
            good = rng.random() < 0.97
            end, why = (
                ("accepted", "") if good else ("modified", ',"condition":"failed"')
            )
            text = f'"role":"worker","event":"{end}",{there},"attempt":{attempt}{why}'
            worker.lines.append((at, text))
            at += self._hop(worker)
            text = f'"event":"{end}","from":"{worker.jid}",{here}{why}'
            service.append((at, f'"role":"queue",{text}'))
            if good:
                return
        text = f'"role":"queue","event":"dead",{here},"condition":"failed"'
        service.append((at, text))

    # -- chance ------------------------------------------------------------

    def _moment(self) -> int:
        """The time at which a message begins, in this part of the day."""
        at = self._slice.moment(self._rng.random())
        begin, end = self._slice.span
        if end == _DAY_US:
            return at
        tail = min(_TAIL_US, (end - begin) // 4)
        return begin + (at - begin) * (end - begin - tail) // (end - begin)

    def _hop(self, device: _Node) -> int:
        """The time that a stanza takes."""
        return int(self._rng.lognormvariate(9.9, 0.6) * device.lag)

    def _retry(self, attempt: int) -> int:
        """The time until the sender repeats."""
        return int((1 + self._rng.random()) * 1_500_000 * 2 ** min(attempt, 5))


#: The share of the day's work that is done at each hour.
_BUSY = [sum(_HOURS[:hour]) for hour in range(25)]


def _skew(rng: random.Random) -> int:
    """By how much the clock of a node is ahead: up to two seconds."""
    return rng.randint(-2_000_000, 2_000_000)


# -- files -----------------------------------------------------------------


def _write(node: _Node, each: Slice, out: Path) -> int:
    """Write the lines of a node; returns the number of files."""
    lines = [(at + node.clock_us, text) for at, text in node.lines]
    name = f"{each.seed}/{each.day}/{each.part}/{node.jid}"
    boot = hashlib.sha256(name.encode()).hexdigest()[:16]
    seconds: dict[int, str] = {}
    files, size, file_day = 0, 0, each.day
    rendered: list[str] = []

    def close() -> None:
        nonlocal files, size
        files += 1
        folder = out / f"date={file_day}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{quote(node.jid, safe='@')}-{boot}-{files}.jsonl"
        path.write_text("".join(rendered), encoding="ascii")
        rendered.clear()
        size = 0

    between = f'Z","boot":"{boot}","seq":'
    behind = f',"node":"{node.jid}",'
    for seq, (at, text) in enumerate(lines, 1):
        second, micros = divmod(at, 1_000_000)
        moment = seconds.get(second)
        if moment is None:
            moment = seconds[second] = _second(each.day, second)
        if not rendered:
            file_day = date.fromisoformat(moment[:10])
        line = (
            f'{{"v":{SCHEMA_VERSION},"at":"{moment}.{micros:06d}{between}{seq}'
            f"{behind}{text}}}\n"
        )
        rendered.append(line)
        size += len(line)
        if size > _FILE_BYTES_MAX:
            close()
    if rendered:
        close()
    return files


def _second(day: date, second: int) -> str:
    """A second of the day, or of a day beside it, in the form of `at`."""
    days, second = divmod(second, 86_400)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{day + timedelta(days=days)}T{hour:02d}:{minute:02d}:{second:02d}"
