"""The start and the end of each message: sent between processes, and judged.

All clocks are `time.monotonic`, which is one clock for all processes of a machine. This
module knows nothing of libraries, servers and brokers.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping
from operator import sub
from typing import Any

from benchmarks.sample import BenchFailed, Sample
from benchmarks.usage import Watch
from qos.bench.pace import Times, percentile

__all__ = ["pack", "packed", "sample_of", "unpack"]


def pack(times: array[float]) -> str:
    """Return times as a text for JSON, ten times as fast as numbers would be."""
    return base64.b64encode(times.tobytes()).decode()


def packed(times: Times) -> dict[str, str]:
    """The times in a form for JSON; see `unpack`."""
    return {"given": pack(times.given), "ended": pack(times.ended)}


def unpack(text: str) -> array[float]:
    """Return the times in such a text."""
    times = array("d")
    times.frombytes(base64.b64decode(text))
    return times


def sample_of(
    given: array[float],
    ended: array[float],
    used: Watch,
    others: Mapping[str, Any] | None = None,
) -> Sample:
    """Return the sample.

    Args:
        given: when each message was given.
        ended: when the same messages ended.
        used: the resources used by the processes in this time.
        others: other figures of a sample, by name.

    Raises:
        BenchFailed: not every message has ended.
    """
    # NaN is the only number that is not equal to itself.
    count = sum(map(float.__eq__, ended, ended))
    if not len(given) == len(ended) == count > 0:
        raise BenchFailed(f"{len(given)} messages were given, and {count} have ended")
    latencies_s = sorted(map(sub, ended, given))
    return Sample(
        messages=len(given),
        seconds=max(ended) - min(given),
        p50_s=percentile(latencies_s, 0.5),
        p99_s=percentile(latencies_s, 0.99),
        p999_s=percentile(latencies_s, 0.999),
        cpu_s=used.cpu_s,
        rss_bytes=used.rss_bytes,
        others_share=used.others_share,
        **others or {},
    )
