"""A publisher and a worker with the AMQP client of Qpid Proton, and nothing of ours.

Proton's calls block: see `blocking_roles`.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from proton import Delivery, Message, ProtonException, Timeout
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from blocking_roles import BlockingRole, Work
from notebooks import ACCEPTED, REJECTED, Deed, Notebook
from role import open_log

__all__ = ["AmqpPublisher", "AmqpWorker", "item_of"]

#: Seconds for an answer.
_ANSWER_S = 4.0

#: Messages that are under way together.
_AT_ONCE = 4

_CREDIT = 6

#: What becomes of deliveries, of a hundred: the rest is accepted.
_RELEASED, _FAILED, _REJECTED = 6, 4, 4

#: The ids of messages that AMQP clients publish; those of others are longer.
_OF_AMQP = re.compile("[apt][0-9]{1,7}")

_STATES = {ACCEPTED: Delivery.ACCEPTED, REJECTED: Delivery.REJECTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class _AmqpRole(BlockingRole):
    errors: ClassVar[tuple[type[Exception], ...]] = (ProtonException, OSError)

    def open(self) -> BlockingConnection:
        """See BlockingRole."""
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

    may_leave: ClassVar[bool] = False

    published: str
    pause_s: float

    def begin(self, stop: threading.Event) -> Work:
        """See BlockingRole."""
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

    may_leave: ClassVar[bool] = True

    notebook: str
    work_s: float

    def begin(self, stop: threading.Event) -> Work:
        """See BlockingRole."""
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
