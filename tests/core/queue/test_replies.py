"""The queue for replies that an item names; a consumer is led there, or not."""

import pytest

from qos.core.queue.item import Affiliation
from qos.core.queue.properties import Properties
from qos.core.queue.replies import for_consumer
from qos.core.queue.requests import Items, SetAffiliations
from qos.core.queue.results import ItemsResult
from queue_world import BEE, OWNER, PLAIN, PUBLISHER, World, entry


def shown(named: object, what: Affiliation = Affiliation.NONE) -> Properties:
    """The properties of an item that names this queue for replies, as it is browsed.

    Args:
        named: the value of the property.
        what: the affiliation of its publisher with the queue.
    """
    it = World(PLAIN)
    it.create("replies", {"pubsub#access_model": "open"})
    it.create("hidden")
    it.ask(SetAffiliations("replies", {"shop@x": what}), OWNER)
    properties = {"JMSReplyTo": named, "n": 1}
    it.publish(entry("a", properties=properties))  # type: ignore[arg-type]  # or wrong
    result = it.ask(Items(node="orders"), BEE)
    assert isinstance(result, ItemsResult)
    (item,) = result.items
    assert item == for_consumer(it.core.nodes, it.item("a"))
    assert it.item("a").properties == properties
    return item.properties


@pytest.mark.parametrize(
    ("what", "may"),
    [
        (Affiliation.OWNER, True),
        (Affiliation.PUBLISHER, True),
        (Affiliation.PUBLISH_ONLY, True),
        (Affiliation.MEMBER, False),
        (Affiliation.NONE, False),
        (Affiliation.OUTCAST, False),
    ],
)
def test_a_consumer_is_led_to_where_the_publisher_may_publish(
    what: Affiliation, may: bool
) -> None:
    """It replies with its own rights, and they are not those of the publisher."""
    assert PUBLISHER.startswith("shop@x/")
    assert ("JMSReplyTo" in shown("replies", what)) is may


@pytest.mark.parametrize(
    ("named", "stays"), [("hidden", False), ("none", True), (7, True)]
)
def test_a_name_that_no_node_has_stays(named: object, stays: bool) -> None:
    """It may have a meaning at another service; that of a hidden node is not shown."""
    expected = {"JMSReplyTo": named, "n": 1} if stays else {"n": 1}
    assert shown(named) == expected
