"""The engine performs the decisions of the core, in order.

It knows asyncio, but not XMPP.
"""

from qos.engine.clock import Clock, LoopClock
from qos.engine.consuming import Consumption, Handover
from qos.engine.delivery import Delivery, Outcome
from qos.engine.inbox import Inbox, InboxLimits
from qos.engine.outbox import Outbox, OutboxLimits
from qos.engine.outstanding import Outstanding, OutstandingMessage

__all__ = [
    "Clock",
    "Consumption",
    "Delivery",
    "Handover",
    "Inbox",
    "InboxLimits",
    "LoopClock",
    "Outbox",
    "OutboxLimits",
    "Outcome",
    "Outstanding",
    "OutstandingMessage",
]
