"""`xmpp-qos audit`: an audit of the journals of many nodes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from qos.cli.audit_folders import journals_of, out_of
from qos.cli.audit_follow import EVERY_S, LATE_DAYS, FollowRun, check, line_of
from qos.cli.audit_forget import FORGET, run_forget
from qos.cli.audit_run import AuditRun
from qos.cli.output import note, print_json, print_parts
from qos.cli.status import Status
from qos.errors import UsageError
from qos.options.parser import Parser, day, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qos.audit.follow import Look
    from qos.audit.results import Summary

__all__ = ["parser", "run"]

_STUCK_AFTER_S = 3600.0
_SKEW_S = 60.0

_DAYS_MAX = 36_500

_EPILOG = """\
examples:
  xmpp-qos audit journals --out audit
  xmpp-qos audit /var/lib/*/journal --out audit --from 2026-01-05 --to 2026-01-05
  xmpp-qos audit lamp@example.org/1=in/lamp hub@example.org=in/hub --out audit
  xmpp-qos audit journals --out audit --follow
  xmpp-qos audit hdfs:///journals --out hdfs:///audit --master spark://master:7077
  xmpp-qos audit forget lamp@example.org --out audit

OUT gets one Delta table, partitioned by date, for each of deliveries, anomalies,
routes_hourly, unproven_hourly, windows_hourly, refusals, queue_items, queues_hourly and
workers_hourly. The small table problems lists lines and files that are no part of a
journal; data_quality has the rules that they break. report.html shows everything.
metrics.prom has the numbers for Prometheus, for the textfile collector of node_exporter.
A day that is audited again is replaced where a row has changed; other days stay. The
table audits says which versions of the tables belong together: its readers see one
complete audit, even while another audit runs or was killed, and for a week after it was
replaced. Only one audit at a time writes into OUT.

Only an anomaly that the lines prove is reported. A message counts as lost or orphaned
only if the journal of the other device was kept all that time, with no line missing.
Other suspect messages are counted as not proven, by reason. Anybody who can write into
a folder can claim to be any node, unless the folder is given as NODE=DIR. Files that are
still being written are counted, but not read.

With --follow the audit goes on: new files and days are taken in, and the tables and the
report are kept up to date, until Ctrl-C or SIGTERM. The current batch is finished then; a
second Ctrl-C ends it at once. In either case, or after a kill, a new start with the same
JOURNALs, OUT and --late continues where it stopped. The position is kept in OUT/.follow.
A day is open until --late days after the latest day seen (days in the future, from a
wrong clock, do not count). The report shows the open days; the tables keep the others. A
line that comes later, or belongs to a message of a closed day, is in no table: problems
counts it as late-line. An audit without --follow, into another OUT, has it in its tables.
Files that are there at the first look are never late.

With --keep, rows of days that are longer ago, by the clock of this machine, are removed
from the tables with each audit or pass. Their files go eight days later.

With forget, all rows about an account and its devices are removed from the tables in OUT,
and no later audit there writes one again, whatever the journals say. A change that
somebody else makes in a table, such as a DELETE of Delta, stays.

exit status: 0 no anomaly, 1 anomalies, 2 wrong usage, or Spark is missing, 3 no message
could be judged.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} JOURNAL … --out DIR [options]\n"
        f"       {prog} forget ACCOUNT --out DIR",
        description="Read journals, and find out which messages were lost, handed over "
        "twice, refused or\nare stuck, and how long all of them took. Runs on Spark: on "
        "this machine or on a cluster.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "journals",
        nargs="+",
        metavar="JOURNAL",
        help="the folder of a journal, with date=… folders in it; or NODE=DIR: only "
        "lines of this node count in this folder (a JID, or an account for all of its "
        "devices)",
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="folder for tables and report"
    )
    parser.add_argument(
        "--from", dest="first", type=day, metavar="DATE", help="the first day (UTC)"
    )
    parser.add_argument(
        "--to", dest="last", type=day, metavar="DATE", help="the last day (UTC)"
    )
    parser.add_argument(
        "--keep",
        type=_days,
        metavar="DAYS",
        help="remove rows of days that are longer ago, and read no line of these "
        "(default: keep all)",
    )
    _add_follow(parser)
    parser.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master (default: that of spark-submit, or all cores of this "
        "machine)",
    )
    _add_limits(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the summary as JSON on stdout"
    )
    return parser


def _add_follow(parser: Parser) -> None:
    parser.add_argument(
        "--follow", action="store_true", help="keep running, and keep OUT up to date"
    )
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="S",
        help="with --follow: seconds between two looks for new files; stuck messages "
        f"are judged again too (default: {EVERY_S:g})",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="with --follow: take in the files that are there, and end; for cron",
    )
    parser.add_argument(
        "--late",
        type=_days,
        metavar="DAYS",
        help="with --follow: days that a day stays open for files that come late "
        f"(default: {LATE_DAYS})",
    )


def _add_limits(parser: Parser) -> None:
    parser.add_argument(
        "--stuck-after",
        type=seconds,
        default=_STUCK_AFTER_S,
        metavar="S",
        help="seconds after which a message that is held or outstanding is stuck "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--skew",
        type=seconds,
        default=_SKEW_S,
        metavar="S",
        help="seconds by which the clocks of two nodes may differ (default: "
        "%(default)g)",
    )


def _days(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, from 1")
    return int(text)


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    if arguments.journals[0] == FORGET:
        return await run_forget(arguments)
    check(arguments)
    journals = journals_of(arguments)
    out = out_of(arguments)
    if arguments.first and arguments.last and arguments.first > arguments.last:
        raise UsageError(f"--from {arguments.first} is after --to {arguments.last}")
    _check_keep(arguments)
    # Neither Spark nor matplotlib is imported before it is needed.
    from qos.spark.session import NoSpark, check_spark

    report = f"{arguments.out}/report.html"

    async def print_look(look: Look) -> None:
        if arguments.json:
            await print_json(_record(look.summary, report))
        else:
            note(line_of(look), name="")

    try:
        check_spark()
        if arguments.follow:
            summary = await FollowRun(journals, out, arguments, print_look).run()
        else:
            summary = await _BatchRun(journals, out, arguments).run()
    except NoSpark as error:
        raise UsageError(str(error)) from None
    if not arguments.json:
        await print_parts(_table(summary), _verdict(summary, report))
    elif not arguments.follow:
        await print_json(_record(summary, report))
    if not summary.clean:
        return Status.NOT_DELIVERED
    return Status.IN_DOUBT if summary.nothing_judged else Status.DONE


def _check_keep(arguments: argparse.Namespace) -> None:
    if arguments.keep is None or arguments.last is None:
        return
    if arguments.last < datetime.now(UTC).date() - timedelta(days=arguments.keep):
        raise UsageError(
            f"--to {arguments.last} is before the days of --keep {arguments.keep}"
        )


class _BatchRun(AuditRun):
    """One audit of the journals that are there."""

    def _do(self, spark: SparkSession) -> Summary:
        from qos.audit.delta import CannotWrite
        from qos.audit.driver import audit

        try:
            return audit(
                spark,
                self._journals,
                self._out,
                limits=self._limits(),
                first=self._arguments.first,
                last=self._arguments.last,
                keep_days=self._arguments.keep,
                progress=self._progress,
            )
        except CannotWrite as error:
            raise UsageError(str(error)) from None


# -- output ----------------------------------------------------------------


def _table(summary: Summary) -> str:
    days = "no day" if summary.first is None else f"{summary.first} to {summary.last}"
    rows: list[tuple[str, str]] = [("days", days), ("lines", f"{summary.lines:,}")]
    if summary.untied:
        rows.append(("journals not tied to nodes", f"{summary.untied:,}"))
    messages = sum(summary.outcomes.values())
    rows.append(("messages", f"{messages:,}"))
    rows += _counts("  ", summary.outcomes)
    one_sided = summary.rows.get("deliveries", 0) - messages
    if one_sided:
        rows.append(("known to the receiver only", f"{one_sided:,}"))
    rows.append(("queue items", f"{summary.rows.get('queue_items', 0):,}"))
    rows.append(("anomalies", f"{sum(summary.anomalies.values()):,}"))
    rows += _counts("  ", summary.anomalies)
    if summary.withdrawn:
        rows.append(("withdrawn since an earlier audit", f"{summary.withdrawn:,}"))
    deliveries = summary.rows.get("deliveries", 0)
    rows.append(
        ("messages that can be judged", f"{summary.judged:,} of {deliveries:,}")
    )
    rows.append(("not proven", f"{sum(summary.unproven.values()):,}"))
    rows += _counts("  ", summary.unproven)
    rows.append(("problems of journals", f"{sum(summary.problems.values()):,}"))
    rows += _counts("  ", summary.problems)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _counts(indent: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(f"{indent}{name}", f"{counts[name]:,}") for name in sorted(counts)]


def _verdict(summary: Summary, report: str) -> str:
    anomalies = sum(summary.anomalies.values())
    verdict = "No anomaly" if summary.clean else f"Anomalies: {anomalies}"
    if summary.nothing_judged:
        verdict = f"Nothing to judge ({summary.nothing_judged})"
    if summary.left_out:
        verdict += (
            f"; lines left out, since their node may not say them: {summary.left_out:,}"
        )
    return f"{verdict}, in {summary.seconds:.0f} s. Report: {report}"


def _record(summary: Summary, report: str) -> dict[str, object]:
    """The summary as a JSON object."""
    record: dict[str, object] = asdict(summary)
    days = {
        name: str(record[name])
        for name in ("first", "last")
        if record[name] is not None
    }
    counts = {"judged": summary.judged, "withdrawn": summary.withdrawn}
    return {**record, **counts, **days, "report": report}
