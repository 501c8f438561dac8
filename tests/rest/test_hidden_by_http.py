"""Who may not use a node at all gets the answer for a node that is not there, by HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from amqp_bench import DOMAIN
from cheap_passwords import cheap_hash
from qos.core.payers import Rates
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import SetAffiliations
from qos.ids import new_id
from qos.rest.route import Route
from qos.rest.routes import PATHS, ROUTES
from rest_bench import RestBench, basic, rest

EVE = f"eve@{DOMAIN}"

#: The node that is not there, and those that are hidden; all names have the same length.
ABSENT, NAMED = "absent-node", "a-node-here"
HIDDEN = ("hidden-jobs", "hidden-news", "open-to-all")

#: Eve may use them.
OWN = {"queue": "queue-of-eve", "topic": "topic-of-eve"}

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")

FORM, PLAIN = "application/x-www-form-urlencoded", "text/plain"
PUSH = b"<push-registration><link rel='destination' href='https://a.b/'/></push-registration>"
ATOM = b"<link xmlns='http://www.w3.org/2005/Atom' rel='post-message' href='https://a.b/'/>"

#: Bodies, each with its type.
BODIES = (
    (b"x", PLAIN),
    (b"acknowledge=true", FORM),
    (b"enabled=true", FORM),
    (b"name=mine", FORM),
    (ATOM, "application/atom+xml"),
    (PUSH, "application/xml"),
    (b"--b\r\n\r\nx\r\n--b--\r\n", "multipart/mixed; boundary=b"),
)
WRONG_TYPES = (None, "no type", "image/png")

#: Right and wrong ones.
QUERIES = ("", "?selector=n%20%3D%201", "?selector=n%20%3E", "?delay=-1", "?after=1")


@dataclass(frozen=True)
class Asked:
    """A request, whose path has the name of a node."""

    method: str
    path: str
    body: bytes = b""
    content_type: str | None = None
    link: str = ""

    def at(self, node: str) -> Asked:
        """The same about this node."""
        link = self.link.replace(NAMED, node)
        return replace(self, path=self.path.replace(NAMED, node), link=link)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[RestBench]:
    creators = [f"alice@{DOMAIN}", EVE]
    no_rates = Rates(requests=0, bytes=0)
    async with rest(tmp_path, creators=creators, rates=no_rates) as bench:
        await bench.create(HIDDEN[0])
        await bench.create(HIDDEN[1], node_type="topic")
        await bench.create(HIDDEN[2])
        rights = {EVE: Affiliation.OUTCAST}
        await bench.ask(SetAffiliations(HIDDEN[2], rights))
        for kind, node in OWN.items():
            await bench.create(node, node_type=kind)
            await bench.ask(SetAffiliations(node, {EVE: Affiliation.OWNER}))
        lines = bench.users_file.read_text()
        bench.users_file.write_text(f"{lines}eve:{cheap_hash('secret')}\n")
        yield bench


async def answer(bench: RestBench, asked: Asked, node: str) -> tuple[object, ...]:
    """All of an answer that a client can see, but for the name of the node."""
    its = asked.at(node)
    headers = {"Authorization": basic("eve")}
    if its.content_type is not None:
        headers["Content-Type"] = its.content_type
    if its.link:
        headers["Link"] = its.link
    url = URL(f"http://127.0.0.1:{bench.web}{its.path}", encoded=True)
    async with bench.session.request(
        its.method,
        url,
        data=its.body or None,
        headers=headers,
        skip_auto_headers=["Content-Type"],
        allow_redirects=False,
    ) as response:
        body = (await response.read()).decode()
        shown = _without(node, response)
    return response.status, shown, body.replace(node, NAMED)


def _without(node: str, response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    return [
        (name, value.replace(node, NAMED))
        for name, value in response.headers.items()
        if name != "Date"
    ]


def node_variables(route: Route) -> Iterator[str]:
    """The variables of the path of a route that name a node."""
    return (each for each in PATHS[route.name].variables if each in {"node", "queue"})


def paths(route: Route, rest: Mapping[str, str]) -> Iterator[str]:
    """The paths of a route with the node, and with all else wrong or right.

    Args:
        route: of the paths.
        rest: the right values of other variables.
    """
    path = PATHS[route.name]
    names = list(node_variables(route))
    of_topic = "/topics/" in path.template
    own = {"node": OWN["topic" if of_topic else "queue"], "queue": OWN["queue"]}
    others = [each for each in path.variables if each not in names]
    for named in names:
        nodes = {**{each: own[each] for each in names}, named: NAMED}
        for right in ({}, rest) if others else ({},):
            yield path.url(**{each: right.get(each, "x") for each in others}, **nodes)


def requests(route: Route, path: str) -> Iterator[Asked]:
    """Requests with each method: with each query, and with bodies of right and wrong types."""
    for method, query in product(METHODS, QUERIES):
        yield Asked(method, path + query)
    for method in METHODS:
        is_read = method in route.methods and method in {"POST", "PUT"}
        for body, kind in BODIES if is_read else BODIES[:1]:
            for given in (kind, *WRONG_TYPES):
                yield Asked(method, path, body, given)


#: The variable of a path that is a token, and the use of the token.
TOKENS = {
    "post": ("link", "once"),
    "postbatch": ("link", "batchonce"),
    "topic-post": ("link", "once"),
    "topic-postbatch": ("link", "batchonce"),
    "hornetq-create-id": ("id", "hornetq-create"),
    "hornetq-consumer": ("consumer", "hornetq-client-ack"),
    "hornetq-next": ("consumer", "hornetq-client-ack"),
    "hornetq-acknowledgement": ("consumer", "hornetq-client-ack"),
}

WITH_NODE = [each for each in ROUTES.values() if list(node_variables(each))]


@pytest.mark.parametrize("route", WITH_NODE, ids=lambda route: route.name)
async def test_a_hidden_node_answers_by_http_as_one_that_is_not_there(
    bench: RestBench, route: Route
) -> None:
    """Else eve could find out the names of the nodes of others."""
    right = {"mode": "client-ack", "etag": f"{'a' * 32}.token"}
    for path in paths(route, right):
        for asked in requests(route, path):
            await check(bench, asked)


@pytest.mark.parametrize("name", TOKENS)
async def test_a_link_that_eve_once_had_does_not_tell_it_either(
    bench: RestBench, name: str
) -> None:
    """She may have had the right, and have lost it."""
    variable, use = TOKENS[name]
    path = PATHS[name]

    async def all_answers(node: str) -> str:
        """The answers to each method, but for what is drawn by lot for the link."""
        item_id = new_id()
        token = bench.rest.one_off.new(
            use, node, EVE, item_id=item_id, now=bench.engine.now()
        )
        named = {"node": NAMED, "mode": "client-ack", "delivery": "x", variable: token}
        url = path.url(**{each: named[each] for each in path.variables})
        found = [await answer(bench, Asked(each, url), node) for each in METHODS]
        return repr(found).replace(token, "TOKEN").replace(item_id, "ID")

    expected = await all_answers(ABSENT)
    for node in HIDDEN:
        assert await all_answers(node) == expected, node


@pytest.mark.parametrize("path", ["queues", "topics"])
async def test_a_hidden_queue_for_replies_is_none(bench: RestBench, path: str) -> None:
    """A message may name any URL."""
    link = f'</{path}/{NAMED}>; rel="reply-to"'
    asked = Asked("POST", f"/queues/{OWN['queue']}/messages", b"x", link=link)
    expected = await check(bench, asked)
    assert expected[0] == 400


def test_each_node_has_a_name_of_one_length() -> None:
    """Else the length of an answer would differ by that of the name."""
    assert len(set(map(len, (ABSENT, NAMED, *HIDDEN)))) == 1


async def check(bench: RestBench, asked: Asked) -> tuple[object, ...]:
    """Check that each hidden node answers like one that is not there."""
    expected = await answer(bench, asked, ABSENT)
    for node in HIDDEN:
        assert await answer(bench, asked, node) == expected, asked.at(node)
    return expected
