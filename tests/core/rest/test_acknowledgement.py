"""The form of an acknowledgement: one meaning each, and clear errors."""

import pytest

from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import (
    Extend,
    Refusal,
    Request,
    Retract,
    Settlement,
    Unlock,
)
from qos.core.rest.forms import EXTEND_S_MAX, read_acknowledgement

ACCEPTED, RELEASED, MODIFIED, REJECTED = ItemOutcome


def read(form: str) -> Request:
    return read_acknowledgement(form, node="n", item_id="i", token="t")  # noqa: S106


def settlement(
    outcome: ItemOutcome, *, failed: bool = False, reason: str = ""
) -> Settlement:
    return Settlement(
        item_id="i",
        token="t",  # noqa: S106 - of a delivery
        outcome=outcome,
        delivery_failed=failed,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("form", "request_"),
    [
        ("acknowledge=true", Retract("n", (settlement(ACCEPTED),), notify=False)),
        ("acknowledge=false", Unlock("n", (settlement(RELEASED),))),
        (
            "acknowledge=false&delivery-failed=false",
            Unlock("n", (settlement(RELEASED),)),
        ),
        (
            "delivery-failed=true&acknowledge=false",
            Unlock("n", (settlement(MODIFIED, failed=True),)),
        ),
        (
            "acknowledge=false&delivery-failed=true&reason=no+ink" + "!" * 2000,
            Unlock(
                "n", (settlement(MODIFIED, failed=True, reason="no ink" + "!" * 994),)
            ),
        ),
        ("reject=", Unlock("n", (settlement(REJECTED),))),
        (
            "reject=no+such+%C3%BC&acknowledge=false",
            Unlock("n", (settlement(REJECTED, reason="no such ü"),)),
        ),
        (
            "reject=" + "x" * 2000,
            Unlock("n", (settlement(REJECTED, reason="x" * 1000),)),
        ),
        ("extend=30", Extend("n", 30.0, (("i", "t"),))),
        (f"extend={EXTEND_S_MAX}", Extend("n", float(EXTEND_S_MAX), (("i", "t"),))),
    ],
)
def test_each_form_has_one_meaning(form: str, request_: Request) -> None:
    assert read(form) == request_


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("", "acknowledge=true or false, reject"),
        ("acknowledge", "name=value is expected"),
        ("reject=%ff", "name=value is expected"),
        ("a=1&b=2&c=3&d=4&e=5&f=6", "name=value is expected"),
        ("ack=true", "and no others"),
        ("acknowledge=true&acknowledge=true", "each of acknowledge, delivery-failed"),
        ("acknowledge=yes", "acknowledge is true or false, not 'yes'"),
        ("acknowledge=false&delivery-failed=1", "delivery-failed is true or false"),
        ("delivery-failed=true", "acknowledge=true or false, reject"),
        ("acknowledge=true&delivery-failed=false", "nothing else"),
        ("acknowledge=true&reject=x", "reject says all"),
        ("reject=x&delivery-failed=true", "reject says all"),
        ("reject=x&reason=y", "reject says all"),
        ("acknowledge=false&reason=x", "a reason goes with delivery-failed=true"),
        ("acknowledge=true&reason=x", "nothing else"),
        ("extend=0", "extend: 1 to 86400 seconds, not '0'"),
        ("extend=86401", "extend: 1 to 86400"),
        ("extend=1.5", "extend: 1 to 86400"),
        ("extend=5&acknowledge=true", "nothing else is expected beside extend"),
    ],
)
def test_another_form_is_refused_with_what_is_wrong(form: str, says: str) -> None:
    with pytest.raises(Refusal, match=r"^the form: ") as caught:
        read(form)
    assert says in str(caught.value)
    assert caught.value.condition == "bad-request"
