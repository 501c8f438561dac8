"""Columns and conditions that several tables share; distinct lines."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.journal.schema import Event, Role

__all__ = [
    "bare",
    "by_hour",
    "distinct_lines",
    "event_is",
    "lasting_s",
    "role_is",
    "seconds_between",
]


#: What seems to last longer, in seconds, has begun or ended by a clock that was wrong by
#: years: a machine without one starts in 1970, or where its battery says.
_LASTING_S_MAX = 365 * 86_400.0


def distinct_lines(events: DataFrame, *key: str) -> DataFrame:
    """Each line once; (boot, seq) identifies it.

    Args:
        events: lines, perhaps of files that were given twice.
        key: the columns by which the lines will be grouped next. They are already
            brought together by these here, so that the data moves only once.
    """
    if key:
        events = events.repartition(*key)
    return events.dropDuplicates([*key, "boot", "seq"])


def role_is(*roles: Role) -> Column:
    """Whether a line is of one of these roles."""
    return F.col("role").isin(*(role.value for role in roles))


def event_is(*events: Event) -> Column:
    """Whether the event of a line is one of these; the role must be known."""
    return F.col("event").isin(*(event.value for event in events))


def bare(jid: Column) -> Column:
    """The account of a JID."""
    return F.substring_index(jid, "/", 1)


def domain(jid: Column) -> Column:
    """The domain of a JID: its component, if that keeps a journal."""
    return F.substring_index(bare(jid), "@", -1)


def seconds_between(start: Column | str, end: Column | str) -> Column:
    """The time between two moments, with microseconds."""
    start = F.col(start) if isinstance(start, str) else start
    end = F.col(end) if isinstance(end, str) else end
    return (F.unix_micros(end) - F.unix_micros(start)) / 1e6


def lasting_s(start: Column | str, end: Column | str) -> Column:
    """The time between two moments of one node; null if its clock was wrong at one."""
    seconds = seconds_between(start, end)
    return F.when(seconds.between(0.0, _LASTING_S_MAX), seconds)


def by_hour(frame: DataFrame, moment: str) -> DataFrame:
    """The frame with the partition columns of the tables.

    `date` and `hour` of a time.
    """
    date, hour = F.to_date(moment), F.hour(moment)
    return frame.withColumns({"date": date, "hour": hour})
