"""The credit of a link, by proton's own links at both ends, without a network."""

from collections.abc import Callable

from proton import Connection, Endpoint, Receiver, Sender, Transport

from qos.amqp.credit import LinkCredit
from qos.core.queue.results import CreditResult
from qos.engine.queue_engine import Answer


def _at_once(call: Callable[[], object]) -> None:
    call()


class Ends:
    """A link: `sender` is ours, `receiver` is the consumer's; and what ours has asked."""

    def __init__(self) -> None:
        ours, theirs = Connection(), Connection()
        self._transports = Transport(), Transport()
        for transport, connection in zip(self._transports, (ours, theirs), strict=True):
            transport.bind(connection)
            connection.open()
        session = theirs.session()
        session.open()
        self.receiver: Receiver = session.receiver("takes")
        self.receiver.open()
        self.talk()
        link = ours.link_head(Endpoint.REMOTE_ACTIVE)
        assert isinstance(link, Sender)
        self.sender = link
        link.session.open()
        link.open()
        self.asked: list[tuple[int, Answer]] = []
        self.credit = LinkCredit(
            link,
            "orders",
            lambda request, answer: self.asked.append((request.limit, answer)),
            _at_once,
        )

    def talk(self) -> None:
        """Let both ends read what the other one writes."""
        one, other = self._transports
        for _ in range(4):
            for writer, reader in ((one, other), (other, one)):
                data = writer.peek(max(writer.pending(), 0))
                if data:
                    writer.pop(len(data))
                    reader.push(data)

    def drain(self, more: int) -> None:
        """The consumer grants more credit and drains the link."""
        self.receiver.drain(more)
        self.talk()
        self.credit.flow()

    def answer(self, limit: int, served: int) -> None:
        """The core answers the first request that it has not answered."""
        asked, answer = self.asked.pop(0)
        assert asked == limit
        answer(CreditResult(served), {})
        self.talk()


def test_a_drain_is_answered_when_all_that_is_there_was_sent() -> None:
    ends = Ends()
    ends.drain(5)
    ends.answer(5, served=0)
    assert ends.receiver.credit == 5
    ends.answer(0, served=0)
    assert ends.receiver.credit == 0
    assert not ends.asked


def test_a_drain_is_not_answered_by_the_one_before() -> None:
    """The first one has found nothing; a message comes; the second one asks for it.

    "Nothing there" would be told of a message that is (transport §2.6.7), and the
    message would be locked for a consumer without credit.
    """
    ends = Ends()
    ends.drain(1)
    ends.answer(1, served=0)
    # The service is about to answer the first drain, and the next one is here.
    ends.drain(1)
    ends.answer(0, served=0)
    assert ends.receiver.credit == 2
    # The message is given to the second one.
    ends.answer(2, served=1)
    ends.answer(0, served=1)
    assert ends.receiver.credit == 2
    ends.credit.used += 1
    assert ends.credit.drained()
    ends.talk()
    assert ends.receiver.credit == 0
    assert not ends.asked


def test_a_drain_that_a_later_flow_takes_back_takes_no_credit_away() -> None:
    """Also if it is drained once more, before the service has looked for messages."""
    ends = Ends()
    ends.drain(1)
    ends.receiver.drain_mode = False
    ends.receiver.flow(1)
    ends.talk()
    ends.credit.flow()
    ends.drain(1)
    ends.answer(1, served=0)
    ends.answer(2, served=0)
    ends.answer(3, served=0)
    # Only the last one stops the core.
    assert [limit for limit, _ in ends.asked] == [0]
    ends.answer(0, served=0)
    assert ends.receiver.credit == 0
