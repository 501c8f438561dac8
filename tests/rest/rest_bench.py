"""An HTTP gateway on loopback beside an AMQP gateway, on one engine with a real store.

async with rest(tmp_path) as bench:
    await bench.create("orders")
    answer = await bench.post("/queues/orders/messages", b"1")
"""

import contextlib
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from amqp_bench import DOMAIN, Bench
from cheap_passwords import cheap_users
from qos.core.payers import Rates
from qos.core.rest.link_header import read_links
from qos.core.rest.push_targets import PushRules
from qos.rest.gateway import Gateway
from qos.rest.paths import find
from qos.rest.push.client import PushClient
from qos.rest.routes import PATHS, ROUTES, openapi
from waiting import LIMIT_S

__all__ = ["Response", "RestBench", "Web", "basic", "client", "rest"]


@dataclass(frozen=True)
class Response:
    """An answer to an HTTP request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def links(self) -> dict[str, str]:
        """The URLs by rel."""
        return {
            each.rel: each.href for each in read_links(self.headers.get("Link", ""))
        }

    def link(self, rel: str) -> str:
        return self.links[rel]


@cache
def _described() -> Any:
    return json.loads(openapi())


def why_undescribed(method: str, path: str, answer: Response) -> str:
    """The first part of an answer that is not in openapi.json; '': none."""
    found = find(path, PATHS)
    if found is None or method not in ROUTES[found[0]].methods:
        return ""
    responses = _described()["paths"][PATHS[found[0]].template][method.lower()][
        "responses"
    ]
    described = responses.get(str(answer.status))
    if described is None:
        return "that status is not described"
    if name := described.get("$ref", "").rpartition("/")[2]:
        described = _described()["components"]["responses"][name]
    for name, header in described.get("headers", {}).items():
        if header.get("required") and name not in answer.headers:
            return f"{name} is missing"
    kinds = described.get("content", {})
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    if answer.body and not kinds.keys() & {kind, "*/*"}:
        return f"only {', '.join(kinds) or 'an empty body'} is described"
    return ""


def basic(user: str, password: str = "secret") -> str:  # noqa: S107 - of the bench
    """The header Authorization."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


class Web:
    """Asks a gateway.

    Attributes:
        web: its port.
        session: of the client.
    """

    web: int
    session: aiohttp.ClientSession

    async def http(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        user: str = "alice",
        **headers: str,
    ) -> Response:
        """The answer to a request; headers are named with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if user:
            named.setdefault("Authorization", basic(user))
        base = "" if "://" in path else f"http://127.0.0.1:{self.web}"
        url = URL(base + path, encoded=True)
        async with self.session.request(
            method,
            url,
            data=body,
            headers=named,
            skip_auto_headers=["Content-Type"],
            allow_redirects=False,
        ) as answer:
            found = Response(
                answer.status,
                CIMultiDict(
                    {
                        name: ", ".join(answer.headers.getall(name))
                        for name in answer.headers
                    }
                ),
                await answer.read(),
            )
        why = why_undescribed(method, url.raw_path, found)
        assert not why, f"{method} {path} is answered by {found}, but {why}"
        return found

    async def get(self, path: str, **headers: str) -> Response:
        return await self.http("GET", path, b"", **headers)

    async def post(self, path: str, body: bytes = b"", **headers: str) -> Response:
        return await self.http("POST", path, body, **headers)


class RestBench(Web, Bench):
    """See amqp_bench; `rest` is the HTTP gateway, and `web` its port."""

    def __init__(
        self,
        folder: Path,
        *,
        link_headers: bool = False,
        property_headers: Sequence[str] = ("Foo-Bar", "N", "X-From"),
        base: str = "",
        rates: Rates | None = None,
        push: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(folder, **options)
        users = cheap_users(self.users_file, DOMAIN)
        self.rest = Gateway(
            self.engine,
            users=users,
            own_domain=DOMAIN,
            link_headers=link_headers,
            property_headers=property_headers,
            base=base,
            rates=rates,
            push=PushClient(PushRules.of(push)),
        )
        self.ports.add(self.rest)
        self.web = 0

    async def take(self, node: str = "orders", **headers: str) -> Response:
        """Take a message; it has to be there."""
        answer = await self.post(f"/queues/{node}/consumer", b"", **headers)
        assert answer.status == 200, answer
        return answer

    async def settle(self, taken: Response, form: str, **headers: str) -> Response:
        """Post a form to the acknowledgement link."""
        return await self.post(taken.link("acknowledgement"), form.encode(), **headers)


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client of HTTP."""
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


@contextlib.asynccontextmanager
async def rest(
    folder: Path, *, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[RestBench]:
    """Gateways that serve."""
    bench = RestBench(folder, **options)
    bench.engine.online()
    bench.port = await bench.gateway.listen("127.0.0.1", 0)
    bench.web = await bench.rest.listen(
        "127.0.0.1", 0, tls=None if tls is None else lambda: tls
    )
    try:
        async with client() as bench.session:
            yield bench
    finally:
        await bench.rest.aclose()
        await bench.gateway.aclose()
        await bench.engine.aclose()
