"""The gateway with Microsoft's AMQP client for Python, as azure-servicebus brings it.

It attaches with rcv-settle-mode second by default, and settles nothing of what it sends.
"""

import asyncio
import time
from typing import Any

import pytest
from azure.servicebus._pyamqp.authentication import SASLPlainAuth
from azure.servicebus._pyamqp.client import ReceiveClient, SendClient
from azure.servicebus._pyamqp.message import Message, Properties

from amqp_bench import Bench
from waiting import LIMIT_S

LOGIN: dict[str, Any] = {"auth": SASLPlainAuth("alice", "secret"), "use_tls": False}


def send(bench: Bench, *bodies: bytes) -> None:
    host = f"127.0.0.1:{bench.port}"
    with SendClient(host, "orders", **LOGIN) as client:
        for number, body in enumerate(bodies):
            properties = Properties(message_id=f"m{number}")
            message = Message(properties=properties, data=[body])
            client.send_message(message, timeout=LIMIT_S)


def receive(bench: Bench, outcome: str, **how: Any) -> list[bytes]:
    host = f"127.0.0.1:{bench.port}"
    with ReceiveClient(host, "orders", link_credit=10, **LOGIN) as client:
        told: list[bytes] = []
        end = time.monotonic() + LIMIT_S
        while len(told) < 2 and time.monotonic() < end:
            client.do_work(batch=2)
            while not client._received_messages.empty():
                frame, message = client._received_messages.get()
                told.append(b"".join(message.data))
                client.settle_messages(frame[1], frame[2], outcome, **how)
    return told


async def test_a_message_of_pyamqp_is_settled_and_sent_once(bench: Bench) -> None:
    """The answer is `first`: it does not resume, so nobody waits for its settlement."""
    await asyncio.to_thread(send, bench, b"one", b"x" * 100_000)
    assert (await bench.items("orders")).keys() == {"string:m0", "string:m1"}


@pytest.mark.parametrize(
    "how",
    [{}, {"await_outcome": True, "outcome_timeout": LIMIT_S}],
    ids=["first", "second"],
)
async def test_pyamqp_ends_what_it_receives(bench: Bench, how: dict[str, Any]) -> None:
    """With `await_outcome` it waits until we have settled, after the commit."""
    await asyncio.to_thread(send, bench, b"one", b"two")
    assert await asyncio.to_thread(receive, bench, "accepted", **how) == [
        b"one",
        b"two",
    ]
    await bench.until_items("orders", 0)
