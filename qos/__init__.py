"""Quality of service for XMPP messages: at most once, acknowledged, assured.

The plugin for slixmpp is `xep_qos`; this package is what stands below it.
"""

from qos._version import __version__
from qos.core.model import Level
from qos.engine import Delivery, Handover, Outcome
from qos.errors import (
    AmbiguousMessage,
    CannotWithdraw,
    InDoubt,
    LocalProtocolError,
    MessageTooLarge,
    NotDelivered,
    OutboxFull,
    QosError,
    StillOutstanding,
    StoreError,
    UnknownMessage,
)

__all__ = [
    "AmbiguousMessage",
    "CannotWithdraw",
    "Delivery",
    "Handover",
    "InDoubt",
    "Level",
    "LocalProtocolError",
    "MessageTooLarge",
    "NotDelivered",
    "OutboxFull",
    "Outcome",
    "QosError",
    "StillOutstanding",
    "StoreError",
    "UnknownMessage",
    "__version__",
]
