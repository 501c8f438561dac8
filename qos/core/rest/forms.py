"""The forms that clients post: the end of a delivery, and a subscription to a topic.

They are `application/x-www-form-urlencoded`, with known fields, each at most once. With a
subscription goes the cursor of who reads a topic without one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl

from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import (
    Extend,
    Refusal,
    Request,
    Retract,
    Settlement,
    Unlock,
)
from qos.core.record import record

__all__ = [
    "EXTEND_S_MAX",
    "REASON_CHARS_MAX",
    "SubscriptionForm",
    "read_acknowledgement",
    "read_cursor",
    "read_subscription",
]


#: The length of the reason for which a consumer rejects an item, or has failed on it.
REASON_CHARS_MAX = 1000

#: The longest extension; the node has a limit of its own for all of them together.
EXTEND_S_MAX = 24 * 3600

_ACKNOWLEDGEMENT = frozenset(
    {"acknowledge", "delivery-failed", "reason", "reject", "extend"}
)
_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}

_SUBSCRIPTION = frozenset({"name", "selector"})

#: The most digits of a cursor: all that we give are shorter.
_CURSOR_CHARS = 18


# -- the end of a delivery ---------------------------------------------------


def read_acknowledgement(form: str, *, node: str, item_id: str, token: str) -> Request:
    """Read a form as a request to the core.

    `acknowledge=true` accepts the item; `acknowledge=false` releases it, and with
    `delivery-failed=true` the delivery counts as failed, for the `reason` if there is
    one; `reject=REASON` makes it dead; `extend=SECONDS` moves the end of its lock.

    Args:
        form: `application/x-www-form-urlencoded`.
        node: from the URL, as the others.
        item_id: of the item.
        token: of the delivery.

    Raises:
        Refusal: it is no such form.
    """
    fields = _fields(form)
    if "extend" in fields:
        _alone(fields, "extend")
        return Extend(node, _seconds(fields["extend"]), ((item_id, token),))
    outcome = _outcome(fields)
    reason = fields.get("reject", fields.get("reason", ""))
    settlement = Settlement(
        item_id=item_id,
        token=token,
        outcome=outcome,
        delivery_failed=outcome is ItemOutcome.MODIFIED,
        reason=reason.strip()[:REASON_CHARS_MAX],
    )
    if outcome is ItemOutcome.ACCEPTED:
        return Retract(node, (settlement,), notify=False)
    return Unlock(node, (settlement,))


def _outcome(fields: Mapping[str, str]) -> ItemOutcome:
    """How the delivery has ended; the fields say it in one of several ways."""
    failed = _boolean(fields, "delivery-failed") or False
    accepts = _boolean(fields, "acknowledge")
    if "reject" in fields:
        if accepts or not fields.keys().isdisjoint({"delivery-failed", "reason"}):
            raise _bad(
                "reject says all, without acknowledge=true, delivery-failed, reason"
            )
        return ItemOutcome.REJECTED
    if accepts is None:
        raise _bad(
            "acknowledge=true or false, reject=REASON or extend=SECONDS is needed"
        )
    if accepts:
        _alone(fields, "acknowledge")
        return ItemOutcome.ACCEPTED
    if "reason" in fields and not failed:
        raise _bad("a reason goes with delivery-failed=true")
    return ItemOutcome.MODIFIED if failed else ItemOutcome.RELEASED


def _fields(form: str) -> dict[str, str]:
    try:
        return _read(form, _ACKNOWLEDGEMENT)
    except _OtherFields:
        text = f"each of {', '.join(sorted(_ACKNOWLEDGEMENT))} once, and no others"
        raise _bad(text) from None
    except ValueError:
        raise _bad("name=value is expected, joined by &") from None


def _alone(fields: Mapping[str, str], name: str) -> None:
    if len(fields) > 1:
        raise _bad(f"nothing else is expected beside {name}")


def _boolean(fields: Mapping[str, str], name: str) -> bool | None:
    if name not in fields:
        return None
    if fields[name] not in _BOOLEANS:
        raise _bad(f"{name} is true or false, not {fields[name][:20]!r}")
    return _BOOLEANS[fields[name]]


def _seconds(text: str) -> float:
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(EXTEND_S_MAX))
    if not (digits and 1 <= int(text) <= EXTEND_S_MAX):
        raise _bad(f"extend: 1 to {EXTEND_S_MAX} seconds, not {text[:20]!r}")
    return float(text)


# -- topics ------------------------------------------------------------------


@record(frozen=True, slots=True)
class SubscriptionForm:
    """A subscription as it is asked for.

    Attributes:
        name: of the queue that gets the copies.
        selector: the condition on the items that are copied; '': all.
    """

    name: str
    selector: str = ""


def read_subscription(form: str, *, name_chars_max: int) -> SubscriptionForm:
    """Read `name=NAME` and perhaps `selector=SELECTOR`.

    Args:
        form: `application/x-www-form-urlencoded`.
        name_chars_max: the most characters of a name.

    Raises:
        Refusal: it is no such form.
    """
    try:
        fields = _read(form, _SUBSCRIPTION)
    except _OtherFields:
        raise _bad("name and selector once, and no others") from None
    except ValueError:
        raise _bad("name=NAME is expected, and selector=SELECTOR") from None
    name = fields.get("name", "")
    # XML, by which others name the queue, has no control characters.
    # Nobody could see a name of spaces.
    if not (name.strip() and len(name) <= name_chars_max and name.isprintable()):
        raise _bad(f"name: 1 to {name_chars_max} printable characters")
    return SubscriptionForm(name, fields.get("selector", "").strip())


def read_cursor(text: str) -> int:
    """The seq after which a reader goes on.

    Raises:
        Refusal: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _CURSOR_CHARS):
        why = "after: follow the link next of a message"
        raise Refusal(why, condition="bad-request", type="modify")
    return int(text)


# -- any form ----------------------------------------------------------------


class _OtherFields(ValueError):
    """A form has an unknown field, or one twice."""


def _read(form: str, names: Collection[str]) -> dict[str, str]:
    """The fields of a form, each at most once.

    Raises:
        _OtherFields: see there.
        ValueError: it is no form.
    """
    pairs = parse_qsl(
        form,
        keep_blank_values=True,
        strict_parsing=True,
        max_num_fields=len(names),
        errors="strict",
    )
    fields = dict(pairs)
    if fields.keys() - set(names) or len(fields) < len(pairs):
        raise _OtherFields
    return fields


def _bad(why: str) -> Refusal:
    return Refusal(f"the form: {why}", condition="bad-request", type="modify")
