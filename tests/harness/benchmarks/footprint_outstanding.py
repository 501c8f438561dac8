"""The cost of many messages in the outbox for a peer that is not there."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.footprint import (
    MB,
    End,
    Part,
    Place,
    Plan,
    Progress,
    Spread,
    Target,
    bytes_below,
)
from benchmarks.sample import BenchFailed
from benchmarks.servers import Server
from benchmarks.times import unpack

__all__ = ["MB_MAX", "RATE_MIN", "START_S_MAX", "measure"]

#: The targets.
MB_MAX = 60.0
START_S_MAX = 2.0
RATE_MIN = 0.9

STORES = ("sqlite", "memory")

_WINDOW = 64

#: The payload size of the messages to the peer that is there.
_PAYLOAD_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The results with one store.

    Attributes:
        rss_bytes: the growth of memory by submitting the messages.
        rate: the ratio of the rate of other messages to that without outstanding ones.
        rates: both rates, with and without, of each turn.
        started_rss_bytes: the extra memory after a start with them, compared with a
            start without. None: in memory nothing is left of them then.
        loaded_s: the time to load the plugin with them, which opens the store.
        start_s: the time from there to the end of a first message to another peer.
        start_s_without: the same with an empty store.
        disk_bytes: the size of the store.
    """

    rss_bytes: int
    rate: Spread
    rates: list[tuple[float, float]]
    started_rss_bytes: int | None = None
    loaded_s: float | None = None
    start_s: float | None = None
    start_s_without: float | None = None
    disk_bytes: int | None = None


async def measure(server: Server, folder: Path, plan: Plan, progress: Progress) -> Part:
    """Fill an outbox, start with it, and send to another peer at the same time."""
    found = {}
    for store in STORES:
        own = folder / store
        own.mkdir()
        async with Place(server, own) as place:
            found[store] = await _Outstanding(place, own, store, plan, progress).found()
    ours = found["sqlite"]
    assert ours.started_rss_bytes is not None
    assert ours.start_s is not None
    rss_bytes = max(ours.rss_bytes, ours.started_rss_bytes)
    return Part(
        title=f"{plan.messages:,} outstanding messages of {plan.payload_bytes:,} bytes",
        head=(
            *(("", "store"), ("RSS MB", "more"), ("", "started"), ("load", "s")),
            *(("start", "s"), ("", "without"), ("disk", "MB")),
            *(("rate ÷", "without"), ("", "quartiles")),
        ),
        rows=[_row(store, each) for store, each in found.items()],
        targets=[
            Target("RSS more, sqlite", rss_bytes / MB, MB_MAX, "MB"),
            Target("start with them, sqlite", ours.start_s, START_S_MAX, "s"),
            Target(
                "rate of others beside them ÷ without, sqlite",
                ours.rate.median,
                RATE_MIN,
                least=True,
            ),
        ],
        figures={
            "messages": plan.messages,
            "payload_bytes": plan.payload_bytes,
            **{store: asdict(each) for store, each in found.items()},
        },
    )


def _row(store: str, found: _Found) -> list[str]:
    def text(value: float | None, digits: int, unit: float = 1.0) -> str:
        return "" if value is None else f"{value / unit:,.{digits}f}"

    rate = found.rate
    return [
        store,
        text(found.rss_bytes, 1, MB),
        text(found.started_rss_bytes, 1, MB),
        text(found.loaded_s, 2),
        text(found.start_s, 2),
        text(found.start_s_without, 2),
        text(found.disk_bytes, 0, MB),
        text(rate.median, 2),
        f"{rate.low:.2f}-{rate.high:.2f}",
    ]


class _Outstanding:
    """The measurement with one store."""

    def __init__(
        self, place: Place, folder: Path, store: str, plan: Plan, progress: Progress
    ) -> None:
        self._place = place
        self._folder = folder
        self._store = store
        self._plan = plan
        self._progress = progress
        self._receiver: End
        self._sent = 0

    async def found(self) -> _Found:
        self._receiver, _ = await self._new_end("receiver", sends=False)
        await self._receiver.do("begin", peer="")
        loaded, _ = await self._new_end("with")
        rss_bytes = await self._fill(loaded)
        others: dict[str, float | int] = {}
        if self._store != "memory":
            await loaded.stop()
            others["disk_bytes"] = bytes_below(*self._folder.glob("with.store*"))
            self._tell("starting with them")
            loaded, others["start_s"] = await self._new_end("with")
            others["loaded_s"] = loaded.loaded_s
        bare, start_s_without = await self._new_end("without")
        if self._store != "memory":
            others["start_s_without"] = start_s_without
            more = loaded.used().rss_bytes - bare.used().rss_bytes
            others["started_rss_bytes"] = more
        rates = await self._rates(loaded, bare)
        return _Found(
            rss_bytes=rss_bytes,
            rate=Spread.of([one / base for one, base in rates]),
            rates=rates,
            **others,  # type: ignore[arg-type]  # the bytes are whole numbers
        )

    async def _new_end(self, name: str, *, sends: bool = True) -> tuple[End, float]:
        """An end that has sent a message; and the time from its start to then."""
        path = self._folder / f"{name}.store"
        url = "memory:" if self._store == "memory" else f"{self._store}:{path}"
        end = await self._place.new_end(name)
        began = time.perf_counter()
        await end.connect(
            self._place.task(sends=sends, plugins=self._place.plugin(url))
        )
        if sends:
            await end.do("begin", peer=self._receiver.jid)
            await self._send(end, messages=1)
        return end, time.perf_counter() - began

    async def _send(self, end: End, *, messages: int) -> None:
        await end.do(
            "send_many",
            peer=self._receiver.jid,
            messages=messages,
            payload_bytes=_PAYLOAD_BYTES,
            window=_WINDOW,
        )
        self._sent += messages

    async def _fill(self, end: End) -> int:
        # So its code is loaded, and its buffers exist, for messages of any kind.
        await self._send(end, messages=_WINDOW)
        before = end.used().rss_bytes
        count = self._plan.messages
        self._tell("submitting them")
        answer = await end.do(
            "fill",
            # Another account, because a window is for one account.
            peer=f"nobody@{self._place.domain}/gone",
            messages=count,
            payload_bytes=self._plan.payload_bytes,
            window=_WINDOW,
        )
        if answer["outstanding"] != count:
            text = f"{answer['outstanding']} of {count} messages are outstanding"
            raise BenchFailed(text)
        return end.used().rss_bytes - before

    async def _rates(self, loaded: End, bare: End) -> list[tuple[float, float]]:
        """The rates of messages to the receiver, in turns."""
        pairs = []
        ends = [loaded, bare]
        for end in ends:
            await self._rate(end)
        for turn in range(self._plan.repeat):
            self._tell(f"others beside them, turn {turn + 1} of {self._plan.repeat}")
            rates = {end: await self._rate(end) for end in ends}
            pairs.append((rates[loaded], rates[bare]))
            ends.reverse()
        answer = await self._receiver.do("received")
        if answer["taken"] != self._sent:
            text = f"{self._sent} messages were sent, and {answer['taken']} handed over"
            raise BenchFailed(text)
        return pairs

    async def _rate(self, end: End) -> float:
        answer = await end.do(
            "send",
            window=_WINDOW,
            payload_bytes=_PAYLOAD_BYTES,
            seconds=self._plan.seconds,
        )
        given, ended = unpack(answer["given"]), unpack(answer["ended"])
        self._sent += len(given)
        return len(given) / (max(ended) - min(given))

    def _tell(self, text: str) -> None:
        self._progress(f"outstanding, {self._store}: {text}")
