"""Counts by bucket of a length of time, which anybody can add up over rows.

The bounds of the buckets are the same for all rows, forever: 0.001 · 10^(i/10) seconds,
for i from 0 to 100. So a percentile of the sum of any rows is known within a bucket,
whose upper bound is 26 % above its lower one. The counts themselves are exact.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["BUCKETS", "bucket_counts", "counts_by_bucket"]

#: The bounds begin at a millisecond, with ten for each power of ten, up to 115 days.
_FIRST_S: Final = 0.001
_PER_DECADE: Final = 10
_BOUNDS: Final = 101

#: One for each bound, and one for all longer times.
BUCKETS: Final = _BOUNDS + 1

#: Spark counts values without error while it tracks more than there are.
_TRACKED: Final = 1000


def bucket_counts(column: str) -> Column:
    """An aggregate: how many values, in seconds, are in each bucket.

    For `counts_by_bucket`. Nulls are in no bucket.
    """
    # Spark counts a null as a value.
    bucket = F.coalesce(_bucket(F.col(column)), F.lit(-1))
    return F.call_function("approx_top_k", bucket, F.lit(BUCKETS + 1), F.lit(_TRACKED))


def counts_by_bucket(name: str) -> Column:
    """The column of counts, BUCKETS long, from a column of `bucket_counts`."""
    count_of = F.map_from_entries(name)
    numbers = F.sequence(F.lit(0), F.lit(BUCKETS - 1))
    counts = F.transform(
        numbers,
        lambda i: F.coalesce(F.try_element_at(count_of, i), F.lit(0).cast("long")),
    )
    return counts.alias(f"{name}_counts")


def _bucket(seconds: Column) -> Column:
    """The number of the bucket; null for a null."""
    # log10 of nothing is null.
    above = F.ceil(F.log10(seconds / _FIRST_S) * _PER_DECADE).cast("int")
    number = F.when(seconds <= _FIRST_S, F.lit(0)).otherwise(above)
    return F.when(seconds.isNotNull(), F.least(number, F.lit(BUCKETS - 1)))
