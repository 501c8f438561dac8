"""The JID to which an attempt is addressed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos.core.backoff import Backoff
from qos.core.message.model import (
    MARKS_NAMESPACE,
    NAMESPACES,
    Level,
    Outgoing,
    OutgoingState,
    Route,
)
from qos.core.message.route import Resource, choose, namespace_for, to_jid
from qos.core.message.sender import step
from qos.core.message.sender_table import At, Reply, SenderInput, classify

TEXT, IEEE, NEURO = NAMESPACES
OURS = frozenset({TEXT, MARKS_NAMESPACE})
PLAIN = frozenset({TEXT})
NO_QOS = frozenset({"http://jabber.org/protocol/disco#info"})

#: A message before its first step forward.
OFFERED = Outgoing(
    msg_id="m1",
    seq=1,
    to="lamp@x",
    level=Level.ASSURED,
    payload="<message/>",
    size=10,
    created_at=0.0,
    offer_id="o",
    deliver_id="d",
)
#: The same after `received` from lamp@x/1 and one deliver to it.
RELEASING = replace(
    OFFERED,
    state=OutgoingState.RELEASING,
    peer="lamp@x/1",
    hold="h1",
    namespace=TEXT,
    delivers=1,
)


def resource(name: str, priority: int = 0, features: frozenset[str] = OURS) -> Resource:
    """An available resource of the account."""
    return Resource(f"lamp@x/{name}", priority, features)


def chosen(record: Outgoing, *resources: Resource) -> str | None:
    """The resource that gets the next attempt."""
    route = choose(record, resources, NAMESPACES)
    return None if route is None else route.jid.partition("/")[2]


@pytest.mark.parametrize(
    ("features", "order", "expected"),
    [
        ({TEXT, IEEE}, NAMESPACES, TEXT),
        ({TEXT, IEEE}, (IEEE, TEXT), IEEE),
        ({NEURO}, NAMESPACES, NEURO),
        (NO_QOS, NAMESPACES, None),
        (set(), NAMESPACES, None),
    ],
)
def test_the_namespace_is_the_first_of_the_order_that_the_peer_lists(
    features: set[str], order: tuple[str, ...], expected: str | None
) -> None:
    """Users order them; the peer has the last word."""
    assert namespace_for(features, order) == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (frozenset[str](), Route("lamp@x", TEXT)),
        (NO_QOS, Route("lamp@x", TEXT)),
        (PLAIN, Route("lamp@x", TEXT)),
        (frozenset({NEURO}), Route("lamp@x", NEURO)),
        (OURS, Route("lamp@x", TEXT, marked=True)),
    ],
)
def test_a_given_jid_is_always_addressed(
    features: frozenset[str], expected: Route
) -> None:
    """Without an answer to disco#info the proto-XEP's namespace is used, whatever the
    order.
    """
    assert to_jid(OFFERED, features, (IEEE, TEXT, NEURO)) == expected


def test_a_namespace_that_is_fixed_is_kept_whatever_the_peer_lists_by_now() -> None:
    """A retry must repeat the same bytes."""
    fixed = replace(OFFERED, namespace=NEURO)
    assert to_jid(fixed, PLAIN, NAMESPACES).namespace == NEURO
    route = choose(fixed, [resource("1", features=PLAIN)], NAMESPACES)
    assert route == Route("lamp@x/1", NEURO)


def test_only_a_resource_that_advertises_qos_is_offered_a_message() -> None:
    """Other clients of the account, such as a telephone, would refuse it for good."""
    assert chosen(OFFERED, resource("phone", 9, NO_QOS), resource("1")) == "1"
    assert chosen(OFFERED, resource("phone", 9, NO_QOS)) is None
    assert chosen(OFFERED) is None


def test_the_highest_priority_is_offered_a_message_first() -> None:
    """The owner of the account has set the priorities."""
    assert chosen(OFFERED, resource("1", -1), resource("2", 5), resource("3")) == "2"


def test_equal_priorities_are_decided_the_same_way_each_time() -> None:
    """Else two resources would hold the same message."""
    two = resource("1"), resource("2")
    assert chosen(OFFERED, *two) == chosen(OFFERED, *reversed(two))


def test_the_resource_that_holds_the_message_comes_before_all_others() -> None:
    """It is the most likely to hold it still, even with its disco unanswered."""
    assert chosen(RELEASING, resource("2", 9), resource("1")) == "1"
    silent = resource("1", features=frozenset())
    assert chosen(RELEASING, resource("2", 9), silent) == "1"
    route = choose(RELEASING, [silent], NAMESPACES)
    assert route == Route("lamp@x/1", TEXT, marked=False)


@pytest.mark.parametrize(
    ("hold", "features", "expected"),
    [("h1", OURS, "2"), ("h1", PLAIN, None), (None, OURS, None), (None, PLAIN, None)],
)
def test_another_resource_is_asked_to_deliver_only_by_a_hold_that_it_knows(
    hold: str | None, features: frozenset[str], expected: str | None
) -> None:
    """Any other resource answers an unknown `deliver` with a result, which would be
    false.
    """
    record = replace(RELEASING, hold=hold)
    assert chosen(record, resource("2", features=features)) == expected


def test_a_resource_that_speaks_another_namespace_is_found() -> None:
    """The order is the user's; each resource may support other namespaces."""
    route = choose(OFFERED, [resource("1", features=frozenset({IEEE}))], NAMESPACES)
    assert route == Route("lamp@x/1", IEEE)


def test_every_resource_that_may_hold_the_message_is_asked_in_turn() -> None:
    """docs/design/protocol.md §4.8: "not mine" means to ask another one.

    The device is back as lamp@x/old with a low priority, another of the account
    has a high one: asking only the latter would leave the message in doubt.
    """
    resources = [resource("new", 9), resource("old")]
    at = At(now=0.0, jitter=0.5, backoff=Backoff(), new_id=lambda: "unused")
    asked = set()
    record = RELEASING
    for _ in range(4):
        route = choose(record, resources, NAMESPACES)
        assert route is not None
        asked.add(route.jid)
        record, _ = step(record, SenderInput.ATTEMPT, at._replace(route=route))
        reply = Reply("d", route.jid, error="item-not-found", hold="h1")
        assert classify(record, reply, own="door@x/a") is SenderInput.NOT_MINE
        record, _ = step(record, SenderInput.NOT_MINE, at._replace(reply=reply))
    assert asked == {"lamp@x/new", "lamp@x/old"}


def test_evidence_comes_before_priority_and_name() -> None:
    """A session whose end the server has not noticed has the higher priority for ever."""
    ghost = replace(resource("ghost", priority=9), silent=True, answered=4)
    phone = resource("phone", priority=5)
    laptop = replace(resource("laptop"), answered=2)
    assert chosen(OFFERED, ghost, phone, laptop) == "laptop"
    assert chosen(OFFERED, ghost, phone) == "phone"
    assert chosen(OFFERED, ghost) == "ghost", "it may come back"
    assert chosen(OFFERED, replace(ghost, silent=False), laptop) == "ghost"


def test_a_holder_that_is_silent_is_asked_after_those_that_may_hold_the_message() -> (
    None
):
    """The device has come back under another name, with what it holds."""
    holder = replace(resource("1"), silent=True)
    back = resource("2")
    assert chosen(RELEASING, holder, back) == "2"
    assert chosen(RELEASING, resource("1"), back) == "1"
    asked = replace(RELEASING, not_mine=frozenset({"lamp@x/2"}))
    assert chosen(asked, holder, back) == "1"
    assert chosen(replace(RELEASING, hold=None), holder, back) == "1"
