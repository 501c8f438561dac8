"""The URLs of the gateway, one row each, and their parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote_to_bytes

__all__ = ["ROUTES", "SHARED", "VARIABLE", "Route", "find", "next_url", "url"]

#: A variable of a template.
VARIABLE = re.compile(r"{([a-z]+)}")


@dataclass(frozen=True, slots=True)
class Route:
    """A kind of URL.

    Attributes:
        name: for the code.
        template: of the path; a variable has no slash and no semicolon, unless quoted.
        methods: that can be used, beside OPTIONS.
        summary: what it is, in words.
        query: the parameters that it takes.
    """

    name: str
    template: str
    methods: tuple[str, ...]
    summary: str
    query: tuple[str, ...] = ()
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = VARIABLE.split(self.template)
        pattern = "".join(
            f"(?P<{part}>[^/;]+)" if place % 2 else re.escape(part)
            for place, part in enumerate(parts)
        )
        object.__setattr__(self, "pattern", re.compile(pattern))

    def url(self, **variables: str) -> str:
        """The URL, as a path."""
        return VARIABLE.sub(
            lambda found: quote(variables[found[1]], safe=""), self.template
        )


_READ = ("GET", "HEAD")
_POST = ("POST",)
_DELETE = ("DELETE",)
_QUEUE = "/queues/{node}"
_TOPIC = "/topics/{node}"
_DEVICE = "/send/{jid}"
_REPLIED = ("correlation-id",)
_POSTED = ("priority", "ttl", "expiration", "delay", *_REPLIED)
_SENT = ("ttl", "expiration")

#: What is done with messages of a queue, and likewise of a topic.
_MESSAGES = (
    Route("messages", f"{_QUEUE}/messages", _POST, "post a message", _POSTED),
    Route(
        "batches",
        f"{_QUEUE}/batches",
        _POST,
        "post several messages, all or none",
        _POSTED,
    ),
    Route(
        "once",
        f"{_QUEUE}/once",
        _POST,
        "get a one-off link for a message",
        _REPLIED,
    ),
    Route("post", f"{_QUEUE}/once/{{link}}", _POST, "post a message once", _POSTED),
    Route(
        "batchonce",
        f"{_QUEUE}/batch-once",
        _POST,
        "get a one-off link for a batch",
        _REPLIED,
    ),
    Route(
        "postbatch",
        f"{_QUEUE}/batch-once/{{link}}",
        _POST,
        "post a batch once",
        _POSTED,
    ),
    Route("message", f"{_QUEUE}/messages/{{item}}", _READ, "a message, not taken"),
)

#: The names of the routes that topics have too, under names with `topic-`.
SHARED: Final = tuple(each.name for each in _MESSAGES)

ROUTES: Final = (
    Route("service", "/", _READ, "the queues and topics that the user may use"),
    Route("openapi", "/openapi.json", _READ, "this description"),
    Route("queue", _QUEUE, _READ, "a queue, with its links"),
    *_MESSAGES,
    Route("consumer", f"{_QUEUE}/consumer", _POST, "take a message", ("selector",)),
    Route(
        "subscribers",
        f"{_QUEUE}/subscribers",
        (*_READ, *_POST),
        "have messages pushed to a URL",
    ),
    Route(
        "subscriber",
        f"{_QUEUE}/subscribers/{{subscriber}}",
        (*_READ, *_POST, "DELETE"),
        "a push subscriber: show, switch, end",
    ),
    Route(
        "acknowledgement",
        f"{_QUEUE}/messages/{{item}}/acknowledgement;etag={{etag}}",
        _POST,
        "end or extend a delivery",
    ),
    Route("topic", _TOPIC, _READ, "a topic, with its links"),
    *(
        Route(
            f"topic-{each.name}",
            each.template.replace(_QUEUE, _TOPIC),
            each.methods,
            f"of a topic: {each.summary}",
            each.query,
        )
        for each in _MESSAGES
    ),
    Route("topic-first", f"{_TOPIC}/first", _READ, "the oldest message of a topic"),
    Route("topic-last", f"{_TOPIC}/last", _READ, "the newest message of a topic"),
    Route(
        "topic-next",
        f"{_TOPIC}/next",
        _READ,
        "the message after another one",
        ("after",),
    ),
    Route("topic-subscriptions", f"{_TOPIC}/subscriptions", _POST, "subscribe"),
    Route(
        "topic-subscription",
        f"{_TOPIC}/subscriptions/{{queue}}",
        (*_READ, *_DELETE),
        "a subscription, with its links; or its end",
    ),
    Route(
        "device",
        _DEVICE,
        (*_READ, *_POST),
        "get a one-off link, or send by a key",
        _SENT,
    ),
    Route("send", f"{_DEVICE}/once/{{link}}", _POST, "send a message once", _SENT),
    Route("sent", f"{_DEVICE}/messages/{{item}}", _READ, "the outcome of a message"),
)

_BY_NAME: Mapping[str, Route] = {each.name: each for each in ROUTES}


def url(name: str, **variables: str) -> str:
    """The URL of a route, as a path."""
    return _BY_NAME[name].url(**variables)


def next_url(node: str, after: int) -> str:
    """The URL of the message of a topic after the one with this seq."""
    return f"{url('topic-next', node=node)}?after={after}"


def find(
    path: str, routes: Sequence[Route] = ROUTES
) -> tuple[Route, dict[str, str]] | None:
    """The route of a path as it came, and the values of its variables."""
    for route in routes:
        found = route.pattern.fullmatch(path)
        if found is not None:
            try:
                values = {
                    name: unquote_to_bytes(value).decode()
                    for name, value in found.groupdict().items()
                }
            except UnicodeDecodeError:
                return None
            return route, values
    return None
