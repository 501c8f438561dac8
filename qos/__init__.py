"""Quality of service for XMPP messages: at most once, acknowledged, assured.

`qos.connect` makes a device that sends and receives messages and stays connected.
Programs that manage their own slixmpp connection use the plugin `xep_qos` instead.
`import qos` alone imports neither.

The public names are those in `__all__`, and the packages `qos.stores`, `qos.worker`,
`qos.testing`, `qos.audit` and `qos.spark`.
"""

from typing import TYPE_CHECKING

from qos._version import __version__
from qos.core.message.model import Incoming, Level, OutgoingState
from qos.engine import Delivery, Handover, Outcome, Outstanding, OutstandingMessage
from qos.errors import (
    AmbiguousMessage,
    CannotConnect,
    CannotWithdraw,
    DeliveryFailed,
    InDoubt,
    InvalidArgument,
    JobLost,
    JournalError,
    LocalProtocolError,
    MessageTooLarge,
    NoAnswer,
    NotDelivered,
    OutboxFull,
    QosError,
    RemoteProtocolError,
    RequestFailed,
    RequestRefused,
    StillOutstanding,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
    StoreTooNew,
    UnknownMessage,
    UnrecoverableError,
    UsageError,
)

if TYPE_CHECKING:
    from qos.client.connect import Device, connect

__all__ = [
    "AmbiguousMessage",
    "CannotConnect",
    "CannotWithdraw",
    "Delivery",
    "DeliveryFailed",
    "Device",
    "Handover",
    "InDoubt",
    "Incoming",
    "InvalidArgument",
    "JobLost",
    "JournalError",
    "Level",
    "LocalProtocolError",
    "MessageTooLarge",
    "NoAnswer",
    "NotDelivered",
    "OutboxFull",
    "Outcome",
    "OutgoingState",
    "Outstanding",
    "OutstandingMessage",
    "QosError",
    "RemoteProtocolError",
    "RequestFailed",
    "RequestRefused",
    "StillOutstanding",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StoreReadOnly",
    "StoreTooNew",
    "UnknownMessage",
    "UnrecoverableError",
    "UsageError",
    "__version__",
    "connect",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # otherwise a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Import the names that need slixmpp on first use (PEP 562)."""
        if name in {"Device", "connect"}:
            from qos.client import connect

            return getattr(connect, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
