"""The nodes that an account may use, looked for in steps."""

from __future__ import annotations

from itertools import islice

from qos.core.queue.access import may_use
from qos.core.queue.service import Queues

__all__ = ["SeenNodes"]

#: Nodes that are looked at in one step: 1,000 take a millisecond.
_STEP_NODES = 1000


class SeenNodes:
    """A look for the nodes that an account may use.

    Attributes:
        names: of those that were found, sorted.
    """

    def __init__(self, core: Queues, account: str) -> None:
        """Begin a look.

        Args:
            core: has the nodes.
            account: the bare JID.
        """
        self.names: list[str] = []
        self._core = core
        self._account = account
        self._left = iter(sorted(core.nodes))

    @property
    def is_short(self) -> bool:
        """Whether one step is all."""
        return len(self._core.nodes) < _STEP_NODES

    def step(self) -> bool:
        """Look at some nodes; whether there are more. One that is gone meanwhile is left out."""
        looked = 0
        for name in islice(self._left, _STEP_NODES):
            looked += 1
            queue = self._core.nodes.get(name)
            if queue and may_use(queue.node, queue.options, self._account):
                self.names.append(name)
        return looked == _STEP_NODES
