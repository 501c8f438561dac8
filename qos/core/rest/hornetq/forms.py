"""The bodies and parameters of HornetQ's requests: what they ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl
from xml.etree import ElementTree as ET

from qos.core.queue.item import PRIORITIES
from qos.core.queue.node_options import (
    QUEUE_REQUESTS,
    SELECTOR,
    BadOption,
    subscribe_options,
)
from qos.core.queue.requests import Refusal
from qos.core.record import record

__all__ = [
    "NAME_CHARS_MAX",
    "NODE_XML_BYTES_MAX",
    "PullForm",
    "SubscriptionForm",
    "create_query",
    "node_name",
    "pull_form",
    "subscription_form",
]

#: The bytes of the document that makes a queue or a topic.
NODE_XML_BYTES_MAX = 16 * 1024

_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}

#: The characters of the name of a subscription: a part of the name of its queue.
NAME_CHARS_MAX = 256

_FIELDS = frozenset({"autoAck", "selector"})
_SUBSCRIPTION_FIELDS = _FIELDS | {"durable", "name", "idle-timeout", "delete-when-idle"}

#: Up to eleven days.
_IDLE = re.compile("[0-9]{1,9}")

_DIGIT = re.compile("[0-9]")


# -- parameters of a message -----------------------------------------------


def create_query(query: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a message, as `qos.core.rest.messages` reads them.

    A priority that is none is ignored. A ttl of 0 is none, as in JMS. Each message is
    durable, also one that need not be.

    Raises:
        Refusal: `durable` is neither true nor false.
    """
    _boolean(query, "durable", default=True)
    parameters = dict(query)
    if not _is_priority(parameters.get("priority", "")):
        parameters.pop("priority", None)
    if parameters.get("ttl") == "0":
        del parameters["ttl"]
    return parameters


def _is_priority(text: str) -> bool:
    is_digit = _DIGIT.fullmatch(text) is not None
    return is_digit and PRIORITIES[0] <= int(text) <= PRIORITIES[-1]


# -- consumers -------------------------------------------------------------


@record(frozen=True, slots=True)
class PullForm:
    """The wishes of a consumer.

    Attributes:
        auto_ack: a message is acknowledged when it has arrived.
        selector: which messages it wants; '': all.
    """

    auto_ack: bool
    selector: str


def pull_form(form: str) -> PullForm:
    """The form that makes a pull consumer: `autoAck` (true), `selector`.

    Raises:
        Refusal: it is no such form, or the selector is none.
    """
    fields = _form(form, _FIELDS)
    return PullForm(_boolean(fields, "autoAck", default=True), _selector(fields))


@record(frozen=True, slots=True)
class SubscriptionForm:
    """The wishes of a subscriber of a topic.

    Attributes:
        auto_ack: a message is acknowledged when it has arrived.
        selector: which messages it wants; '': all.
        durable: the subscription outlives the service.
        name: by which its client finds it again; ''.
        idle_s: seconds after which its consumer has timed out; None: the default.
        delete_when_idle: then the subscription ends too.
    """

    auto_ack: bool
    selector: str
    durable: bool
    name: str
    idle_s: float | None
    delete_when_idle: bool


def subscription_form(form: str) -> SubscriptionForm:
    """The form that makes a pull subscription: that of a consumer, and more.

    They are `durable` (false), `name`, `idle-timeout` in milliseconds, and
    `delete-when-idle`, which is true unless the subscription is durable.

    Raises:
        Refusal: it is no such form, or the selector is none.
    """
    fields = _form(form, _SUBSCRIPTION_FIELDS)
    durable = _boolean(fields, "durable", default=False)
    name = fields.get("name", "")
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise _bad(f"name: at most {NAME_CHARS_MAX} printable characters")
    idle = fields.get("idle-timeout")
    if idle is not None and not (_IDLE.fullmatch(idle) and int(idle)):
        raise _bad(f"idle-timeout: milliseconds are expected, not {idle[:20]!r}")
    return SubscriptionForm(
        auto_ack=_boolean(fields, "autoAck", default=True),
        selector=_selector(fields),
        durable=durable,
        name=name,
        idle_s=None if idle is None else int(idle) / 1000,
        delete_when_idle=_boolean(fields, "delete-when-idle", default=not durable),
    )


def _form(form: str, names: frozenset[str]) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            form,
            keep_blank_values=True,
            strict_parsing=bool(form),
            max_num_fields=len(names),
            errors="strict",
        )
    except ValueError:
        raise _bad("name=value is expected, joined by &") from None
    fields = dict(pairs)
    if fields.keys() - names or len(fields) < len(pairs):
        raise _bad(f"each of {', '.join(sorted(names))} once, and no others")
    return fields


def _selector(fields: Mapping[str, str]) -> str:
    selector = fields.get("selector", "").strip()
    try:
        subscribe_options({QUEUE_REQUESTS: "1", SELECTOR: selector})
    except BadOption as error:
        raise _bad(str(error)) from None
    return selector


def _boolean(fields: Mapping[str, str], name: str, *, default: bool) -> bool:
    if name not in fields:
        return default
    if fields[name] not in _BOOLEANS:
        raise _bad(f"{name} is true or false, not {fields[name][:20]!r}")
    return _BOOLEANS[fields[name]]


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")


# -- nodes -----------------------------------------------------------------


def node_name(body: bytes, content_type: str, kind: str) -> str:
    """The name in the document that makes a node, as HornetQ's own configuration has it.

        <queue name="orders"><durable>true</durable></queue>

    Its messages are durable whatever it says. A selector of a whole queue is refused:
    here consumers have them.

    Args:
        body: the document.
        content_type: `application/hornetq.jms.queue+xml`, or that of a topic.
        kind: `queue` or `topic`.

    Raises:
        Refusal: it is no such document.
    """
    media_type = f"application/hornetq.jms.{kind}+xml"
    if content_type.partition(";")[0].strip().lower() != media_type:
        raise Refusal(
            f"{media_type} is expected",
            condition="unsupported-media-type",
            type="modify",
        )
    if len(body) > NODE_XML_BYTES_MAX:
        raise _bad(f"the {kind}: more than {NODE_XML_BYTES_MAX} bytes")
    # No DTD is ever parsed: its entities could be of any size.
    if b"<!" in body or b"\0" in body:
        raise _bad(f"the {kind}: it has a DTD, a comment, or is not UTF-8")
    try:
        root = ET.fromstring(body)  # noqa: S314 - no DTD
    except (ET.ParseError, ValueError, LookupError) as error:
        raise _bad(f"the {kind}: it is not well-formed: {error}") from None
    if _local(root) != kind or not root.get("name", "").strip():
        raise _bad(f"<{kind} name='NAME'/> is expected")
    if any(_local(element) == "selector" for element in root):
        raise _bad(f"the {kind}: a selector belongs to a consumer")
    return root.attrib["name"].strip()


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
