"""Connections that are lost at random moments, and mistakes that such a run must find.

Both ends resume their links with maps of unsettled deliveries (`resuming_ends`): no
message is stored twice or worked through twice, and none is lost, although none has an id.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_bench import gateway
from qos.amqp.incoming import IncomingLink
from qos.amqp.outgoing import OutgoingLink
from qos.amqp.resuming import Resuming
from qos.amqp.unsettled import Publications, Unsettled
from qos.core.amqp.frame_parts import AttachAnswer, LinkKey
from qos.core.amqp.frame_shim import FrameShim
from qos.core.amqp.resuming import ABSENT
from resuming_ends import Consumer, Publisher, Wrong
from waiting import LIMIT_S

pytestmark = pytest.mark.timeout(240)

MESSAGES = 150
SEEDS = range(3)
RUN_S = 2 * LIMIT_S


async def run(folder: Path, seed: int) -> tuple[int, int]:
    """Let both ends work until all is done; how often each of them attached.

    Raises:
        Wrong: a message is lost, or there twice, or a rule of the protocol is broken.
    """
    async with gateway(folder) as bench:
        await bench.create("orders")
        publisher = Publisher(bench.port, MESSAGES, seed)
        consumer = Consumer(bench.port, MESSAGES, seed)

        def is_gone(container: str) -> bool:
            connections = bench.gateway._connections
            return all(
                each._pump and each.container != container for each in connections
            )

        try:
            async with asyncio.timeout(RUN_S), asyncio.TaskGroup() as group:
                for end in (publisher, consumer):
                    group.create_task(end.run(is_gone))
        except TimeoutError:
            raise Wrong(f"{MESSAGES - len(consumer.worked)} are lost") from None
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        twice = {each for each, times in consumer.worked.items() if times > 1}
        if twice:
            raise Wrong(f"{len(twice)} were worked through twice")
        left = await bench.items("orders")
        if left:
            raise Wrong(f"{len(left)} are there too often")
        return publisher.attaches, consumer.attaches


@pytest.mark.parametrize("seed", SEEDS)
async def test_lost_connections_lose_and_double_nothing(
    tmp_path: Path, seed: int
) -> None:
    published, consumed = await run(tmp_path, seed)
    assert published > 5
    assert consumed > 5


# -- mistakes --------------------------------------------------------------


def _forgets_publications(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unsettled, "keep_published", lambda *_: None)


def _writes_no_map(patch: pytest.MonkeyPatch) -> None:
    answer = FrameShim.answer

    def without(self: FrameShim, key: LinkKey, given: AttachAnswer) -> None:
        answer(self, key, AttachAnswer(default_outcome=given.default_outcome))

    patch.setattr(FrameShim, "answer", without)


def _reads_no_map(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Resuming, "state_at_peer", lambda *_: ABSENT)


def _keeps_no_outcome(patch: pytest.MonkeyPatch) -> None:
    suspend = OutgoingLink.suspend

    def forgetting(self: OutgoingLink, seconds: float | None) -> None:
        suspend(self, seconds)
        self._unsettled = {}

    patch.setattr(OutgoingLink, "suspend", forgetting)


def _settles_first(patch: pytest.MonkeyPatch) -> None:
    tell = IncomingLink._tell

    def telling(self: IncomingLink, *args: object) -> None:
        self._second = False
        tell(self, *args)  # type: ignore[arg-type]  # as they came

    patch.setattr(IncomingLink, "_tell", telling)


def _part_is_one_byte_longer(patch: pytest.MonkeyPatch) -> None:
    states = Publications.states

    def longer(self: Publications) -> dict[bytes, object]:
        if self.part:
            self.part += b"?"
        return dict(states(self))

    patch.setattr(Publications, "states", longer)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "what a publisher has not settled is forgotten with its link": _forgets_publications,
    "our attach has no map": _writes_no_map,
    "the map of a consumer is not read": _reads_no_map,
    "an outcome that is written while a link is away is not kept": _keeps_no_outcome,
    "rcv-settle-mode second is not respected": _settles_first,
    "a part of a message has a byte too much": _part_is_one_byte_longer,
}


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mistake_is_found(
    tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the runs above would prove nothing."""
    MUTANTS[mutant](monkeypatch)
    # A message that is lost is waited for in vain.
    monkeypatch.setattr("test_cuts.RUN_S", 8.0)
    found: list[str] = []
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        with contextlib.suppress(Wrong):
            await run(folder, seed)
            continue
        found.append(mutant)
        break
    assert found == [mutant]
