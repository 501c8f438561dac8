"""The URLs of HornetQ's dialect; clients know those of the queues alone."""

from __future__ import annotations

from typing import Final

from qos.core.rest.hornetq.names import plain_name
from qos.rest import bounds
from qos.rest.needs import Need
from qos.rest.routes import Route

__all__ = ["BASE", "ROUTES", "in_plain_words", "url"]

#: All of them begin with it.
BASE = "/hornetq/"

_READ = ("GET", "HEAD")
_POST = ("POST",)
_BODY = bounds.BODY_BYTES_MAX
_QUEUES = f"{BASE}queues"
_QUEUE = f"{_QUEUES}/{{node}}"
_TOPIC = f"{BASE}topics/{{node}}"
_CONSUMER = f"{_QUEUE}/pull-consumers/{{mode}}/{{consumer}}"

ROUTES: Final = (
    Route(
        "hornetq-queues",
        _QUEUES,
        _POST,
        "HornetQ: make a queue",
        need=Need.CREATE,
        body_max=_BODY,
    ),
    Route(
        "hornetq-queue",
        _QUEUE,
        _READ,
        "HornetQ: a queue, with its links",
        need=Need.SEE,
    ),
    Route(
        "hornetq-topics",
        f"{BASE}topics",
        _POST,
        "HornetQ: make a topic",
        need=Need.CREATE,
        body_max=_BODY,
    ),
    Route(
        "hornetq-topic",
        _TOPIC,
        _READ,
        "HornetQ: a topic, with its links",
        need=Need.SEE,
    ),
    Route(
        "hornetq-pull-subscriptions",
        f"{_TOPIC}/pull-subscriptions",
        _POST,
        "HornetQ: subscribe to a topic, and consume",
        need=Need.SUBSCRIBE,
        body_max=_BODY,
    ),
    Route(
        "hornetq-push-subscriptions",
        f"{_TOPIC}/push-subscriptions",
        _POST,
        "HornetQ: subscribe to a topic, and have it pushed",
        need=Need.SUBSCRIBE,
        body_max=_BODY,
    ),
    Route(
        "hornetq-push-subscription",
        f"{_TOPIC}/push-subscriptions/{{subscriber}}",
        (*_READ, "POST", "DELETE"),
        "HornetQ: a push subscription",
        need=Need.OWN,
        body_max=_BODY,
    ),
    Route(
        "hornetq-create",
        f"{_QUEUE}/create",
        _POST,
        "HornetQ: post a message",
        need=Need.PUBLISH,
        body_max=_BODY,
    ),
    Route(
        "hornetq-create-id",
        f"{_QUEUE}/create/{{id}}",
        ("POST", "PUT"),
        "HornetQ: post a message under its id, once",
        need=Need.PUBLISH,
        body_max=_BODY,
    ),
    Route(
        "hornetq-pull-consumers",
        f"{_QUEUE}/pull-consumers",
        _POST,
        "HornetQ: make a pull consumer",
        need=Need.SUBSCRIBE,
        body_max=_BODY,
    ),
    Route(
        "hornetq-push-consumers",
        f"{_QUEUE}/push-consumers",
        _POST,
        "HornetQ: ask for push",
        need=Need.SUBSCRIBE,
        body_max=_BODY,
    ),
    Route(
        "hornetq-push-consumer",
        f"{_QUEUE}/push-consumers/{{subscriber}}",
        (*_READ, "POST", "DELETE"),
        "HornetQ: a push consumer",
        need=Need.OWN,
        body_max=_BODY,
    ),
    Route(
        "hornetq-consumer",
        _CONSUMER,
        (*_READ, "DELETE"),
        "HornetQ: a pull consumer, with the link that is due",
        need=Need.OWN,
    ),
    Route(
        "hornetq-next",
        f"{_CONSUMER}/next/{{delivery}}",
        _POST,
        "HornetQ: take the message after a delivery, or the same again",
        need=Need.OWN,
    ),
    Route(
        "hornetq-acknowledgement",
        f"{_CONSUMER}/acknowledgement/{{delivery}}",
        _POST,
        "HornetQ: acknowledge a delivery",
        need=Need.OWN,
        body_max=_BODY,
    ),
)

_BY_NAME = {each.name: each for each in ROUTES}


def url(name: str, **variables: str) -> str:
    """The URL of a route, as a path."""
    return _BY_NAME[name].url(**variables)


def in_plain_words(route: Route, path: dict[str, str]) -> dict[str, str]:
    """The variables of a path, with the plain name of its node; see `plain_name`."""
    if "node" not in path:
        return path
    kind = "topic" if route.template.startswith(_TOPIC) else "queue"
    return {**path, "node": plain_name(path["node"], kind)}
