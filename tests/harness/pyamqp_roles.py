"""A publisher and a worker with Microsoft's AMQP client, and nothing of ours.

It is the one of `azure-servicebus`. Like uamqp it attaches with rcv-settle-mode second,
and waits until the service has settled what it sends and what it answers.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from azure.servicebus._pyamqp.authentication import SASLPlainAuth
from azure.servicebus._pyamqp.client import ReceiveClient, SendClient
from azure.servicebus._pyamqp.error import (
    AMQPException,
    MessageException,
    RetryPolicy,
)
from azure.servicebus._pyamqp.message import Message, Properties

from amqp_roles import item_of
from blocking_roles import BlockingRole, Work
from notebooks import ACCEPTED, REJECTED, Deed, Notebook
from role import open_log

__all__ = ["PyamqpPublisher", "PyamqpWorker"]

#: Seconds for an answer; for a connection that says nothing; and for a read.
_ANSWER_S, _IDLE_S, _READ_S = 4.0, 10, 0.1

_CREDIT = 6

#: What becomes of deliveries, of a hundred: the rest is accepted.
_RELEASED, _FAILED, _REJECTED = 6, 4, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _PyamqpRole(BlockingRole):
    #: The library has no common class for them, and cannot read each error.
    errors: ClassVar[tuple[type[Exception], ...]] = (
        AMQPException,
        OSError,
        TimeoutError,
        ValueError,
        AttributeError,
        IndexError,
        TypeError,
    )

    def client(self, kind: type[Any], **options: object) -> Any:
        """A new client of the library."""
        connect = self.connect
        return kind(
            f"{connect.host}:{connect.port}",
            self.node,
            auth=SASLPlainAuth(connect.jid, connect.password),
            use_tls=False,
            idle_timeout=_IDLE_S,
            socket_timeout=_READ_S,
            # What is not answered is looked at here.
            retry_policy=RetryPolicy(retry_total=0),
            **options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PyamqpPublisher(_PyamqpRole):
    """Publishes one message after the other, and again under its id if it must.

    Attributes:
        published: the file with the ids of items that are there, a line each.
        pause_s: after each message.
    """

    may_leave: ClassVar[bool] = False

    published: str
    pause_s: float

    def open(self) -> Any:
        """See BlockingRole."""
        return self.client(SendClient)

    def begin(self, stop: threading.Event) -> Work:
        """See BlockingRole."""
        log = open_log(self.published)
        number = Path(self.published).read_bytes().count(b"\n")

        def work(client: Any) -> bool:
            nonlocal number
            while True:
                message = Message(
                    properties=Properties(message_id=f"p{number}"),
                    application_properties={"parity": number % 2},
                    data=[f"work {number}".encode()],
                )
                # It raises unless the service has settled it as accepted.
                with _patience(client):
                    client.send_message(message, timeout=_ANSWER_S)
                os.write(log, f"string:p{number}\n".encode())
                number += 1
                # What an earlier life has begun is published by now.
                if stop.wait(self.pause_s):
                    return True

        return work


@dataclass(frozen=True, slots=True, kw_only=True)
class PyamqpWorker(_PyamqpRole):
    """Takes messages by credit, and waits until the service has settled each.

    Attributes:
        notebook: its file.
        work_s: how long it works on a message, at most.
    """

    may_leave: ClassVar[bool] = True

    notebook: str
    work_s: float

    def open(self) -> Any:
        """See BlockingRole."""
        return self.client(ReceiveClient, link_credit=_CREDIT)

    def begin(self, stop: threading.Event) -> Work:
        """See BlockingRole."""
        book = Notebook(self.notebook)

        def work(client: Any) -> bool:
            client.open()
            while not stop.is_set():
                client.do_work()
                with contextlib.suppress(queue.Empty):
                    frame, message = client._received_messages.get_nowait()
                    self._end(client, frame, message, book)
            return True

        return work

    def _end(self, client: Any, frame: Any, message: Any, book: Notebook) -> None:
        item = item_of(_text(message.properties.message_id))
        header = message.header
        count = 0 if header is None else header.delivery_count or 0
        book.took(item, count)
        time.sleep(random.uniform(0, self.work_s))
        chance = random.randrange(100)
        if chance < _RELEASED:
            book.gives_back(item, count)
            self._settle(client, frame, "released")
        elif chance < _RELEASED + _FAILED:
            self._settle(client, frame, "modified", delivery_failed=True)
        else:
            rejected = chance < _RELEASED + _FAILED + _REJECTED
            outcome = REJECTED if rejected else ACCEPTED
            deed = Deed(item, outcome, uuid.uuid4().hex)
            book.ends(deed)
            confirmed = self._settle(client, frame, outcome)
            book.answered(deed.delivery, confirmed=confirmed)

    def _settle(self, client: Any, frame: Any, outcome: str, **options: object) -> bool:
        """Tell an outcome, and wait until the service has settled it.

        Returns:
            Whether it counts. If not, the lock has ended before.

        Raises:
            AMQPException: nobody knows.
        """
        _, delivery_id, tag, *_ = frame
        try:
            client.settle_messages(
                *(delivery_id, tag, outcome),
                await_outcome=True,
                outcome_timeout=_ANSWER_S,
                **options,
            )
        except MessageException as error:
            if "the reported outcome was" in str(error):
                return False
            raise
        return True


@contextlib.contextmanager
def _patience(client: Any) -> Iterator[None]:
    """Cut the connection of a call that does not return.

    The library waits for ever for the outcome of a message that was rejected with an
    error it cannot read.
    """

    def cut() -> None:
        if client._connection is not None:
            client._connection._transport.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(2 * _ANSWER_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
