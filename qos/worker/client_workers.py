"""The workers of one client at one service, and the state that they share.

They share the client's presence. Unavailable presence ends the locks and subscriptions
of all nodes, so only the last worker sends it; the others unsubscribe from their own
node. If such an unsubscribe has no answer, the service would go on to send items that
no worker takes. Therefore the remaining workers repeat it each time they subscribe.

A node has only one worker. The subscription belongs to the client, so two workers would
both get each item, and both do it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from qos.errors import LocalProtocolError, RequestRefused
from xep_0254.queueing import XEP_0254

__all__ = ["ClientWorkers"]


class ClientWorkers:
    """The workers of one client at one service.

    Attributes:
        left: the nodes whose worker has stopped, and whose subscription may still
            exist.
    """

    def __init__(self) -> None:
        self.left: set[str] = set()
        self._nodes: set[str] = set()

    @classmethod
    def of(cls, plugin: XEP_0254, service: str) -> ClientWorkers:
        """The workers of this client at this service."""
        companies = _companies.setdefault(plugin, {})
        return companies.setdefault(service, cls())

    def join(self, node: str) -> None:
        """Add the worker of this node.

        Raises:
            LocalProtocolError: the node has a worker already.
        """
        if node in self._nodes:
            raise LocalProtocolError(
                f"this client has a worker of {node!r} already, which would get the same "
                "items: use `parallel`, or another client"
            )
        self._nodes.add(node)
        self.left.discard(node)

    def leave(self, node: str, *, may_be_subscribed: bool) -> bool:
        """Remove the worker of this node; returns whether it was the last of all."""
        self._nodes.remove(node)
        if not self._nodes:
            self.left.clear()
            return True
        if may_be_subscribed:
            self.left.add(node)
        return False

    async def unsubscribe(self, plugin: XEP_0254, service: str) -> None:
        """Repeat the unsubscribe of stopped workers that had no answer.

        Raises:
            RequestFailed: there is still no answer.
        """
        for node in sorted(self.left):
            # Skip a node that has a new worker meanwhile: the subscription is its own
            # now.
            if node not in self.left:
                continue
            try:
                await plugin.unsubscribe(service, node)
            except RequestRefused as error:
                if error.is_temporary:
                    raise
            self.left.discard(node)


_companies: WeakKeyDictionary[XEP_0254, dict[str, ClientWorkers]] = WeakKeyDictionary()
