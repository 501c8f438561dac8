"""The figures calculated from the samples of a run. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TypeAlias

from benchmarks.sample import Sample

__all__ = ["FIGURES", "Figure", "Measured", "ratio", "spread"]

#: A figure of a sample; None: not known.
Figure: TypeAlias = Callable[[Sample], float | None]

#: The processes whose processor time and memory a sample may have. Only queues have a
#: service.
_PROCESSES = ("sender", "receiver", "server", "service")


@dataclass(frozen=True, slots=True)
class Measured:
    """A row at one window and payload size.

    Attributes:
        row: its name.
        window: the number of messages in flight.
        payload_bytes: the payload size of each message.
        samples: one for each turn, in the order of the turns.
    """

    row: str
    window: int
    payload_bytes: int
    samples: Sequence[Sample]

    def median(self, figure: str) -> float | None:
        """The median of the turns of one of FIGURES; None: not known."""
        values = map(FIGURES[figure], self.samples)
        known = [value for value in values if value is not None]
        return median(known) if known else None


def ratio(one: Measured, other: Measured, figure: str) -> float | None:
    """The median of the ratios of the turns, for one of FIGURES; None: not known.

    A turn in which another program used the machine slows both down, and counts once.
    """
    ratios = _ratios(one, other, figure)
    return median(ratios) if ratios else None


def spread(one: Measured, other: Measured, figure: str) -> float | None:
    """Half the distance between the least and the greatest of these ratios.

    None: there are not two turns of which the ratio is known.
    """
    ratios = _ratios(one, other, figure)
    return (max(ratios) - min(ratios)) / 2 if len(ratios) > 1 else None


def _ratios(one: Measured, other: Measured, figure: str) -> list[float]:
    """The ratio of each turn of which it is known."""
    ratios = []
    for mine, its in zip(one.samples, other.samples, strict=True):
        above, below = FIGURES[figure](mine), FIGURES[figure](its)
        if above is not None and below:
            ratios.append(above / below)
    return ratios


def _a_message(amount: float | None, sample: Sample) -> float | None:
    return None if amount is None else amount / sample.messages


def _confirmed_rate(sample: Sample) -> float | None:
    seconds = sample.confirmed_s
    return None if seconds is None else sample.messages / seconds


def _cpu_us(process: str, sample: Sample) -> float | None:
    seconds = sample.cpu_s.get(process)
    return None if seconds is None else seconds / sample.messages * 1e6


def _cpu_us_ends(sample: Sample) -> float | None:
    sender, receiver = _cpu_us("sender", sample), _cpu_us("receiver", sample)
    return None if sender is None or receiver is None else sender + receiver


def _cpu_us_servers(sample: Sample) -> float | None:
    known = [_cpu_us(each, sample) for each in ("server", "service")]
    return sum(filter(None, known)) or None


def _rss_bytes(process: str, sample: Sample) -> float | None:
    return sample.rss_bytes.get(process)


#: All figures, by their names in JSON: those of `Sample`; and for each message, those
#: that a sample has for all of them.
FIGURES: Mapping[str, Figure] = {
    "rate": lambda sample: sample.rate,
    "confirmed_rate": _confirmed_rate,
    "p50_s": lambda sample: sample.p50_s,
    "p99_s": lambda sample: sample.p99_s,
    "p999_s": lambda sample: sample.p999_s,
    **{f"cpu_us_{each}": partial(_cpu_us, each) for each in _PROCESSES},
    "cpu_us_ends": _cpu_us_ends,
    "cpu_us_servers": _cpu_us_servers,
    "others_share": lambda sample: sample.others_share,
    "wire_bytes": lambda sample: _a_message(sample.wire_bytes, sample),
    "stanzas": lambda sample: _a_message(sample.stanzas, sample),
    **{f"rss_bytes_{each}": partial(_rss_bytes, each) for each in _PROCESSES},
}
