"""Makes journals of any size, with known anomalies in them. Needs no Spark.

A fleet: each hub has some devices, a queue service and workers; devices report to
their hub, and hubs command their devices. All that happens between a hub and its
devices is made by itself, and in slices of the day, so that processes can share the
work and none needs much memory. The seed decides everything.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path

from qos.audit.synth_slice import Anomaly, Slice, write_slice

__all__ = ["EXPECTED", "Plan", "Synthesised", "synthesise"]

#: What an audit of the journals has to find; beside their `date=` folders.
EXPECTED = "expected.json"

#: The first day: long enough ago that what is stuck is old.
FIRST_DAY = date(2026, 1, 5)

_DEVICES_A_HUB = 50

#: Some 200,000 lines: what one process has in memory.
_MESSAGES_A_SLICE = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the journals to make.

    Attributes:
        devices: of the fleet.
        messages: in all.
        lost: messages that are lost; none of them is anything else.
        duplicated: likewise.
        stuck: likewise.
        seed: decides all that happens by chance.
        days: over which it is spread.
        first_day: the first of them.
        hours: of each day, from midnight, in which all begins.
    """

    devices: int
    messages: int
    lost: int = 0
    duplicated: int = 0
    stuck: int = 0
    seed: int = 1
    days: int = 1
    first_day: date = FIRST_DAY
    hours: int = 24

    def __post_init__(self) -> None:
        if self.devices < 1 or self.days < 1 or self.messages < 0:
            raise ValueError("there must be a device and a day")
        if not 1 <= self.hours <= 24:
            raise ValueError("a day has from 1 to 24 hours")
        if self.lost + self.duplicated + self.stuck > self.messages:
            raise ValueError("there are more anomalies than messages")


@dataclass(frozen=True, slots=True)
class Synthesised:
    """The journals that were made.

    Attributes:
        lines: of the journals.
        files: of the journals.
        anomalies: all that an audit has to find, and nothing else.
    """

    lines: int
    files: int
    anomalies: tuple[Anomaly, ...]


def synthesise(
    plan: Plan,
    out: Path,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Synthesised:
    """Write the journals to OUT/date=… and what is wrong with them to OUT/expected.json.

    Args:
        plan: what to make.
        out: a folder; what is in it stays, so it should be a new one.
        processes: None: as many as there are cores.
        progress: told how many slices are done, of how many.

    Raises:
        OSError: something cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    slices = list(_slices(plan))
    lines = files = 0
    anomalies: list[Anomaly] = []
    for done, made in enumerate(_all(slices, out, processes or os.cpu_count() or 1), 1):
        lines += made.lines
        files += made.files
        anomalies += made.anomalies
        progress(done, len(slices))
    anomalies.sort(key=lambda each: (each.kind, each.sender, each.msg_id))
    result = Synthesised(lines, files, tuple(anomalies))
    expected = {
        **{name: value for name, value in asdict(plan).items() if name != "first_day"},
        "first_day": plan.first_day.isoformat(),
        "lines": lines,
        "anomalies": [asdict(each) for each in anomalies],
    }
    text = json.dumps(expected, indent=1) + "\n"
    (out / EXPECTED).write_text(text, encoding="utf-8")
    return result


def _all(slices: list[Slice], out: Path, processes: int) -> Iterator[Synthesised]:
    if min(processes, len(slices)) < 2:
        for each in slices:
            yield _made(each, out)
        return
    # Not by fork: whoever calls this may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        tasks = [pool.submit(_made, each, out) for each in slices]
        try:
            for task in as_completed(tasks):
                yield task.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _made(each: Slice, out: Path) -> Synthesised:
    lines, files, anomalies = write_slice(each, out)
    return Synthesised(lines, files, tuple(anomalies))


def _slices(plan: Plan) -> Iterator[Slice]:
    hubs = math.ceil(plan.devices / _DEVICES_A_HUB)
    shards = hubs * plan.days
    parts = max(1, math.ceil(plan.messages / shards / _MESSAGES_A_SLICE))
    total = shards * parts
    # Nothing may follow what is stuck: it could have ended while the node was off.
    last = [
        number
        for hub in range(hubs)
        for number in _numbers(plan, total - (hubs - hub) * parts + parts - 1, total)
    ]
    kinds = _kinds(plan, last)
    for number in range(total):
        shard, part = divmod(number, parts)
        day, hub = divmod(shard, hubs)
        # The messages are numbered through; each slice has its share of them.
        numbers = _numbers(plan, number, total)
        first = hub * _DEVICES_A_HUB
        yield Slice(
            seed=plan.seed,
            day=plan.first_day + timedelta(days=day),
            hub=hub,
            devices=tuple(range(first, min(first + _DEVICES_A_HUB, plan.devices))),
            hours=plan.hours,
            part=part,
            parts=parts,
            messages=len(numbers),
            kinds={at - numbers.start: kinds[at] for at in kinds if at in numbers},
        )


def _numbers(plan: Plan, number: int, total: int) -> range:
    """The numbers of the messages in one of so many slices."""
    low = plan.messages * number // total
    return range(low, plan.messages * (number + 1) // total)


def _kinds(plan: Plan, last: Sequence[int]) -> dict[int, str]:
    """Which messages are to be what, by their numbers.

    Args:
        plan: what to make.
        last: the messages that begin in the last slice of their hub.

    Raises:
        ValueError: too few of them for those that are to be stuck.
    """
    if plan.stuck > len(last):
        raise ValueError(
            f"at most {len(last)} of so many messages can be stuck: those of the last day"
        )
    chance = random.Random(plan.seed)  # noqa: S311
    stuck = set(chance.sample(last, plan.stuck))
    wanted = ["lost"] * plan.lost + ["duplicated"] * plan.duplicated
    others = [number for number in range(plan.messages) if number not in stuck]
    kinds = dict.fromkeys(stuck, "stuck")
    return kinds | dict(zip(chance.sample(others, len(wanted)), wanted, strict=True))
