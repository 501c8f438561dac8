"""A test that a message after many others costs no more than one after a few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.footprint import (
    MB,
    End,
    Part,
    Place,
    Plan,
    Progress,
    Target,
    bytes_below,
)
from benchmarks.sample import BenchFailed
from benchmarks.servers import Server
from benchmarks.usage import Watch

__all__ = ["GROWTH_MAX", "STRETCHES", "measure"]

#: The target for the ratio of the last stretch to the first.
GROWTH_MAX = 1.1

STRETCHES = 10

_WINDOW = 64

_PAYLOAD_BYTES = 200

_ENDS = ("sender", "receiver")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Some of the messages.

    Attributes:
        first: the number of its first message, from 1.
        last: the number of its last message.
        rate: messages a second.
        cpu_us: processor time for each message, by process.
        rss_bytes: memory at its end, by process.
        file_bytes: the size of the store and journal of each end, at its end.
    """

    first: int
    last: int
    rate: float
    cpu_us: dict[str, float]
    rss_bytes: dict[str, int]
    file_bytes: dict[str, int]


async def measure(server: Server, folder: Path, plan: Plan, progress: Progress) -> Part:
    """Send messages at level assured, with SQLite and a journal at both ends."""
    async with Place(server, folder) as place:
        ends = {}
        for name in _ENDS:
            end = ends[name] = await place.new_end(name)
            (folder / f"{name}.files").mkdir()
            files = _files(folder, name)
            plugins = place.plugin(
                f"sqlite:{files / 'store'}", journal=str(files / "journal")
            )
            await end.connect(place.task(sends=name == "sender", plugins=plugins))
        await ends["receiver"].do("begin", peer="")
        progress(f"flat: the first {plan.warm_up:,}, which do not count")
        await _sent(ends, plan.warm_up)
        stretches = []
        share = (plan.flat_messages - plan.warm_up) / STRETCHES
        bounds = [plan.warm_up + round(share * each) for each in range(STRETCHES + 1)]
        for before, last in pairwise(bounds):
            progress(f"flat: {before:,} of {plan.flat_messages:,}")
            stretches.append(await _stretch(server, folder, ends, before + 1, last))
        answer = await ends["receiver"].do("received")
        if answer["taken"] != plan.flat_messages:
            text = f"{plan.flat_messages} were sent, and {answer['taken']} handed over"
            raise BenchFailed(text)
    return _part(stretches)


def _files(folder: Path, name: str) -> Path:
    return folder / f"{name}.files"


async def _sent(ends: dict[str, End], messages: int) -> float:
    """Send this number of messages; returns the time in seconds."""
    answer = await ends["sender"].do(
        "send_many",
        peer=ends["receiver"].jid,
        messages=messages,
        payload_bytes=_PAYLOAD_BYTES,
        window=_WINDOW,
    )
    seconds: float = answer["seconds"]
    return seconds


async def _stretch(
    server: Server, folder: Path, ends: dict[str, End], first: int, last: int
) -> _Stretch:
    count = last - first + 1
    pids = {name: end.pid for name, end in ends.items()}
    if server.pid is not None:
        pids["server"] = server.pid
    with Watch(pids) as used:
        seconds = await _sent(ends, count)
    return _Stretch(
        first=first,
        last=last,
        rate=count / seconds,
        cpu_us={name: cpu_s / count * 1e6 for name, cpu_s in used.cpu_s.items()},
        rss_bytes=used.rss_bytes,
        file_bytes={name: bytes_below(_files(folder, name)) for name in ends},
    )


def _part(stretches: list[_Stretch]) -> Part:
    first, last = stretches[0], stretches[-1]
    growth = {name: last.cpu_us[name] / first.cpu_us[name] for name in _ENDS}
    rate = last.rate / first.rate
    rows = [_row(each) for each in stretches]
    rows.append(
        [
            *("last ÷ first", f"{rate:.2f}"),
            *(
                f"{last.cpu_us[name] / cpu_us:.2f}"
                for name, cpu_us in first.cpu_us.items()
            ),
            *(f"{last.rss_bytes[name] / first.rss_bytes[name]:.2f}" for name in _ENDS),
            *(
                f"{last.file_bytes[name] / first.file_bytes[name]:.2f}"
                for name in _ENDS
            ),
        ]
    )
    return Part(
        title=f"Messages {first.first:,} to {last.last:,}: assured, SQLite, a journal",
        head=(
            *(("", "messages"), ("", "msg/s")),
            *_heads("CPU µs", first.cpu_us),
            *_heads("RSS MB", _ENDS),
            *_heads("files MB", _ENDS),
        ),
        rows=rows,
        targets=[
            *(
                Target(f"CPU of the {name}, last ÷ first", growth[name], GROWTH_MAX)
                for name in _ENDS
            ),
            Target("rate, last ÷ first", rate, round(1 / GROWTH_MAX, 2), least=True),
        ],
        figures={
            "stretches": [asdict(each) for each in stretches],
            "growth": growth,
            "rate_last_to_first": rate,
        },
    )


def _heads(above: str, names: Iterable[str]) -> list[tuple[str, str]]:
    return [("" if number else above, name) for number, name in enumerate(names)]


def _row(stretch: _Stretch) -> list[str]:
    return [
        *(f"{stretch.first:,}-{stretch.last:,}", f"{stretch.rate:,.0f}"),
        *(f"{cpu_us:,.0f}" for cpu_us in stretch.cpu_us.values()),
        *(f"{stretch.rss_bytes[name] / MB:.1f}" for name in _ENDS),
        *(f"{stretch.file_bytes[name] / MB:.1f}" for name in _ENDS),
    ]
