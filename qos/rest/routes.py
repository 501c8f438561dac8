"""The URLs of the gateway, one row each, and their parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from qos.rest import bounds
from qos.rest.needs import Need

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
        earlier: the template of earlier versions, which is still read; '': none.
        need: the right that a request needs, before its body is read.
        body_max: the most bytes of the body of a request that is no GET, HEAD or DELETE;
            0: nothing is expected.
        nothing: the error if there is a body all the same.
    """

    name: str
    template: str
    methods: tuple[str, ...]
    summary: str
    query: tuple[str, ...] = ()
    earlier: str = ""
    patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    need: Need = field(kw_only=True)
    body_max: int = field(default=0, kw_only=True)
    nothing: str = field(default="nothing is expected in the body", kw_only=True)

    def __post_init__(self) -> None:
        templates = filter(None, (self.template, self.earlier))
        object.__setattr__(self, "patterns", tuple(map(_pattern, templates)))

    def match(self, path: str) -> re.Match[str] | None:
        """The variables of a path as they came; None: it is not of this kind."""
        found = (each.fullmatch(path) for each in self.patterns)
        return next(filter(None, found), None)

    def url(self, **variables: str) -> str:
        """The URL, as a path."""
        return VARIABLE.sub(
            lambda found: quote(variables[found[1]], safe=""), self.template
        )


def _pattern(template: str) -> re.Pattern[str]:
    pattern = "".join(
        f"(?P<{part}>[^/;]+)" if place % 2 else re.escape(part)
        for place, part in enumerate(VARIABLE.split(template))
    )
    return re.compile(pattern)


_READ = ("GET", "HEAD")
_POST = ("POST",)
_DELETE = ("DELETE",)
_QUEUE = "/queues/{node}"
_TOPIC = "/topics/{node}"
_DEVICE = "/send/{jid}"
_REPLIED = ("correlation-id",)
_POSTED = ("priority", "ttl", "expiration", "delay", *_REPLIED)
_SENT = ("ttl", "expiration")
_MESSAGE = bounds.BODY_BYTES_MAX
_FORM = bounds.BODY_BYTES_MAX
_BATCH = bounds.BATCH_BYTES_MAX
_ELSEWHERE = "nothing is created here: post the message to the link create-next"

#: What is done with messages of a queue, and likewise of a topic.
_MESSAGES = (
    Route(
        "messages",
        f"{_QUEUE}/messages",
        _POST,
        "post a message",
        _POSTED,
        need=Need.PUBLISH,
        body_max=_MESSAGE,
    ),
    Route(
        "batches",
        f"{_QUEUE}/batches",
        _POST,
        "post several messages, all or none",
        _POSTED,
        need=Need.PUBLISH,
        body_max=_BATCH,
    ),
    Route(
        "once",
        f"{_QUEUE}/once",
        _POST,
        "get a one-off link for a message",
        _REPLIED,
        need=Need.PUBLISH,
        nothing=_ELSEWHERE,
    ),
    Route(
        "post",
        f"{_QUEUE}/once/{{link}}",
        _POST,
        "post a message once",
        _POSTED,
        need=Need.PUBLISH,
        body_max=_MESSAGE,
    ),
    Route(
        "batchonce",
        f"{_QUEUE}/batch-once",
        _POST,
        "get a one-off link for a batch",
        _REPLIED,
        need=Need.PUBLISH,
        nothing=_ELSEWHERE,
    ),
    Route(
        "postbatch",
        f"{_QUEUE}/batch-once/{{link}}",
        _POST,
        "post a batch once",
        _POSTED,
        need=Need.PUBLISH,
        body_max=_BATCH,
    ),
    Route(
        "message",
        f"{_QUEUE}/messages/{{item}}",
        _READ,
        "a message, not taken",
        need=Need.SUBSCRIBE,
    ),
)

#: The names of the routes that topics have too, under names with `topic-`.
SHARED: Final = tuple(each.name for each in _MESSAGES)

ROUTES: Final = (
    Route(
        "service",
        "/",
        _READ,
        "the queues and topics that the user may use",
        need=Need.LOGIN,
    ),
    Route("openapi", "/openapi.json", _READ, "this description", need=Need.LOGIN),
    Route("queue", _QUEUE, _READ, "a queue, with its links", need=Need.SEE),
    *_MESSAGES,
    Route(
        "consumer",
        f"{_QUEUE}/consumer",
        _POST,
        "take a message",
        ("selector",),
        need=Need.SUBSCRIBE,
    ),
    Route(
        "subscribers",
        f"{_QUEUE}/subscribers",
        (*_READ, *_POST),
        "have messages pushed to a URL",
        need=Need.SUBSCRIBE,
        body_max=_FORM,
    ),
    Route(
        "subscriber",
        f"{_QUEUE}/subscribers/{{subscriber}}",
        (*_READ, *_POST, "DELETE"),
        "a push subscriber: show, switch, end",
        need=Need.OWN,
        body_max=_FORM,
    ),
    Route(
        "acknowledgement",
        # Many clients cut a link at its first semicolon.
        f"{_QUEUE}/messages/{{item}}/acknowledgement/{{etag}}",
        _POST,
        "end or extend a delivery",
        earlier=f"{_QUEUE}/messages/{{item}}/acknowledgement;etag={{etag}}",
        need=Need.SETTLE,
        body_max=_FORM,
    ),
    Route("topic", _TOPIC, _READ, "a topic, with its links", need=Need.SEE),
    *(
        Route(
            f"topic-{each.name}",
            each.template.replace(_QUEUE, _TOPIC),
            each.methods,
            f"of a topic: {each.summary}",
            each.query,
            need=each.need,
            body_max=each.body_max,
            nothing=each.nothing,
        )
        for each in _MESSAGES
    ),
    Route(
        "topic-first",
        f"{_TOPIC}/first",
        _READ,
        "the oldest message of a topic",
        need=Need.SUBSCRIBE,
    ),
    Route(
        "topic-last",
        f"{_TOPIC}/last",
        _READ,
        "the newest message of a topic",
        need=Need.SUBSCRIBE,
    ),
    Route(
        "topic-next",
        f"{_TOPIC}/next",
        _READ,
        "the message after another one",
        ("after",),
        need=Need.SUBSCRIBE,
    ),
    Route(
        "topic-subscriptions",
        f"{_TOPIC}/subscriptions",
        _POST,
        "subscribe",
        need=Need.SUBSCRIBE,
        body_max=_FORM,
    ),
    Route(
        "topic-subscription",
        f"{_TOPIC}/subscriptions/{{queue}}",
        (*_READ, *_DELETE),
        "a subscription, with its links; or its end",
        need=Need.LOGIN,
    ),
    Route(
        "device",
        _DEVICE,
        (*_READ, *_POST),
        "get a one-off link, or send by a key",
        _SENT,
        need=Need.SEND,
        body_max=_MESSAGE,
    ),
    Route(
        "send",
        f"{_DEVICE}/once/{{link}}",
        _POST,
        "send a message once",
        _SENT,
        need=Need.OWN,
        body_max=_MESSAGE,
    ),
    Route(
        "sent",
        f"{_DEVICE}/messages/{{item}}",
        _READ,
        "the outcome of a message",
        need=Need.LOGIN,
    ),
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
        found = route.match(path)
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
