"""Service discovery (XEP-0030) of a queue service and its nodes, as text.

This module has the list of the offered features of XEP-0060. The counts of a node come
from outside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

from qos.core.queue.node_options import NODE_FIELDS, NODE_TYPE, Field
from qos.core.queue.stats import COUNT_LABELS
from qos.xml_text import attribute, text
from xep_0254.elements import attributes, decimal, whole
from xep_0254.forms import parse_form, render_form
from xep_0254.namespaces import (
    COMMANDS,
    DATA_FORM,
    DISCO_INFO,
    DISCO_ITEMS,
    EXTENSIONS,
    FEATURES,
    META_DATA,
    PUBSUB,
    QUEUEING,
    RSM,
)
from xep_0254.service_lists import ANSWER_BYTES_MAX, cut
from xep_0254.service_stanza import answer_to

__all__ = [
    "SERVICE_FEATURES",
    "STATS_FIELDS",
    "parse_node_type",
    "parse_stats",
    "render_items",
    "render_no_items",
    "render_node_info",
]

#: The offered features of XEP-0060 §10, those of XEP-0254 §3, commands (XEP-0050 §2.1),
#: and our extensions.
SERVICE_FEATURES: tuple[str, ...] = (
    DISCO_INFO,
    DISCO_ITEMS,
    RSM,
    COMMANDS,
    PUBSUB,
    *(
        f"{PUBSUB}#{name}"
        for name in (
            "access-open",
            "access-whitelist",
            "config-node",
            "create-and-configure",
            "create-nodes",
            "delete-items",
            "delete-nodes",
            "instant-nodes",
            "item-ids",
            "member-affiliation",
            "meta-data",
            "modify-affiliations",
            "multi-items",
            "outcast-affiliation",
            "persistent-items",
            "publish",
            "publish-only-affiliation",
            "publisher-affiliation",
            "purge-nodes",
            "retract-items",
            "retrieve-affiliations",
            "retrieve-default",
            "retrieve-items",
            "retrieve-subscriptions",
            "rsm",
            "subscribe",
            "subscription-options",
        )
    ),
    QUEUEING,
    EXTENSIONS,
    *FEATURES,
)

#: The counts of a node, under the names that `queue stats` shows.
STATS_FIELDS: tuple[Field, ...] = tuple(
    Field(f"queue#{name}", label, None) for name, label in COUNT_LABELS
)

_STAT = "queue#"

(_NODE_TYPE,) = (each for each in NODE_FIELDS if each.var == NODE_TYPE)


def render_node_info(
    iq: ET.Element,
    node: str,
    *,
    stats: Mapping[str, float | None],
    topic: bool = False,
    sender: str = "",
) -> str:
    """The answer to disco#info of a node (XEP-0060 §5.3, §5.4).

    Args:
        iq: the request.
        node: the name of the node.
        stats: counts by name, such as `available`; None: there is no number now.
        topic: it is a topic, and no queue of XEP-0254.
        sender: as for answer_to.
    """
    identity = "<identity category='pubsub' type='leaf'/>"
    values = {f"{_STAT}{name}": _number(value) for name, value in stats.items()}
    values[NODE_TYPE] = "topic" if topic else "queue"
    form = render_form("result", META_DATA, (_NODE_TYPE, *STATS_FIELDS), values)
    features = (PUBSUB, EXTENSIONS) if topic else (PUBSUB, QUEUEING, EXTENSIONS)
    listed = "".join(f"<feature var={attribute(feature)}/>" for feature in features)
    query = f"<query xmlns='{DISCO_INFO}'{attributes(node=node)}>"
    content = f"{query}{identity}{listed}{form}</query>"
    return answer_to(iq, "result", content, sender=sender)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def parse_stats(query: ET.Element) -> dict[str, int | float | None]:
    """The counts in the `<query/>` of a node's disco#info, by name; None: no number."""
    stats: dict[str, int | float | None] = {}
    for var, value in _meta_data(query).items():
        if var.startswith(_STAT) and var != NODE_TYPE:
            number = whole(value)
            stat = decimal(value) if number is None else number
            stats[var.removeprefix(_STAT)] = stat
    return stats


def parse_node_type(query: ET.Element) -> str:
    """`queue` or `topic` by the `<query/>` of a node's disco#info; '': neither.

    Another service has no such field. Its node is a queue if it has the feature of
    XEP-0254 §3.
    """
    features = {
        feature.get("var") for feature in query.iterfind(f"{{{DISCO_INFO}}}feature")
    }
    default = "queue" if QUEUEING in features else ""
    return _meta_data(query).get(NODE_TYPE, default)


def _meta_data(query: ET.Element) -> dict[str, str]:
    """The fields of the meta-data of a node (XEP-0060 §5.4), each with its first value."""
    fields: dict[str, str] = {}
    for x in query.iterfind(f"{{{DATA_FORM}}}x"):
        form = parse_form(x)
        if form.form_type == META_DATA:
            for var, values in form.values.items():
                fields[var] = values[0] if values else ""
    return fields


#: Nodes in one answer: they are written in one turn of the loop.
_NODES_MAX = 1000


def render_items(
    iq: ET.Element,
    nodes: Sequence[str],
    *,
    service: str,
    sender: str = "",
    answer_bytes_max: int = ANSWER_BYTES_MAX,
) -> str:
    """The answer to disco#items of the service (XEP-0060 §5.2), a page (XEP-0059).

    Args:
        iq: the request, with or without pages.
        nodes: the names of the nodes, sorted.
        service: the JID of the service.
        sender: as for answer_to.
        answer_bytes_max: the most bytes of the page.
    """
    rsm_set = iq.find(f"{{{DISCO_ITEMS}}}query/{{{RSM}}}set")
    start, limit = 0, _NODES_MAX
    if rsm_set is not None:
        start = bisect_right(nodes, rsm_set.findtext(f"{{{RSM}}}after", ""))
        rsm_max = whole(rsm_set.findtext(f"{{{RSM}}}max", ""))
        limit = limit if rsm_max is None else min(rsm_max, limit)
    page = nodes[start : start + limit]
    items = [f"<item{attributes(jid=service, node=node)}/>" for node in page]
    shown_items = cut(items, answer_bytes_max)
    pages = ""
    if rsm_set is not None or len(shown_items) < len(nodes):
        first_last = ""
        if shown_items:
            first, last = text(page[0]), text(page[len(shown_items) - 1])
            first_last = f"<first>{first}</first><last>{last}</last>"
        count = f"<count>{len(nodes)}</count>"
        pages = f"<set xmlns='{RSM}'>{first_last}{count}</set>"
    content = f"<query xmlns='{DISCO_ITEMS}'>{''.join(shown_items)}{pages}</query>"
    return answer_to(iq, "result", content, sender=sender)


def render_no_items(iq: ET.Element, node: str, *, sender: str = "") -> str:
    """The answer to disco#items of a node that names no item (XEP-0060 §5.5).

    Args:
        iq: the request.
        node: the name of the node.
        sender: as for answer_to.
    """
    query = f"<query xmlns='{DISCO_ITEMS}'{attributes(node=node)}/>"
    return answer_to(iq, "result", query, sender=sender)
