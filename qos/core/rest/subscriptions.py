"""The form that subscribes to a topic: the name of a queue, and a condition on its items."""

from __future__ import annotations

from qos.core.queue.requests import Refusal
from qos.core.record import record
from qos.core.rest.forms import OtherFields, read_fields

__all__ = ["SubscriptionForm", "read_cursor", "read_subscription"]

_FIELDS = frozenset({"name", "selector"})

#: The most digits of a cursor: all that we give are shorter.
_CURSOR_CHARS = 18


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
        fields = read_fields(form, _FIELDS)
    except OtherFields:
        raise _bad("the form: name and selector once, and no others") from None
    except ValueError:
        raise _bad("the form: name=NAME is expected, and selector=SELECTOR") from None
    name = fields.get("name", "")
    # XML, by which others name the queue, has no control characters.
    # Nobody could see a name of spaces.
    if not (name.strip() and len(name) <= name_chars_max and name.isprintable()):
        raise _bad(f"the form: name: 1 to {name_chars_max} printable characters")
    return SubscriptionForm(name, fields.get("selector", "").strip())


def read_cursor(text: str) -> int:
    """The seq after which a reader goes on.

    Raises:
        Refusal: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _CURSOR_CHARS):
        raise _bad("after: follow the link next of a message")
    return int(text)


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")
