"""Whether a table would get the rows that it has: then nothing is written.

So a second audit of the same journals commits nothing, and a reader that follows the
versions of a table, or `judged_at`, sees only what is new.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["are_same_rows", "with_former_judged_at"]

#: The verdict on a message; `judged_at` is the time of the first audit that found it.
_VERDICT: Final = (
    *("verdict", "reason", "rests_on", "suspected", "uncovered", "real_outcome"),
)

#: Columns that are no content: another order of the same values may make others. What
#: a percentile or a sketch shows is in the counts by bucket, or in the rows of a table
#: that is compared as well.
_NO_CONTENT: Final = ("judged_at",)
_NO_CONTENT_ENDS: Final = ("_sketch", "_p50", "_p95", "_p99")


def are_same_rows(rows: DataFrame, table_rows: DataFrame) -> bool:
    """Whether both frames have the same rows, in any order.

    `judged_at`, percentiles and sketches are not compared. It is one job of Spark, which
    computes both frames once.

    Args:
        rows: the new rows.
        table_rows: the rows of a table, with the same columns.
    """
    names = [name for name in rows.columns if _is_content(name)]
    # Nobody who can write a line may know for which other line its hash is the same.
    salt = F.lit(secrets.randbits(63))
    digest = _hash(names, salt).alias("digest")
    parts = rows.select(digest, F.lit(True).alias("is_new")).union(
        table_rows.select(digest, F.lit(False))
    )
    sums = parts.agg(*_sums(F.col("is_new")), *_sums(~F.col("is_new"))).first()
    assert sums is not None
    half = len(sums) // 2
    return tuple(sums[:half]) == tuple(sums[half:])


def with_former_judged_at(
    rows: DataFrame, table_rows: DataFrame, key: Sequence[str]
) -> DataFrame:
    """The messages; those whose verdict is what it was keep their `judged_at`.

    Args:
        rows: messages with their verdicts.
        table_rows: their former rows.
        key: the columns by which two rows are of the same message. A null is a value.
    """
    former = table_rows.select(
        *(F.col(name).alias(f"former {name}") for name in (*key, *_VERDICT)),
        F.col("judged_at").alias("former judged_at"),
    ).dropDuplicates([f"former {name}" for name in key])
    same = reduce(Column.__and__, map(_is_former, _VERDICT))
    judged_at = F.when(same, F.col("former judged_at"))
    pairs = rows.join(former, reduce(Column.__and__, map(_is_former, key)), "left")
    # Without a former row there is no time either.
    judged = pairs.withColumn("judged_at", F.coalesce(judged_at, "judged_at"))
    return judged.select(*rows.columns)


def _is_former(name: str) -> Column:
    return F.col(name).eqNullSafe(F.col(f"former {name}"))


def _is_content(name: str) -> bool:
    return name not in _NO_CONTENT and not name.endswith(_NO_CONTENT_ENDS)


def _hash(names: Sequence[str], salt: Column) -> Column:
    # The hash of a null is that of no value at all.
    are_null = F.concat(*(F.col(name).isNull().cast("string") for name in names))
    return F.xxhash64(salt, *names, are_null)


def _sums(is_chosen: Column) -> list[Column]:
    chosen = F.when(is_chosen, F.col("digest"))
    return [
        F.count_if(is_chosen),
        F.sum(chosen.cast("decimal(20,0)")),
        F.bit_xor(chosen),
    ]
