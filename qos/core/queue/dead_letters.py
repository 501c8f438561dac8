"""Dead-letter nodes: which node takes the dead items of another, by whose authority.

An owner names the node; the name is looked up once, then. What is kept is the identity
of the node that had the name, and the account that set it. At each use that account must
still own the one node, and still be allowed to publish to the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.access import is_owner, may_publish
from qos.core.queue.item import Item, Node
from qos.core.queue.node import QueueNode
from qos.core.queue.node_options import DEAD_LETTER_NODE
from qos.core.queue.requests import Refusal
from qos.core.replace import replace

__all__ = ["bind", "dead_letter_node", "shown_config"]

Nodes = Mapping[str, QueueNode]


def bind(nodes: Nodes, node: Node, account: str) -> Node:
    """The node, with the dead-letter node that its configuration names now.

    What is in force for this name stays as it is: an owner who sends the whole form
    back changes nothing.

    Args:
        nodes: all nodes, by name.
        node: with its new configuration, and the old `dead_letter`.
        account: the bare JID that configures it, an owner.

    Raises:
        Refusal: there is no such node, or the account may not publish to it.
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
        # One answer to both: a stranger does not learn which nodes there are.
        raise Refusal(
            f"there is no node {name!r} to which {account} may publish: create the "
            "dead-letter node first, or have its owner make you a publisher of it",
            condition="not-acceptable",
            type="modify",
        )
    return replace(node, dead_letter=target.node.identity, dead_letter_by=account)


def dead_letter_node(nodes: Nodes, queue: QueueNode, item: Item) -> QueueNode | None:
    """Where an item goes that has died in this node; None: it stays there, as dead.

    Who set it moves no more to a node of others than he could publish there: only for
    an owner of both nodes, the limits of the second do not count.
    """
    target = _in_force(nodes, queue.node)
    if target is None or target is queue:
        return None
    if is_owner(target.node, queue.node.dead_letter_by) or target.has_room(item.size):
        return target
    return None


def shown_config(nodes: Nodes, node: Node) -> Node:
    """The node as its owner is to see it: a dead-letter node not in force is none."""
    if _in_force(nodes, node) is not None:
        return node
    config = {var: each for var, each in node.config.items() if var != DEAD_LETTER_NODE}
    return replace(node, config=config)


def _in_force(nodes: Nodes, node: Node) -> QueueNode | None:
    target = nodes.get(node.config.get(DEAD_LETTER_NODE, ""))
    # A node that was deleted and created anew is another one.
    if target is None or target.node.identity != node.dead_letter:
        return None
    account = node.dead_letter_by
    if is_owner(node, account) and may_publish(target.node, target.options, account):
        return target
    return None
