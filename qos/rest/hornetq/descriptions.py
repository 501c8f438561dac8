"""Requests and answers at the URLs of the dialect, for `qos.rest.openapi`."""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.rest.waits import WAIT_S_MAX
from qos.rest.schemas import (
    BINARY,
    BOOLEAN,
    MESSAGE,
    STRING,
    TEXT,
    XML,
    Answers,
    Body,
    Parameters,
    Shown,
    form,
    header,
    integer,
    query,
    refused,
)

__all__ = ["ANSWERS", "BODIES", "PARAMETERS"]

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

#: The parameters of each route; of one that can be posted to, those of the post.
PARAMETERS: Mapping[str, Parameters] = {
    "hornetq-create": _MESSAGE,
    "hornetq-create-id": _MESSAGE,
    "hornetq-next": [
        header("Accept-Wait", integer(0, WAIT_S_MAX), "seconds to wait for a message")
    ],
}

_ENABLED = Body(form("enabled", enabled=BOOLEAN))
_POSTED = Body(BINARY, about="the message, of any media type")

#: The bodies of posts, by route.
BODIES: Mapping[str, Body] = {
    "hornetq-queues": Body(
        {"application/hornetq.jms.queue+xml": {"schema": STRING}},
        about="<queue name='NAME'/>",
    ),
    "hornetq-topics": Body(
        {"application/hornetq.jms.topic+xml": {"schema": STRING}},
        about="<topic name='NAME'/>",
    ),
    "hornetq-pull-subscriptions": Body(
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
    ),
    "hornetq-create": _POSTED,
    "hornetq-create-id": _POSTED,
    "hornetq-pull-consumers": Body(
        form(autoAck=BOOLEAN, selector=STRING), required=False
    ),
    "hornetq-push-consumer": _ENABLED,
    "hornetq-push-subscription": _ENABLED,
    "hornetq-push-consumers": Body(XML, about="a push-registration"),
    "hornetq-push-subscriptions": Body(XML, about="a push-topic-registration"),
    "hornetq-acknowledgement": Body(form("acknowledge", acknowledge=BOOLEAN)),
}

# -- answers ---------------------------------------------------------------

_MADE = Shown("It is made.", headers=("Location",))
_MADE_ONCE: Answers = {
    201: _MADE,
    412: Shown("There is a node of this name.", TEXT),
    **refused(415, 507),
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
    **refused(404, 422, 507),
}

#: By route and method. What any request may be answered with is left out, and so is HEAD.
ANSWERS: Mapping[str, Mapping[str, Answers]] = {
    "hornetq-queues": {"POST": _MADE_ONCE},
    "hornetq-queue": _node("consumer"),
    "hornetq-topics": {"POST": _MADE_ONCE},
    "hornetq-topic": _node("subscription"),
    "hornetq-pull-subscriptions": {
        "POST": {
            201: Shown("It is made.", {}, ("Location",), _DUE),
            204: Shown("It is there.", {}, ("Location",), _DUE),
            409: Shown("A queue of somebody else has its name.", TEXT),
            412: Shown("There is another subscription of this name.", TEXT),
            **refused(404, 415),
        }
    },
    "hornetq-create": {
        "POST": {
            201: _CREATED,
            307: Shown("Send it again, to the URL in Location.", TEXT, ("Location",)),
            **refused(404, 507),
        }
    },
    "hornetq-create-id": {"POST": _CREATED_BY_ID, "PUT": _CREATED_BY_ID},
    "hornetq-pull-consumers": {
        "POST": {
            201: Shown("It is made.", {}, ("Location",), _DUE),
            **refused(404, 415),
        }
    },
    "hornetq-push-consumers": {"POST": {201: _MADE, **refused(404, 415)}},
    "hornetq-push-consumer": _PUSHED,
    "hornetq-push-subscriptions": {"POST": {201: _MADE, **refused(404, 415)}},
    "hornetq-push-subscription": _PUSHED,
    "hornetq-consumer": {
        "GET": {
            204: Shown("The link that is due.", {}, (), _DUE),
            405: _ENDED,
            410: _TIMED_OUT,
            **refused(404),
        },
        "DELETE": {204: Shown("It is deleted."), **refused(404)},
    },
    "hornetq-next": {
        "POST": {
            200: Shown(
                "A message.",
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
            **refused(404),
        }
    },
    "hornetq-acknowledgement": {
        "POST": {
            204: Shown("Done.", {}, (), (*_CONSUMER, "msg-pull-consumers")),
            405: _ENDED,
            410: _TIMED_OUT,
            412: _NOT_DUE,
            **refused(404, 415),
        }
    },
}
