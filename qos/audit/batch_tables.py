"""Writes the tables of a batch audit: all rows of some days, in place of former ones.

A follower replaces single rows instead: see qos.audit.step_tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import store, tables
from qos.audit.boot_runs import RUN
from qos.audit.earlier_rows import without_earlier
from qos.audit.judging import Judge
from qos.audit.parallel import in_parallel
from qos.audit.results import Days
from qos.audit.schema import EVENT
from qos.audit.small_journals import without_compiling
from qos.audit.tables import Limits
from qos.journal.schema import Role

__all__ = ["TABLES", "without_rows", "write_tables"]

#: The folders that an audit makes, besides `problems`.
TABLES = (
    "deliveries",
    "anomalies",
    "routes_hourly",
    "unproven_hourly",
    "windows_hourly",
    "refusals",
    "queue_items",
    "queues_hourly",
    "workers_hourly",
)

#: The columns by which two rows are of the same message, and of the same item.
_MESSAGE = ("sender", "msg_id", "level")
_ITEM = ("service", "queue", "item")

#: For at most this many messages, judging takes less time than compiling code for it.
_SUSPECTS_FEW = 10_000


def write_tables(
    events: DataFrame,
    judge: Judge,
    out: str,
    days: Days,
    *,
    messages: DataFrame,
    counts: DataFrame,
    roles: Collection[Role] = frozenset(Role),
    from_margin: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> dict[str, DataFrame]:
    """Make the tables of these days; existing rows of these days are replaced.

    Args:
        events: all lines of the messages and items with a row in these days.
        judge: gives messages their verdicts.
        out: see audit.
        days: the days of the tables.
        messages: see qos.audit.tables.deliveries.
        counts: see qos.audit.tables.counted.
        roles: the roles that `events` may have.
        from_margin: earlier lines exist that are not here: a message or item without
            its beginning is left out.
        progress: called with a description of the present step.

    Returns:
        Each table as it is on disk, for these days.
    """
    frames: dict[str, DataFrame] = {}

    def write(name: str, table: DataFrame, *, has_rows: bool = True) -> DataFrame:
        """Write a table; `has_rows` is False if it is known to have none."""
        progress(f"writing {name}")
        folder = f"{out}/{name}"
        save = store.replace_days if has_rows else store.clear_days
        save(table, folder, *days)
        frames[name] = store.read_table(table, folder, *days)
        return frames[name]

    def write_for(role: Role, name: str, table: DataFrame) -> DataFrame:
        """Write a table that is made from the lines of a role."""
        return write(name, table, has_rows=role in roles)

    def only_new(messages: DataFrame) -> DataFrame:
        """The messages that have no row of an earlier day."""
        if not from_margin:
            return messages
        folder = f"{out}/deliveries"
        return without_earlier(messages, folder, _MESSAGE, "accepted_at", days[0])

    if from_margin:
        # It began before these lines: its row is in the table of that day.
        messages = messages.where(F.col("bytes").isNotNull())
    messages, has_suspects = _judged(messages, judge, only_new)
    # The rows before this audit: data that is read stays so, whatever is written.
    messages_before = store.read_table(messages, f"{out}/deliveries", *days)
    has_former = any(
        store.count_rows(messages.sparkSession, f"{out}/{name}", *days)
        for name in ("anomalies", "unproven_hourly")
    )
    messages = write("deliveries", messages)

    def write_anomalies() -> None:
        anomalies = tables.anomalies(messages)
        if has_former:
            before = store.read_table(anomalies, f"{out}/anomalies", *days)
            anomalies = tables.revised(
                anomalies, before, messages, messages_before, judge.limits
            )
        write("anomalies", anomalies, has_rows=has_suspects or has_former)

    def write_unproven() -> None:
        unproven = tables.unproven_hourly(messages)
        write("unproven_hourly", unproven, has_rows=has_suspects)

    def write_queues() -> None:
        items = tables.queue_items(events)
        if from_margin and Role.QUEUE in roles:
            items = items.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            folder = f"{out}/queue_items"
            items = without_earlier(items, folder, _ITEM, "published_at", days[0])
        items = write_for(Role.QUEUE, "queue_items", items)
        write_for(Role.QUEUE, "queues_hourly", tables.queues_hourly(items))

    in_parallel(
        write_anomalies,
        lambda: write("routes_hourly", tables.routes_hourly(messages)),
        write_unproven,
        lambda: write_for(Role.JOURNAL, "windows_hourly", tables.windows_of(counts)),
        lambda: write_for(Role.RECEIVER, "refusals", tables.refusals(events)),
        write_queues,
        lambda: write_for(Role.WORKER, "workers_hourly", tables.workers_hourly(events)),
    )
    return frames


def without_rows(spark: SparkSession, limits: Limits) -> dict[str, DataFrame]:
    """The tables without a row, for the names and types of their columns."""
    events = spark.createDataFrame([], EVENT)
    runs = spark.createDataFrame([], RUN)
    messages = tables.judged(tables.deliveries(events), runs, limits)
    items = tables.queue_items(events)
    return {
        "deliveries": messages,
        "anomalies": tables.anomalies(messages),
        "routes_hourly": tables.routes_hourly(messages),
        "unproven_hourly": tables.unproven_hourly(messages),
        "windows_hourly": tables.windows_hourly(events),
        "refusals": tables.refusals(events),
        "queue_items": items,
        "queues_hourly": tables.queues_hourly(items),
        "workers_hourly": tables.workers_hourly(events),
    }


def _judged(
    messages: DataFrame, judge: Judge, only_new: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, bool]:
    """The messages with their verdicts, and whether any looks wrong.

    Only the few that look wrong are judged. All others are ok.

    Args:
        messages: perhaps with some that have another row.
        judge: gives messages their verdicts.
        only_new: leaves those out.
    """
    rows = tables.with_suspicion(messages, judge.limits)
    rows = only_new(rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY))
    verdicts = tables.judged_ok(rows.where(~F.col("is_suspect")), judge.limits)
    # All tasks look for them; a single one then has only these.
    suspects = rows.where("is_suspect").localCheckpoint()
    count = suspects.count()
    if not count:
        return verdicts, False
    few = count <= _SUSPECTS_FEW
    with without_compiling(rows.sparkSession, active=few):
        judged = judge(suspects.coalesce(1) if few else suspects).localCheckpoint()
    return verdicts.unionByName(judged), True
