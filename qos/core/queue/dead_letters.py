"""Dead letters: the node that takes the dead items of another, and who allows it.

An owner names the dead-letter node in the configuration. The name is looked up once, at
that moment. The node remembers the identity of the named node and the account that set
it. At each use that account must still own this node, and must still be allowed to
publish to the dead-letter node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from qos.core.queue import item_lifecycle
from qos.core.queue.access import is_owner, may_publish
from qos.core.queue.effects import QueueEffect, SaveItem
from qos.core.queue.item import Item, Node
from qos.core.queue.node import SEQ_CHARS, QueueNode
from qos.core.queue.node_options import DEAD_LETTER_NODE
from qos.core.queue.requests import Refusal
from qos.core.queue.topic_node import TopicNode
from qos.core.record import replace
from qos.core.strings import ID_CHARS_MAX
from qos.core.url_segments import why_no_segment

__all__ = ["bind", "place_dead", "released", "shown_config"]

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


def released(node: Node) -> Node:
    """The node, without a binding whose account does not own it any more.

    The binding ends for good. If that account is made an owner again, others have done
    that, and they must not use its right to publish to the dead-letter node.
    """
    if is_owner(node, node.dead_letter_by):
        return node
    return replace(node, dead_letter="", dead_letter_by="")


def _dead_letter_node(nodes: Nodes, queue: QueueNode, item: Item) -> QueueNode | None:
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


def place_dead(
    nodes: Nodes, queue: QueueNode, now: float
) -> tuple[list[QueueEffect], set[str]]:
    """Move a node's newly dead items to its dead-letter node, or keep them.

    An item moves as a dead letter only once. If it dies again, it stays where it is:
    otherwise two nodes that name each other would pass it back and forth for ever.

    Returns:
        The effects, and the names of the nodes that have taken some.
    """
    effects: list[QueueEffect] = []
    to: set[str] = set()
    for before, item in queue.deliveries.died:
        target = None
        if not item.origin:
            target = _dead_letter_node(nodes, queue, item)
        if target is None:
            queue.dead += 1
            effects.append(SaveItem(item, before=before))
            continue
        letter = item_lifecycle.requeued(
            item,
            node=target.node,
            item_id=target.free_id(_letter_id(item), item.seq),
            origin=queue.node,
        )
        to.add(target.node.name)
        effects += target.take_in(letter, before, now)
    queue.deliveries.died.clear()
    return effects, to


def shown_config(nodes: Nodes, node: Node) -> Node:
    """The node as its owner sees it.

    A dead-letter node that is not in force is left out.
    """
    if _in_force(nodes, node) is not None:
        return node
    config = {
        var: value for var, value in node.config.items() if var != DEAD_LETTER_NODE
    }
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


def _letter_id(item: Item) -> str:
    """The id of a dead letter: it shows the origin, and differs for any two origins.

    A slash in the node's name is quoted. An id that would be too long is replaced by
    its SHA-256.
    """
    item_id = f"{quote(item.node, safe='')}/{item.item_id}"
    if len(item_id) <= ID_CHARS_MAX - SEQ_CHARS and not why_no_segment(item_id):
        return item_id
    return hashlib.sha256(item_id.encode()).hexdigest()
