"""The requests of pull consumers: docs/rest-checklist.md H7 to H12."""

from __future__ import annotations

from qos.core.queue.requests import Refusal
from qos.core.rest.forms import read_acknowledgement
from qos.core.rest.hornetq.forms import pull_form
from qos.core.rest.hornetq.names import headers_of
from qos.core.rest.hornetq.position import START
from qos.core.rest.link_header import Link
from qos.core.rest.messages import render_headers
from qos.core.rest.waits import wait_of
from qos.ids import new_id
from qos.rest.calls import Answer, Call, as_text, may_not_subscribe
from qos.rest.consuming import form_of, message_answer
from qos.rest.hornetq.creating import rights_at
from qos.rest.hornetq.paths import url
from qos.rest.pull.consumers import (
    DURABLE,
    VOLATILE,
    Identity,
    OutOfStep,
    PullConsumer,
    acceptance,
    delivery_of,
    is_late,
    settled,
)

__all__ = [
    "acknowledge",
    "check_consumer",
    "check_may_subscribe",
    "consumer",
    "made",
    "next_message",
    "pull_consumers",
]

#: Whether the post for the next message acknowledges the one before, whether there is a
#: selector, and which subscription it is of, by what a URL says.
_MODES = {
    "auto-ack": (True, False, ""),
    "client-ack": (False, False, ""),
    "auto-ack-selected": (True, True, ""),
    "client-ack-selected": (False, True, ""),
    "auto-ack-durable": (True, False, DURABLE),
    "client-ack-durable": (False, False, DURABLE),
    "auto-ack-volatile": (True, False, VOLATILE),
    "client-ack-volatile": (False, False, VOLATILE),
}
_NAMES = {of: name for name, of in _MODES.items()}

#: The use of the token in the URL of a consumer.
_USE = "hornetq-"

#: After so many seconds a client without a wait may ask again.
_RETRY_AFTER_S = "1"


async def pull_consumers(call: Call) -> Answer:
    """Make a pull consumer."""
    form = pull_form(form_of(call))
    check_may_subscribe(call, "queue")
    identity = Identity(
        call.node, call.account, new_id(), form.auto_ack, bool(form.selector)
    )
    return made(call, call.services.pull_consumers.make(identity, form.selector), 201)


def check_may_subscribe(call: Call, kind: str) -> None:
    """Check that the user may subscribe to the node, which is of this kind.

    Raises:
        Refusal: there is none, or it may not.
    """
    if not rights_at(call, kind).subscribe:
        raise may_not_subscribe(call.node, call.account)


def made(call: Call, consumer: PullConsumer, status: int) -> Answer:
    """Show a consumer to whoever has asked for it."""
    identity, services = consumer.identity, call.services
    mode = _NAMES[identity.auto, identity.selected, identity.subscription]
    token = services.one_off.new(
        _USE + mode,
        *(identity.node, identity.account),
        item_id=identity.resource,
        now=services.engine.now(),
    )
    path = {"node": identity.node, "mode": mode, "consumer": token}
    answer = Answer(status, {"Location": url("hornetq-consumer", **path)})
    answer.links.append(_due(path, consumer))
    return answer


async def check_consumer(call: Call) -> None:
    """Check that the consumer of the URL is the user's.

    Raises:
        Refusal: it is not, or it was deleted.
    """
    _identity(call)


async def consumer(call: Call) -> Answer:
    """Show which link is due, or delete the consumer."""
    identity = _identity(call)
    if call.method == "DELETE":
        await call.services.pull_consumers.delete(identity)
        return Answer(204)
    pull_consumer = _consumer_of(call, identity)
    if pull_consumer is None:
        return _timed_out(call, identity)
    with pull_consumer.used():
        return Answer(204, links=[_due(_path(call), pull_consumer)])


async def next_message(call: Call) -> Answer:
    """Take the message after a delivery, or the same one again."""
    wait = wait_of(call.headers)
    identity, after = _identity(call), call.path["delivery"]
    pull_consumer = _consumer_of(call, identity)
    if pull_consumer is None:
        if identity.auto and after != START:
            await settled(call.services.engine, identity, acceptance(identity, after))
        return _timed_out(call, identity)
    own = Link(url("hornetq-consumer", **_path(call)), "consumer")
    try:
        delivery = await pull_consumer.take(after, wait, call.grant)
    except OutOfStep:
        text = "this link is of earlier, or its message is to be acknowledged first"
        answer = as_text(412, text)
        answer.links += [_due(_path(call), pull_consumer), own]
        return answer
    applied = {"Preference-Applied": wait.applied} if wait.applied else {}
    if delivery is None:
        answer = as_text(503, "there is no message yet; ask again")
        answer.headers |= {"Retry-After": _RETRY_AFTER_S, **applied}
        answer.links += [_next(identity, _path(call), after), own]
        return answer
    item, payload, answer_sent = delivery
    about = {
        name: value
        for name, value in render_headers(item).items()
        if not name.startswith("Msg-")
    }
    properties = headers_of(item.properties, call.services.property_headers)
    content = {name.title(): text for name, text in properties.items()}
    answer = message_answer(item, payload, {**about, **content, **applied})
    if identity.auto:
        answer.links.append(_next(identity, _path(call), delivery_of(item)))
    else:
        answer.links.append(_acknowledgement(_path(call), delivery_of(item)))
    answer.links.append(own)
    answer.needs = len(answer.links)
    answer.sent = answer_sent
    return answer


async def acknowledge(call: Call) -> Answer:
    """End a delivery."""
    identity, delivery = _identity(call), call.path["delivery"]
    token, _, item_id = delivery.partition(".")
    request = read_acknowledgement(
        # An empty token would mean any delivery.
        form_of(call),
        node=call.node,
        item_id=item_id,
        token=token or "-",
    )
    pull_consumer = _consumer_of(call, identity)
    if pull_consumer is None:
        await call.ask(request, identity.jid)
        return Answer(
            204, links=[] if identity.subscription else [_pull_consumers(call)]
        )
    try:
        await pull_consumer.acknowledge(delivery, request)
    except Refusal as refusal:
        if not is_late(refusal):
            raise
        answer = as_text(412, str(refusal))
    else:
        answer = Answer(204)
    answer.links += [
        _due(_path(call), pull_consumer),
        Link(url("hornetq-consumer", **_path(call)), "consumer"),
    ]
    return answer


# -- which consumer --------------------------------------------------------


def _identity(call: Call) -> Identity:
    """The consumer of a URL.

    Raises:
        Refusal: there is none, or it was deleted.
    """
    mode, token = call.path["mode"], call.path["consumer"]
    link = call.services.one_off.read(token, _USE + mode, call.node, call.account)
    if mode not in _MODES or link is None:
        raise _unknown("there is no such consumer, or it is not yours")
    identity = Identity(call.node, call.account, link.item_id, *_MODES[mode])
    creator = call.services.engine.creator(call.node)
    if identity.subscription and creator not in {None, call.account}:
        # Another queue has the name of the subscription by now.
        raise _unknown("the subscription has ended")
    if call.services.pull_consumers.is_deleted(identity):
        raise _unknown("the consumer has been deleted")
    return identity


def _consumer_of(call: Call, identity: Identity) -> PullConsumer | None:
    """The consumer, made again if it has timed out.

    None: it would need its selector, which nobody knows any more, or its subscription,
    which is not durable.
    """
    consumers = call.services.pull_consumers
    pull_consumer = consumers.get(identity)
    if pull_consumer is None and not (
        identity.selected or identity.subscription == VOLATILE
    ):
        pull_consumer = consumers.make(identity)
    return pull_consumer


def _unknown(why: str) -> Refusal:
    return Refusal(why, condition="item-not-found", type="cancel")


def _timed_out(call: Call, identity: Identity) -> Answer:
    if identity.subscription:
        text = "the subscription was not durable, and has ended; subscribe again"
        return as_text(405, text, Allow="OPTIONS")
    answer = as_text(410, "the consumer has timed out; make a new one")
    answer.links.append(_pull_consumers(call))
    return answer


# -- links -----------------------------------------------------------------


def _path(call: Call) -> dict[str, str]:
    return {name: call.path[name] for name in ("node", "mode", "consumer")}


def _due(path: dict[str, str], pull_consumer: PullConsumer) -> Link:
    if pull_consumer.acknowledgement_is_due():
        return _acknowledgement(path, pull_consumer.position.last)
    return _next(pull_consumer.identity, path, pull_consumer.position.last)


def _next(identity: Identity, path: dict[str, str], after: str) -> Link:
    href = url("hornetq-next", **path, delivery=after)
    return Link(href, "consume-next" if identity.auto else "acknowledge-next")


def _acknowledgement(path: dict[str, str], delivery: str) -> Link:
    href = url("hornetq-acknowledgement", **path, delivery=delivery)
    return Link(href, "acknowledgement")


def _pull_consumers(call: Call) -> Link:
    return Link(url("hornetq-pull-consumers", node=call.node), "pull-consumers")
