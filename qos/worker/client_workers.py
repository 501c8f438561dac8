"""The workers of one client at one service: what they have in common there.

That is the client's presence. Unavailable, it ends locks and subscriptions of all
nodes, so only the last worker says so; the others unsubscribe from their own node. If
nobody has answered to that, the service would go on to send items that nobody takes:
those who are left ask again, each time they subscribe.

Of a node there is one worker: the subscription is the client's, so two would both get
each item, and both do it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from qos.errors import LocalProtocolError, RequestRefused
from xep_0254.queueing import XEP_0254

__all__ = ["ClientWorkers"]


class ClientWorkers:
    """The workers of one client at one service.

    Attributes:
        left: the nodes whose worker has gone, and whose subscription may be there yet.
    """

    def __init__(self) -> None:
        self.left: set[str] = set()
        self._nodes: set[str] = set()

    @classmethod
    def of(cls, plugin: XEP_0254, service: str) -> ClientWorkers:
        """The one of this client at this service."""
        companies = _companies.setdefault(plugin, {})
        return companies.setdefault(service, cls())

    def join(self, node: str) -> None:
        """A worker of this node begins.

        Raises:
            LocalProtocolError: there is one.
        """
        if node in self._nodes:
            raise LocalProtocolError(
                f"this client has a worker of {node!r} already, which would get the same "
                "items: use `parallel`, or another client"
            )
        self._nodes.add(node)
        self.left.discard(node)

    def leave(self, node: str, *, may_be_subscribed: bool) -> bool:
        """A worker of this node ends; returns whether it is the last of all."""
        self._nodes.remove(node)
        if not self._nodes:
            self.left.clear()
            return True
        if may_be_subscribed:
            self.left.add(node)
        return False

    async def unsubscribe(self, plugin: XEP_0254, service: str) -> None:
        """Ask again for what those who have gone were not told.

        Raises:
            RequestFailed: nobody can tell yet.
        """
        for node in sorted(self.left):
            # Not if it has a new worker meanwhile, whose subscription it is now.
            if node not in self.left:
                continue
            try:
                await plugin.unsubscribe(service, node)
            except RequestRefused as error:
                if error.may_pass:
                    raise
            self.left.discard(node)


_companies: WeakKeyDictionary[XEP_0254, dict[str, ClientWorkers]] = WeakKeyDictionary()
