"""Who may not use a node at all gets the answer of a node that is not there."""

import pytest

from qos.core.queue.handle import handle
from qos.core.queue.item import Affiliation
from qos.core.queue.node_options import TOPIC
from qos.core.queue.requests import (
    Affiliations,
    Configure,
    Create,
    Credit,
    Delete,
    Extend,
    GetConfigure,
    GetOptions,
    Items,
    Publish,
    Purge,
    Refusal,
    Request,
    Requeue,
    Retract,
    SetAffiliations,
    SetOptions,
    Settlement,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from queue_world import BEE, NODE, OWNER, PUBLISHER, STRANGER, World, entry

ONE = {"pubsub#queue_requests": "1"}

#: Each kind of request that names a node, right and wrong.
REQUESTS: tuple[Request, ...] = (
    Publish(NODE, (entry("new"),)),
    Publish(NODE, (entry("a"),)),
    Subscribe(NODE, STRANGER, ONE),
    Subscribe(NODE, STRANGER),
    Subscribe(NODE, BEE, ONE),
    Subscribe(NODE, STRANGER, {"pubsub#queue_requests": "x"}),
    Unsubscribe(NODE, STRANGER),
    Unsubscribe(NODE, BEE),
    GetOptions(NODE, STRANGER),
    SetOptions(NODE, STRANGER, ONE),
    Retract(NODE, (Settlement(item_id="a"),)),
    Retract(NODE, (Settlement(item_id="a", token="guess"),)),  # noqa: S106
    Retract(NODE, (Settlement(item_id="none"),)),
    Unlock(NODE, (Settlement(item_id="a"),)),
    Extend(NODE, 10.0, (("a", "guess"),)),
    Credit(NODE, 1),
    Items(node=NODE),
    Items(node=NODE, state="dead"),
    Affiliations(NODE),
    Affiliations(NODE, owner=True),
    Subscriptions(NODE),
    Subscriptions(NODE, owner=True),
    GetConfigure(NODE),
    Configure(NODE, {"pubsub#access_model": "x"}),
    Delete(NODE),
    Purge(NODE),
    SetAffiliations(NODE, {"cat@z": Affiliation.OWNER}),
    Requeue(NODE),
    Requeue(NODE, ("a",)),
)

CLOSED = {"pubsub#access_model": "whitelist"}

#: What an outcast may see: that it is one.
OF_OUTCASTS = (Affiliations(NODE), Subscriptions(NODE))


def answer(it: World, request: Request, jid: str) -> tuple[str, ...]:
    with pytest.raises(Refusal) as caught:
        handle(it.core, request, jid, it.now)
    it_is = caught.value
    return str(it_is), it_is.condition, it_is.type, it_is.pubsub, str(it_is.form)


@pytest.mark.parametrize("request_", REQUESTS, ids=range(len(REQUESTS)))
@pytest.mark.parametrize("what", [Affiliation.NONE, Affiliation.OUTCAST])
def test_a_hidden_node_answers_as_one_that_is_not_there(
    request_: Request, what: Affiliation
) -> None:
    """Otherwise names are found by trying them: customers, or what a firm is at."""
    it = World(CLOSED)
    it.ask(
        SetAffiliations(NODE, {"bee@x": Affiliation.MEMBER, "cat@z": what}),
        OWNER,
    )
    it.subscribe(BEE)
    it.publish("a", by=OWNER)
    nothing = World()
    expected = answer(nothing, request_, STRANGER)
    assert expected[1] == "item-not-found"
    if what is Affiliation.OUTCAST and request_ in OF_OUTCASTS:
        it.ask(request_, STRANGER)
    else:
        assert answer(it, request_, STRANGER) == expected


def test_who_may_only_publish_is_told_what_it_may_not() -> None:
    """It knows the node, so a wrong answer would only mislead."""
    it = World(CLOSED)
    it.ask(SetAffiliations(NODE, {"cat@z": Affiliation.PUBLISH_ONLY}), OWNER)
    assert it.refused(Items(node=NODE), STRANGER) == ("forbidden", "auth", "")


def test_only_who_may_create_learns_that_a_name_is_taken() -> None:
    """A name can be given once only, so a creator has to be told; nobody else is."""
    it = World(CLOSED, creators={"boss@x"})
    assert it.refused(Create(NODE), OWNER) == ("conflict", "cancel", "")
    for name in (NODE, "none"):
        assert it.refused(Create(name), STRANGER) == ("forbidden", "auth", "")
        copied = Create(name, {TOPIC: "none"})
        assert it.refused(copied, STRANGER) == it.refused(
            Create("other", {TOPIC: NODE}), STRANGER
        )
    assert it.refused(Create(NODE), PUBLISHER) == ("forbidden", "auth", "")
