"""The URLs of HornetQ's dialect; clients know those of the queues alone."""

from __future__ import annotations

from typing import Final

from qos.rest.routes import Route

__all__ = ["BASE", "ROUTES", "url"]

#: All of them begin with it.
BASE = "/hornetq/"

_READ = ("GET", "HEAD")
_POST = ("POST",)
_QUEUES = f"{BASE}queues"
_QUEUE = f"{_QUEUES}/{{node}}"
_TOPIC = f"{BASE}topics/{{node}}"
_CONSUMER = f"{_QUEUE}/pull-consumers/{{mode}}/{{consumer}}"

ROUTES: Final = (
    Route("hornetq-queues", _QUEUES, _POST, "HornetQ: make a queue"),
    Route("hornetq-queue", _QUEUE, _READ, "HornetQ: a queue, with its links"),
    Route("hornetq-topics", f"{BASE}topics", _POST, "HornetQ: make a topic"),
    Route("hornetq-topic", _TOPIC, _READ, "HornetQ: a topic, with its links"),
    Route(
        "hornetq-pull-subscriptions",
        f"{_TOPIC}/pull-subscriptions",
        _POST,
        "HornetQ: subscribe to a topic, and consume",
    ),
    Route(
        "hornetq-push-subscriptions",
        f"{_TOPIC}/push-subscriptions",
        _POST,
        "HornetQ: subscribe to a topic, and have it pushed",
    ),
    Route(
        "hornetq-push-subscription",
        f"{_TOPIC}/push-subscriptions/{{subscriber}}",
        (*_READ, "POST", "DELETE"),
        "HornetQ: a push subscription",
    ),
    Route("hornetq-create", f"{_QUEUE}/create", _POST, "HornetQ: post a message"),
    Route(
        "hornetq-create-id",
        f"{_QUEUE}/create/{{id}}",
        ("POST", "PUT"),
        "HornetQ: post a message under its id, once",
    ),
    Route(
        "hornetq-pull-consumers",
        f"{_QUEUE}/pull-consumers",
        _POST,
        "HornetQ: make a pull consumer",
    ),
    Route(
        "hornetq-push-consumers",
        f"{_QUEUE}/push-consumers",
        _POST,
        "HornetQ: ask for push",
    ),
    Route(
        "hornetq-push-consumer",
        f"{_QUEUE}/push-consumers/{{subscriber}}",
        (*_READ, "POST", "DELETE"),
        "HornetQ: a push consumer",
    ),
    Route(
        "hornetq-consumer",
        _CONSUMER,
        (*_READ, "DELETE"),
        "HornetQ: a pull consumer, with the link that is due",
    ),
    Route(
        "hornetq-next",
        f"{_CONSUMER}/next/{{delivery}}",
        _POST,
        "HornetQ: take the message after a delivery, or the same again",
    ),
    Route(
        "hornetq-acknowledgement",
        f"{_CONSUMER}/acknowledgement/{{delivery}}",
        _POST,
        "HornetQ: acknowledge a delivery",
    ),
)

_BY_NAME = {each.name: each for each in ROUTES}


def url(name: str, **variables: str) -> str:
    """The URL of a route, as a path."""
    return _BY_NAME[name].url(**variables)
