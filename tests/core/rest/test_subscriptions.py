"""The form that subscribes to a topic, and the place of a reader.

The rows are those of docs/rest-checklist.md.
"""

import pytest

from qos.core.queue.requests import Refusal
from qos.core.rest.forms import (
    SubscriptionForm,
    read_cursor,
    read_subscription,
)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("name=a", SubscriptionForm("a")),
        ("name=a%2Fb&selector=", SubscriptionForm("a/b")),
        ("selector=+n+%3D+1&name=%C3%BC", SubscriptionForm("ü", "n = 1")),
    ],
)
def test_a_form_names_a_queue(form: str, expected: SubscriptionForm) -> None:
    """T1: and perhaps a condition."""
    assert read_subscription(form, name_chars_max=3) == expected


@pytest.mark.parametrize(
    "form",
    [
        *("", "name", "name=", "name=abcd", "name=+", "name=%00", "name=%FF"),
        *("name=a&name=a", "name=a&b=c", "name=a&selector=b&c=d", "selector=a"),
    ],
)
def test_any_other_form_is_refused(form: str) -> None:
    """With the reason."""
    with pytest.raises(Refusal, match=r"^the form: ") as error:
        read_subscription(form, name_chars_max=3)
    assert error.value.condition == "bad-request"


@pytest.mark.parametrize(
    ("text", "seq"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)]
)
def test_a_cursor_is_a_seq(text: str, seq: int) -> None:
    """SQLite can compare it."""
    assert read_cursor(text) == seq


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "٣", "9" * 19])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    """No link has it."""
    with pytest.raises(Refusal, match=r"^after: "):
        read_cursor(text)
