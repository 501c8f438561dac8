"""Judges messages by the runs of all known journals.

An audit of some days does not list the files of other days. Only if it would say of a
device that it wrote no line, it looks for other journals of the same name there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit import tables
from qos.audit.tables import Limits

__all__ = ["Judge"]


@dataclass(frozen=True, slots=True)
class Judge:
    """Gives messages their verdicts; see qos.audit.tables.judged.

    Attributes:
        runs: see there.
        limits: see there.
        elsewhere: finds the journals of each node by the files of all days, as runs;
            None: `runs` has them.
    """

    runs: DataFrame
    limits: Limits
    elsewhere: Callable[[], DataFrame] | None = None

    def __call__(self, messages: DataFrame) -> DataFrame:
        """The messages with their verdicts."""
        rows = tables.judged(messages, self.runs, self.limits)
        if self.elsewhere is None:
            return rows
        rows = rows.localCheckpoint()
        by_silence = F.col("verdict").isin("lost", "orphaned")
        by_silence |= F.col("real_outcome") == "not-delivered"
        if rows.where(by_silence).isEmpty():
            return rows
        runs = self.runs.unionByName(self.elsewhere())
        return tables.judged(messages, runs, self.limits)
