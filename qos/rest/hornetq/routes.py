"""The routes of HornetQ's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from qos.core.rest.statuses import Act
from qos.core.rest.waits import WAIT_S_MAX
from qos.rest.hornetq import consuming, creating, pushing, subscribing
from qos.rest.hornetq.links import with_links_first, with_links_run
from qos.rest.route import Need, Route
from qos.rest.schemas import (
    BINARY,
    BOOLEAN,
    IN_PART,
    MESSAGE,
    STRING,
    TEXT,
    XML,
    Answers,
    Body,
    Shown,
    form,
    header,
    integer,
    query,
    refused,
)

__all__ = ["ROUTES"]

# -- requests --------------------------------------------------------------

_MESSAGE = [
    query("durable", BOOLEAN, "each message is durable"),
    query("ttl", {"type": "integer"}, "milliseconds until it expires; 0: never"),
    query(
        "expiration",
        {"type": "integer"},
        "when it expires, in ms since 1970; before ttl",
    ),
    query(
        "priority",
        {"type": "integer"},
        "0 to 9, larger is earlier; all else is ignored",
    ),
]

_ENABLED = Body(form("enabled", enabled=BOOLEAN))
_POSTED = Body(BINARY, about="the message, of any media type")
_SUBSCRIPTION = Body(
    form(
        **{
            "autoAck": BOOLEAN,
            "selector": STRING,
            "durable": BOOLEAN,
            "name": STRING,
            "idle-timeout": {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"},
            "delete-when-idle": BOOLEAN,
        }
    ),
    required=False,
)

# -- answers ---------------------------------------------------------------

_MADE = Shown("It is made.", headers=("Location",))
_MADE_ONCE: Answers = {
    201: _MADE,
    412: Shown("There is a node of this name.", TEXT),
    **refused(415),
}

_DUE = ("Link", "msg-consume-next", "msg-acknowledge-next", "msg-acknowledgement")
_CONSUMER = (*_DUE, "msg-consumer")
_CREATED = Shown(
    "It is posted; post the next one to create-next.",
    optional=("Link", "msg-create-next"),
)
_AGAIN = ("Link", "msg-pull-consumers")
_TIMED_OUT = Shown("The consumer has timed out; make a new one.", TEXT, (), _AGAIN)
_ENDED = Shown("The subscription has ended; subscribe again.", TEXT, ("Allow",))
_NOT_DUE = Shown("Another link is due.", TEXT, (), _CONSUMER)


def _node(kind: str) -> Mapping[str, Answers]:
    links = ("create", "create-with-id", f"pull-{kind}s", f"push-{kind}s")
    optional = ("Link", *(f"msg-{rel}" for rel in links))
    return {"GET": {200: Shown("Its links.", XML, (), optional), **refused(404)}}


_PUSHED: Mapping[str, Answers] = {
    "GET": {200: Shown("Its document.", XML, ("Cache-Control",)), **refused(404)},
    "POST": {204: Shown("Done."), **refused(404)},
    "DELETE": {204: Shown("Done."), **refused(404)},
}

_CREATED_BY_ID: Answers = {
    201: _CREATED,
    410: Shown(
        "The link is too old, and was not used.",
        TEXT,
        (),
        ("Link", "msg-create-next"),
    ),
    **refused(404, 422),
}

_REGISTERED: Mapping[str, Answers] = {"POST": {201: _MADE, **refused(404, 415)}}

# -- routes ----------------------------------------------------------------

_ROUTES = (
    Route(
        name="queues",
        summary="make a queue",
        run=creating.queues,
        act=Act.POST,
        need=Need.CREATE,
        body=Body(
            {"application/hornetq.jms.queue+xml": {"schema": STRING}},
            about="<queue name='NAME'/>",
        ),
        answers={"POST": _MADE_ONCE},
    ),
    Route(
        name="queue",
        summary="a queue, with its links",
        run=creating.queue,
        act=Act.READ,
        need=Need.SEE,
        answers=_node("consumer"),
    ),
    Route(
        name="topics",
        summary="make a topic",
        run=creating.topics,
        act=Act.POST,
        need=Need.CREATE,
        body=Body(
            {"application/hornetq.jms.topic+xml": {"schema": STRING}},
            about="<topic name='NAME'/>",
        ),
        answers={"POST": _MADE_ONCE},
    ),
    Route(
        name="topic",
        summary="a topic, with its links",
        run=creating.topic,
        act=Act.READ,
        need=Need.SEE,
        answers=_node("subscription"),
    ),
    Route(
        name="pull-subscriptions",
        summary="subscribe to a topic, and consume",
        run=subscribing.pull_subscriptions,
        act=Act.PULL,
        need=Need.SUBSCRIBE,
        body=_SUBSCRIPTION,
        answers={
            "POST": {
                201: Shown("It is made.", {}, ("Location",), _DUE),
                204: Shown("It is there.", {}, ("Location",), _DUE),
                409: Shown("A queue of somebody else has its name.", TEXT),
                412: Shown("There is another subscription of this name.", TEXT),
                **refused(404, 415),
            }
        },
    ),
    Route(
        name="push-subscriptions",
        summary="subscribe to a topic, and have it pushed",
        run=pushing.push_subscriptions,
        act=Act.PULL,
        need=Need.SUBSCRIBE,
        body=Body(XML, about="a push-topic-registration"),
        answers=_REGISTERED,
    ),
    Route(
        name="push-subscription",
        summary="a push subscription",
        run=pushing.push_subscription,
        first=pushing.check_push_subscription,
        act=Act.CHANGE,
        need=Need.OWN,
        body=_ENABLED,
        answers=_PUSHED,
    ),
    Route(
        name="create",
        summary="post a message",
        run=creating.create,
        first=creating.sent_on,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=_MESSAGE,
        body=_POSTED,
        answers={
            "POST": {
                201: _CREATED,
                307: Shown(
                    "Send it again, to the URL in Location.", TEXT, ("Location",)
                ),
                **refused(404),
            }
        },
    ),
    Route(
        name="create-id",
        summary="post a message under its id, once",
        run=creating.create_with_id,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=_MESSAGE,
        body=_POSTED,
        answers={"POST": _CREATED_BY_ID, "PUT": _CREATED_BY_ID},
    ),
    Route(
        name="pull-consumers",
        summary="make a pull consumer",
        run=consuming.pull_consumers,
        act=Act.PULL,
        need=Need.SUBSCRIBE,
        body=Body(form(autoAck=BOOLEAN, selector=STRING), required=False),
        answers={
            "POST": {
                201: Shown("It is made.", {}, ("Location",), _DUE),
                **refused(404, 415),
            }
        },
    ),
    Route(
        name="push-consumers",
        summary="ask for push",
        run=pushing.push_consumers,
        act=Act.PULL,
        need=Need.SUBSCRIBE,
        body=Body(XML, about="a push-registration"),
        answers=_REGISTERED,
    ),
    Route(
        name="push-consumer",
        summary="a push consumer",
        run=pushing.push_consumer,
        first=pushing.check_push_consumer,
        act=Act.CHANGE,
        need=Need.OWN,
        body=_ENABLED,
        answers=_PUSHED,
    ),
    Route(
        name="consumer",
        summary="a pull consumer, with the link that is due",
        run=consuming.consumer,
        first=consuming.check_consumer,
        act=Act.CHANGE,
        need=Need.OWN,
        answers={
            "GET": {
                204: Shown("The link that is due.", {}, (), _DUE),
                405: _ENDED,
                410: _TIMED_OUT,
                **refused(404),
            },
            "DELETE": {204: Shown("It is deleted."), **refused(404)},
        },
    ),
    Route(
        name="next",
        summary="take the message after a delivery, or the same again",
        run=consuming.next_message,
        first=consuming.check_consumer,
        act=Act.PULL,
        need=Need.OWN,
        parameters=[
            header(
                "Accept-Wait", integer(0, WAIT_S_MAX), "seconds to wait for a message"
            )
        ],
        answers={
            "POST": {
                200: Shown(
                    f"A message. {IN_PART}",
                    MESSAGE,
                    ("Cache-Control", "Last-Modified"),
                    (*_CONSUMER, "Expires", "Preference-Applied"),
                ),
                405: _ENDED,
                410: _TIMED_OUT,
                412: _NOT_DUE,
                503: Shown(
                    "There is no message yet, or it is not possible at this moment.",
                    TEXT,
                    ("Retry-After",),
                    (*_CONSUMER, "Preference-Applied"),
                ),
                **refused(404, 406),
            }
        },
    ),
    Route(
        name="acknowledgement",
        summary="acknowledge a delivery",
        run=consuming.acknowledge,
        first=consuming.check_consumer,
        act=Act.SETTLE,
        need=Need.OWN,
        body=Body(form("acknowledge", acknowledge=BOOLEAN)),
        answers={
            "POST": {
                204: Shown("Done.", {}, (), (*_CONSUMER, "msg-pull-consumers")),
                405: _ENDED,
                410: _TIMED_OUT,
                412: _NOT_DUE,
                **refused(404, 415),
            }
        },
    ),
)

ROUTES: Final = tuple(
    replace(
        each,
        name=f"hornetq-{each.name}",
        summary=f"HornetQ: {each.summary}",
        run=with_links_run(each.run),
        first=with_links_first(each.first),
    )
    for each in _ROUTES
)
