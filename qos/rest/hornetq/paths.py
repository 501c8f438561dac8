"""The paths of HornetQ's dialect; clients know those of the queues alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qos.core.rest.hornetq.names import plain_name
from qos.rest.paths import Path

__all__ = ["BASE", "PATHS", "in_plain_words", "url"]

#: All of them begin with it.
BASE: Final = "/hornetq/"

_QUEUE = f"{BASE}queues/{{node}}"
_TOPIC = f"{BASE}topics/{{node}}"
_CONSUMER = f"{_QUEUE}/pull-consumers/{{mode}}/{{consumer}}"

PATHS: Final[Mapping[str, Path]] = {
    "hornetq-queues": Path(f"{BASE}queues"),
    "hornetq-queue": Path(_QUEUE),
    "hornetq-topics": Path(f"{BASE}topics"),
    "hornetq-topic": Path(_TOPIC),
    "hornetq-pull-subscriptions": Path(f"{_TOPIC}/pull-subscriptions"),
    "hornetq-push-subscriptions": Path(f"{_TOPIC}/push-subscriptions"),
    "hornetq-push-subscription": Path(f"{_TOPIC}/push-subscriptions/{{subscriber}}"),
    "hornetq-create": Path(f"{_QUEUE}/create"),
    "hornetq-create-id": Path(f"{_QUEUE}/create/{{id}}"),
    "hornetq-pull-consumers": Path(f"{_QUEUE}/pull-consumers"),
    "hornetq-push-consumers": Path(f"{_QUEUE}/push-consumers"),
    "hornetq-push-consumer": Path(f"{_QUEUE}/push-consumers/{{subscriber}}"),
    "hornetq-consumer": Path(_CONSUMER),
    "hornetq-next": Path(f"{_CONSUMER}/next/{{delivery}}"),
    "hornetq-acknowledgement": Path(f"{_CONSUMER}/acknowledgement/{{delivery}}"),
}


def url(name: str, **variables: str) -> str:
    """The URL of a route, as a path."""
    return PATHS[name].url(**variables)


def in_plain_words(name: str, path: dict[str, str]) -> dict[str, str]:
    """The variables of a path, with the plain name of its node; see `plain_name`.

    Args:
        name: of the route.
        path: its variables.
    """
    if "node" not in path:
        return path
    kind = "topic" if PATHS[name].template.startswith(_TOPIC) else "queue"
    return {**path, "node": plain_name(path["node"], kind)}
