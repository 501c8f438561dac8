"""The problems of the journals: the table of them, and the rules that they break.

Each kind of problem breaks one rule. The table of rules has a row for every rule, also
for those that hold, so that a check of the data asks for rows by name, and never takes
a rule that was not checked for one that holds.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from qos.audit import store
from qos.audit.rules import RULES

__all__ = ["data_quality", "write_problems"]

#: No text: Spark would have to parse it, which a function of a declarative pipeline may
#: not ask for.
_RULE = StructType([StructField(name, StringType()) for name in ("rule", "meaning")])


def data_quality(problems: DataFrame) -> DataFrame:
    """One row for each rule, whether it was broken or not.

    Args:
        problems: see qos.audit.read.file_problems.

    Returns:
        Columns `rule`, `meaning`, `success`, `count` (of lines or files that break it),
        `places` (how many) and `example` (one, or null).
    """
    rules = problems.sparkSession.createDataFrame([*RULES.items()], _RULE)
    broken = problems.groupBy(F.col("kind").alias("rule")).agg(
        F.sum("count").alias("broken"),
        F.count_distinct("place").alias("places"),
        F.min("example").alias("example"),
    )
    # A kind without a rule would be a fault of ours, and is seen as well.
    rows = F.broadcast(rules).join(broken, "rule", "full")
    count = F.coalesce("broken", F.lit(0).cast("long"))
    return rows.select(
        "rule",
        "meaning",
        (count == 0).alias("success"),
        count.alias("count"),
        F.coalesce("places", F.lit(0).cast("long")).alias("places"),
        "example",
    )


def write_problems(problems: DataFrame, out: str) -> DataFrame:
    """Write both tables; returns the problems as they are on disk.

    Args:
        problems: see data_quality.
        out: the folder of the tables.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    store.replace_table(problems, f"{out}/problems")
    table_rows = store.read_table(problems, f"{out}/problems")
    store.replace_table(data_quality(table_rows), f"{out}/data_quality")
    return table_rows
