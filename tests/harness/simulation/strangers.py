"""An owner with a private queue, and a stranger who takes all that he can get.

The owner's dead letters go to a queue that is open at first, then private, then
deleted. At the end he has a topic. The stranger names that queue as the dead-letter node of a queue of his own,
makes the owner a co-owner of his queue, and lets items die there. He creates queues
until he is refused, and takes the name of the owner's queue as soon as that is free.
"""

from __future__ import annotations

import asyncio
import hashlib

from qos.core.queue.item import Affiliation
from qos.core.queue.lifetime import Lifetime
from qos.core.queue.requests import (
    CloseLink,
    Configure,
    Create,
    Delete,
    Publish,
    PublishedItem,
    Request,
    SetAffiliations,
)
from qos.errors import NoAnswer, RequestRefused
from simulation.queue_client import QueueUser
from simulation.queue_machine import BOSS, MADE

__all__ = ["Owner", "Stranger"]

_LETTERS, _VAULT, _TRAP, _NEWS = "letters", "vault", "trap", "news"

_OPEN = {"pubsub#access_model": "open", "pubsub#publish_model": "open"}
_CLOSED = {"pubsub#access_model": "whitelist", "pubsub#publish_model": "publishers"}

#: Items that are published there die at once, and become dead letters.
_DYING = {"queue#ttl": "0.1", "queue#dead_letter_node": _LETTERS}

#: The items of each node that a link has made: their rows go in as many commits.
_REPLIES = 60

_ANSWER_S = 2.0
_AGAIN_S = 0.5

#: The number of attempts; enough for every fault except those that last to the end.
_TRIES = 30


class _Scripted(QueueUser):
    """Makes a list of requests, one after the other; has no faults."""

    def boot(self) -> None:
        """See Machine."""
        super().boot()
        assert self.process is not None
        self.process.task(self._script())

    async def _script(self) -> None:
        raise NotImplementedError

    async def _ask(self, request: Request) -> str:
        """Repeat a request until the service answers: `ok`, or a condition."""
        condition = ""
        for _ in range(_TRIES):
            try:
                await self.queue_client.ask(request, type(request).__name__, _ANSWER_S)
            except NoAnswer:
                await self.queue_client.pause(_AGAIN_S)
            except RequestRefused as refused:
                condition = refused.condition
                if refused.type != "wait" and condition != "service-unavailable":
                    return condition
                await asyncio.sleep(_AGAIN_S)
            else:
                return "ok"
        return condition

    async def _publish(self, node: str, *item_ids: str) -> None:
        payload = f"<of>{self.name}</of>"
        digest = hashlib.sha256(payload.encode()).hexdigest()
        entries = (
            PublishedItem(
                item_id=item_id, payload=payload, digest=digest, size=len(payload)
            )
            for item_id in item_ids
        )
        await self._ask(Publish(node, tuple(entries)))


class Owner(_Scripted):
    """An owner of a queue whose dead items belong to nobody else."""

    async def _script(self) -> None:
        if await self._ask(Create(_LETTERS, _OPEN)) != "ok":
            # Somebody has taken the name: dead items would be his, with every right.
            return
        await self._ask(Create(_VAULT, _DYING))
        await asyncio.sleep(1.5)
        await self._ask(Configure(_LETTERS, _CLOSED))
        await asyncio.sleep(1.5)
        await self._publish(_VAULT, "first")
        await asyncio.sleep(1.0)
        await self._ask(Delete(_LETTERS))
        for number in range(6):
            await asyncio.sleep(1.0)
            await self._publish(_VAULT, f"later-{number}")
        await self._ask(Create("more", {}))
        # As a client of a gateway: it attaches a link that makes its node. What the last
        # node of this name had may still be on disk.
        for number in range(3):
            await self._ask(Create(MADE, {}, Lifetime.DELETE_ON_CLOSE))
            await self._publish(MADE, *(f"reply-{each}" for each in range(_REPLIES)))
            await asyncio.sleep(1.0 if not number else 0.0)
            await self._ask(CloseLink(MADE))
        await self._have_news()

    async def _have_news(self) -> None:
        """Publish to a topic while queues come that copy from it, and go."""
        await self._ask(Delete("more"))
        await self._ask(Create(_NEWS, {"queue#node_type": "topic"}))
        for number in range(4):
            queue = f"{_NEWS}-{number}"
            await self._ask(Create(queue, {"queue#topic": _NEWS}))
            await self._publish(_NEWS, f"{queue}-a")
            # As if the answer had been lost.
            await self._publish(_NEWS, f"{queue}-a")
            await self._publish(_NEWS, f"{queue}-b")
            await self._ask(Delete(queue))
        await self._ask(Create(f"{_NEWS}-left", {"queue#topic": _NEWS}))
        await self._publish(_NEWS, "last")
        await self._ask(Delete(_NEWS))


class Stranger(_Scripted):
    """A stranger who takes all that he can get."""

    async def _script(self) -> None:
        await asyncio.sleep(0.3)
        for _ in range(4):
            if await self._ask(Create(_TRAP, _DYING)) == "ok":
                break
            await asyncio.sleep(0.3)
        await self._ask(SetAffiliations(_TRAP, {BOSS: Affiliation.OWNER}))
        for number in range(3):
            await self._ask(Create(f"mine-{number}", {}))
        await self._ask(Delete("mine-0"))
        for number in range(12):
            await self._publish(_TRAP, f"bait-{number}")
            await self._ask(Create(_LETTERS, _OPEN))
            await asyncio.sleep(_AGAIN_S)
