"""The paths of the gateway's URLs, by the names of their routes.

Handlers make links out of them; `qos.rest.routes` says what there is at each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote_to_bytes

__all__ = ["PATHS", "SHARED", "Path", "find", "next_url", "url"]

#: A variable of a template.
_VARIABLE = re.compile(r"{([a-z]+)}")


@dataclass(frozen=True, slots=True)
class Path:
    """A kind of path.

    Attributes:
        template: of the path; a variable has no slash and no semicolon, unless quoted.
        earlier: the template of earlier versions, which is still read; '': none.
        patterns: of both. A group has the value of a variable as it came.
    """

    template: str
    earlier: str = ""
    patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        templates = filter(None, (self.template, self.earlier))
        object.__setattr__(self, "patterns", tuple(map(_pattern, templates)))

    @property
    def variables(self) -> list[str]:
        """The names of the variables."""
        return _VARIABLE.findall(self.template)

    def url(self, **variables: str) -> str:
        """The URL, as a path."""
        quoted = {name: quote(value, safe="") for name, value in variables.items()}
        return self.template.format(**quoted)


def _pattern(template: str) -> re.Pattern[str]:
    pattern = "".join(
        f"(?P<{part}>[^/;]+)" if place % 2 else re.escape(part)
        for place, part in enumerate(_VARIABLE.split(template))
    )
    return re.compile(pattern)


_QUEUE = "/queues/{node}"
_TOPIC = "/topics/{node}"
_DEVICE = "/send/{jid}"

#: Below a queue, and likewise below a topic.
_MESSAGES = {
    "messages": "/messages",
    "batches": "/batches",
    "once": "/once",
    "post": "/once/{link}",
    "batchonce": "/batch-once",
    "postbatch": "/batch-once/{link}",
    "message": "/messages/{item}",
}

#: The names of the routes that topics have too, under names with `topic-`.
SHARED: Final = tuple(_MESSAGES)

PATHS: Final[Mapping[str, Path]] = {
    "service": Path("/"),
    "openapi": Path("/openapi.json"),
    "queue": Path(_QUEUE),
    **{name: Path(f"{_QUEUE}{rest}") for name, rest in _MESSAGES.items()},
    "consumer": Path(f"{_QUEUE}/consumer"),
    "subscribers": Path(f"{_QUEUE}/subscribers"),
    "subscriber": Path(f"{_QUEUE}/subscribers/{{subscriber}}"),
    "acknowledgement": Path(
        # Many clients cut a link at its first semicolon.
        f"{_QUEUE}/messages/{{item}}/acknowledgement/{{etag}}",
        earlier=f"{_QUEUE}/messages/{{item}}/acknowledgement;etag={{etag}}",
    ),
    "topic": Path(_TOPIC),
    **{f"topic-{name}": Path(f"{_TOPIC}{rest}") for name, rest in _MESSAGES.items()},
    "topic-first": Path(f"{_TOPIC}/first"),
    "topic-last": Path(f"{_TOPIC}/last"),
    "topic-next": Path(f"{_TOPIC}/next"),
    "topic-subscriptions": Path(f"{_TOPIC}/subscriptions"),
    "topic-subscription": Path(f"{_TOPIC}/subscriptions/{{queue}}"),
    "device": Path(_DEVICE),
    "send": Path(f"{_DEVICE}/once/{{link}}"),
    "sent": Path(f"{_DEVICE}/messages/{{item}}"),
}


def url(name: str, **variables: str) -> str:
    """The URL of a route, as a path."""
    return PATHS[name].url(**variables)


def next_url(node: str, after: int) -> str:
    """The URL of the message of a topic after the one with this seq."""
    return f"{url('topic-next', node=node)}?after={after}"


def find(
    path: str, paths: Mapping[str, Path] = PATHS
) -> tuple[str, dict[str, str]] | None:
    """The name of the route of a path as it came, and the values of its variables."""
    for name, kind in paths.items():
        for pattern in kind.patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                values = _values(match)
                return None if values is None else (name, values)
    return None


def _values(match: re.Match[str]) -> dict[str, str] | None:
    """The values of the variables; None: one of them is not UTF-8."""
    try:
        return {
            variable: unquote_to_bytes(value).decode()
            for variable, value in match.groupdict().items()
        }
    except UnicodeDecodeError:
        return None
