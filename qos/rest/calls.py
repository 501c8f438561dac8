"""One request as its handlers see it, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from qos.core.queue.requests import Refusal, Request, no_node
from qos.core.queue.results import Result
from qos.core.rest.header_room import room_for_links
from qos.core.rest.link_header import Link, fitting, render_links
from qos.engine.gateway import ask
from qos.engine.queue_state import Rights
from qos.rest.paths import url
from qos.rest.waiting import taken_away
from qos.steps import Steps

if TYPE_CHECKING:
    from qos.rest.services import Services
    from qos.users import Grant

__all__ = ["Answer", "Call", "as_text", "may_not_subscribe", "no_node"]

T = TypeVar("T")

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Call:
    """A request of a user.

    Attributes:
        services: serve it.
        method: of the request.
        base: the URL by which the client has reached the gateway, without a slash at its
            end; '': it did not say.
        account: the bare JID of the user.
        topic: the path is one of a topic.
        path: the variables of the path.
        query: of the URL.
        headers: by their names in lower case.
        body: all of it, which comes after the rights are known.
        grant: by which the user is logged in; None: it is never taken away.
    """

    services: Services
    method: str
    base: str
    account: str
    topic: bool
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    grant: Grant | None = None

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
        rights = self.services.engine.rights(node, self.jid)
        if rights is None:
            raise no_node(node)
        return rights

    def check_grant(self) -> None:
        """Check that the user may still be logged in, after a wait.

        Raises:
            Refusal: its grant has been taken away.
        """
        if self.grant is not None and not self.services.users.stands(self.grant):
            raise taken_away()

    def url(self, name: str, **variables: str) -> str:
        """The URL of a route of this node, as a path; see `paths.SHARED`.

        Clients have it below a prefix: see `below`. Links and locations of an answer get
        that at the end.
        """
        name = f"topic-{name}" if self.topic else name
        return url(name, node=self.node, **variables)

    def below(self, path: str) -> str:
        """A path as clients have it; a URL of another form stays as it is."""
        return self.services.prefix + path if path.startswith("/") else path

    async def stepped(self, steps: Steps[T]) -> T:
        """Do work that comes in steps, in turns of the account."""
        return await self.services.engine.payers.stepped(self.account, steps)

    async def ask(
        self, request: Request, jid: str = ""
    ) -> tuple[Result, Mapping[int, str]]:
        """The answer of the engine; jid: a subscriber.

        Raises:
            Refusal: the request is refused.
        """
        return await ask(self.services.engine, request, jid or self.jid)


@dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        status: of RFC 9110.
        headers: by name.
        links: of the header Link.
        body: of the answer.
        sent: called at the end, with whether all of it was handed to the network.
        needs: of an answer with a message, how many of the first links its reader cannot
            do without; None: there is no message.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    body: bytes = b""
    sent: Callable[[bool], None] | None = None
    needs: int | None = None

    def all_headers(self) -> dict[str, str]:
        """The headers with the links: the first one, and the others that there is room for."""
        if not self.links:
            return self.headers
        own = self.headers.get("Link")
        room = room_for_links(self.headers)
        links = render_links(fitting(self.links, room))
        return {**self.headers, "Link": f"{links}, {own}" if own else links}


def as_text(status: int, text: str, **headers: str) -> Answer:
    """An answer with a sentence for people."""
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"Content-Type": TEXT, **extra}, body=f"{text}\n".encode())


def may_not_subscribe(name: str, account: str) -> Refusal:
    """The account knows the node, but may not subscribe to it."""
    return Refusal(
        f"{account} may not subscribe to {name!r}", condition="forbidden", type="auth"
    )
