"""The routes of topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from qos.core.rest.statuses import Act
from qos.rest import discovery, topics
from qos.rest.queue_routes import MESSAGE_PARTS, MESSAGES, NODE, NONE_YET
from qos.rest.route import Need, Route
from qos.rest.schemas import (
    IN_PART,
    MESSAGE,
    STRING,
    TEXT,
    WAITS,
    Answers,
    Body,
    Shown,
    form,
    query,
    refused,
)

__all__ = ["ROUTES"]

_NEEDED, _MAYBE = MESSAGE_PARTS
_READ: Answers = {
    200: Shown(
        f"A message; `next` is in Link. {IN_PART}",
        MESSAGE,
        _NEEDED,
        (*_MAYBE, "Msg-Missed", "Preference-Applied"),
    ),
    202: NONE_YET,
    **refused(403, 404, 406),
}
_SUBSCRIBED = Shown("It is there; its links.", headers=("Link",))

ROUTES: Final = (
    Route(
        name="topic",
        summary="a topic, with its links",
        run=discovery.queue,
        act=Act.READ,
        need=Need.SEE,
        answers={"GET": NODE},
    ),
    *(
        replace(each, name=f"topic-{each.name}", summary=f"of a topic: {each.summary}")
        for each in MESSAGES
    ),
    Route(
        name="topic-first",
        summary="the oldest message of a topic",
        run=topics.first,
        act=Act.READ,
        need=Need.SUBSCRIBE,
        parameters=WAITS,
        answers={"GET": _READ},
    ),
    Route(
        name="topic-last",
        summary="the newest message of a topic",
        run=topics.last,
        act=Act.READ,
        need=Need.SUBSCRIBE,
        parameters=WAITS,
        answers={"GET": _READ},
    ),
    Route(
        name="topic-next",
        summary="the message after another one",
        run=topics.following,
        act=Act.READ,
        need=Need.SUBSCRIBE,
        parameters=[query("after", STRING, "given by the link next"), *WAITS],
        answers={"GET": _READ},
    ),
    Route(
        name="topic-subscriptions",
        summary="subscribe",
        run=topics.subscribe,
        act=Act.CHANGE,
        need=Need.SUBSCRIBE,
        body=Body(form("name", name=STRING, selector=STRING)),
        answers={
            "POST": {
                200: _SUBSCRIBED,
                201: Shown("It is made; its links.", headers=("Location", "Link")),
                409: Shown("Another queue has this name.", TEXT),
                **refused(404, 415),
            }
        },
    ),
    Route(
        name="topic-subscription",
        summary="a subscription, with its links; or its end",
        run=topics.subscription,
        act=Act.CHANGE,
        need=Need.LOGIN,
        answers={
            "GET": {200: _SUBSCRIBED, **refused(404)},
            "DELETE": {204: Shown("It is deleted, with its queue."), **refused(404)},
        },
    ),
)
