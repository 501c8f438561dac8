"""A day of work behind nginx and haproxy with their defaults, in minutes: `python -m proxied`.

The queue service is the real one, with a real Prosody. A publisher and a worker ask it
through a proxy, and it pushes to a target through another one. The queues have their
defaults. The day has bursts, quiet times that are longer than the time-outs of the
proxies, reloads of nginx, restarts of haproxy, and a target that restarts. At its end each
item must be done, and none be dead.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from benchmarks.report import aligned
from proxied.place import SECRET, SERVICE, USER, Lane, lanes_of, service
from qos.core.rest.link_header import read_links
from qos.testing.xmpp_server import ServerError
from waiting import LIMIT_S

_LOGIN = b64encode(f"{USER}:{SECRET}".encode()).decode()
_ATOM = "<link xmlns='http://www.w3.org/2005/Atom' rel='post-message' href='{}'/>"

#: Longer than the time-outs of the proxies, which are 60 s and 50 s; and nearly a lock.
_QUIET_S: Final = 65.0
_LONG_JOB_S: Final = 52.0

#: Items for each queue in a burst, and about how many seconds it takes.
_BURST, _BURST_S = 40, 5.0

#: What a worker asks for: as long as a proxy waits, and more than the service gives.
_WAIT_S: Final = 60
_WORKERS: Final = 2
_AGAIN_S: Final = 0.2

#: Seconds without any progress after which the rest of the items is missing.
_STUCK_S: Final = 150.0

_HEAD = (
    "proxy",
    "published",
    "done once",
    "pushed once",
    "repeated",
    "missing",
    "dead",
)


class Client:
    """Posts through a proxy until there is an answer of the service."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session, self._base = session, base

    async def post(
        self, path: str, body: str = "", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """The status, the body and the links by rel; headers are named with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Authorization"] = f"Basic {_LOGIN}"
        url = URL(self._base + path, encoded=True)
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._session.post(url, data=body, headers=named) as found:
                    links = read_links(found.headers.get("Link", ""))
                    text = await found.text()
                    if found.status < 500 and found.status != 429:
                        return (
                            found.status,
                            text,
                            {each.rel: each.href for each in links},
                        )
            await asyncio.sleep(_AGAIN_S)


class Day:
    """The traffic of a day.

    Args:
        lanes: one for each kind of proxy.
        session: of all clients.
    """

    def __init__(self, lanes: Sequence[Lane], session: aiohttp.ClientSession) -> None:
        self._lanes = {
            lane.name: (lane, Client(session, lane.front.url)) for lane in lanes
        }
        self._ids = itertools.count(1)

    async def live(self, seconds: float) -> None:
        """Work for so long, and then until nothing is left or goes on."""
        async with asyncio.TaskGroup() as group:
            lanes = self._lanes.values()
            workers = [
                group.create_task(self._work(*each))
                for each in lanes
                for _ in range(_WORKERS)
            ]
            for lane, client in lanes:
                made = await client.post(
                    f"/queues/push-{lane.name}/subscribers",
                    _ATOM.format(f"{lane.back.url}/in"),
                    Content_Type="application/atom+xml",
                )
                assert made[0] == 201, made
            await self._hours(asyncio.get_running_loop().time() + seconds)
            await self._settle()
            for each in workers:
                each.cancel()

    async def _hours(self, ends: float) -> None:
        for hour in itertools.count():
            async with asyncio.TaskGroup() as group:
                for lane, client in self._lanes.values():
                    group.create_task(self._burst(lane, client))
                    if hour:
                        group.create_task(self._trouble(lane))
            left_s = ends - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, (3.0, _QUIET_S)[hour % 2]))

    async def _settle(self) -> None:
        now, seen, gives_up_at = asyncio.get_running_loop().time, -1, 0.0
        while missing := sum(lane.missing for lane, _ in self._lanes.values()):
            if missing != seen:
                seen, gives_up_at = missing, now() + _STUCK_S
            if now() > gives_up_at:
                return
            await asyncio.sleep(_AGAIN_S)
        # The last acknowledgements.
        await asyncio.sleep(2.0)

    async def _burst(self, lane: Lane, client: Client) -> None:
        """Publish for both queues, each item once whatever its answer was."""
        for _ in range(_BURST):
            for queue, published in (("work", lane.work), ("push", lane.push)):
                item_id = f"{lane.name}-{next(self._ids)}"
                _, _, links = await client.post(f"/queues/{queue}-{lane.name}/once")
                posted = await client.post(
                    links["create-next"],
                    item_id,
                    Content_Type="text/plain",
                    Msg_Properties=f'n="{"x" * random.choice((0, 100, 1500))}"',
                )
                assert posted[0] in {200, 405}, posted
                published.add(item_id)
            await asyncio.sleep(random.uniform(0, 2 * _BURST_S / _BURST))

    async def _trouble(self, lane: Lane) -> None:
        """Reload nginx, or restart haproxy, and restart the target, while items flow."""
        for each in (lane.front, lane.back):
            await asyncio.sleep(random.uniform(0, _BURST_S / 3))
            if lane.name == "nginx":
                each.reload()
            else:
                await each.stop()
                await asyncio.sleep(random.uniform(0, 1.0))
                await each.start()
        await lane.target.stop()
        await asyncio.sleep(random.uniform(0, 2.0))
        await lane.target.start()

    async def _work(self, lane: Lane, client: Client) -> None:
        for number in itertools.count(1):
            path = f"/queues/work-{lane.name}/consumer"
            status, item_id, links = await client.post(path, Prefer=f"wait={_WAIT_S}")
            if status == 202:
                continue
            assert status == 200, (status, item_id)
            is_long = number % (3 * _BURST) == 0
            await asyncio.sleep(_LONG_JOB_S if is_long else random.uniform(0, 0.1))
            lane.done[item_id] += 1
            form = "application/x-www-form-urlencoded"
            link = links["acknowledgement"]
            ended = await client.post(link, "acknowledge=true", Content_Type=form)
            assert ended[0] in {204, 405, 412}, ended


async def run(folder: Path, seconds: float) -> list[Lane]:
    """Live a day of so many seconds; returns what became of it."""
    timeout = aiohttp.ClientTimeout(total=_WAIT_S + LIMIT_S)
    async with (
        service(folder) as (http, owner),
        lanes_of(folder, http) as lanes,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        nodes = {
            f"{kind}-{lane.name}": lane for kind in ("work", "push") for lane in lanes
        }
        for node in nodes:
            await owner.create(SERVICE, node, {})
        await Day(lanes, session).live(seconds)
        for node, lane in nodes.items():
            lane.dead += int((await owner.stats(SERVICE, node))["dead"] or 0)
        return lanes


def main(words: Sequence[str] | None = None) -> int:
    """Run it, and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proxied", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the day (10)")
    options = parser.parse_args(words)
    try:
        with tempfile.TemporaryDirectory() as folder:
            lanes = asyncio.run(run(Path(folder), options.minutes * 60))
    except ServerError as error:
        print(f"proxied: {error}", file=sys.stderr)
        return 2
    print("\n".join(aligned([_HEAD, *(lane.row for lane in lanes)])))
    return int(any(lane.dead or lane.missing for lane in lanes))


if __name__ == "__main__":
    sys.exit(main())
