"""A publisher and a consumer that keep their maps of unsettled deliveries as AMQP says.

Their connections are lost at random moments, and they attach again. No message has an id,
and so only these maps keep a message from being stored, or worked through, twice.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

from frame_peer import (
    ACCEPTED,
    DISPOSITION,
    FLOW,
    NULL,
    TRANSFER,
    Frame,
    FramePeer,
    received,
)
from qos.core.amqp.delivery_states import read_state, state_of
from qos.core.amqp.resuming import ABSENT, Position, State, Step, resume

__all__ = ["Consumer", "Publisher", "Wrong", "body"]

NUMBER, TAG, SETTLED, STATE, RESUME, ABORTED = 1, 2, 4, 7, 8, 9
#: The places of a disposition.
ROLE, FIRST, LAST, IS_SETTLED, OUTCOME = range(5)

#: Messages that are on their way at a time.
IN_FLIGHT = 8

_LOST: tuple[type[BaseException], ...] = (ConnectionError, AssertionError)


class Wrong(Exception):
    """The other end broke a rule."""


def body(number: int) -> bytes:
    """A message; some need several frames."""
    text = b"%06d" % number * (1 if number % 3 else 50)
    return b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text


def number_of(message: bytes) -> int:
    """The number in a message, which may have other sections before its body.

    Raises:
        Wrong: it is not what was published.
    """
    number = int(message[-6:])
    if not message.endswith(body(number)):
        raise Wrong(f"{message[-20:]!r} has other bytes than it had")
    return number


def disposed(frame: Frame) -> range:
    """The delivery-ids of a disposition."""
    first, last = frame.value(FIRST), frame.value(LAST)
    assert isinstance(first, int)
    assert last is None or isinstance(last, int)
    return range(first, (first if last is None else last) + 1)


class End:
    """One end, and its connections.

    Args:
        port: of the gateway.
        count: messages in all.
        seed: decides when a connection is lost.
    """

    name = "end"

    def __init__(self, port: int, count: int, seed: int) -> None:
        self._port = port
        self._count = count
        self._random = random.Random(f"{seed} {self.name}")
        self._tags = 0
        self.attaches = 0

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        raise NotImplementedError

    async def run(self, is_gone: Callable[[str], bool]) -> None:
        """Attach again and again, until all is done.

        Args:
            is_gone: whether the gateway has noticed that this end is.
        """
        while not self.done:
            peer = FramePeer(self._port, container=self.name)
            try:
                async with peer:
                    self.attaches += 1
                    await self._work(peer, self._random.randrange(1, 40))
                    # What comes meanwhile is lost.
                    await asyncio.sleep(self._random.choice((0.0, 0.02)))
            except _LOST:
                pass
            except TimeoutError:
                raise Wrong(f"nothing comes to the {self.name}") from None
            while not is_gone(self.name):  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0.001)
            await asyncio.sleep(self._random.choice((0.0, 0.005, 0.02)))

    async def _work(self, peer: FramePeer, frames: int) -> None:
        raise NotImplementedError


class Publisher(End):
    """Publishes each message once, with rcv-settle-mode second."""

    name = "publisher"

    def __init__(self, port: int, count: int, seed: int) -> None:
        super().__init__(port, count, seed)
        self._next = 0
        # By tag: the message, and its state here.
        self._unsettled: dict[bytes, tuple[bytes, State]] = {}
        self._sent: dict[int, bytes] = {}
        self._peer: FramePeer
        self._delivery = 0

    @property
    def done(self) -> bool:
        """Whether all are accepted and settled."""
        return self._next == self._count and not self._unsettled

    async def _work(self, peer: FramePeer, frames: int) -> None:
        self._peer, self._sent, self._delivery = peer, {}, 0
        entries = dict.fromkeys(self._unsettled, NULL)
        answer = await peer.attach(
            "to", target="orders", second=True, unsettled=entries
        )
        await peer.frame(FLOW)
        theirs = answer.unsettled or {}
        for tag, (message, state) in list(self._unsettled.items()):
            entry = theirs.get(tag)
            told = ABSENT if entry is None else state_of(read_state(entry))
            self._resume(tag, message, resume(state, told).step, told)
        for _ in range(frames):
            while self._next < self._count and len(self._unsettled) < IN_FLIGHT:
                tag = b"%x" % self._tags
                self._tags += 1
                self._unsettled[tag] = body(self._next), None
                self._next += 1
                self._transfer(tag, self._unsettled[tag][0])
                if not self._random.randrange(30):
                    return
            if self.done:
                return
            self._disposed(await peer.frame(DISPOSITION))

    def _resume(self, tag: bytes, message: bytes, step: Step, told: object) -> None:
        if step is Step.SEND:
            self._transfer(tag, message)
        elif step is Step.RESUME:
            # From what the receiver has, or from the beginning.
            at = 0
            state = NULL
            if isinstance(told, Position) and told.section == 0:
                at, state = told.offset, received(0, told.offset)
            self._transfer(tag, message[at:], state=state, resume=True)
        elif step is Step.RESTATE:
            if told is not state_of(read_state(ACCEPTED)):
                raise Wrong(f"{tag!r} is {told}")
            self._transfer(tag, b"", state=ACCEPTED, resume=True, settled=True)
            del self._unsettled[tag]
        else:
            raise Wrong(f"{step} for {tag!r}")

    def _transfer(
        self,
        tag: bytes,
        message: bytes,
        *,
        state: bytes = NULL,
        resume: bool = False,
        settled: bool = False,
    ) -> None:
        number = self._delivery
        self._delivery += 1
        self._sent[number] = tag
        cut = self._random.randrange(1, len(message)) if len(message) > 100 else 0
        parts = [(message[:cut], True), (message[cut:], False)] if cut else []
        for part, more in parts or [(message, False)]:
            if cut and not more and not self._random.randrange(4):
                raise ConnectionError("lost in the middle of a message")
            self._peer.transfer(
                number,
                tag,
                part,
                more=more,
                settled=settled,
                state=state,
                resume=resume,
            )

    def _disposed(self, frame: Frame) -> None:
        for number in disposed(frame):
            tag = self._sent.pop(number, None)
            if tag is None or tag not in self._unsettled:
                continue
            if frame.state(OUTCOME) != 0x24:
                raise Wrong(f"{tag!r} has the state {frame[OUTCOME]!r}")
            del self._unsettled[tag]
            self._peer.dispose(number, ACCEPTED, settled=True, receiver=False)


class Consumer(End):
    """Works each message through once, with rcv-settle-mode second."""

    name = "consumer"

    def __init__(self, port: int, count: int, seed: int) -> None:
        super().__init__(port, count, seed)
        self.worked: Counter[int] = Counter()
        self._unsettled: set[bytes] = set()
        self._numbers: dict[int, bytes] = {}

    @property
    def done(self) -> bool:
        """Whether each message has come, and is settled."""
        return len(self.worked) >= self._count and not self._unsettled

    async def _work(self, peer: FramePeer, frames: int) -> None:
        self._numbers = {}
        entries = dict.fromkeys(self._unsettled, ACCEPTED)
        answer = await peer.attach(
            "from", source="orders", second=True, unsettled=entries
        )
        # What the sender does not know any more, it has settled.
        self._unsettled &= set(answer.unsettled or {})
        peer.flow(500)
        for _ in range(frames):
            if self.done:
                return
            self._came(peer, await peer.frame(TRANSFER, DISPOSITION))

    def _came(self, peer: FramePeer, frame: Frame) -> None:
        if frame.code == DISPOSITION:
            for each in disposed(frame):
                self._unsettled.discard(self._numbers.get(each, b""))
            return
        number, tag = frame.value(NUMBER), frame.value(TAG)
        assert isinstance(number, int)
        assert isinstance(tag, bytes)
        if frame.flag(RESUME):
            if frame.flag(ABORTED) or frame.state(STATE) != 0x24:
                raise Wrong(f"{tag!r} is {frame.state(STATE)} at the sender")
            self._unsettled.discard(tag)
            return
        if tag in self._unsettled:
            raise Wrong(f"{tag!r} comes as a new delivery")
        self.worked[number_of(frame.payload)] += 1
        self._unsettled.add(tag)
        self._numbers[number] = tag
        if not self._random.randrange(20):
            raise ConnectionError("lost before the outcome could be told")
        peer.dispose(number, ACCEPTED, settled=False, receiver=True)
