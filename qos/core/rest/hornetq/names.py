"""HornetQ's names: of queues in JMS, and of headers that selectors read.

The header `Foo-Bar` of a message is its property `http_foo$bar`, if the operator has named
it: a request has many more headers, of proxies and of programs that log in, and an item is
read by others. What is about the content travels in any case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from qos.core.content_headers import CONTENT_TYPE_MAX, is_header_value
from qos.core.queue.properties import NAME_CHARS_MAX, Properties
from qos.core.queue.requests import Refusal

__all__ = ["check_header", "headers_of", "plain_name", "properties_of"]

_PREFIX = "http_"
_CONTENT = f"{_PREFIX}content$"

_OF_REQUEST = frozenset(
    {
        *("authorization", "authentication", "cache-control", "connection", "cookie"),
        *("date", "dnt", "expect", "forwarded", "from", "host", "idempotency-key"),
        *("keep-alive", "max-forwards", "origin", "pragma", "prefer", "priority"),
        *("range", "referer", "te", "trailer", "transfer-encoding", "upgrade"),
        *("upgrade-insecure-requests", "user-agent", "via", "x-real-ip", "x-rs-wait"),
        *("x-request-id", "x-requested-with", "traceparent", "tracestate", "baggage"),
        # They would say something about the answer in which they come back.
        *("content-length", "content-range"),
    }
)
_OF_REQUEST_TOO = (
    *("accept", "access-control-", "if-", "msg-", "proxy-", "sec-", "x-forwarded-"),
    *("x-http-method", "content-security-policy"),
)

#: A header with such a word is a secret of its sender, and an item is read by others.
_SECRETS = frozenset(
    {
        *("auth", "apikey", "cookie", "credential", "credentials", "csrf", "jwt"),
        *("password", "secret", "signature", "token", "xsrf"),
    }
)

#: What a selector can have as a name.
_NAME = re.compile(r"[a-z0-9_.-]+")
_IS_HEADER = re.compile(r"[a-z0-9_$.]+")


def plain_name(name: str, kind: str) -> str:
    """The name of a node, which JMS clients call `jms.queue.NAME` or `jms.topic.NAME`.

    Args:
        name: as it came.
        kind: `queue` or `topic`.
    """
    prefix = f"jms.{kind}."
    return name.removeprefix(prefix) or name


def check_header(name: str) -> str:
    """The name of a header that may become a property, in lower case.

    Raises:
        ValueError: it is about the request, its connection or its user.
    """
    name = name.lower()
    if not _can_be_property(name):
        raise ValueError(f"{name!r} is no name of a header that a selector can have")
    if not _may_be_of_message(name):
        raise ValueError(
            f"{name} is about the request, its connection or its user, and all consumers "
            "would read it"
        )
    return name


def properties_of(
    headers: Mapping[str, str], allowed: Collection[str] = ()
) -> Properties:
    """The headers of a message, as properties: those about its content, and some others.

    Args:
        headers: by their names in lower case.
        allowed: the others, checked by `check_header`.

    Raises:
        Refusal: a value cannot be kept.
    """
    found: dict[str, str] = {}
    for name, value in headers.items():
        key = _PREFIX + name.replace("-", "$")
        if not value or not (name in allowed or _is_of_content(name)):
            continue
        if len(value) > CONTENT_TYPE_MAX or not is_header_value(value.strip()):
            raise Refusal(
                f"{name}: at most {CONTENT_TYPE_MAX} characters of ASCII",
                condition="bad-request",
                type="modify",
            )
        found[key] = value.strip()
    return found


def _is_of_content(name: str) -> bool:
    return (
        (name == "link" or name.startswith("content-"))
        and _can_be_property(name)
        and _may_be_of_message(name)
    )


def _can_be_property(name: str) -> bool:
    fits = len(_PREFIX + name) <= NAME_CHARS_MAX
    return fits and _NAME.fullmatch(name) is not None


def _may_be_of_message(name: str) -> bool:
    return (
        name not in _OF_REQUEST
        and not name.startswith(_OF_REQUEST_TOO)
        and _SECRETS.isdisjoint(re.split("[-_.]", name))
        and "api-key" not in name
    )


def headers_of(properties: Properties) -> dict[str, str]:
    """The headers that travel to the consumer: those about the content."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        name = key.removeprefix(_PREFIX).replace("$", "-")
        if (
            key.startswith(_CONTENT)
            and isinstance(value, str)
            and _IS_HEADER.fullmatch(key)
            and _is_of_content(name)
            and is_header_value(value)
        ):
            found[name] = value
    return found
