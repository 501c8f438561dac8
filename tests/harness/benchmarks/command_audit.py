"""`python -m benchmarks audit`: an audit, compared with reading the same journals."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.plot_option import check_plot, plotting
from qos.cli.output import print_json, print_parts
from qos.cli.spark_run import SparkRun
from qos.cli.status import CommandError, Status
from qos.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.audit import Measured

__all__ = ["run"]

_MIB = 2**20

#: The goal: to audit a line takes at most twice as long as to count it.
_RATIO_MAX = 2.0


async def run(arguments: argparse.Namespace) -> int:
    """Measure, and show the result."""
    _check(arguments)
    # Neither Spark nor matplotlib is imported before it is needed.
    from qos.spark.session import NoSpark, check_spark

    try:
        check_spark()
        measured = await _Bench(arguments).run()
    except NoSpark as error:
        raise UsageError(str(error)) from None
    if arguments.plot is not None:
        from benchmarks.audit_plot import plot

        with plotting(arguments.plot):
            plot(measured, arguments.plot)
    if arguments.json:
        await print_json(_plain(measured, arguments))
    else:
        await print_parts(_table(measured), _verdict(measured, arguments))
    return Status.DONE


def _check(arguments: argparse.Namespace) -> None:
    check_plot(arguments.plot)
    keep: Path | None = arguments.keep
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.iterdir()):
                raise UsageError(f"--keep {keep}: there is something in it")
    except OSError as error:
        raise UsageError(f"--keep {keep}: {error.strerror}") from None


class _Bench(SparkRun["list[Measured]"]):
    """The measurement: it makes the journals, reads and audits them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(master=f"local[{arguments.cores}]", out=tempfile.gettempdir())
        self._arguments = arguments

    def _do(self, spark: SparkSession) -> list[Measured]:
        from benchmarks.audit import WrongResult

        try:
            with self._folder() as folder:
                return self._measured_in(folder, spark)
        except WrongResult as error:
            raise CommandError(f"{self._step}: {error}", Status.INTERNAL) from None

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        if self._arguments.keep is not None:
            yield self._arguments.keep.resolve()
            return
        with tempfile.TemporaryDirectory(prefix="xmpp-qos-bench-") as name:
            yield Path(name)

    def _measured_in(self, folder: Path, spark: SparkSession) -> list[Measured]:
        from benchmarks.audit import measure, plan_for
        from benchmarks.synth import synthesise

        sizes = sorted(set(self._arguments.events))
        for events in sizes:
            making = f"making journals of {events:,} events"
            synthesise(
                plan_for(events),
                folder / f"journals-{events}",
                progress=partial(self._parts, making),
            )
        measured = []
        for turn, events in enumerate((sizes[0], *sizes)):
            of = f"{events:,} events: " if turn else "warming up: "
            measured.append(
                measure(
                    spark,
                    folder / f"journals-{events}",
                    folder / f"audit-{events}",
                    repeat=self._arguments.repeat if turn else 1,
                    progress=partial(self._part, of),
                )
            )
        return measured[1:]

    def _parts(self, making: str, done: int, of: int) -> None:
        self._progress(f"{making}: {done} of {of} parts")

    def _part(self, of: str, step: str) -> None:
        self._progress(f"{of}{step}")


# -- output ----------------------------------------------------------------

_HEAD = (
    *("events", "files", "MB", "read s", "inferred s", "audit s"),
    *("audit/read", "audit/inferred", "JVM MiB", "driver MiB"),
)


def _table(measured: Sequence[Measured]) -> str:
    rows: list[tuple[str, ...]] = [_HEAD]
    for each in measured:
        memory = (each.jvm_bytes, each.python_bytes)
        rows.append(
            (
                *(f"{each.lines:,}", f"{each.files:,}", f"{each.bytes / 1e6:,.0f}"),
                *(f"{median(t):.1f}" for t in (each.read, each.inferred, each.audit)),
                *(f"{each.ratio:.2f}", f"{each.ratio_inferred:.2f}"),
                *(f"{size / _MIB:,.0f}" for size in memory),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _verdict(measured: Sequence[Measured], arguments: argparse.Namespace) -> str:
    from benchmarks.audit import growth

    largest = measured[-1]
    takes = (
        f"An audit of {largest.lines:,} events takes {largest.ratio:.2f} times what it "
        "takes to read and count them. "
    )
    if (grown := growth(measured)) is not None:
        takes += (
            f"Any audit takes {grown.fixed_s:.0f} s, and {grown.line_us:.1f} µs for "
            f"each line: {grown.ratio:.2f} times what it takes to count one without a "
            f"schema (wanted: at most {_RATIO_MAX}). "
        )
    elif len(measured) > 1:
        takes += "What a line costs is lost in noise: give sizes further apart. "
    return (
        f"{takes}{arguments.cores} cores; load of the machine {os.getloadavg()[0]:.1f}."
    )


def _plain(
    measured: Sequence[Measured], arguments: argparse.Namespace
) -> dict[str, object]:
    from benchmarks.audit import growth

    grown = growth(measured)
    return {
        "cores": arguments.cores,
        "load": round(os.getloadavg()[0], 2),
        "growth": None if grown is None else dataclasses.asdict(grown),
        "sizes": [
            {
                "events": each.lines,
                "files": each.files,
                "bytes": each.bytes,
                "read_s": each.read,
                "inferred_s": each.inferred,
                "audit_s": each.audit,
                "ratio": each.ratio,
                "ratio_inferred": each.ratio_inferred,
                "jvm_bytes": each.jvm_bytes,
                "python_bytes": each.python_bytes,
            }
            for each in measured
        ],
    }
