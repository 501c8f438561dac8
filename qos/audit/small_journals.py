"""Small journals, for which the preparation takes longer than the reading.

For each plan, Spark writes Java code and compiles it. Rows are then processed faster,
but for so few rows the preparation takes longer than that saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["are_small", "without_compiling"]

#: About 30,000 lines.
_BYTES: Final = 8 * 2**20

_NO_CODE: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def are_small(sizes: Iterable[int]) -> bool:
    """Whether files of these sizes, in bytes, are small all together.

    Takes no more sizes than it needs.
    """
    return all(size < _BYTES for size in accumulate(sizes))


@contextmanager
def without_compiling(spark: SparkSession, *, active: bool) -> Iterator[None]:
    """Keep Spark from compiling code for its plans in this block."""
    before = {key: str(spark.conf.get(key)) for key in _NO_CODE}
    if active:
        for key, value in _NO_CODE.items():
            spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
