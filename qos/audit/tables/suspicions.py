"""Suspicions about a message, as columns: anomalies that it shows, or that are proven.

The rules are those of qos.audit.tables.anomalies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.audit.tables.columns import bare, domain, seconds_between
from qos.audit.tables.deliveries import COLUMNS
from qos.audit.tables.journal_coverage import Runs, by_device
from qos.core.message.model import Level
from qos.journal.schema import SenderEvent

__all__ = [
    "Case",
    "Limits",
    "cases",
    "how_it_ended",
    "with_cover",
    "with_suspicion",
]

_S = SenderEvent

#: The device whose silence is evidence for a verdict; the component that may speak for
#: it; and the node that recorded the rest.
_OTHER, _COMPONENT, _OWN = Runs("other"), Runs("component"), Runs("own")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for judging a message.

    Attributes:
        now: the time of the audit (with a time zone).
        stuck_after_s: a message that is held or outstanding for longer is stuck.
        skew_s: by how much the clocks of two nodes may differ.
    """

    now: datetime
    stuck_after_s: float = 3600.0
    skew_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """A possible accusation of a message.

    Attributes:
        kind: see qos.audit.tables.anomalies.KINDS.
        suspected: whether the message looks like it.
        proven: whether the lines prove it.
        reason: why they do not, if they do not.
        rests_on: the nodes with the lines for it.
        uncovered: the node with the missing run.
    """

    kind: str
    suspected: Column
    proven: Column
    reason: Column
    rests_on: Column
    uncovered: Column


def with_cover(deliveries: DataFrame, boots: DataFrame, limits: Limits) -> DataFrame:
    """The messages with the evidence from the runs of two nodes, for `cases`.

    Each step has its columns before the next one begins: in a single step, they would
    be as large as all their combinations.
    """
    devices = by_device(boots)
    rows = _with_looks(deliveries, limits)
    rows = rows.withColumn("own", _own())
    rows = _with_components(_OTHER.joined(rows, devices), devices)
    rows = _OWN.joined(rows, devices)
    rows = rows.withColumns(_own_interval(limits))
    low, high = F.col("own_low"), F.col("own_high")
    rows = rows.withColumns(
        {
            "own_covers": _OWN.covers(low, high),
            "own_steady": _OWN.is_steady(low, high),
            "own_last": _sure(_OWN.is_last(low)),
            "own_reason_after": _OWN.reason_after(low),
            "own_reason": F.when(low.isNull(), _OWN.reason_before(high))
            .when(low > high, "clock")
            .otherwise(_OWN.reason(low, high)),
        }
    )
    # A message that was handed over before it was held was held earlier as well.
    held_first = _sure(F.col("held_at") <= F.col("handed_over_at"))
    rows = rows.withColumns(
        {
            "has_first_hold": F.col("own_covers") & held_first,
            "reason_of_hold": _OWN.reason_before(F.unix_micros("handed_over_at")),
        }
    )
    rows = rows.withColumns(_other_interval(limits))
    low, high = F.col("other_low"), F.col("other_high")
    reason = _OTHER.reason(low, high)
    is_known = ~_is_one_device() & (reason != "no-journal")
    reason = F.when(is_known, "which-device").otherwise(reason)
    covers = _is_one_device() & _OTHER.covers_in_each_journal(low, high)
    # Without the beginning of the message, there is no interval for the other device.
    is_begun = F.col("own_low").isNotNull()
    return rows.withColumns(
        {
            "silent": F.col("own_steady") & covers,
            # Nothing is known of a foreign device, whatever the own lines tell.
            "own_fault": (reason != "no-journal")
            & F.when(is_begun, covers).otherwise(_sender_seen() | _is_one_device()),
            "other_reason": reason,
        }
    )


def with_suspicion(deliveries: DataFrame, limits: Limits) -> DataFrame:
    """The messages, and `is_suspect`: whether one of `cases` may be true of a message.

    For other messages, no run of lines is needed.
    """
    lost = _assured() & _is_outcome(_S.DELIVERED) & ~_handed_over()
    may_be = F.col("other").isNotNull() | lost | _is_outcome(_S.IN_DOUBT)
    may_be |= reduce(Column.__or__, map(F.col, _LOOKS))
    rows = _with_looks(deliveries, limits)
    return rows.select(*COLUMNS, may_be.alias("is_suspect"))


def cases() -> Sequence[Case]:
    """The possible accusations of a message; for rows of `with_cover`."""
    own_node, other_node = F.col("own"), F.col("other")
    own_fault = F.col("own_fault")
    reason = F.when(own_fault, F.col("own_reason")).otherwise(F.col("other_reason"))
    fault = F.when(own_fault, own_node).otherwise(other_node)
    lost = _assured() & _is_outcome(_S.DELIVERED)
    never = F.lit(None).cast("string")
    return (
        Case(
            "lost",
            lost & ~_handed_over(),
            lost & ~_handed_over_there() & F.col("silent"),
            reason,
            F.array_compact(F.array("sender_node", other_node)),
            fault,
        ),
        Case(
            "duplicated",
            F.col("looks_duplicated"),
            F.col("looks_duplicated") & (_sender_seen() | F.col("has_first_hold")),
            _own_reason("reason_of_hold"),
            F.col("handed_over_by"),
            own_node,
        ),
        Case(
            "orphaned",
            F.col("looks_orphaned"),
            F.col("looks_orphaned") & F.col("silent"),
            reason,
            F.array_compact(F.array("receiver_node", other_node)),
            fault,
        ),
        Case(
            "stuck",
            F.col("looks_stuck"),
            F.col("looks_stuck") & F.col("own_covers") & F.col("own_last"),
            _own_reason("own_reason_after"),
            F.array(own_node),
            own_node,
        ),
        Case(
            "in-doubt",
            F.lit(False),
            _is_outcome(_S.IN_DOUBT),
            never,
            F.array("sender_node"),
            never,
        ),
    )


def _own_reason(covered: str) -> Column:
    """The reason in this column if the own lines cover the message, else why not."""
    return F.when(F.col("own_covers"), F.col(covered)).otherwise(F.col("own_reason"))


def how_it_ended() -> Column:
    """The real end of a message in doubt: delivered, not-delivered or unknown."""
    # A released message may be handed over at any time, if it did not expire.
    may_come = F.col("to_hand_over_at").isNotNull() & F.col("expired_at").isNull()
    return (
        F.when(_handed_over(), "delivered")
        .when(_assured() & F.col("silent") & ~may_come, "not-delivered")
        .otherwise("unknown")
    )


# -- the nodes whose runs are needed ---------------------------------------


def _with_components(rows: DataFrame, devices: DataFrame) -> DataFrame:
    """The rows, with a component instead of a device that has no journal of its own.

    The journal of a component is named by its domain, and it speaks for all addresses
    of that.
    """
    components = devices.where(~F.col("device").contains("@"))
    rows = rows.withColumn("component", domain(F.col("other")))
    rows = _COMPONENT.joined(rows, components)
    return _COMPONENT.in_place_of(_OTHER, rows)


def _addressed() -> Column:
    """The device that a message is for.

    Null: a device of an account, but it is not known which.
    """
    to, by = F.col("to"), F.col("receiver_node")
    # A journal without a resource is evidence about the messages of which it has lines.
    by_account = _sure((by == bare(to)) | (by == domain(to)))
    return (
        F.when(~to.contains("/") & ~to.contains("@"), to)
        .when(~to.contains("/") | by_account, by)
        .otherwise(to)
    )


def _other() -> Column:
    """The device whose silence would be a proof; or its account."""
    of_sender = _is_outcome(_S.DELIVERED) | _is_outcome(_S.IN_DOUBT)
    is_asked = _assured() & of_sender & ~_handed_over_there()
    return F.when(is_asked, F.coalesce("device", bare(F.col("to")))).when(
        F.col("looks_orphaned"), F.coalesce("source", "sender")
    )


def _own() -> Column:
    """The node whose own lines must be complete."""
    looks_wrong = reduce(Column.__or__, map(F.col, _LOOKS))
    node = F.when(_sender_seen(), F.col("sender_node"))
    node = node.otherwise(F.col("receiver_node"))
    return F.when(looks_wrong | F.col("other").isNotNull(), node)


def _own_interval(limits: Limits) -> dict[str, Column]:
    """When that node must have lines without a gap, by its own clock."""
    sender_last = F.coalesce("ended_at", "sender_last_at")
    last = F.when(_sender_seen(), sender_last).otherwise(
        F.coalesce("handed_over_last_at", "receiver_last_at")
    )
    waits = (_sender_seen() & F.col("ended_at").isNull()) | (
        ~_sender_seen() & ~_handed_over()
    )
    first = F.when(_sender_seen(), F.col("accepted_at")).otherwise(F.col("held_at"))
    # For a held message, no line may be missing since the hold.
    since = F.when(_sender_seen(), last).otherwise(F.col("receiver_first_at"))
    more = F.when(waits, _micros_of(limits.stuck_after_s)).otherwise(0)
    return {
        "own_low": F.unix_micros(F.when(waits, since).otherwise(first)),
        "own_high": F.unix_micros(last) + more,
    }


def _other_interval(limits: Limits) -> dict[str, Column]:
    """When the other device must have written the missing line, by its clock."""
    skew = _micros_of(limits.skew_s)
    # A `released` may be in a gap: then it may be at any time after the acceptance.
    released = F.when(F.col("own_covers"), F.col("released_at"))
    first = F.when(_sender_seen(), F.coalesce(released, F.col("accepted_at")))
    low = F.unix_micros(F.coalesce(first, F.col("held_at"))) - skew
    # The own lines of the message show which writer of an account it is.
    begin = F.when(~_is_device(F.col("other")), F.unix_micros("receiver_first_at"))
    last = F.when(_sender_seen(), F.col("ended_at"))
    high = F.unix_micros(F.coalesce(last, F.col("handed_over_at"))) + skew
    return {"other_low": F.least(low, begin), "other_high": high}


def _is_one_device() -> Column:
    """Whether the device of the other end is known, and not only its account."""
    is_its = _sender_seen() & (F.col("other") == F.col("receiver_node"))
    return _sure(_is_device(F.col("other")) | is_its)


def _is_device(jid: Column) -> Column:
    """Whether a JID can belong to one device only."""
    return jid.contains("/") | ~jid.contains("@")


# -- the anomalies that a message shows ------------------------------------

_LOOKS = ("looks_duplicated", "looks_orphaned", "looks_stuck")


def _with_looks(deliveries: DataFrame, limits: Limits) -> DataFrame:
    rows = deliveries.withColumns({"device": _addressed(), **_looks(limits)})
    return rows.withColumn("other", _other())


def _looks(limits: Limits) -> dict[str, Column]:
    now = F.lit(limits.now).cast("timestamp")

    def is_old(moment: Column) -> Column:
        return seconds_between(moment, now) >= limits.stuck_after_s

    # A stranger may use a msg_id again after its message has been delivered; then the
    # message was held again.
    again = ~_sender_seen() & (F.col("hand_overs") <= F.col("holds"))
    outstanding = (
        _sender_seen()
        & F.col("outcome").isNull()
        & is_old(F.coalesce("accepted_at", "begun_at"))
        & is_old(F.col("sender_last_at"))
    )
    held_at = F.coalesce("held_again_at", "to_hand_over_at")
    expired = _sure(F.col("expired_at") >= held_at)
    is_over = _handed_over() | F.col("done_at").isNotNull() | expired
    waits = ~_sender_seen() & ~is_over & is_old(held_at)
    return {
        "looks_duplicated": _sure(_assured() & (F.col("hand_overs") > 1) & ~again),
        "looks_orphaned": _sure(_assured() & _handed_over() & ~_sender_seen()),
        "looks_stuck": _sure(outstanding) | _sure(waits),
    }


def _handed_over_there() -> Column:
    """Whether the addressed device has, or may have, a line that it handed it over."""
    by, device = F.col("handed_over_by"), F.col("device")
    among = (device >= F.array_min(by)) & (device <= F.array_max(by))
    is_said = F.array_contains(by, device) | ((F.size(by) > 1) & among)
    return F.coalesce(is_said, _handed_over())


def _assured() -> Column:
    return _sure(F.col("level") == Level.ASSURED.value)


def _is_outcome(event: SenderEvent) -> Column:
    return _sure(F.col("outcome") == event.value)


def _sender_seen() -> Column:
    return F.col("sender_last_at").isNotNull()


def _handed_over() -> Column:
    return F.col("handed_over_at").isNotNull()


def _micros_of(seconds: float) -> int:
    return round(seconds * 1e6)


def _sure(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
