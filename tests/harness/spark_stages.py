"""The stages that Spark has run: how many tasks each had, and what it has read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import SparkSession

__all__ = ["Stage", "stages"]


@dataclass(frozen=True)
class Stage:
    """A stage: its tasks that have ended, and the records that they have read."""

    tasks: int
    records: int


def stages(spark: SparkSession) -> dict[int, Stage]:
    """The stages that Spark remembers, by their numbers."""
    context = cast(Any, spark.sparkContext)
    none = context._jvm.java.util.ArrayList()
    numbers = context._gateway.new_array(context._jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(none, False, False, numbers, none)
    return {
        stage.stageId(): Stage(stage.numCompleteTasks(), stage.inputRecords())
        for stage in (found.apply(index) for index in range(found.size()))
    }
