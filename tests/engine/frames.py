"""Journal lines as literals, and table rows in a form that is easy to compare."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from qos.audit import boot_runs
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.named_journals import named_runs
from qos.audit.new_files import NewFile
from qos.audit.read import Problem
from qos.audit.schema import EVENT
from qos.journal.schema import render_line, time_text

#: Noon of the day on which everything happens.
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """A time of that day, as Spark returns it: without a time zone."""
    return (NOON + timedelta(seconds=seconds)).replace(tzinfo=None)


def only(frame: DataFrame) -> dict[str, Any]:
    """The only row of a table."""
    (row,) = frame.collect()
    return row.asDict()


def write_journal(folder: Path, name: str, lines: Lines) -> None:
    """Write a file with these lines into the folder of the first line's day."""
    texts = [
        render_line(
            {
                "v": 1,
                **{
                    name: value
                    for name, value in row.items()
                    if name not in {"source", "journal"}
                },
                "attempt": row["attempt"] or 1,
                "at": time_text(row["at"].timestamp()),
                "from": row["source"],
            }
        )
        for row in lines.rows
    ]
    folder = folder / f"date={lines.rows[0]['at']:%Y-%m-%d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-b-1.jsonl").write_text("".join(f"{text}\n" for text in texts))


def runs_of(lines: Lines, spark: SparkSession) -> DataFrame:
    """The runs of lines; see qos.audit.boot_runs."""
    told, journal = lines.of_journals(spark), F.col("journal")
    pieces = boot_runs.runs(told, F.lit(boot_runs.TOLD), journal)
    if lines.unreadable:
        others = Lines()
        others.rows = lines.unreadable
        pieces = pieces.unionByName(
            boot_runs.runs(others.of_journals(spark), F.lit(boot_runs.NEWER), journal)
        )
    files = [NewFile(path, "", Problem.OPEN_FILE.value, 1) for path in lines.open_files]
    pieces = pieces.unionByName(named_runs(spark, files))
    return boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S)


_LINE = StructType([*EVENT, StructField("journal", LongType())])


class Lines:
    """Journal lines as literals: `line("sender", "accepted", ...)`.

    Times are seconds after NOON. Each node has one boot, in which seq goes up by 1.
    """

    def __init__(self, domain: str = "x") -> None:
        self.rows: list[dict[str, Any]] = []
        #: Lines written by a newer version.
        self.unreadable: list[dict[str, Any]] = []
        #: The paths of files that are not closed.
        self.open_files: list[str] = []
        self._seqs: dict[str, int] = {}
        self.domain = domain

    def line(self, node: str, role: str, event: str, at: float, **fields: Any) -> None:
        boot = f"{fields.pop('boot', 'boot')} of {node}"
        rows = self.unreadable if fields.pop("unreadable", False) else self.rows
        self._seqs[boot] = self._seqs.get(boot, 0) + 1
        row: dict[str, Any] = dict.fromkeys(EVENT.names) | {"journal": 1}
        row |= {
            "at": NOON + timedelta(seconds=at),
            "boot": boot,
            "seq": self._seqs[boot],
            "node": node,
            "role": role,
            "event": event,
        }
        rows.append(row | fields)

    def sent(
        self, *events: str, at: float = 0, msg_id: str = "m1", **fields: Any
    ) -> Self:
        """The lines of an assured message at its sender, a second apart."""
        self._message(f"a@{self.domain}/1", "sender", events, at, msg_id, fields)
        return self

    def got(
        self, *events: str, at: float = 0.5, msg_id: str = "m1", **fields: Any
    ) -> Self:
        """The lines of an assured message at its receiver, a second apart."""
        self._message(f"b@{self.domain}/1", "receiver", events, at, msg_id, fields)
        return self

    def _message(
        self,
        node: str,
        role: str,
        events: tuple[str, ...],
        at: float,
        msg_id: str,
        fields: dict[str, Any],
    ) -> None:
        ends = {"source": f"a@{self.domain}/1", "to": f"b@{self.domain}/1"}
        given = {"level": "assured"} | ends | fields
        node = given.pop("node", node)
        for number, event in enumerate(events):
            more: dict[str, Any] = {"msg_id": msg_id}
            if event in {"accepted", "held"}:
                more["bytes"] = 100
            self.line(node, role, event, at + number, **(more | given))

    def __add__(self, other: Lines) -> Lines:
        both = Lines()
        both.rows = [*self.rows, *other.rows]
        both.unreadable = [*self.unreadable, *other.unreadable]
        both.open_files = [*self.open_files, *other.open_files]
        return both

    def frame(self, spark: SparkSession) -> DataFrame:
        return self.of_journals(spark).drop("journal")

    def of_journals(self, spark: SparkSession) -> DataFrame:
        """The same with the `journal` of each line."""
        rows = [tuple(row[each.name] for each in _LINE) for row in self.rows]
        return spark.createDataFrame(rows, _LINE)
