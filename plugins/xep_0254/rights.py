"""Looks at the rights of a requester before anything else in its request is read.

A payload is dear to read, and a stranger's is not wanted. This module knows which
requests need which right. The requests themselves decide in `qos.core.queue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from xml.etree import ElementTree as ET

from qos.core.queue.requests import may_not_publish, no_node
from qos.core.strings import bare
from qos.engine.queue_state import Rights
from xep_0254.elements import extended
from xep_0254.namespaces import PUBSUB, UNLOCKS
from xep_0254.requests import NODE_CHARS_MAX

__all__ = ["RightsAt", "check_rights"]

#: Returns the rights of a full JID at a node; None: there is none, or it is hidden.
RightsAt: TypeAlias = Callable[[str, str], Rights | None]

_PUBLISH = f"{{{PUBSUB}}}publish"

#: Requests that somebody without a right may make: for a node that is not there yet, or
#: for what the requester still has at the node.
_OPEN = frozenset(
    {
        *(
            f"{{{PUBSUB}}}{name}"
            for name in ("create", "affiliations", "subscriptions")
        ),
        f"{{{PUBSUB}}}retract",
        *UNLOCKS,
        extended("extend"),
    }
)


def check_rights(pubsub: ET.Element, rights: RightsAt, requester: str) -> None:
    """Check that the requester may ask for this at all.

    Args:
        pubsub: the element of a request; it may be malformed.
        rights: of the service.
        requester: a full JID.

    Raises:
        Refusal: it may not use the node, or not publish to it.
    """
    for asked in pubsub:
        node = asked.get("node", "")
        if not node or len(node) > NODE_CHARS_MAX or asked.tag in _OPEN:
            continue
        found = rights(node, requester)
        if found is None:
            raise no_node(node)
        if asked.tag == _PUBLISH and not found.publish:
            raise may_not_publish(node, bare(requester))
