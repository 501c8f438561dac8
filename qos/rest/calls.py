"""One request as its handlers see it, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qos.core.queue.requests import Refusal, Request
from qos.core.queue.results import Result
from qos.core.rest.link_header import Link, render_links
from qos.engine.gateway import ask
from qos.engine.queue_state import Rights
from qos.rest.routes import url

if TYPE_CHECKING:
    from qos.rest.gateway import Gateway

__all__ = ["Answer", "Call", "as_text", "no_node"]

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Call:
    """A request of a user.

    Attributes:
        gateway: that has it.
        method: of the request.
        base: the scheme and authority by which the client has reached the gateway; '': it
            did not say.
        account: the bare JID of the user.
        topic: the path is one of a topic.
        path: the variables of the path.
        query: of the URL.
        headers: by their names in lower case.
        body: all of it.
    """

    gateway: Gateway
    method: str
    base: str
    account: str
    topic: bool
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.path["node"]

    @property
    def jid(self) -> str:
        """A full JID for requests that need no subscriber."""
        return f"{self.account}/http"

    def rights(self, node: str = "") -> Rights:
        """The rights of the user at a node; '': the node of the path.

        Raises:
            Refusal: there is no such node, or it is hidden from the user.
        """
        node = node or self.node
        rights = self.gateway.engine.rights(node, self.jid)
        if rights is None:
            raise no_node(node)
        return rights

    def check_no_body(self) -> None:
        """Check that nothing was posted where nothing is read.

        Raises:
            Refusal: there is a body.
        """
        if self.body:
            text = "nothing is expected in the body"
            raise Refusal(text, condition="bad-request", type="modify")

    def url(self, name: str, **variables: str) -> str:
        """The URL of a route of this node, as a path; see `routes.SHARED`."""
        name = f"topic-{name}" if self.topic else name
        return url(name, node=self.node, **variables)

    async def ask(
        self, request: Request, jid: str = ""
    ) -> tuple[Result, Mapping[int, str]]:
        """The answer of the engine; jid: a subscriber.

        Raises:
            Refusal: the request is refused.
        """
        return await ask(self.gateway.engine, request, jid or self.jid)


@dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        status: of RFC 9110.
        headers: by name.
        links: of the header Link.
        body: of the answer.
        sent: called at the end, with whether all of it was handed to the network.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    body: bytes = b""
    sent: Callable[[bool], None] | None = None

    def all_headers(self) -> dict[str, str]:
        """The headers with the links."""
        if not self.links:
            return self.headers
        kept = self.headers.get("Link")
        shown = render_links(self.links)
        return {**self.headers, "Link": f"{shown}, {kept}" if kept else shown}


def no_node(name: str) -> Refusal:
    """There is no node of this name, as far as the user may know."""
    return Refusal(
        f"there is no node {name!r}", condition="item-not-found", type="cancel"
    )


def as_text(status: int, text: str, **headers: str) -> Answer:
    """An answer with a sentence for people."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"Content-Type": TEXT, **named}, body=f"{text}\n".encode())
