"""The credit of a link to a consumer, told to the core as a total (transport §2.6.7).

To drain a link, the core is told the credit; when it has offered all items that are
there, it is told to stop, and says how many deliveries there were. When all of these are
transfers, the link's credit is used up. A flow that comes meanwhile begins anew: the core
has not heard of its credit yet, so the earlier drain must not use it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from proton import Sender

from qos.core.queue.requests import Credit, Refusal
from qos.core.queue.results import CreditResult, Result
from qos.engine.queue_engine import Answer

__all__ = ["LinkCredit"]

#: Makes a request of the link; its answer comes only while the link is there.
Ask: TypeAlias = Callable[[Credit, Answer], None]

#: Calls when all items that are there have been offered to the link, while that is there.
Offered: TypeAlias = Callable[[Callable[[], object]], None]


class LinkCredit:
    """The credit of one link.

    Attributes:
        used: the deliveries of the core that have become transfers, or will not.
    """

    def __init__(self, link: Sender, node: str, ask: Ask, offered: Offered) -> None:
        """Begin without credit; nothing is asked for yet.

        Args:
            link: of proton.
            node: the name of the node.
            ask: makes a request, and drops its answer if the link is gone by then.
            offered: see `QueueEngine.when_offered`.
        """
        self.used = 0
        self._link = link
        self._node = node
        self._ask = ask
        self._offered = offered
        # The number of flows that have come.
        self._flows = 0
        # While the link is drained: the deliveries of the core until then.
        self._drain_at: int | None = None

    def flow(self) -> None:
        """The consumer grants credit, or drains the link."""
        limit = self.used + self._link.credit
        self._drain_at = None
        self._flows += 1
        drains = self._link.drain_mode
        answer = partial(self._drain, self._flows) if drains else _ignore
        self._ask(Credit(self._node, limit), answer)

    def drained(self) -> bool:
        """Use up the credit of a link that is drained, when all that there is was sent.

        Returns:
            The consumer is to be told.
        """
        if self._drain_at is None or self.used < self._drain_at:
            return False
        self._drain_at = None
        self._link.drained()
        return True

    def _drain(
        self, flow: int, _result: Result | Refusal, _payloads: Mapping[int, str]
    ) -> None:
        self._offered(partial(self._stop, flow))

    def _stop(self, flow: int) -> None:
        """Everything has been given out that there is: stop, and learn how much."""
        if flow == self._flows:
            self._ask(Credit(self._node, 0), partial(self._stopped, flow))

    def _stopped(
        self, flow: int, result: Result | Refusal, _payloads: Mapping[int, str]
    ) -> None:
        if flow == self._flows and isinstance(result, CreditResult):
            self._drain_at = result.served
            self.drained()


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """A refusal of this comes with that of the subscription, or by a notification."""
