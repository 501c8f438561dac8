"""The tables of an audit, computed again in SQL by DuckDB, from the same files.

Written from the documented schema and the documented columns: it imports nothing of the
product. All times are microseconds since the epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb

__all__ = ["TABLES", "Recount", "comparable"]

#: The fields that are read of a line; the others are not needed here.
_TYPES = {
    **dict.fromkeys(("v", "seq", "attempt", "bytes", "sent", "received"), "BIGINT"),
    **dict.fromkeys(("boot", "node", "role", "event", "level", "msg_id"), "VARCHAR"),
    **dict.fromkeys(("from", "to", "queue", "item", "condition"), "VARCHAR"),
    **dict.fromkeys(("at", "since"), "TIMESTAMP"),
}

_LINES = """
create table lines as
select distinct on (boot, seq)
  epoch_us("at") as t, boot, seq, node, role, event, level, msg_id,
  split_part("from", '/', 1) as source, "from" as origin, "to" as target,
  queue, item, attempt, bytes, condition, epoch_us(since) as since, sent, received
from read_json(
  $files, format = 'newline_delimited', ignore_errors = true, columns = {columns}
)
where v between 1 and $version
  and "at" is not null and boot is not null and seq is not null and node is not null
  and role is not null and event is not null
"""

#: The seconds between two times; null if a clock was wrong at one of them.
_LASTING = """
create macro lasting(begin_at, end_at) as
  if(end_at - begin_at between 0 and 365 * 86400e6, (end_at - begin_at) / 1e6, null)
"""

_DELIVERIES = """
with told as (
  select *, source as sender,
    split_part(if(role = 'receiver', coalesce(target, node), target), '/', 1)
      as receiver,
    role = 'sender' as s, role = 'receiver' as r
  from lines
  where role in ('sender', 'receiver') and event <> 'refused' and msg_id is not null
), ends as (
  select sender, receiver, msg_id, level, last(event order by t, seq) as outcome,
    max(t) as ended_at
  from told
  where s and event in ('delivered', 'not-delivered', 'in-doubt', 'withdrawn')
  group by all
), sums as (
  select sender, receiver, msg_id, level,
    min(t) filter (s) as sender_first_at,
    max(t) filter (s) as sender_last_at,
    min(t) as first_at,
    min(t) filter (s and event = 'accepted') as accepted_at,
    min(t) filter (s and event = 'offered') as offered_at,
    min(t) filter (s and event = 'received') as received_at,
    min(t) filter (s and event = 'released') as released_at,
    min(t) filter (r and event = 'held') as held_at,
    max(t) filter (r and event = 'held') as held_again_at,
    min(t) filter (r and event = 'released') as to_hand_over_at,
    min(t) filter (r and event in ('handed-over', 'redelivered')) as handed_over_at,
    min(t) filter (r and event = 'done') as done_at,
    max(t) filter (r and event = 'expired') as expired_at,
    max(attempt) filter (s) as attempts,
    coalesce(max(bytes) filter (s), max(bytes) filter (r)) as bytes,
    count(*) filter (r and event = 'held') as holds,
    count(*) filter (r and event = 'handed-over') as hand_overs,
    count(*) filter (r and event = 'redelivered') as redeliveries
  from told group by all
)
select sender, msg_id, level, receiver, outcome,
  coalesce(accepted_at, sender_first_at, first_at) as begun_at,
  accepted_at, offered_at, received_at, released_at, ended_at, sender_last_at,
  held_at, held_again_at, to_hand_over_at, handed_over_at, done_at, expired_at,
  attempts,
  greatest(0, attempts - if(level = 'assured' and released_at is not null, 2, 1))
    as retries,
  bytes, holds, hand_overs, redeliveries,
  if(outcome = 'delivered', lasting(accepted_at, ended_at), null) as latency_s
from sums left join ends using (sender, receiver, msg_id, level)
"""

_ROUTES = """
select begun_at // 3600000000 as hour, sender, receiver, level,
  count(sender_last_at) as messages,
  count(*) filter (outcome = 'delivered') as delivered,
  count(*) filter (outcome = 'not-delivered') as not_delivered,
  count(*) filter (outcome = 'in-doubt') as in_doubt,
  count(*) filter (outcome = 'withdrawn') as withdrawn,
  count(*) filter (sender_last_at is not null and outcome is null) as open,
  count(*) filter (sender_last_at is null) as one_sided,
  count(*) filter (retries > 0) as retried,
  coalesce(sum(retries), 0)::BIGINT as retries,
  sum(hand_overs)::BIGINT as hand_overs,
  sum(redeliveries)::BIGINT as redeliveries,
  coalesce(sum(bytes), 0)::BIGINT as bytes,
  quantile_disc(latency_s, 0.5) as latency_p50,
  quantile_disc(latency_s, 0.95) as latency_p95
from deliveries group by all
"""

_WINDOWS = """
with told as (
  select *, split_part(node, '/', 1) as account, split_part(target, '/', 1) as receiver,
    split_part(source, '@', -1) as sender_domain,
    split_part(split_part(target, '/', 1), '@', -1) as receiver_domain,
    source is null or target is null as unknown
  from lines where role = 'journal' and event = 'counted'
), ends as (
  select since, account from told group by all
  having not bool_or(unknown and sent + received > 0)
), windows as (
  select since, level, source as sender, receiver, sender_domain, receiver_domain,
    coalesce(sum(sent) filter (account in (source, sender_domain)), 0) as sent,
    coalesce(sum(received) filter (account in (receiver, receiver_domain)), 0)
      as received
  from told
  where not unknown
    and account in (source, receiver, sender_domain, receiver_domain) group by all
), known as (
  select *,
    (since, sender) in (select since, account from ends)
      or (since, sender_domain) in (select since, account from ends) as has_sender,
    (since, receiver) in (select since, account from ends)
      or (since, receiver_domain) in (select since, account from ends) as has_receiver
  from windows
)
select since // 3600000000 as hour, level, sender, receiver,
  sum(sent)::BIGINT as sent, sum(received)::BIGINT as received, count(*) as windows,
  count(*) filter (has_sender and has_receiver) as complete,
  count(*) filter (not has_sender) as without_sender,
  count(*) filter (not has_receiver) as without_receiver
from known group by all
"""

_QUEUE_ITEMS = """
with told as (
  select *, lag(event) over whole as before
  from lines where role = 'queue' and item is not null
  window whole as (partition by node, queue, item order by t, boot, seq)
), lives as (
  select *, 1 + sum(
    (event = 'published'
      and coalesce(before in ('accepted', 'dead', 'withdrawn', 'purged', 'expired'), false)
    )::INT
  ) over (partition by node, queue, item order by t, boot, seq) as life
  from told
), sums as (
  select node, queue, item, life::BIGINT as life,
    max(bytes) filter (event = 'published') as bytes,
    min(t) filter (event = 'published') as published_at,
    min(t) filter (event = 'acquired') as first_acquired_at,
    last(event order by t, boot, seq) as last_event,
    max(t) as last_at,
    count(*) filter (event = 'acquired') as deliveries,
    count(*) filter (event = 'released') as released,
    count(*) filter (event = 'modified') as modified,
    count(*) filter (event = 'rejected') as rejected,
    count(*) filter (event = 'timed-out') as timed_out,
    count(*) filter (event = 'gone') as gone,
    count(*) filter (event = 'requeued') as requeued
  from lives group by all
), ended as (
  select *, last_event in ('accepted', 'dead', 'withdrawn', 'purged', 'expired') as over_
  from sums
)
select node as service, queue, item, life, bytes, published_at, first_acquired_at,
  if(over_, last_at, null) as ended_at, if(over_, last_event, null) as outcome,
  deliveries, released, modified, rejected, timed_out, gone, requeued,
  lasting(published_at, first_acquired_at) as wait_s,
  if(over_, lasting(published_at, last_at), null) as total_s
from ended
"""

_REFUSALS = """
select t // 3600000000 as hour, coalesce(source, '') as source,
  split_part(coalesce(target, node), '/', 1) as receiver,
  condition, level, count(*) as refusals,
  coalesce(sum(bytes), 0)::BIGINT as bytes, min(t) as first_at, max(t) as last_at
from lines where role = 'receiver' and event = 'refused' group by all
"""

_WORKERS = """
with told as (
  select *, sum((event = 'started')::INT) over (
    partition by node, boot, queue, item order by seq
  ) as turn
  from lines where role = 'worker' and item is not null
), turns as (
  select node as worker, queue,
    min(t) filter (event = 'started') as started_at, min(t) as first_at,
    max(t) filter (event <> 'started') as ended_at,
    last(event order by seq) filter (event <> 'started') as outcome
  from told group by node, boot, queue, item, turn
)
select coalesce(started_at, first_at) // 3600000000 as hour, worker, queue,
  count(started_at) as started,
  count(*) filter (outcome = 'accepted') as accepted,
  count(*) filter (outcome = 'released') as released,
  count(*) filter (outcome = 'modified') as modified,
  count(*) filter (outcome = 'rejected') as rejected,
  count(*) filter (outcome = 'lost') as lost,
  count(*) filter (outcome is null) as open,
  coalesce(sum(lasting(started_at, ended_at)), 0) as busy_s
from turns group by all
"""

#: In the order of making them: routes are made from deliveries.
TABLES = {
    "deliveries": _DELIVERIES,
    "routes_hourly": _ROUTES,
    "windows_hourly": _WINDOWS,
    "queue_items": _QUEUE_ITEMS,
    "refusals": _REFUSALS,
    "workers_hourly": _WORKERS,
}


class Recount:
    """The tables of the journals in a folder."""

    def __init__(self, folder: Path, *, version: int) -> None:
        """Read the files and make the tables.

        Args:
            folder: of the journals; some are in folders in it.
            version: of the schema: lines of a newer one are left out.
        """
        names = [
            str(path)
            for path in sorted(folder.glob("**/date=*/*-*-[0-9]*.jsonl"))
            if not path.name.startswith(".")
        ]
        columns = ", ".join(f"'{name}': '{kind}'" for name, kind in _TYPES.items())
        self._base = duckdb.connect()
        self._base.execute(
            _LINES.replace("{columns}", f"{{{columns}}}"),
            {"files": names, "version": version},
        )
        self._base.execute(_LASTING)
        for name, query in TABLES.items():
            self._base.execute(f"create table {name} as {query}")

    def lines(self) -> set[tuple[str, int]]:
        """The boot and the seq of all lines."""
        return set(self._base.execute("select boot, seq from lines").fetchall())

    def columns(self, name: str) -> list[str]:
        """The columns of a table."""
        return [column[0] for column in self._base.table(name).description]

    def rows(self, name: str) -> Counter[tuple[object, ...]]:
        """The rows of a table in the form of `comparable`, and how often each is there."""
        return comparable(self._base.table(name).fetchall())


def comparable(rows: Sequence[Sequence[object]]) -> Counter[tuple[object, ...]]:
    """Rows in a form that does not depend on the order in which numbers were added."""
    return Counter(
        tuple(round(value, 6) if isinstance(value, float) else value for value in row)
        for row in rows
    )
