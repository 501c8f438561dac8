"""The fields of the two forms: allowed and refused values."""

import math

import pytest

from qos.core.queue.item import Subscription
from qos.core.queue.node_options import (
    NODE_FIELDS,
    QUEUE_REQUESTS,
    SUBSCRIBE_FIELDS,
    BadOption,
    NodeOptions,
    SubscribeOptions,
    node_options,
    subscribe_options,
    subscription_values,
)

DAY = 24 * 3600

#: For each number: least, most, whether it is whole, whether it may be empty.
NUMBERS = {
    "queue#lock_timeout": ("0.1", str(7 * DAY), False, False),
    "queue#max_deliveries": ("1", "1000000", True, False),
    "queue#ttl": ("0.001", str(3650 * DAY), False, True),
    "queue#backoff": ("0", str(DAY), False, False),
    "queue#max_items": ("1", "100000000", True, True),
    "queue#max_bytes": ("1", str(1 << 40), True, True),
    "queue#dedupe_window": ("0", str(365 * DAY), False, False),
    "queue#keep_accepted": ("0", str(365 * DAY), False, False),
    "queue#keep_items": ("0", "100000", True, False),
    "queue#keep_seconds": ("0.001", str(3650 * DAY), False, True),
}

#: Wrong values for every number.
BAD = (
    "-1",
    "-0",
    "+1",
    "1e3",
    "1_0",
    "nan",
    "inf",
    "many",
    "1 2",
    ".",
    "1.2.3",
    "٣",
    "9" * 400,
)


def set_to(var: str, value: str) -> object:
    """The value of the option afterwards."""
    return getattr(node_options({var: value}), var.partition("#")[2])


def test_there_are_the_fields_that_the_decisions_name() -> None:
    """The commands and the guide name the same fields."""
    texts = {"pubsub#access_model", "pubsub#publish_model", "queue#dead_letter_node"}
    texts |= {"queue#node_type", "queue#topic", "queue#selector"}
    assert {field.var for field in NODE_FIELDS} == texts | NUMBERS.keys()


def test_the_defaults() -> None:
    """The options of a node without a configuration."""
    assert node_options({}) == NodeOptions(
        access_model="whitelist",
        publish_model="publishers",
        lock_timeout=60.0,
        max_deliveries=5,
        dead_letter_node="",
        ttl=None,
        backoff=1.0,
        max_items=100_000,
        max_bytes=1 << 30,
        dedupe_window=3600.0,
        keep_accepted=0.0,
        node_type="queue",
        topic="",
        selector="",
        keep_items=1000,
        keep_seconds=None,
    )


@pytest.mark.parametrize("var", NUMBERS)
@pytest.mark.parametrize("value", ["0", "-1", "1000000000", "text", ""])
def test_zero_less_a_thousand_million_and_text(var: str, value: str) -> None:
    """The four wrong values that everybody tries, and an empty one."""
    least, most, _whole, optional = NUMBERS[var]
    if not value and optional:
        assert set_to(var, value) is None
        return
    number = float(value) if value.strip("-").isdecimal() else math.nan
    if float(least) <= number <= float(most):
        assert set_to(var, value) == number
        return
    with pytest.raises(BadOption, match=var):
        set_to(var, value)


@pytest.mark.parametrize("var", NUMBERS)
def test_the_ends_of_the_range_are_in_it(var: str) -> None:
    """Their neighbours outside are not."""
    least, most, whole, _optional = NUMBERS[var]
    assert set_to(var, least) == float(least)
    assert set_to(var, f" {most} ") == float(most)
    with pytest.raises(BadOption, match="from"):
        set_to(var, str(int(most) + 1))
    if whole:
        with pytest.raises(BadOption, match="whole"):
            set_to(var, "1.5")
    else:
        assert set_to(var, "1.5") == 1.5


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("var", NUMBERS)
def test_what_only_a_programmer_calls_a_number_is_none(var: str, value: str) -> None:
    """float() accepts more than a form should."""
    with pytest.raises(BadOption, match="must be"):
        set_to(var, value)


@pytest.mark.parametrize(
    ("var", "good"),
    [
        ("pubsub#access_model", ("open", "whitelist")),
        ("pubsub#publish_model", ("publishers", "open")),
    ],
)
def test_a_model_is_one_of_a_few(var: str, good: tuple[str, ...]) -> None:
    """The other models of XEP-0060 are refused with a clear error."""
    for value in good:
        assert set_to(var, value) == value
    for value in ("", "0", "-1", "1000000000", "authorize", "roster", "OPEN"):
        with pytest.raises(BadOption, match=" or "):
            set_to(var, value)


def test_a_dead_letter_node_can_have_any_name() -> None:
    """The form cannot know whether the node exists."""
    for value in ("", "graves", "0", "-1", "a/b c"):
        assert set_to("queue#dead_letter_node", value) == value


def test_a_field_that_is_not_there_is_refused() -> None:
    """A misspelt option must not seem to be set."""
    with pytest.raises(BadOption, match="queue#max_length"):
        node_options({"queue#max_length": "1"})


def test_values_come_in_one_normal_form() -> None:
    """So that defaults can be recognized."""
    fields = {field.var: field for field in NODE_FIELDS}
    assert fields["queue#lock_timeout"].check(" 060.50 ") == "60.5"
    assert fields["queue#max_items"].check("100") == "100"
    assert fields["queue#backoff"].check("0") == "0"


@pytest.mark.parametrize(
    "value", ["0", "-1", "1001", "1000000000", "many", "", "1.5", "1 2", "1e1"]
)
def test_queue_requests_is_from_one_to_its_cap(value: str) -> None:
    """XEP-0254 §2.1; the cap is stated."""
    with pytest.raises(BadOption, match="from 1 to 1000"):
        subscribe_options({QUEUE_REQUESTS: value})


def test_the_options_of_a_subscription_have_defaults_but_for_one() -> None:
    """Never a silent default for queue_requests (docs/design/queue.md X6)."""
    assert subscribe_options({}) is None
    assert subscribe_options({"queue#batch": "2"}) is None
    assert subscribe_options({QUEUE_REQUESTS: "1000"}) == SubscribeOptions(
        queue_requests=1000, batch=1, durable_locks=False, acknowledged=False
    )


@pytest.mark.parametrize(
    ("var", "good", "bad"),
    [
        ("queue#batch", ("1", "100"), ("0", "-1", "101", "1000000000", "all", "")),
        ("queue#durable_locks", ("0", "1", "true", "false"), ("2", "-1", "yes", "")),
        ("queue#resumable_locks", ("0", "1"), ("2", "")),
        ("queue#new_worker", ("0", "1"), ("2", "")),
        ("queue#events", ("message", "acknowledged"), ("assured", "0", "")),
    ],
)
def test_each_option_of_a_subscription(
    var: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    """A wrong value must not be taken for another one."""
    for value in good:
        assert subscribe_options({QUEUE_REQUESTS: "1", var: value}) is not None
    for value in bad:
        with pytest.raises(BadOption, match=var):
            subscribe_options({QUEUE_REQUESTS: "1", var: value})


def test_what_is_not_given_stays_as_it_was() -> None:
    """XEP-0060 §6.3.5; unknown fields are ignored."""
    before = Subscription(
        node="orders",
        jid="bee@x/1",
        subid="s",
        via="bee@x/1",
        queue_requests=7,
        batch=3,
        durable_locks=True,
        acknowledged=True,
    )
    values = subscription_values(before)
    assert values == {
        QUEUE_REQUESTS: "7",
        "queue#batch": "3",
        "queue#durable_locks": "1",
        "queue#resumable_locks": "0",
        "queue#new_worker": "0",
        "queue#events": "acknowledged",
        "queue#selector": "",
    }
    assert {field.var for field in SUBSCRIBE_FIELDS} == values.keys()
    given = {"queue#batch": "9", "pubsub#digest": "1"}
    assert subscribe_options(given, before) == SubscribeOptions(
        queue_requests=7, batch=9, durable_locks=True, acknowledged=True
    )
    plain = Subscription(
        node="orders", jid="a@x", subid="s", via="a@x/1", queue_requests=1
    )
    assert subscription_values(plain)["queue#events"] == "message"
    assert subscription_values(plain)["queue#durable_locks"] == "0"
