"""All routes: those of queues, topics and devices, and those of HornetQ's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from qos.core.rest.messages import TIME_MS_MAX
from qos.core.rest.statuses import Act
from qos.rest import paths, queue_routes, sending, topic_routes
from qos.rest.calls import Answer, Call
from qos.rest.hornetq.paths import PATHS as HORNETQ_PATHS
from qos.rest.hornetq.routes import ROUTES as HORNETQ_ROUTES
from qos.rest.openapi import document
from qos.rest.queue_routes import FACTORY, KEY, MESSAGE_BODY, TOO_OLD, USED
from qos.rest.route import Need, Route
from qos.rest.schemas import (
    BINARY,
    WAITS,
    Body,
    Shown,
    integer,
    json_of,
    query,
    refused,
)

__all__ = ["PATHS", "ROUTES", "openapi"]


async def _openapi(call: Call) -> Answer:
    """Show the description of all of them."""
    body = openapi(call.services.prefix)
    return Answer(200, {"Content-Type": "application/json"}, body=body)


_SENT = [
    query("ttl", integer(1, TIME_MS_MAX), "milliseconds until it is not delivered"),
    query("expiration", {"type": "integer"}, "the same, in ms since 1970"),
]

_OUTCOME = json_of("Outcome")

_DEVICES = (
    Route(
        name="device",
        summary="get a one-off link, or send by a key",
        run=sending.device,
        first=sending.check_device,
        act=Act.POST,
        need=Need.SEND,
        parameters=[*_SENT, KEY],
        body=Body(BINARY, required=False, about="the message, with Idempotency-Key"),
        answers={
            "GET": {200: Shown("Its links.", headers=("Link",)), **refused(403)},
            "POST": {
                200: FACTORY,
                202: Shown(
                    "It is sent.", _OUTCOME, ("Content-Location", "Cache-Control")
                ),
                **refused(422),
            },
        },
    ),
    Route(
        name="send",
        summary="send a message once",
        run=sending.send,
        first=sending.check_link,
        act=Act.POST,
        need=Need.OWN,
        parameters=_SENT,
        body=MESSAGE_BODY,
        answers={
            "POST": {
                202: Shown(
                    "It is sent; `create-next` is in Link.",
                    _OUTCOME,
                    ("Content-Location", "Cache-Control", "Link"),
                ),
                405: USED,
                410: TOO_OLD,
                **refused(404),
            }
        },
    ),
    Route(
        name="sent",
        summary="the outcome of a message",
        run=sending.sent,
        act=Act.READ,
        need=Need.LOGIN,
        parameters=WAITS,
        answers={
            "GET": {
                200: Shown(
                    "The outcome.",
                    _OUTCOME,
                    ("Link", "Cache-Control"),
                    ("Preference-Applied",),
                ),
                202: Shown(
                    "It is pending; ask again at Location.",
                    _OUTCOME,
                    ("Link", "Cache-Control", "Location", "Retry-After"),
                    ("Preference-Applied",),
                ),
                **refused(404),
            }
        },
    ),
)

#: By the names of their routes.
PATHS: Final[Mapping[str, paths.Path]] = {**paths.PATHS, **HORNETQ_PATHS}

ROUTES: Final[Mapping[str, Route]] = {
    each.name: each
    for each in (
        *queue_routes.ROUTES,
        Route(
            name="openapi",
            summary="this description",
            run=_openapi,
            act=Act.READ,
            need=Need.LOGIN,
            answers={
                "GET": {
                    200: Shown("OpenAPI 3.1.", {"application/json": {"schema": {}}})
                }
            },
        ),
        *topic_routes.ROUTES,
        *_DEVICES,
        *HORNETQ_ROUTES,
    )
}


@cache
def openapi(prefix: str = "") -> bytes:
    """The description of all routes as OpenAPI 3.1, as JSON.

    Args:
        prefix: the path that all URLs begin with.
    """
    return document(ROUTES.values(), PATHS, prefix)
