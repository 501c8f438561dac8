"""Makes journals of any size, with known anomalies in them. Needs no Spark.

The journals are of a fleet: each hub has some devices, a queue service and workers.
Devices report to their hub, and hubs command their devices. Everything between a hub
and its devices is made separately, and in slices of the day, so that processes can
share the work and none needs much memory. The seed decides everything.
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

from benchmarks.synth_slice import Anomaly, Slice, write_slice
from parents import die_with_parent

__all__ = ["EXPECTED", "Plan", "Synthesised", "synthesise"]

#: The anomalies that an audit has to find; beside the `date=` folders of the journals.
EXPECTED = "expected.json"

#: The first day: so long ago that stuck messages are old.
FIRST_DAY = date(2026, 1, 5)

_DEVICES_A_HUB = 50

#: About 200,000 lines: the amount that one process has in memory.
_MESSAGES_A_SLICE = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the journals to make.

    Attributes:
        devices: the number of devices of the fleet.
        messages: the number of all messages.
        lost: the number of lost messages; these have no other anomaly.
        duplicated: likewise.
        stuck: likewise.
        seed: decides everything that happens by chance.
        days: the number of days.
        first_day: the first day.
        hours: the hours of each day, from midnight, in which messages begin.
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
        lines: the number of lines of the journals.
        files: the number of files of the journals.
        anomalies: exactly the anomalies that an audit has to find.
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
    """Write journals to OUT/date=… and the anomalies in them to OUT/expected.json.

    Args:
        plan: the parameters.
        out: a folder; its existing content stays, so it should be a new one.
        processes: the number of processes; None: one for each core.
        progress: called with the number of finished slices, and the number of all.

    Raises:
        OSError: a file cannot be written.
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
    # Not by fork: the caller may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=die_with_parent
    ) as pool:
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
    # Nothing may follow a stuck message: it could have ended while the node was off.
    last = [
        number
        for hub in range(hubs)
        for number in _numbers(plan, total - (hubs - hub) * parts + parts - 1, total)
    ]
    kinds = _kinds(plan, last)
    for number in range(total):
        shard, part = divmod(number, parts)
        day, hub = divmod(shard, hubs)
        # The messages are numbered consecutively; each slice has its share of the
        # numbers.
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
    """The kind of anomaly of each affected message, by its number.

    Args:
        plan: the parameters.
        last: the messages that begin in the last slice of their hub.

    Raises:
        ValueError: these are too few for the number of stuck messages.
    """
    if plan.stuck > len(last):
        raise ValueError(
            f"at most {len(last)} of so many messages can be stuck: those of the last day"
        )
    chance = random.Random(plan.seed)
    stuck = set(chance.sample(last, plan.stuck))
    wanted = ["lost"] * plan.lost + ["duplicated"] * plan.duplicated
    others = [number for number in range(plan.messages) if number not in stuck]
    kinds = dict.fromkeys(stuck, "stuck")
    return kinds | dict(zip(chance.sample(others, len(wanted)), wanted, strict=True))
