"""XEP-0254: PubSub Queueing, as a slixmpp plugin, and a service.

For publishers, owners and workers:

    from xep_0254 import XEP_0254

    queues = XEP_0254.of(client)

`QueueService` serves queues on a stream; `qos.worker` works on their items.
"""

from slixmpp.plugins.base import register_plugin

from qos.core.queue.bounds import QueueBounds
from qos.core.queue.item import Affiliation
from qos.core.quota import Quotas
from xep_0254.events import DeliveredItem, Event
from xep_0254.items import BrowsedItem, NewItem, NodeInfo, Page, Published
from xep_0254.queueing import XEP_0254
from xep_0254.service import QueueService

register_plugin(XEP_0254)

__all__ = [
    "XEP_0254",
    "Affiliation",
    "BrowsedItem",
    "DeliveredItem",
    "Event",
    "NewItem",
    "NodeInfo",
    "Page",
    "Published",
    "QueueBounds",
    "QueueService",
    "Quotas",
]
