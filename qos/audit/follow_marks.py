"""How far a follower has come: its marks after a step, and the days that they show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit import boot_runs
from qos.audit.follow_storage import Marks
from qos.audit.lines import LineProblem
from qos.audit.results import NEVER, Days
from qos.audit.staged_journals import Staged
from qos.audit.watermark import watermark

__all__ = ["marks_after", "shown"]

#: A clock may be ahead by this time; an even later line does not close a day.
_AHEAD = timedelta(days=1)


def marks_after(
    staged: Staged,
    earlier_runs: DataFrame,
    before: Marks,
    *,
    now: datetime,
    lateness: timedelta,
) -> Marks:
    """The progress after a step, still with the parts of the former one.

    Args:
        staged: what the step takes in.
        earlier_runs: of all earlier lines.
        before: the marks of the former step.
        now: the time of the look.
        lateness: the whole days for which a day is open after the latest one that
            enough nodes have reached.
    """
    until = now.astimezone(UTC).date() + _AHEAD
    first_day, last_day = F.to_date("first_at"), F.to_date("last_at")
    lines = F.coalesce(F.sum(F.col("last_seq") - F.col("first_seq") + 1), F.lit(0))
    event_runs = staged.runs.where(F.col("kind") == boot_runs.TOLD)
    extent = event_runs.agg(
        lines.alias("lines"),
        F.min(first_day).alias("first"),
        F.max(last_day).alias("last"),
    ).first()
    too_late = staged.late_runs.agg(lines.alias("lines")).first()
    # A file that cannot be read is no line; the comparison leaves out events, too.
    bad = staged.lines.where(F.col("problem") != LineProblem.UNREAD_FILE.value).count()
    assert extent is not None
    assert too_late is not None
    events = extent["lines"] + too_late["lines"]
    first = _least(before.first, extent["first"])
    reached = _last_days(earlier_runs.unionByName(event_runs), until)
    latest = _most(before.latest, watermark(reached, before.open_from))
    return Marks(
        batch=before.batch + 1,
        lines=before.lines + events + bad,
        events=before.events + events,
        first=first,
        last=_most(before.last, extent["last"]),
        latest=latest,
        shown_from=_most(first, before.open_from),
        open_from=None if latest is None else latest - lateness,
    )


def shown(marks: Marks) -> Days:
    """The first and the last day of the report."""
    return marks.shown_from or NEVER[0], marks.last or NEVER[1]


def _last_days(runs: DataFrame, until: date) -> Iterator[tuple[int | None, date, int]]:
    """The last days of nodes, counted; see qos.audit.watermark."""
    days = F.array(F.to_date("first_at"), F.to_date("last_at"))
    timely = F.filter(days, lambda day: day <= F.lit(until))
    rows = runs.where(F.col("kind") == boot_runs.TOLD).select(
        "node",
        F.explode_outer("journals").alias("journal"),
        F.array_max(timely).alias("day"),
    )
    nodes = rows.groupBy("journal", "node").agg(F.max("day").alias("day"))
    counts = nodes.where("day IS NOT NULL").groupBy("journal", "day").count()
    for row in counts.collect():
        yield row["journal"], row["day"], row["count"]


def _least(*days: date | None) -> date | None:
    return min((day for day in days if day is not None), default=None)


def _most(*days: date | None) -> date | None:
    return max((day for day in days if day is not None), default=None)
