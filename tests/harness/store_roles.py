"""A process that tries to open a store which another process has open."""

from __future__ import annotations

from dataclasses import dataclass

from qos.errors import StoreInUse
from qos.stores import store_from_url
from qos.stores.queue_store import queue_store_from_url
from role import Role, Say

__all__ = ["Intruder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intruder(Role):
    """Opens a store, and reports whether it was `refused` or `let in`.

    Attributes:
        url: of the store.
        of_queue: the store belongs to a queue service.
    """

    url: str
    of_queue: bool

    async def live(self, say: Say) -> None:
        """See Role."""
        new = queue_store_from_url if self.of_queue else store_from_url
        store = new(self.url)
        try:
            store.open()
        except StoreInUse:
            say("refused")
            return
        say("let in")
        await store.close()
