"""Hops: how often a message has been forwarded, so that none goes in a circle for ever.

Push and bridges forward messages by themselves: from a queue to the next one, perhaps of
another service. Each of them counts in the property `qos_hops` of the item, and forwards
no message that was forwarded often enough. Such a message is dead, with the reason.
Copies of a topic and dead letters have the properties of the item.
"""

from __future__ import annotations

from qos.core.queue.properties import HOPS, Properties

__all__ = ["HOPS_MAX", "hops_of", "why_stop"]

#: As long a chain as anybody builds on purpose.
HOPS_MAX = 16


def hops_of(properties: Properties) -> int:
    """How often a message with these properties has been forwarded.

    A value that is no count is 0: publishers can write any.
    """
    count = properties.get(HOPS)
    return count if type(count) is int and count > 0 else 0


def why_stop(properties: Properties) -> str:
    """The reason not to forward a message once more; '': forward it."""
    if hops_of(properties) < HOPS_MAX:
        return ""
    return f"it was forwarded {HOPS_MAX} times, as often as is possible: in a circle?"
