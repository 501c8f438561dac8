"""Dead-letter nodes: the node that takes the dead items of another, and who allows it.

An owner names the dead-letter node in the configuration. The name is looked up once, at
that moment. The node remembers the identity of the named node and the account that set
it. At each use that account must still own this node, and must still be allowed to
publish to the dead-letter node.
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.access import is_owner, may_publish
from qos.core.queue.item import Item, Node
from qos.core.queue.node import QueueNode
from qos.core.queue.node_options import DEAD_LETTER_NODE
from qos.core.queue.requests import Refusal
from qos.core.queue.topic_node import TopicNode
from qos.core.record import replace

__all__ = ["bind", "dead_letter_node", "shown_config"]

Nodes = Mapping[str, QueueNode]


def bind(nodes: Nodes, node: Node, account: str) -> Node:
    """The node, bound to the dead-letter node that its configuration names now.

    A binding that is in force for this name stays as it is: an owner who sends the
    whole form back unchanged changes nothing.

    Args:
        nodes: all nodes, by name.
        node: with its new configuration, and the old `dead_letter`.
        account: the bare JID that configures the node, an owner.

    Raises:
        Refusal: there is no node of that name, or the account may not publish to it.
    """
    name = node.config.get(DEAD_LETTER_NODE, "")
    if not name:
        return replace(node, dead_letter="", dead_letter_by="")
    if name == node.name:
        return replace(node, dead_letter=node.identity, dead_letter_by=account)
    if _in_force(nodes, node) is not None:
        return node
    target = nodes.get(name)
    if target is None or not may_publish(target.node, target.options, account):
        # One answer for both cases: a stranger does not learn which nodes exist.
        raise Refusal(
            f"there is no node {name!r} to which {account} may publish: create the "
            "dead-letter node first, or have its owner make you a publisher of it",
            condition="not-acceptable",
            type="modify",
        )
    if isinstance(target, TopicNode):
        raise Refusal(
            f"{name!r} is a topic, which keeps its items for a while only: name a queue",
            condition="not-acceptable",
            type="modify",
        )
    return replace(node, dead_letter=target.node.identity, dead_letter_by=account)


def dead_letter_node(nodes: Nodes, queue: QueueNode, item: Item) -> QueueNode | None:
    """The node to which an item that died here moves; None: it stays here, as dead.

    The limits of the dead-letter node count, as they would for a publish by the account
    that set it. They do not count if that account owns both nodes.
    """
    target = _in_force(nodes, queue.node)
    if target is None or target is queue:
        return None
    if is_owner(target.node, queue.node.dead_letter_by) or target.has_room(item.size):
        return target
    return None


def shown_config(nodes: Nodes, node: Node) -> Node:
    """The node as its owner sees it.

    A dead-letter node that is not in force is left out.
    """
    if _in_force(nodes, node) is not None:
        return node
    config = {var: each for var, each in node.config.items() if var != DEAD_LETTER_NODE}
    return replace(node, config=config)


def _in_force(nodes: Nodes, node: Node) -> QueueNode | None:
    target = nodes.get(node.config.get(DEAD_LETTER_NODE, ""))
    # A node that was deleted and created again is another node.
    if target is None or target.node.identity != node.dead_letter:
        return None
    account = node.dead_letter_by
    if is_owner(node, account) and may_publish(target.node, target.options, account):
        return target
    return None
