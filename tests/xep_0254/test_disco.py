"""The disco answers of a service and its nodes (XEP-0030, XEP-0254 §3)."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xep_0254 import disco
from xep_0254.forms import parse_form

INFO = "{http://jabber.org/protocol/disco#info}"
ITEMS = "{http://jabber.org/protocol/disco#items}"
RSM = "{http://jabber.org/protocol/rsm}"
PUBSUB = "http://jabber.org/protocol/pubsub"
QUEUEING = "urn:xmpp:pubsub:queueing:0"
SERVICE = "queue.example.org"


def request(content: str = "") -> ET.Element:
    return ET.XML(
        "<iq xmlns='jabber:client' type='get' id='i&amp;1' from='a@b/&apos;c' to='s'>"
        f"<query xmlns='{ITEMS[1:-1]}'>{content}</query></iq>"
    )


def answer(text: str) -> ET.Element:
    iq = ET.XML(text)
    assert (iq.get("type"), iq.get("id"), iq.get("to")) == ("result", "i&1", "a@b/'c")
    return iq[0]


def features(query: ET.Element) -> list[str]:
    return [each.get("var", "") for each in query.iter(f"{INFO}feature")]


def test_a_service_says_that_it_has_queues() -> None:
    """XEP-0254 §3: MUST. The supported parts of XEP-0060 and our extensions too."""
    found = disco.SERVICE_FEATURES
    assert {QUEUEING, PUBSUB, f"{PUBSUB}#publish", "xmpp-qos:queue:0"} <= set(found)
    assert {f"xmpp-qos:queue:0#{name}" for name in ("extend", "rejected")} <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    "name",
    [
        "access-authorize",
        "access-presence",
        "access-roster",
        "auto-create",
        "collections",
        "filtered-notifications",
        "manage-subscriptions",
        "publish-options",
        "retrieve-default-sub",
    ],
)
def test_what_is_not_offered_is_not_announced(name: str) -> None:
    """A client would rely on it, and fail."""
    assert f"{PUBSUB}#{name}" not in disco.SERVICE_FEATURES


STATS = {
    "available": 3,
    "acquired": 2,
    "delayed": 1,
    "dead": 0,
    "accepted": 10**12,
    "subscribers": 4,
    "oldest_seconds": 1.25,
}


def test_a_node_says_that_it_is_a_queue_and_how_long() -> None:
    """XEP-0254 §7.3, XEP-0060 §5.4; `queue stats` reads it."""
    text = disco.render_node_info(request(), "n<'&", stats=STATS)
    query = answer(text)
    assert query.get("node") == "n<'&"
    assert QUEUEING in features(query)
    identity = query.find(f"{INFO}identity")
    assert identity is not None
    assert (identity.get("category"), identity.get("type")) == ("pubsub", "leaf")
    assert disco.parse_stats(query) == STATS
    assert disco.parse_node_type(query) == "queue"


def test_a_node_of_another_service_has_a_type_if_it_is_a_queue() -> None:
    """XEP-0254 §3: by its features, since the field is ours."""
    feature = f"<feature xmlns='{INFO[1:-1]}' var='{{}}'/>"
    for var, node_type in ((QUEUEING, "queue"), (PUBSUB, "")):
        query = ET.XML(f"<q>{feature.format(var)}</q>")
        assert disco.parse_node_type(query) == node_type


def test_a_topic_says_that_it_is_one() -> None:
    """It is a leaf, since items are published to it; but no worker may rely on it."""
    query = answer(disco.render_node_info(request(), "n", stats=STATS, topic=True))
    assert QUEUEING not in features(query)
    assert PUBSUB in features(query)
    (form,) = query.findall("{jabber:x:data}x")
    assert parse_form(form).values["queue#node_type"] == ("topic",)
    assert disco.parse_node_type(query) == "topic"
    assert disco.parse_stats(query) == STATS


@given(
    st.dictionaries(
        st.sampled_from(sorted(STATS)) | st.text("abc_", min_size=1),
        st.none() | st.integers(0, 10**15) | st.floats(0, 10**9),
    )
)
def test_any_numbers_of_a_node_come_back(stats: dict[str, int | float | None]) -> None:
    """None: the oldest item of an empty queue has no age."""
    query = answer(disco.render_node_info(request(), "n", stats=stats))
    assert disco.parse_stats(query) == {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in stats.items()
    }


def test_numbers_of_other_forms_are_not_those_of_a_node() -> None:
    """XEP-0128: a service may add forms of its own."""
    form = (
        "<x xmlns='jabber:x:data' type='result'><field var='FORM_TYPE'><value>{}</value>"
        "</field><field var='queue#dead'><value>{}</value></field>"
        "<field var='pubsub#num_subscribers'><value>7</value></field></x>"
    )
    meta = f"{PUBSUB}#meta-data"
    query = ET.XML(f"<q>{form.format(meta, 'many')}{form.format('urn:other', 1)}</q>")
    assert disco.parse_stats(query) == {"dead": None}
    assert disco.parse_stats(ET.XML("<q/>")) == {}


def nodes_in(query: ET.Element) -> list[str]:
    found = query.findall(f"{ITEMS}item")
    assert all(each.get("jid") == SERVICE for each in found)
    return [each.get("node", "") for each in found]


def test_all_nodes_are_listed() -> None:
    """XEP-0060 §5.2; without pages for a client that asks for none."""
    query = answer(disco.render_items(request(), ["a", "b&"], service=SERVICE))
    assert nodes_in(query) == ["a", "b&"]
    assert query.find(f"{RSM}set") is None


def test_the_nodes_of_an_empty_service_are_none() -> None:
    query = answer(disco.render_items(request(), [], service=SERVICE))
    assert len(query) == 0


def pages(nodes: list[str], limit: int, bytes_max: int) -> Iterator[list[str]]:
    after = ""
    for _ in range(len(nodes) + 1):
        last = f"<after>{after}</after>" if after else ""
        asked = request(f"<set xmlns='{RSM[1:-1]}'><max>{limit}</max>{last}</set>")
        text = disco.render_items(
            asked, nodes, service=SERVICE, answer_bytes_max=bytes_max
        )
        query = answer(text)
        assert query.findtext(f"{RSM}set/{RSM}count") == str(len(nodes))
        found = nodes_in(query)
        if not found:
            return
        assert len(found) <= limit
        assert query.findtext(f"{RSM}set/{RSM}first") == found[0]
        yield found
        after = query.findtext(f"{RSM}set/{RSM}last", "")


@given(
    st.sets(st.text("abc", min_size=1)).map(sorted),
    st.integers(1, 5),
    st.integers(1, 500),
)
def test_page_by_page_each_node_is_listed_once(
    nodes: list[str], limit: int, bytes_max: int
) -> None:
    """XEP-0059; there may be more nodes than go into a stanza."""
    assert [node for page in pages(nodes, limit, bytes_max) for node in page] == nodes


def test_a_list_over_the_limit_is_cut_and_says_so() -> None:
    """Otherwise the answer would end the stream of the service."""
    nodes = [f"{number:04}" for number in range(1000)]
    query = answer(
        disco.render_items(request(), nodes, service=SERVICE, answer_bytes_max=1000)
    )
    found = nodes_in(query)
    assert found == nodes[: len(found)]
    assert 0 < len(found) < 1000
    assert query.findtext(f"{RSM}set/{RSM}last") == found[-1]
    assert query.findtext(f"{RSM}set/{RSM}count") == "1000"


def test_no_answer_names_all_nodes_of_a_large_service() -> None:
    """10,000 of them took 30 ms of everybody's time, also for a page of a few."""
    nodes = [f"{number:04}" for number in range(2500)]
    query = answer(disco.render_items(request(), nodes, service=SERVICE))
    assert nodes_in(query) == nodes[: disco._NODES_MAX]
    assert query.findtext(f"{RSM}set/{RSM}last") == nodes[disco._NODES_MAX - 1]
    found = [node for page in pages(nodes, 5000, 10**6) for node in page]
    assert found == nodes
