"""The right that a route needs; it is looked at before a body is read (`qos.rest.rights`)."""

from __future__ import annotations

from enum import Enum

__all__ = ["Need"]


class Need(Enum):
    """A right.

    Attributes:
        LOGIN: none that others do not have; the handler looks at what it shows.
        SEE: to use the node of the path.
        PUBLISH: to publish to it.
        SUBSCRIBE: to subscribe to it, and to read it.
        SETTLE: to use it, or to hold a lock of it.
        CREATE: to make nodes.
        SEND: to send to the device of the path.
        OWN: what the path names is the user's own; its handler knows how that is seen.
    """

    LOGIN = "login"
    SEE = "see"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    SETTLE = "settle"
    CREATE = "create"
    SEND = "send"
    OWN = "own"
