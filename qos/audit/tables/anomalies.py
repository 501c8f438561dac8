"""Verdicts: which messages were lost, duplicated, orphaned, are stuck or in doubt.

An audit accuses only where lines prove it. Each message has one verdict:

- `ok`: the lines show nothing wrong.
- `lost`: its sender's last outcome is delivered, the addressed device has no line of a
  hand-over, and one run of that device covers the time from the first `released` to the
  outcome (from `accepted` if the sender's own lines in between are not complete).
- `duplicated`: handed over more than once, and not marked `redelivered`. If there are
  no lines of its sender, which may use a msg_id again, one run of the receiver must
  cover the time from the first hold to the last hand-over.
- `orphaned`: handed over, its sender's account has no line of it to this receiver, and
  one run of the sending device covers the time from the hold to the hand-over.
- `stuck`: held or outstanding, and the recording node has written on for
  `stuck_after_s`, in the same run, without another line of it. No other run follows,
  since the end of the message might be between the two.
- `in-doubt`: according to the sender; `real_outcome` has the real end.
- `unproven`: it looks like one of those (`suspected`), but no run proves it; `reason`
  has the reason (qos.audit.tables.journal_coverage).

The accusations are also rows of the table of anomalies; unproven messages never are.

Times of two nodes, which may differ by up to `skew_s`, are compared only to find out
which time a run covers, never to find out which event came first. A device is a full
JID, or a component that keeps a journal. A journal that was begun without a resource
has the name of an account, which several devices may share: it is evidence about the
messages of which it has lines.

An acknowledged message arrives *at least* once, and its two sides cannot be joined. So
its only possible anomalies are stuck and in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.audit.tables.deliveries import COLUMNS
from qos.audit.tables.suspicions import (
    Limits,
    cases,
    how_it_ended,
    with_cover,
    with_suspicion,
)

__all__ = [
    "KINDS",
    "UNPROVEN",
    "VERDICT",
    "Limits",
    "anomalies",
    "judged",
    "judged_ok",
    "revised",
    "with_suspicion",
]

#: The accusations. If several are true of a message, the first is its verdict.
KINDS = ("lost", "duplicated", "orphaned", "stuck", "in-doubt")

UNPROVEN = "unproven"

#: The columns that `judged` adds.
VERDICT = (
    *("verdict", "reason", "rests_on", "suspected", "uncovered", "real_outcome"),
    "judged_at",
)


def judged(deliveries: DataFrame, boots: DataFrame, limits: Limits) -> DataFrame:
    """Each message with its verdict.

    Args:
        deliveries: see qos.audit.tables.deliveries.
        boots: merged runs; see qos.audit.boot_runs.
        limits: see Limits.

    Returns:
        The columns of `deliveries`, and `verdict`, `reason` (if unproven), `rests_on`
        (the nodes with the lines for the verdict; null if it is ok), `suspected` (the
        anomaly that an unproven message looks like), `uncovered` (the node with the
        missing run), `real_outcome` (only for in-doubt: delivered, not-delivered or
        unknown) and `judged_at` (`limits.now`).
    """
    accusations = cases()
    rows = with_cover(deliveries, boots, limits).withColumns(
        {
            "proven": _first((case.proven, case.kind) for case in accusations),
            "looks": _first((case.suspected, case.kind) for case in accusations),
        }
    )
    is_unproven = F.col("proven").isNull() & F.col("looks").isNotNull()
    in_doubt = F.col("proven") == "in-doubt"
    return rows.select(
        *COLUMNS,
        F.coalesce("proven", F.when(is_unproven, UNPROVEN), F.lit("ok")).alias(
            "verdict"
        ),
        F.when(
            is_unproven, _chosen("looks", {c.kind: c.reason for c in accusations})
        ).alias("reason"),
        _chosen(
            F.coalesce("proven", "looks"), {c.kind: c.rests_on for c in accusations}
        ).alias("rests_on"),
        F.when(is_unproven, F.col("looks")).alias("suspected"),
        F.when(
            is_unproven, _chosen("looks", {c.kind: c.uncovered for c in accusations})
        ).alias("uncovered"),
        F.when(in_doubt, how_it_ended()).alias("real_outcome"),
        F.lit(limits.now).cast("timestamp").alias("judged_at"),
    )


def judged_ok(deliveries: DataFrame, limits: Limits) -> DataFrame:
    """Messages that are no suspects, with the same columns as `judged`; needs no runs.

    Args:
        deliveries: see `with_suspicion`; only those of which it is false.
        limits: see Limits.
    """
    text = F.lit(None).cast("string")
    values = {
        **dict.fromkeys(VERDICT, text),
        "verdict": F.lit("ok"),
        "rests_on": F.lit(None).cast("array<string>"),
        "judged_at": F.lit(limits.now).cast("timestamp"),
    }
    return deliveries.select(*COLUMNS, *(values[name].alias(name) for name in VERDICT))


def anomalies(messages: DataFrame) -> DataFrame:
    """One row for each accused message.

    Args:
        messages: see `judged`.

    Returns:
        Columns `date`, `hour`, `kind`, `real_outcome` (only for in-doubt), `level`,
        `sender`, `receiver`, `msg_id`, `begun_at`, `rests_on`, `evidence` (a struct: the
        other columns of qos.audit.tables.deliveries), `found_at`, `withdrawn_at` (null if it is not withdrawn) and
        `history`: its verdicts, with the time of the audit and the reason.
    """
    # Not the names from the frame: not every pipeline permits to ask it for them.
    names = [name for name in COLUMNS if name not in {"date", "hour"}]
    return messages.where(F.col("verdict").isin(*KINDS)).select(
        "date",
        "hour",
        F.col("verdict").alias("kind"),
        *("real_outcome", "level", "sender", "receiver", "msg_id", "begun_at"),
        "rests_on",
        F.struct(*names).alias("evidence"),
        F.col("judged_at").alias("found_at"),
        F.lit(None).cast("timestamp").alias("withdrawn_at"),
        F.array(_entry("judged_at", "verdict", F.lit(None))).alias("history"),
    )


def revised(
    accusations: DataFrame,
    before: DataFrame,
    messages: DataFrame,
    messages_before: DataFrame,
    limits: Limits,
) -> DataFrame:
    """The anomalies, together with those of an earlier audit: no row ever vanishes.

    An anomaly that is found again keeps its `found_at`; one that is not found again is
    withdrawn.

    Args:
        accusations: of this audit; see `anomalies`.
        before: the earlier table of the same days.
        messages: with their present verdicts; see `judged`.
        messages_before: with their earlier verdicts.
        limits: of this audit.
    """
    rows = _found(accusations, before, messages_before)
    withdrawals = _withdrawn(accusations, before, messages, limits)
    return rows.select(*_ANOMALY).unionByName(withdrawals.select(*_ANOMALY))


def _found(
    accusations: DataFrame, before: DataFrame, messages_before: DataFrame
) -> DataFrame:
    """The anomalies of this audit, each with its history in earlier ones."""
    was = messages_before.where(F.col("verdict") != "ok").select(
        *_MESSAGE, _entry("judged_at", "verdict", "reason").alias("was")
    )
    was = was.dropDuplicates([*_MESSAGE])
    earlier_rows = before.select(
        *_ACCUSATION,
        F.col("found_at").alias("found_before"),
        F.col("history").alias("known"),
    )
    rows = accusations.join(earlier_rows, [*_ACCUSATION], "left").join(
        was, [*_MESSAGE], "left"
    )
    has_other = F.col("was").isNotNull() & (F.col("was.verdict") != F.col("kind"))
    no_history = F.array().cast(_HISTORY)
    earlier = F.coalesce("known", F.when(has_other, F.array("was")), no_history)
    stands = F.coalesce(
        F.try_element_at(earlier, F.lit(-1))["verdict"] == F.col("kind"), F.lit(False)
    )
    return rows.withColumns(
        {
            "found_at": F.coalesce("found_before", "found_at"),
            "history": F.when(stands, earlier).otherwise(F.concat(earlier, "history")),
        }
    )


def _withdrawn(
    accusations: DataFrame, before: DataFrame, messages: DataFrame, limits: Limits
) -> DataFrame:
    """The anomalies of earlier audits that this audit has not found."""
    now = F.lit(limits.now).cast("timestamp")
    is_now = messages.select(*_MESSAGE, F.coalesce("reason", "verdict").alias("is_now"))
    withdrawals = before.join(
        accusations.select(*_ACCUSATION), [*_ACCUSATION], "left_anti"
    )
    withdrawals = withdrawals.join(is_now, [*_MESSAGE], "left")
    reason = F.coalesce("is_now", F.lit("no lines"))
    end = _entry(now, F.lit("withdrawn"), reason)
    return withdrawals.withColumns(
        {
            "history": F.when(
                F.col("withdrawn_at").isNull(), F.concat("history", F.array(end))
            ).otherwise(F.col("history")),
            "withdrawn_at": F.coalesce("withdrawn_at", now),
        }
    )


_MESSAGE = ("level", "sender", "receiver", "msg_id")
_ACCUSATION = (*_MESSAGE, "kind")
_ANOMALY = (
    *("date", "hour", "kind", "real_outcome", "level", "sender", "receiver"),
    *(
        "msg_id",
        "begun_at",
        "rests_on",
        "evidence",
        "found_at",
        "withdrawn_at",
        "history",
    ),
)
_HISTORY = "array<struct<at:timestamp,verdict:string,reason:string>>"


def _entry(at: Column | str, verdict: Column | str, reason: Column | str) -> Column:
    """An entry of a history."""
    return F.struct(
        (F.col(at) if isinstance(at, str) else at).alias("at"),
        (F.col(verdict) if isinstance(verdict, str) else verdict).alias("verdict"),
        (F.col(reason) if isinstance(reason, str) else reason)
        .cast("string")
        .alias("reason"),
    )


def _first(cases: Iterable[tuple[Column, str]]) -> Column:
    """The name of the first true case, or null."""
    return F.coalesce(*(F.when(is_true, name) for is_true, name in cases))


def _chosen(key: Column | str, values: Mapping[str, Column]) -> Column:
    """The value of the key, or null."""
    key = F.col(key) if isinstance(key, str) else key
    return F.coalesce(*(F.when(key == name, value) for name, value in values.items()))
