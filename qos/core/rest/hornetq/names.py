"""HornetQ's names: of queues in JMS, and of headers that selectors read.

The header `Foo-Bar` of a message is its property `http_foo$bar`, if the operator has named
it: a request has many more headers, of proxies and of programs that log in, and an item is
read by others. The headers of `qos.core.content_headers.KEPT` are kept in any case. Of the
others those named `Content-…` come back to the consumer, in a form that is no link and no URL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from qos.core.content_headers import (
    CONTENT_TYPE_MAX,
    KEPT,
    is_header_value,
    why_no_header,
)
from qos.core.queue.properties import NAME_CHARS_MAX, Properties
from qos.core.queue.requests import Refusal

__all__ = ["check_header", "headers_of", "plain_name", "properties_of"]

_PREFIX = "http_"
_CONTENT = "content-"

#: Headers that would say something about the answer in which they come back.
_OF_ANSWER = frozenset({"content-length", "content-location", "content-range"})

_OF_REQUEST = frozenset(
    {
        *("authorization", "authentication", "cache-control", "connection", "cookie"),
        *("date", "dnt", "expect", "forwarded", "from", "host", "idempotency-key"),
        *("keep-alive", "max-forwards", "origin", "pragma", "prefer", "priority"),
        *("range", "referer", "te", "trailer", "transfer-encoding", "upgrade"),
        *("upgrade-insecure-requests", "user-agent", "via", "x-real-ip", "x-rs-wait"),
        *("x-request-id", "x-requested-with", "traceparent", "tracestate", "baggage"),
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

#: A word, maybe with parameters, without the characters of which links and URLs are made.
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TEXT = r'"[^"\\<>/:]*"'
_WORDS = re.compile(rf"{_WORD}(?:[ \t]*;[ \t]*{_WORD}=(?:{_WORD}|{_TEXT}))*")


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
        ValueError: it is about the request, its connection or its user, or about an
            answer.
    """
    name = name.lower()
    if not _can_be_property(name):
        raise ValueError(f"{name!r} is no name of a header that a selector can have")
    if name in _OF_ANSWER:
        raise ValueError(f"{name} would be about the answer in which it comes back")
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
    properties: dict[str, str] = {}
    for name, text in headers.items():
        if not text or not (name in KEPT or name in allowed):
            continue
        value = text.strip()
        if why := _why_not(name, value):
            raise Refusal(why, condition="bad-request", type="modify")
        properties[_key(name)] = value
    return properties


def _key(name: str) -> str:
    """The property that a header becomes."""
    return KEPT.get(name, _PREFIX + name.replace("-", "$"))


def _why_not(name: str, value: str) -> str:
    """Why a header cannot have this value; '': it can."""
    if name in KEPT:
        return why_no_header(KEPT[name], value)
    if len(value) > CONTENT_TYPE_MAX or not is_header_value(value):
        return f"{name}: at most {CONTENT_TYPE_MAX} characters of ASCII"
    if name.startswith(_CONTENT) and not _WORDS.fullmatch(value):
        return (
            f"{name}: a word with parameters is expected, such as "
            f"attachment; filename=a.txt, without any of <>/:, not {value[:40]!r}"
        )
    return ""


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


def headers_of(properties: Properties, allowed: Collection[str]) -> dict[str, str]:
    """The headers `Content-…` that come back to the consumer, beside those of KEPT.

    Args:
        properties: of the item. One that was published in another way may have any value.
        allowed: see `properties_of`.
    """
    headers: dict[str, str] = {}
    for name in allowed:
        if name in KEPT or not name.startswith(_CONTENT):
            continue
        value = properties.get(_key(name))
        if isinstance(value, str) and not _why_not(name, value):
            headers[name] = value
    return headers
