"""Floods a receiver, and measures how an honest peer of it is affected.

`python -m benchmarks.flood` measures a minute without a flood, and then a minute with
it. In the flood, 50 senders each offer 10 times the messages that their quota permits
to be held, and release none, while one more sender sends messages as before. Each end
is a process of its own.

The targets are: the honest peer must not wait more than twice as long (p99). Each
request of the flood must be answered. No sender may have more messages held than its
quota. The memory of the receiver must not grow by more than the held messages, with
some overhead for each.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from operator import sub
from pathlib import Path

from benchmarks.footprint import MB, End, Place, Target
from benchmarks.report import aligned
from benchmarks.servers import EmbeddedServer
from benchmarks.times import unpack
from qos.bench.pace import percentile
from qos.testing.processes import PATIENCE_S, Child, NotInstalled, ProcessFailed

__all__ = ["Flood", "Flooded", "main", "measure"]

_DOMAIN = "flood.localhost"

#: Each sender offers this many times its quota.
TIMES_QUOTA = 10

#: The most that p99 may grow during the flood, as a ratio.
RATIO_MAX = 2.0

#: The memory for a held message besides its payload, in bytes: 3 kB have been measured.
_MESSAGE_BYTES = 6_000

#: The memory that a process may use for a flood that leaves nothing behind: mostly
#: buffers.
_OVERHEAD_BYTES = 16 * MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """The parameters of a flood.

    Attributes:
        senders: the number of senders that ignore their quota.
        quota: the most messages that may be held of each.
        payload_bytes: the payload size of each message.
        seconds: the duration of the flood, and of the time before it.
        pause_s: the time between two messages of the honest peer.
    """

    senders: int = 50
    quota: int = 100
    payload_bytes: int = 200
    seconds: float = 60.0
    pause_s: float = 0.02

    @property
    def rss_bytes_max(self) -> int:
        """The permitted growth of the receiver's memory."""
        each = self.payload_bytes + _MESSAGE_BYTES
        return self.senders * self.quota * each + _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """The result of a flood.

    Attributes:
        before: the times of the honest peer's messages without a flood, in seconds, in
            ascending order.
        beside: the same during the flood.
        sent: the requests of the flood.
        answers: the number of answers by `received`, or by the condition of the error.
        rss_bytes: the growth of the receiver's memory.
    """

    before: Sequence[float]
    beside: Sequence[float]
    sent: int
    answers: Mapping[str, int]
    rss_bytes: int

    @property
    def ratio(self) -> float:
        """The ratio of p99 during the flood to p99 without it."""
        return percentile(self.beside, 0.99) / percentile(self.before, 0.99)

    @property
    def unanswered(self) -> int:
        """The number of requests of the flood without an answer."""
        return self.sent - sum(self.answers.values())

    def targets(self, flood: Flood) -> list[Target]:
        """The figures, compared with the targets."""
        held = self.answers.get("received", 0)
        return [
            Target("p99 beside the flood ÷ without", self.ratio, RATIO_MAX),
            Target("held of the flood", held, flood.senders * flood.quota),
            Target("unanswered of the flood", self.unanswered, 0),
            Target(
                "RSS more of the receiver",
                self.rss_bytes / MB,
                flood.rss_bytes_max / MB,
                "MB",
            ),
        ]


async def measure(flood: Flood, folder: Path) -> Flooded:
    """Measure a flood, with all files in this folder.

    Raises:
        BenchFailed: it could not be measured, or a message of the honest peer was lost.
    """
    server = EmbeddedServer(components=[_DOMAIN])
    async with AsyncExitStack() as stack:
        await server.start(folder)
        stack.push_async_callback(server.stop)
        place = await stack.enter_async_context(Place(server, folder))
        receiver, sender = await _ends(place, flood)
        flooder = await Child.start("benchmarks.flooder", name="flooder", folder=folder)
        stack.push_async_callback(flooder.end)
        own = server.components[_DOMAIN]
        await flooder.do("connect", domain=own.jid, secret=own.secret, port=own.port)
        # For code that is loaded late, and for buffers of the usual size.
        await _latencies(sender, 1.0)
        before = await _latencies(sender, flood.seconds)
        rss_bytes = receiver.used().rss_bytes
        flooding = asyncio.create_task(
            flooder.do(
                "flood",
                patience_s=flood.seconds + PATIENCE_S,
                to=receiver.jid,
                senders=flood.senders,
                messages=flood.quota * TIMES_QUOTA,
                payload_bytes=flood.payload_bytes,
                seconds=flood.seconds,
            )
        )
        try:
            beside = await _latencies(sender, flood.seconds)
            answer = await flooding
        finally:
            flooding.cancel()
        return Flooded(
            before=before,
            beside=beside,
            sent=answer["sent"],
            answers=answer["answers"],
            rss_bytes=receiver.used().rss_bytes - rss_bytes,
        )


async def _ends(place: Place, flood: Flood) -> tuple[End, End]:
    """The receiver, which trusts every peer, and the honest peer."""
    quotas = {"quota_messages": flood.quota, "quota_bytes": 10**9}
    total = {"quota_total_messages": 2 * flood.senders * flood.quota}
    ends = []
    for name, sends in (("receiver", False), ("sender", True)):
        plugins = place.plugin("memory:", trust="anyone", **quotas, **total)
        end = await place.new_end(name)
        await end.connect(
            place.task(sends=sends, plugins=plugins, pause_s=flood.pause_s)
        )
        ends.append(end)
    receiver, sender = ends
    await receiver.do("begin", peer=sender.jid)
    await sender.do("begin", peer=receiver.jid)
    return receiver, sender


async def _latencies(sender: End, seconds: float) -> list[float]:
    answer = await sender.do("send", window=1, payload_bytes=200, seconds=seconds)
    given, ended = unpack(answer["given"]), unpack(answer["ended"])
    return sorted(map(sub, ended, given))


# -- the command ------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood")
    usual = Flood()
    parser.add_argument("--senders", type=int, default=usual.senders)
    parser.add_argument("--quota", type=int, default=usual.quota)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    options = parser.parse_args(arguments)
    flood = Flood(**vars(options))
    with tempfile.TemporaryDirectory() as folder:
        try:
            flooded = asyncio.run(measure(flood, Path(folder)))
        except (ProcessFailed, NotInstalled) as error:
            sys.stderr.write(f"flood: {error}\n")
            return 1
    targets = flooded.targets(flood)
    sys.stdout.write("\n".join((*_table(flood, flooded), *map(str, targets))) + "\n")
    return 0 if all(target.met for target in targets) else 1


def _table(flood: Flood, flooded: Flooded) -> list[str]:
    rows: list[Sequence[str]] = [("an honest peer", "messages", "p50 ms", "p99 ms")]
    for name, took in (("alone", flooded.before), ("flooded", flooded.beside)):
        times = [f"{percentile(took, share) * 1000:.1f}" for share in (0.5, 0.99)]
        rows.append((name, f"{len(took):,}", *times))
    answers = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(flooded.answers.items())
    )
    return [
        *aligned(rows),
        f"The flood: {flood.senders} senders, {flooded.sent:,} requests in"
        f" {flood.seconds:g} s; answers: {answers}.",
    ]


if __name__ == "__main__":
    sys.exit(main())
