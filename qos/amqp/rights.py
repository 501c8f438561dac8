"""Whether a client may publish to a node, before anything of its message is read."""

from __future__ import annotations

from qos.core.queue.requests import Refusal, no_node
from qos.engine.queue_engine import QueueEngine

__all__ = ["check_publish"]


def check_publish(engine: QueueEngine, node: str, jid: str) -> None:
    """Refuse a client that may not publish to a node at this moment.

    Args:
        engine: of the queues.
        node: its name.
        jid: the full JID that publishes for the client.

    Raises:
        Refusal: there is no such node, or it is hidden from the client, or the client
            has no right to publish there.
    """
    rights = engine.rights(node, jid)
    if rights is None:
        raise no_node(node)
    if not rights.publish:
        text = f"you may not publish to {node!r}"
        raise Refusal(text, condition="forbidden", type="auth")
