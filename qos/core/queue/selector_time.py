"""The processor time that selectors take: of one step, and of each account.

A selector is code of a stranger, and the items for which it is evaluated are others'. So
a step of the service evaluates selectors for a bounded time only, and the rest waits. Who
subscribes pays: an account whose selectors have taken too much has to do without them.
The clock is the caller's, which counts the processor time of its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from qos.core.payers import TokenBuckets
from qos.core.queue.selector import Names, Selector

__all__ = [
    "ACCOUNT_S",
    "FREE_S",
    "RECOVERY_S",
    "SLICE_S",
    "STEP_S",
    "Meter",
    "SelectorTime",
    "TimedSelector",
]

#: Seconds of processor time that have passed; where it begins does not matter.
Meter: TypeAlias = Callable[[], float]

#: Seconds for which selectors are evaluated for new items between two dispatches, and
#: for waiting items in a dispatch. No turn of the loop has more than one of each.
STEP_S = 0.002
SLICE_S = 0.003

#: Seconds that a selector may take for one item without paying: usual ones take some
#: millionths of a second, so that nobody pays for them, however many items there are.
FREE_S = 50e-6

#: Seconds that the selectors of one account may take beyond that, and those after which
#: it has them again.
ACCOUNT_S = 1.0
RECOVERY_S = 60.0

#: What a dear evaluation says of the next ones; each cheap one says a tenth less.
_MEMORY = 0.9


def _no_time() -> float:
    return 0.0


class SelectorTime:
    """Measures evaluations, ends those of a step, and lets accounts pay for theirs."""

    def __init__(self, meter: Meter = _no_time) -> None:
        """Begin a step.

        Args:
            meter: the processor time; without one, only numbers of items are bounded.
        """
        self._meter = meter
        self._left = STEP_S
        self._now = 0.0
        #: Seconds that all evaluations have taken.
        self.taken = 0.0
        self._paid = TokenBuckets(ACCOUNT_S / RECOVERY_S, RECOVERY_S)

    def begin_step(self, now: float) -> None:
        """Begin the time for items that come until the next dispatch."""
        self._left, self._now = STEP_S, now

    def begin_slice(self, now: float) -> None:
        """Begin the time for items that wait, in a dispatch."""
        self._left, self._now = SLICE_S, now

    @property
    def is_over(self) -> bool:
        """Whether no more selectors are to be evaluated in this part of the step."""
        return self._left <= 0.0

    def wait_s(self, account: str, now: float | None = None) -> float:
        """The seconds until an account may have another selector; 0: it may.

        Args:
            account: the bare JID.
            now: the time; None: that of the step.
        """
        return self._paid.wait_s(account, self._now if now is None else now)

    def evaluate(
        self, selector: Selector, names: Names, accounts: Collection[str]
    ) -> tuple[bool, Collection[str]]:
        """Evaluate a selector.

        Args:
            selector: the condition.
            names: of an item.
            accounts: that pay for it, each the same part; at least one.

        Returns:
            Whether the item passes, and which of the accounts can pay no more.
        """
        start = self._meter()
        passes = selector.matches(names)
        took = self._meter() - start
        self._left -= took
        self.taken += took
        if took <= FREE_S:
            return passes, ()
        for account in accounts:
            self._paid.take(account, (took - FREE_S) / len(accounts), self._now)
        return passes, [account for account in accounts if self.wait_s(account)]

    def matches(self, timed: TimedSelector, names: Names) -> bool | None:
        """Evaluate a selector that has to be evaluated at once, or not at all.

        Returns:
            Whether the item passes. None: the selector is dear, and the step has no
            more time for it, or its account cannot pay.
        """
        if timed.cost > FREE_S and (self.is_over or self.wait_s(timed.account)):
            return None
        before = self.taken
        passes, _ = self.evaluate(timed.selector, names, (timed.account,))
        took = self.taken - before
        timed.cost = max(took, timed.cost * _MEMORY)
        return passes


class TimedSelector:
    """A selector, who pays for it, and what it has cost of late.

    Attributes:
        selector: the condition.
        account: the bare JID that pays.
        cost: seconds for one item.
    """

    __slots__ = ("account", "cost", "selector")

    def __init__(self, selector: Selector, account: str) -> None:
        self.selector = selector
        self.account = account
        self.cost = 0.0
