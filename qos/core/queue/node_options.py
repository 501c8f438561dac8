"""The options of a node and of a subscription: their names, values and limits.

One table serves the forms of the service, the command's `--set` and the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from qos.core.backoff import Backoff
from qos.core.queue.item import Subscription
from qos.core.queue.selector import SelectorError, parse
from qos.core.record import record, replace

__all__ = [
    "ACCESS_MODEL",
    "DEAD_LETTER_NODE",
    "KEEP_ITEMS_MAX",
    "NODE_FIELDS",
    "NODE_TYPE",
    "QUEUE_REQUESTS",
    "SELECTOR",
    "SUBSCRIBE_FIELDS",
    "TOPIC",
    "BadOption",
    "BadSelector",
    "Field",
    "NodeOptions",
    "SubscribeOptions",
    "node_options",
    "subscribe_options",
    "subscription_values",
]

#: The number of items that one subscriber may hold: what a worker can keep in memory.
QUEUE_REQUESTS_MAX = 1000

#: The number of items in one event. Most events end earlier, at the server's stanza
#: size.
BATCH_MAX = 100

_DAY_S = 24 * 3600.0
_YEAR_S = 365 * _DAY_S

#: A longer queue is a leak: no worker empties it.
_ITEMS_MAX = 100_000_000
_BYTES_MAX = 1 << 40

QUEUE_REQUESTS = "pubsub#queue_requests"
#: The number of items that a topic keeps: all of them are in memory.
KEEP_ITEMS_MAX = 100_000

ACCESS_MODEL = "pubsub#access_model"
DEAD_LETTER_NODE = "queue#dead_letter_node"
NODE_TYPE = "queue#node_type"
#: Of a node: the topic that it copies from.
TOPIC = "queue#topic"
#: Of a subscription; and of a node that copies from a topic.
SELECTOR = "queue#selector"


class BadOption(ValueError):
    """A value that an option cannot have. The message names both."""


class BadSelector(BadOption):
    """A text that is no selector. The message names the position."""


@record(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        var: its name.
        label: a description for people.
        default: its value when none is given; None: it must be given.
        choices: the values that it can have; () for any.
        least: the smallest number; None: the value is text.
        most: the largest number.
        whole: the number has no fraction.
        optional: it may be empty, which means no limit.
        boolean: it is 0 or 1.
    """

    var: str
    label: str
    default: str | None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float = math.inf
    whole: bool = True
    optional: bool = False
    boolean: bool = False

    def check(self, value: str) -> str:
        """The value in its normal form.

        Raises:
            BadOption: the field cannot have this value.
        """
        value = value.strip()
        if self.boolean:
            if value not in _BOOLEANS:
                raise BadOption(f"{self.var} must be 0 or 1, not {value!r}")
            return _BOOLEANS[value]
        if self.choices and value not in self.choices:
            words = " or ".join(self.choices)
            raise BadOption(f"{self.var} must be {words}, not {value!r}")
        if self.least is None or (self.optional and not value):
            return value
        number = _number(value)
        if not self.least <= number <= self.most or (
            self.whole and not number.is_integer()
        ):
            kind = "a whole number" if self.whole else "a number"
            empty = ", or empty" if self.optional else ""
            raise BadOption(
                f"{self.var} must be {kind} from {_text(self.least)} to "
                f"{_text(self.most)}{empty}, not {value!r}"
            )
        return _text(number)


_BOOLEANS = {"0": "0", "false": "0", "1": "1", "true": "1"}


def _seconds(
    var: str,
    label: str,
    default: str,
    least: float,
    most: float,
    *,
    optional: bool = False,
) -> Field:
    return Field(
        var,
        label,
        default,
        least=least,
        most=most,
        whole=False,
        optional=optional,
    )


#: The configuration form of a node (XEP-0060 §8.2), in this order.
NODE_FIELDS: tuple[Field, ...] = (
    Field(
        ACCESS_MODEL,
        "Who may subscribe: owners, publishers and members (whitelist), or everybody "
        "(open)",
        "whitelist",
        choices=("whitelist", "open"),
    ),
    Field(
        "pubsub#publish_model",
        "Who may publish: owners, publishers and publish-only, or everybody who may "
        "subscribe (open)",
        "publishers",
        choices=("publishers", "open"),
    ),
    _seconds(
        "queue#lock_timeout",
        "Seconds that a worker may hold an item without an extension",
        "60",
        0.1,
        7 * _DAY_S,
    ),
    Field(
        "queue#max_deliveries",
        "Failed deliveries after which an item is dead",
        "5",
        least=1,
        most=1_000_000,
    ),
    Field(
        DEAD_LETTER_NODE,
        "The node that dead items are moved to; it must exist, and you must be allowed "
        "to publish to it (empty: dead items stay here)",
        "",
    ),
    _seconds(
        "queue#ttl",
        "Seconds until an item expires, unless its publisher sets a time (empty: never)",
        "",
        0.001,
        10 * _YEAR_S,
        optional=True,
    ),
    _seconds(
        "queue#backoff",
        "Seconds before a returned item is delivered again; doubled each time",
        "1",
        0,
        _DAY_S,
    ),
    Field(
        "queue#max_items",
        "Items that may wait; more are refused (empty: no limit)",
        "100000",
        least=1,
        most=_ITEMS_MAX,
        optional=True,
    ),
    Field(
        "queue#max_bytes",
        "Bytes of payload that may wait; more are refused (empty: no limit)",
        "1073741824",
        least=1,
        most=_BYTES_MAX,
        optional=True,
    ),
    _seconds(
        "queue#dedupe_window",
        "Seconds after the end of an item in which its id is still recognised",
        "3600",
        0,
        _YEAR_S,
    ),
    _seconds(
        "queue#keep_accepted",
        "Seconds that an accepted item is kept for browsing",
        "0",
        0,
        _YEAR_S,
    ),
    Field(
        NODE_TYPE,
        "A queue, whose items are for one worker each; or a topic, which copies its items "
        "into each queue that subscribes to it. Set when the node is created",
        "queue",
        choices=("queue", "topic"),
    ),
    Field(
        TOPIC,
        "Of a queue: the topic whose new items are copied into it; you must be allowed to "
        "subscribe to that. Set when the queue is created (empty: none)",
        "",
    ),
    Field(
        SELECTOR,
        "Of a queue that copies from a topic: the condition on the items that are copied "
        "(empty: all)",
        "",
    ),
    Field(
        "queue#keep_items",
        "Of a topic: the latest items that it keeps for reading",
        "1000",
        least=0,
        most=KEEP_ITEMS_MAX,
    ),
    _seconds(
        "queue#keep_seconds",
        "Of a topic: seconds for which it keeps an item for reading (empty: no limit)",
        "",
        0.001,
        10 * _YEAR_S,
        optional=True,
    ),
)

#: The subscription options form (XEP-0254 §2.1).
SUBSCRIBE_FIELDS: tuple[Field, ...] = (
    Field(
        QUEUE_REQUESTS,
        "The most items to hold at a time",
        None,
        least=1,
        most=QUEUE_REQUESTS_MAX,
    ),
    Field("queue#batch", "The most items in one event", "1", least=1, most=BATCH_MAX),
    Field(
        "queue#durable_locks",
        "Keep my items locked for my account when I am unavailable",
        "0",
        boolean=True,
    ),
    Field(
        "queue#resumable_locks",
        "Keep my items locked for me when I am unavailable; I come back with their tokens",
        "0",
        boolean=True,
    ),
    Field(
        "queue#new_worker",
        "I am a new worker: items that this JID had before were of one that has died",
        "0",
        boolean=True,
    ),
    Field(
        "queue#events",
        "Whether events are plain messages, or acknowledged (urn:xmpp:qos)",
        "message",
        choices=("message", "acknowledged"),
    ),
    Field(
        SELECTOR,
        "The condition on the items that I want, such as: color = 'red' AND n > 5 "
        "(empty: all)",
        "",
    ),
)

#: The longest backoff between redeliveries of one item; a larger configured backoff
#: wins.
_BACKOFF_S_MAX = 3600.0


@record(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of a node, as values; None: no limit. See NODE_FIELDS."""

    access_model: str
    publish_model: str
    lock_timeout: float
    max_deliveries: int
    dead_letter_node: str
    ttl: float | None
    backoff: float
    max_items: int | None
    max_bytes: int | None
    dedupe_window: float
    keep_accepted: float
    node_type: str
    topic: str
    selector: str
    keep_items: int
    keep_seconds: float | None

    def delay_s(self, times: int) -> float:
        """Seconds until redelivery of an item that was given back this often."""
        if not self.backoff:
            return 0.0
        longest = max(self.backoff, _BACKOFF_S_MAX)
        # With jitter 1 the delay is the ceiling: there is no crowd of clients to
        # spread.
        return Backoff(first_s=self.backoff, max_s=longest).delay_s(times, 1.0)


@record(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The options of a subscription, as values. See SUBSCRIBE_FIELDS.

    `new_worker` is of the request, and not kept.
    """

    queue_requests: int
    batch: int
    durable_locks: bool
    acknowledged: bool
    resumable_locks: bool = False
    new_worker: bool = False
    selector: str = ""


def node_options(config: Mapping[str, str]) -> NodeOptions:
    """The options of a node, from its configuration.

    Args:
        config: values by the names of the fields; the others have their defaults.

    Raises:
        BadOption: there is no such field, or it cannot have this value.
    """
    text = _checked(NODE_FIELDS, config)
    values: dict[str, Any] = {}
    for field in NODE_FIELDS:
        values[field.var.partition("#")[2]] = _value(field, text[field.var])
    options = NodeOptions(**values)
    if options.topic and options.node_type == "topic":
        raise BadOption(f"a topic copies from no other topic, so it has no {TOPIC}")
    if options.selector and not options.topic:
        raise BadOption(f"{SELECTOR} is for a queue that copies from a topic ({TOPIC})")
    return replace(options, selector=_selector(options.selector))


def subscribe_options(
    form: Mapping[str, str], before: Subscription | None = None
) -> SubscribeOptions | None:
    """The options of a subscription; None when `queue_requests` is not given.

    Args:
        form: values by the names of the fields; unknown fields are ignored.
        before: the present subscription, which provides the options that are not given.

    Raises:
        BadOption: a field cannot have this value; a BadSelector if it is that one.
    """
    names = {field.var for field in SUBSCRIBE_FIELDS}
    form = {var: value for var, value in form.items() if var in names}
    if before is not None:
        form = {**subscription_values(before), **form}
    if QUEUE_REQUESTS not in form:
        return None
    text = _checked(SUBSCRIBE_FIELDS, form)
    if text["queue#durable_locks"] == text["queue#resumable_locks"] == "1":
        raise BadOption(
            "a lock is its account's (queue#durable_locks) or its worker's "
            "(queue#resumable_locks), and not both"
        )
    return SubscribeOptions(
        queue_requests=int(text[QUEUE_REQUESTS]),
        batch=int(text["queue#batch"]),
        durable_locks=text["queue#durable_locks"] == "1",
        acknowledged=text["queue#events"] == "acknowledged",
        resumable_locks=text["queue#resumable_locks"] == "1",
        new_worker=text["queue#new_worker"] == "1",
        selector=_selector(text[SELECTOR]),
    )


def _selector(text: str) -> str:
    try:
        return parse(text).text if text else ""
    except SelectorError as error:
        raise BadSelector(f"{SELECTOR}: {error}") from error


def subscription_values(subscription: Subscription) -> dict[str, str]:
    """The options of a subscription as the fields of its form."""
    return {
        QUEUE_REQUESTS: str(subscription.queue_requests),
        "queue#batch": str(subscription.batch),
        "queue#durable_locks": "1" if subscription.durable_locks else "0",
        "queue#resumable_locks": "1" if subscription.resumable_locks else "0",
        "queue#new_worker": "0",
        "queue#events": "acknowledged" if subscription.acknowledged else "message",
        SELECTOR: subscription.selector,
    }


def _checked(table: Sequence[Field], form: Mapping[str, str]) -> dict[str, str]:
    unknown = sorted(set(form) - {field.var for field in table})
    if unknown:
        raise BadOption(f"there is no field {unknown[0]!r}")
    values = {}
    for field in table:
        value = form.get(field.var, field.default)
        assert value is not None, field.var
        values[field.var] = field.check(value)
    return values


def _value(field: Field, text: str) -> float | int | str | None:
    if field.least is None:
        return text
    if not text:
        return None
    return int(text) if field.whole else float(text)


def _number(text: str) -> float:
    # float() accepts more than a form should: 1_000, nan, infinity, blanks.
    if not text or text.strip("0123456789.") or text.count(".") > 1 or text == ".":
        return math.nan
    return float(text)


def _text(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
