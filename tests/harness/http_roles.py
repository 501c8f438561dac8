"""A publisher and a worker that speak HTTP to the queue service, and nothing else.

Each repeats a request until it has an answer, as a shell script would, and needs nothing
of its earlier lives but the links that it has written down. It may do so with aiohttp, or
with httpx, which has its own idea of links.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import aiohttp
import httpx
from yarl import URL

from notebooks import ACCEPTED, REJECTED, Deed, Notebook, read_deeds
from qos.core.rest.link_header import read_links
from role import Role, Say, ended_by_signal, open_log

__all__ = ["HttpPublisher", "HttpWorker"]

#: Seconds for an answer, beyond those that were asked for.
_ANSWER_S = 4.0

_AGAIN_S = 0.1

#: Messages of a batch, and one of how many posts is one.
_BATCH, _BATCH_EVERY = 3, 4

_XML = "application/xml"
_FORM = "application/x-www-form-urlencoded"

#: Requests that a worker makes at a time.
_AT_ONCE = 2
_WAIT_S = 2

#: What becomes of deliveries, of a hundred: the rest is accepted.
_RELEASED, _FAILED, _REJECTED = 5, 4, 3


Library = Literal["aiohttp", "httpx"]


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer.

    Attributes:
        status: of it.
        headers: by their names in small letters.
        links: the targets by rel.
        text: the body.
    """

    status: int
    headers: dict[str, str]
    links: dict[str, str]
    text: str


class _Web(ABC):
    """Asks until there is an answer other than "come again"."""

    def __init__(self, role: Role) -> None:
        connect = role.connect
        self.base = f"http://{connect.host}:{connect.port}"
        login = b64encode(f"{connect.jid}:{connect.password}".encode()).decode()
        self._login = {"Authorization": f"Basic {login}"}

    async def post(
        self, path: str, body: str = "", kind: str = "", **headers: str
    ) -> _Answer:
        """Post until it is answered."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= self._login
        if kind:
            sent["Content-Type"] = kind
        while True:
            answer = await self.ask(path, body.encode(), sent)
            # 408: this process was stopped, or its machine too busy, within the request.
            if not (
                answer is None or answer.status in {408, 429} or answer.status > 499
            ):
                return answer
            await asyncio.sleep(_AGAIN_S)

    @abstractmethod
    async def ask(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> _Answer | None:
        """Post once; None: there is no answer."""


class _Aiohttp(_Web):
    def __init__(self, role: Role, session: aiohttp.ClientSession) -> None:
        super().__init__(role)
        self._session = session

    async def ask(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> _Answer | None:
        """See _Web."""
        try:
            async with self._session.post(
                URL(self.base + path, encoded=True),
                data=body,
                headers=headers,
                skip_auto_headers=["Content-Type"],
            ) as answer:
                links = read_links(answer.headers.get("Link", ""))
                return _Answer(
                    answer.status,
                    {name.lower(): value for name, value in answer.headers.items()},
                    {each.rel: each.href for each in links},
                    await answer.text(),
                )
        except (aiohttp.ClientError, TimeoutError):
            return None


class _Httpx(_Web):
    def __init__(self, role: Role, client: httpx.AsyncClient) -> None:
        super().__init__(role)
        self._client = client

    async def ask(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> _Answer | None:
        """See _Web."""
        try:
            url = httpx.URL(self.base).join(path)
            answer = await self._client.post(url, content=body, headers=headers)
        except httpx.TransportError:
            return None
        links = {str(rel): each["url"] for rel, each in answer.links.items()}
        return _Answer(answer.status_code, dict(answer.headers), links, answer.text)


@contextlib.asynccontextmanager
async def _web(library: Library, role: Role) -> AsyncIterator[_Web]:
    seconds = _ANSWER_S + _WAIT_S
    if library == "httpx":
        async with httpx.AsyncClient(timeout=seconds, trust_env=False) as client:
            yield _Httpx(role, client)
    else:
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield _Aiohttp(role, session)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPublisher(Role):
    """Posts messages and batches once each, by one-off links.

    A link is written down before it is used. The next life uses it again if it is not
    known to have been answered: 200 and 405 mean that the message is there once.

    Attributes:
        node: the queue.
        links: the file with the links, a line each, before they are used.
        published: the file with the ids of items that are there, a line each.
        pause_s: after each post.
        library: what it speaks with.
    """

    node: str
    links: str
    published: str
    pause_s: float
    library: Library = "aiohttp"

    async def live(self, say: Say) -> None:
        """See Role."""
        ends = ended_by_signal()
        say("ready")
        links, published = open_log(self.links), open_log(self.published)
        path, number = self._left_over()
        async with _web(self.library, self) as web:
            for each in itertools.count(number):
                if ends.is_set() and not path:
                    return
                if not path:
                    what = "batch-once" if each % _BATCH_EVERY == 0 else "once"
                    made = await web.post(f"/queues/{self.node}/{what}")
                    path = made.links["create-next"]
                    os.write(links, f"{path}\n".encode())
                ids = await self._post(web, path)
                os.write(published, "".join(f"{name}\n" for name in ids).encode())
                path = ""
                await asyncio.sleep(self.pause_s)

    def _left_over(self) -> tuple[str, int]:
        """The last link, if its answer is not known, and the number of its post."""
        used = Path(self.links).read_text().split()
        if not used:
            return "", 0
        there = set(Path(self.published).read_text().split())
        token = _token(used[-1])
        known = there & {token, f"{token}-0"}
        return ("", len(used)) if known else (used[-1], len(used) - 1)

    async def _post(self, web: _Web, path: str) -> list[str]:
        token = _token(path)
        if "batch" not in path:
            answer = await web.post(
                *(path, _body(token), _XML),
                Msg_Properties=f"parity={_parity(token)}",
            )
            ids = [token]
        else:
            part = f"--x\r\nContent-Type: {_XML}\r\n\r\n{_body(token)}\r\n"
            kind = "multipart/mixed; boundary=x"
            answer = await web.post(path, f"{part * _BATCH}--x--\r\n", kind)
            ids = [f"{token}-{number}" for number in range(_BATCH)]
        if answer.status not in {200, 405}:
            raise ValueError(f"{path}: {answer.status} {answer.text}")
        return ids


def _token(path: str) -> str:
    """The id of the item that a one-off link makes."""
    return path.rpartition("/")[2].partition(".")[0]


def _body(token: str) -> str:
    return f"<work xmlns='urn:x'>{token}</work>"


def _parity(token: str) -> int:
    return int(token[-1], 16) % 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWorker(Role):
    """Takes messages, and ends each: its notebook has the link before it is used.

    Attributes:
        node: the queue.
        notebook: its file.
        work_s: how long it works on an item, at most.
        library: what it speaks with.
    """

    node: str
    notebook: str
    work_s: float
    library: Library = "aiohttp"

    async def live(self, say: Say) -> None:
        """See Role."""
        ends = ended_by_signal()
        say("ready")
        left = read_deeds([Path(self.notebook)]).unanswered
        book = Notebook(self.notebook)
        async with _web(self.library, self) as web:
            for deed in left:
                await self._end(web, book, deed)
            works = (self._work(web, book, ends) for _ in range(_AT_ONCE))
            await asyncio.gather(*works)

    async def _work(self, web: _Web, book: Notebook, ends: asyncio.Event) -> None:
        while not ends.is_set():
            taken = await web.post(
                f"/queues/{self.node}/consumer", Prefer=f"wait={_WAIT_S}"
            )
            if taken.status == 202:
                continue
            if taken.status != 200:
                raise ValueError(f"not taken: {taken.status} {taken.text}")
            item = unquote(taken.links["self"].rpartition("/")[2])
            count = int(taken.headers["msg-delivery-count"])
            book.took(item, count)
            await asyncio.sleep(random.uniform(0, self.work_s))
            path, chance = taken.links["acknowledgement"], random.randrange(100)
            if chance < _RELEASED:
                book.gives_back(item, count)
                await web.post(path, "acknowledge=false", _FORM)
            elif chance < _RELEASED + _FAILED:
                form = "acknowledge=false&delivery-failed=true"
                await web.post(path, form, _FORM)
            else:
                rejected = chance < _RELEASED + _FAILED + _REJECTED
                deed = Deed(item, REJECTED if rejected else ACCEPTED, path)
                book.ends(deed)
                await self._end(web, book, deed)

    async def _end(self, web: _Web, book: Notebook, deed: Deed) -> None:
        """Tell the end of an item until the service has answered."""
        form = "acknowledge=true" if deed.outcome == ACCEPTED else "reject=no"
        answer = await web.post(deed.delivery, form, _FORM)
        if answer.status not in {204, 405, 412}:
            raise ValueError(f"not ended: {answer.status} {answer.text}")
        book.answered(deed.delivery, confirmed=answer.status != 412)
