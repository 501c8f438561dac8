"""`xmpp-qos audit`: what the journals of many nodes say together."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from qos.cli.demo_output import ProgressLine, show
from qos.cli.options import Parser, seconds
from qos.cli.output import print_json
from qos.cli.status import CommandError, Status, UsageError
from qos.cli.synth import day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qos.pipeline.driver import Summary

__all__ = ["parser", "run"]

_STUCK_AFTER_S = 3600.0
_SKEW_S = 60.0

#: How often the terminal is told what Spark does.
_LOOK_S = 0.3

_EPILOG = """\
examples:
  xmpp-qos audit journals --out audit
  xmpp-qos audit /var/lib/*/journal --out audit --from 2026-01-05 --to 2026-01-05
  xmpp-qos audit hdfs:///journals --out hdfs:///audit --master spark://master:7077

OUT gets a folder of Parquet files, by date and hour, for each of deliveries, anomalies,
routes_hourly, refusals, queue_items and workers_hourly; problems, a small one, tells of
lines and files that are none of a journal's; and report.html shows it all. Days that are
audited again are replaced, others stay.

A node without a journal loses nothing: only messages between nodes of which both
journals are here can be lost or orphaned. Files that are being written are not read.

exit status: 0 no anomaly, 1 anomalies, 2 wrong usage, or there is no Spark here.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} JOURNAL … --out DIR [options]",
        description="Read journals, and find out what was lost, done twice, refused or "
        "is stuck, and how\nlong it all took. Runs on Spark: on this machine, or on a "
        "cluster.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "journals",
        nargs="+",
        metavar="JOURNAL",
        help="the folder of a journal, in which there are date=… folders",
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where the tables and the report go"
    )
    parser.add_argument(
        "--from", dest="first", type=day, metavar="DATE", help="the first day, in UTC"
    )
    parser.add_argument(
        "--to", dest="last", type=day, metavar="DATE", help="the last day, in UTC"
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="where Spark is to run (default: what spark-submit says, or all cores of "
        "this machine)",
    )
    parser.add_argument(
        "--stuck-after",
        type=seconds,
        default=_STUCK_AFTER_S,
        metavar="S",
        help="what is held or outstanding for longer is stuck (default: %(default)g)",
    )
    parser.add_argument(
        "--skew",
        type=seconds,
        default=_SKEW_S,
        metavar="S",
        help="how far the clocks of two nodes may differ (default: %(default)g)",
    )
    parser.add_argument(
        "--json", action="store_true", help="the summary as JSON on stdout"
    )
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    journals = [_journal(text) for text in arguments.journals]
    out = _out(arguments.out)
    if arguments.first and arguments.last and arguments.first > arguments.last:
        raise UsageError(f"--from {arguments.first} is after --to {arguments.last}")
    # Neither Spark nor Plotly is imported before it is needed.
    from qos.pipeline.session import NoSpark, check_spark

    try:
        check_spark()
        audit = _Audit(journals, out, arguments)
        summary = await audit.run()
    except NoSpark as error:
        raise UsageError(str(error)) from None
    report = f"{arguments.out}/report.html"
    if arguments.json:
        print_json({**_plain(asdict(summary)), "report": report})
    else:
        show(_table(summary), _verdict(summary, report), json=False)
    return Status.DONE if summary.clean else Status.NOT_DELIVERED


class _Audit:
    """Runs it in a thread, and shows how far it is."""

    def __init__(
        self, journals: list[str], out: str, arguments: argparse.Namespace
    ) -> None:
        self._journals = journals
        self._out = out
        self._arguments = arguments
        self._step = "starting Spark"
        self._spark: SparkSession | None = None
        self._stopped = threading.Event()

    async def run(self) -> Summary:
        bar = ProgressLine()
        task = asyncio.ensure_future(asyncio.to_thread(self._audit))
        try:
            while not task.done():
                bar.tell(self._state())
                await asyncio.wait([task], timeout=_LOOK_S)
            return task.result()
        except asyncio.CancelledError:
            self._stopped.set()
            while not task.done():
                # A job may just be on its way to begin.
                if self._spark is not None:
                    self._spark.sparkContext.cancelAllJobs()
                await asyncio.wait([task], timeout=_LOOK_S)
            with contextlib.suppress(Exception):
                task.result()
            raise
        finally:
            bar.close()

    def _audit(self) -> Summary:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from qos.pipeline.driver import audit
        from qos.pipeline.session import spark_session
        from qos.pipeline.tables import Limits

        given = self._arguments
        limits = Limits(
            now=datetime.now(UTC),
            stuck_after_s=given.stuck_after,
            skew_s=given.skew,
        )
        with spark_session(master=given.master, quiet=True) as spark:
            self._spark = spark
            try:
                return audit(
                    spark,
                    self._journals,
                    self._out,
                    limits=limits,
                    first=given.first,
                    last=given.last,
                    progress=self._progress,
                )
            except (PySparkException, Py4JError) as error:
                lines = [line for line in str(error).splitlines() if line.strip()]
                why = lines[0] if lines else type(error).__name__
                text = f"Spark has failed while {self._step}: {why}"
                raise CommandError(text, Status.INTERNAL) from None
            except OSError as error:
                text = f"{error.filename or self._out}: {error.strerror or error}"
                raise CommandError(text, Status.OUTPUT) from None
            finally:
                self._spark = None

    def _progress(self, step: str) -> None:
        if self._stopped.is_set():
            raise _Stopped
        self._step = step

    def _state(self) -> str:
        """What is being done, and how much of it."""
        spark = self._spark
        done = of = 0
        if spark is not None:
            tracker = spark.sparkContext.statusTracker()
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done += info.numCompletedTasks
                    of += info.numTasks
        return f"{self._step}: {done} of {of} tasks" if of else f"{self._step} …"


class _Stopped(Exception):
    """Nobody waits for it any more."""


def _journal(text: str) -> str:
    """A journal as Spark is to find it."""
    if "://" in text:
        return text
    path = Path(text)
    if not path.is_dir():
        raise UsageError(f"{text}: there is no such folder")
    if not path.name.startswith("date=") and not any(path.glob("date=*/")):
        raise UsageError(f"{text}: no journal: there is no date=… folder in it")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"{text}: may not be read")
    return str(path.resolve())


def _out(text: str) -> str:
    if "://" in text:
        return text
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {text}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"--out {text}: may not be written")
    return str(path.resolve())


# -- what it prints --------------------------------------------------------


def _table(summary: Summary) -> str:
    days = "no day" if summary.first is None else f"{summary.first} to {summary.last}"
    rows: list[tuple[str, str]] = [("days", days), ("lines", f"{summary.lines:,}")]
    messages = sum(summary.outcomes.values())
    rows.append(("messages", f"{messages:,}"))
    rows += _counts("  ", summary.outcomes)
    one_sided = summary.rows.get("deliveries", 0) - messages
    if one_sided:
        rows.append(("known to the receiver only", f"{one_sided:,}"))
    rows.append(("queue items", f"{summary.rows.get('queue_items', 0):,}"))
    rows.append(("anomalies", f"{sum(summary.anomalies.values()):,}"))
    rows += _counts("  ", summary.anomalies)
    rows.append(("problems of journals", f"{sum(summary.problems.values()):,}"))
    rows += _counts("  ", summary.problems)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _counts(indent: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(f"{indent}{name}", f"{counts[name]:,}") for name in sorted(counts)]


def _verdict(summary: Summary, report: str) -> str:
    found = sum(summary.anomalies.values())
    what = "No anomaly" if summary.clean else f"Anomalies: {found}"
    return f"{what}, in {summary.seconds:.0f} s. Report: {report}"


def _plain(summary: dict[str, object]) -> dict[str, object]:
    days = ("first", "last")
    return {
        name: str(value) if name in days and value is not None else value
        for name, value in summary.items()
    }
