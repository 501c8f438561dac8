"""Items of the queue `orders` in several states: locked, dead, requeued.

For tests that write their stanzas by hand; see queue_service.py.
"""

from xml.etree import ElementTree as ET

from queue_service import (
    EAGER,
    EXTENSIONS,
    PUBSUB,
    Delivered,
    Peer,
    item,
    pubsub,
    settled,
)

NODE = "orders"


async def held(
    owner: Peer, worker: Peer, config: dict[str, str] | None = None
) -> Delivered:
    """A worker holds the only item of a new node."""
    await owner.create(NODE, EAGER | (config or {}))
    await worker.subscribe(NODE)
    await owner.publish(NODE, item("1"))
    return await worker.item()


async def dead_of(owner: Peer, node: str = NODE) -> dict[str, ET.Element]:
    """The dead items of a node, in whatever node they are."""
    asked = pubsub(f"<items node='{node}' q:state='dead'/>")
    answer = await owner.done(asked, "get")
    path = f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items/{{{PUBSUB}}}item"
    return {each.get("id", ""): each for each in answer.iterfind(path)}


def q_of(element: ET.Element, name: str) -> str:
    """An attribute of our extensions."""
    return element.get(f"{{{EXTENSIONS}}}{name}", "")


def failures(element: ET.Element) -> list[str]:
    """The reasons in the history of a dead item."""
    (history,) = element.iterfind(f"{{{EXTENSIONS}}}history")
    return [each.get("reason", "") for each in history]


def requeue(*item_ids: str, node: str = NODE) -> str:
    return pubsub(f"<q:requeue node='{node}'>{settled(*item_ids)}</q:requeue>")
