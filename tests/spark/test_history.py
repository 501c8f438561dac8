"""Verdicts that are revised as files come: no anomaly silently vanishes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit.driver import audit
from qos.audit.results import Summary
from qos.audit.snapshot import snapshot, spark_frame
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(300),
]

SENT = ("accepted", "offered", "received", "released", "delivered")

DAYS = [NOON + timedelta(days=day) for day in range(6)]


def kept(node: str, *times: float) -> Lines:
    lines = Lines()
    for at in times:
        lines.line(node, "journal", "opened", at)
    return lines


@pytest.mark.long
def test_a_verdict_that_is_revised_says_when_and_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A user who heard of a loss learns that it was none, and when that was found."""
    journals, out = tmp_path / "journals", str(tmp_path / "out")

    def look(
        day: int,
    ) -> tuple[Summary, list[tuple[datetime | None, list[tuple[int, str]]]]]:
        """The summary; and since when each row is withdrawn, and its history."""
        limits = Limits(now=DAYS[day])
        summary = audit(spark, [str(journals)], out, limits=limits)
        rows = spark_frame(spark, snapshot(out)["anomalies"]).collect()
        at = [moment.replace(tzinfo=None) for moment in DAYS]
        return summary, [
            (
                row["withdrawn_at"],
                [
                    (at.index(each["at"]), " ".join(filter(None, each[1:])))
                    for each in row["history"]
                ],
            )
            for row in rows
        ]

    write_journal(journals, "a", kept("a@x/1", -900).sent(*SENT))
    write_journal(journals, "b1", kept("b@x/1", -900, -800))
    summary, rows = look(0)
    assert (summary.anomalies, summary.unproven, rows) == ({}, {"not-closed": 1}, [])
    assert (summary.judged, summary.withdrawn) == (0, 0)

    more = kept("b@x/1", -900, -800, 600)
    more.rows = more.rows[2:]
    write_journal(journals, "b2", more)
    summary, rows = look(1)
    assert summary.anomalies == {"lost": 1}
    assert rows == [(None, [(0, "unproven not-closed"), (1, "lost")])]

    # A second writer of the same name has handed it over.
    other = Lines().got("held", "released", "handed-over", "done", boot="other")
    write_journal(journals, "b3", other)
    summary, rows = look(2)
    assert (summary.clean, summary.judged, summary.withdrawn) == (True, 1, 1)
    withdrawn = [(0, "unproven not-closed"), (1, "lost"), (2, "withdrawn ok")]
    at = DAYS[2].replace(tzinfo=None)
    assert rows == [(at, withdrawn)]
    assert look(3)[1] == rows

    next(journals.glob("date=*/b3-*")).unlink()
    summary, rows = look(4)
    assert summary.anomalies == {"lost": 1}
    assert rows == [(None, [*withdrawn, (4, "lost")])]
