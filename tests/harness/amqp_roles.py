"""A publisher and a worker with the AMQP client of Qpid Proton, and nothing of ours.

Proton's calls block, so they have a thread of their own. Whenever a connection is lost, or
does not answer, there is a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proton import Delivery, Message, ProtonException, Timeout
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from notebooks import ACCEPTED, REJECTED, Deed, Notebook
from role import Role, Say, open_log

__all__ = ["AmqpPublisher", "AmqpWorker", "item_of"]

#: Seconds for an answer.
_ANSWER_S = 4.0

_AGAIN_S = 0.1

#: Messages that are under way together.
_AT_ONCE = 4

_CREDIT = 6

#: What becomes of deliveries, of a hundred: the rest is accepted.
_RELEASED, _FAILED, _REJECTED = 6, 4, 4

#: The ids of messages that AMQP clients publish; those of others are longer.
_OF_AMQP = re.compile("[apt][0-9]{1,7}")

_STATES = {ACCEPTED: Delivery.ACCEPTED, REJECTED: Delivery.REJECTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _AmqpRole(Role):
    """Works on one connection after the other, until SIGTERM.

    Attributes:
        node: the queue.
    """

    node: str

    async def live(self, say: Say) -> None:
        """See Role."""
        stop = threading.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        say("ready")
        await asyncio.to_thread(self._until_done, self.begin(stop), stop)

    def begin(self, stop: threading.Event) -> Callable[[BlockingConnection], bool]:
        """The work on a connection; it returns whether the role may end."""
        raise NotImplementedError

    def _until_done(
        self, work: Callable[[BlockingConnection], bool], stop: threading.Event
    ) -> None:
        done = False
        while not done:
            connection = None
            try:
                connection = self._connect()
                done = work(connection)
            except (ProtonException, OSError):
                time.sleep(_AGAIN_S)
                # A worker has nothing to finish.
                done = stop.is_set() and isinstance(self, AmqpWorker)
            finally:
                if connection is not None:
                    with contextlib.suppress(ProtonException, OSError):
                        connection.close()

    def _connect(self) -> BlockingConnection:
        connect = self.connect
        url = f"amqp://{connect.jid}:{connect.password}@{connect.host}:{connect.port}"
        return BlockingConnection(url, allowed_mechs="PLAIN", timeout=_ANSWER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpPublisher(_AmqpRole):
    """Publishes some messages at a time, and again under their ids if it must.

    Attributes:
        published: the file with the ids of items that are there, a line each.
        pause_s: after some messages.
    """

    published: str
    pause_s: float

    def begin(self, stop: threading.Event) -> Callable[[BlockingConnection], bool]:
        """See _AmqpRole."""
        log = open_log(self.published)
        first = Path(self.published).read_bytes().count(b"\n")

        def work(connection: BlockingConnection) -> bool:
            nonlocal first
            sender = connection.create_sender(self.node)
            while True:
                numbers = range(first, first + _AT_ONCE)
                sent = [_send(sender, number) for number in numbers]
                connection.wait(lambda: all(each.settled for each in sent))  # noqa: B023
                if any(each.remote_state != Delivery.ACCEPTED for each in sent):
                    raise ProtonException("not accepted")
                lines = "".join(f"string:a{number}\n" for number in numbers)
                os.write(log, lines.encode())
                first += _AT_ONCE
                # What an earlier life has begun is published by now.
                if stop.wait(self.pause_s):
                    return True

        return work


def _send(sender: BlockingSender, number: int) -> Delivery:
    """Send a message; the same number is the same message."""
    message = Message(
        id=f"a{number}", body=f"work {number}", properties={"parity": number % 2}
    )
    delivery = sender.link.send(message)
    assert isinstance(delivery, Delivery)
    return delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpWorker(_AmqpRole):
    """Takes messages by credit, and waits until the service has settled each.

    Attributes:
        notebook: its file.
        work_s: how long it works on a message, at most.
    """

    notebook: str
    work_s: float

    def begin(self, stop: threading.Event) -> Callable[[BlockingConnection], bool]:
        """See _AmqpRole."""
        book = Notebook(self.notebook)

        def work(connection: BlockingConnection) -> bool:
            receiver = connection.create_receiver(self.node, credit=_CREDIT)
            while not stop.is_set():
                # A time-out is no loss of the connection.
                with contextlib.suppress(Timeout):
                    message = receiver.receive(timeout=0.5)
                    self._end(connection, receiver, message, book)
            return True

        return work

    def _end(
        self,
        connection: BlockingConnection,
        receiver: BlockingReceiver,
        message: Message,
        book: Notebook,
    ) -> None:
        item = item_of(str(message.id))
        count = int(message.delivery_count)
        book.took(item, count)
        fetcher = receiver.fetcher
        assert fetcher is not None
        if not fetcher.unsettled:
            return  # the service has ended the lock before we looked
        delivery: Delivery = fetcher.unsettled.popleft()
        time.sleep(random.uniform(0, self.work_s))
        chance = random.randrange(100)
        if chance < _RELEASED:
            book.gives_back(item, count)
            self._settle(connection, delivery, Delivery.RELEASED)
        elif chance < _RELEASED + _FAILED:
            delivery.local.failed = True
            self._settle(connection, delivery, Delivery.MODIFIED)
        else:
            rejected = chance < _RELEASED + _FAILED + _REJECTED
            outcome = REJECTED if rejected else ACCEPTED
            deed = Deed(item, outcome, uuid.uuid4().hex)
            book.ends(deed)
            confirmed = self._settle(connection, delivery, _STATES[outcome])
            book.answered(deed.delivery, confirmed=confirmed)

    def _settle(
        self, connection: BlockingConnection, delivery: Delivery, state: int
    ) -> bool:
        """Tell an outcome, and wait until the service has settled it.

        Returns:
            Whether it counts. If not, the lock has ended before.
        """
        if delivery.settled:
            delivery.settle()
            return False
        delivery.update(state)
        try:
            connection.wait(lambda: delivery.settled)
        except Timeout as error:
            # Nobody knows; a new connection is needed.
            raise ProtonException(str(error)) from None
        confirmed = delivery.remote_state == state
        delivery.settle()
        return bool(confirmed)


def item_of(message_id: str) -> str:
    """The id of an item: that of a message of an AMQP client has a type there."""
    return f"string:{message_id}" if _OF_AMQP.fullmatch(message_id) else message_id
