"""Names of push targets: whoever has slow ones delays nobody else."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from qos.core.queue.push import PushSubscriber
from qos.core.rest.forwarding import NoReply, PushRequest
from qos.core.rest.push_targets import PushRules
from qos.rest import bounds
from qos.rest.push import client as push_client
from qos.rest.push.client import PushClient
from qos.rest.push.lookups import Found, Lookups
from turned_time import turned
from waiting import LIMIT_S, until

HERE: list[Found] = [
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 443)),
]


class Names:
    """A resolver of names; it answers for slow names only when it is set free."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.asked = 0

    def slow(self) -> list[Found]:
        self.asked += 1
        self.free.wait(LIMIT_S)
        return HERE


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.free.set()


async def test_one_account_with_slow_names_delays_no_other(names: Names) -> None:
    """Nobody can stop a look-up, so it takes its thread also when nobody waits for it."""
    lookups = Lookups()
    begun: list[str] = []
    slow = [
        asyncio.ensure_future(
            lookups.find("eve@x", names.slow, lambda: begun.append("eve"))
        )
        for _ in range(20)
    ]
    share = bounds.PUSH_LOOKUPS_MAX // 2
    await until(lambda: names.asked == share)
    assert len(begun) == share
    for each in slow[:share]:
        each.cancel()
    found = await lookups.find("bob@x", lambda: HERE, lambda: None)
    assert found == HERE
    # Hers would have begun before his, if there had been room.
    assert names.asked == len(begun) == share
    slow[-1].cancel()
    names.free.set()
    waited = await asyncio.gather(*slow, return_exceptions=True)
    assert sum(each == HERE for each in waited) == len(slow) - share - 1
    await until(lambda: not lookups._running)
    lookups.close()


def subscriber(account: str, href: str) -> PushSubscriber:
    return PushSubscriber(
        subscriber_id="s", node="orders", account=account, rel="destination", href=href,
        base="", created_at=0.0,
    )  # fmt: skip


async def test_a_wait_for_a_thread_is_no_failed_attempt(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of an attempt begins when its name is looked up."""
    monkeypatch.setattr(bounds, "PUSH_LOOKUPS_MAX", 1)
    lookups = [names.slow, list]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: lookups.pop(0)())
    clock = turned(monkeypatch, push_client)
    client = PushClient(PushRules.of(()))

    def send(account: str) -> asyncio.Future[object]:
        href = f"https://{account[:3]}.example/"
        request = PushRequest("GET", href)
        made = client.send(request, b"", {}, subscriber(account, href))
        return asyncio.ensure_future(made)

    slow = send("eve@x")
    await until(lambda: names.asked == 1)
    waits = send("bob@x")
    await until(lambda: client._names._waiting)
    clock.advance(bounds.PUSH_S)
    answer = await slow
    assert isinstance(answer, NoReply)
    assert "does not answer" in answer.reason
    clock.advance(10 * bounds.PUSH_S)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waits.done()
    names.free.set()
    answer = await waits
    assert isinstance(answer, NoReply)
    assert "has no address" in answer.reason
    await client.aclose()


async def test_a_reason_names_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is told to users, and the address may be one of our network."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        client = PushClient(PushRules.of((f"localhost:{port}",)))
        href = f"http://localhost:{port}/"
        request = PushRequest("GET", href)
        answer = await client.send(request, b"", {}, subscriber("bob@x", href))
    assert isinstance(answer, NoReply)
    assert answer.reason == "no connection to localhost: Connection refused"
    await client.aclose()
