"""The messages of many records, where nearly every message has one record of each side.

These are joined. The few others are aggregated, which takes three times as long for a
record. Their numbers are found first, by a job that reads only the keys.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit import tables

__all__ = ["messages_of"]

#: The most messages, with numbers of 8 bytes each, that every task may have.
_FEW: Final = 200_000

#: For more records, a part of one side might not fit in the memory of a task. So they
#: are sorted, which Spark can do on disk.
_HASHED_MAX: Final = 10_000_000


def messages_of(by_teller: DataFrame) -> DataFrame:
    """The same as qos.audit.tables.deliveries_of, sooner.

    Args:
        by_teller: see there; it is read several times.
    """
    repetitions = tables.repeated(by_teller).localCheckpoint()
    count = repetitions.count()
    if count > _FEW:
        return tables.deliveries_of(by_teller)
    join = "shuffle_hash" if by_teller.count() <= _HASHED_MAX else "merge"
    if not count:
        return tables.paired(by_teller, join=join)
    rows, numbers = tables.numbered(by_teller), F.broadcast(repetitions)
    single = rows.join(numbers, "number", "left_anti")
    multiple = rows.join(numbers, "number", "left_semi")
    return tables.paired(single, join=join).unionByName(tables.deliveries_of(multiple))
