"""A row of the table of routes: all that is known of one kind of URL, except its path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from qos.core.rest.statuses import Act
from qos.rest.calls import Answer, Call
from qos.rest.schemas import Answers, Body, Parameters

__all__ = ["SAFE", "First", "Need", "Route", "Run"]


#: The methods that change nothing (RFC 9110 §9.2.1).
SAFE: Final = frozenset({"GET", "HEAD"})

#: Answers a request.
Run: TypeAlias = Callable[[Call], Awaitable[Answer]]

#: Looks at a request before its body is read, after `Route.need`. It raises a Refusal, or
#: answers a request whose body is not needed, or returns None.
First: TypeAlias = Callable[[Call], Awaitable[Answer | None]]


class Need(Enum):
    """The right that a route needs; it is looked at before a body is read.

    Attributes:
        LOGIN: none that others do not have; the handler looks at what it shows.
        SEE: to use the node of the path.
        PUBLISH: to publish to it.
        SUBSCRIBE: to subscribe to it, and to read it.
        SETTLE: to use it, or to hold a lock of it.
        CREATE: to make nodes.
        SEND: to send to the device of the path.
        OWN: what the path names is the user's own; its handler knows how that is seen.
    """

    LOGIN = "login"
    SEE = "see"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    SETTLE = "settle"
    CREATE = "create"
    SEND = "send"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What there is at one kind of URL.

    The server reads it, and so does `openapi.json`.

    Attributes:
        name: for the code; its path is in `paths`.
        summary: what it is, in words.
        run: the handler.
        act: the kind of a request that is not safe; see `act_of`.
        need: the right that a request needs, before its body is read.
        first: the handler of what comes before the body; None: there is nothing.
        parameters: that it takes; if it can be posted to, those of the post.
        body: of a request that is no GET, HEAD or DELETE; None: nothing is expected.
        nothing: the error if there is a body all the same.
        answers: by method. What any request may be answered with is left out, and so is
            HEAD.
        methods: that can be used, beside OPTIONS.
        query: the names of its parameters in the query.
        body_max: the most bytes of a body.
    """

    name: str
    summary: str
    run: Run
    act: Act
    need: Need
    answers: Mapping[str, Answers]
    parameters: Parameters = field(default_factory=list)
    body: Body | None = None
    nothing: str = "nothing is expected in the body"
    first: First | None = None
    methods: tuple[str, ...] = field(init=False)
    query: tuple[str, ...] = field(init=False)
    body_max: int = field(init=False)

    def __post_init__(self) -> None:
        reads = ("GET", "HEAD") if "GET" in self.answers else ()
        rest = (method for method in self.answers if method != "GET")
        query = (
            parameter["name"]
            for parameter in self.parameters
            if parameter["in"] == "query"
        )
        object.__setattr__(self, "methods", (*reads, *rest))
        object.__setattr__(self, "query", tuple(query))
        body_max = 0 if self.body is None else self.body.bytes_max
        object.__setattr__(self, "body_max", body_max)

    def act_of(self, method: str) -> Act:
        """The kind of a request with this method, by which refusals get a status."""
        return Act.READ if method in SAFE else self.act
