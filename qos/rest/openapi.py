"""The description of the URLs as OpenAPI 3.1, made from the table of routes.

What a route takes and answers is written here by hand; its path, methods and summary are
those of `qos.rest.routes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from qos.core.queue.item import PRIORITIES
from qos.core.rest.messages import TIME_MS_MAX
from qos.core.rest.replying import CORRELATION_BYTES_MAX, QUERY
from qos.core.rest.waits import WAIT_S_MAX
from qos.rest.calls import Answer, Call
from qos.rest.hornetq import descriptions as hornetq
from qos.rest.hornetq.routes import ROUTES as HORNETQ_ROUTES
from qos.rest.routes import ROUTES, SHARED, VARIABLE, Route
from xep_0254.request_items import ITEM_ID_CHARS_MAX

__all__ = ["STATUSES", "document", "openapi"]

_SAFE = frozenset({"GET", "HEAD"})

_FORM = "application/x-www-form-urlencoded"
_ANY = "application/octet-stream"
_MULTIPART, _ATOM = "multipart/mixed", "application/atom+xml"

#: What any request may be answered with.
_ALWAYS = (400, 401, 429, 503)

_POSTED = (403, 404, 408, 413, 507)

#: The statuses of each route, beside those.
STATUSES: dict[str, tuple[int, ...]] = {
    "service": (200,),
    "openapi": (200,),
    "queue": (200, 404),
    "messages": (200, *_POSTED, 422),
    "batches": (200, *_POSTED, 415, 422),
    "once": (200, 403, 404, 408, 409, 413),
    "post": (200, *_POSTED, 405, 410),
    "batchonce": (200, 403, 404, 408, 409, 413),
    "postbatch": (200, *_POSTED, 405, 410, 415),
    "consumer": (200, 202, 403, 404, 408, 413),
    "message": (200, 403, 404),
    "subscribers": (200, 201, 403, 404, 408, 413, 415, 507),
    "subscriber": (200, 204, 403, 404, 408, 413),
    "acknowledgement": (204, 404, 405, 408, 412, 413, 415),
    "topic": (200, 403, 404),
    "topic-first": (200, 202, 403, 404),
    "topic-last": (200, 202, 403, 404),
    "topic-next": (200, 202, 403, 404),
    "topic-subscriptions": (200, 201, 403, 404, 408, 409, 413, 415, 507),
    "topic-subscription": (200, 204, 403, 404, 408, 413),
    **hornetq.STATUSES,
    "device": (200, 202, 403, 408, 413, 422, 507),
    "send": (202, *_POSTED, 405, 410),
    "sent": (200, 202, 404),
}

for _name in SHARED:
    STATUSES[f"topic-{_name}"] = STATUSES[_name]

_MEANINGS: Mapping[int, str] = {
    200: "Done.",
    201: "It was made, or it had been made before.",
    202: "Nothing yet; ask again at Location, or at Content-Location for an outcome.",
    204: "Done.",
    307: "Send it again, to the URL in Location.",
    400: "A header, a parameter or the body is wrong; the answer says where.",
    401: "No user, or a wrong password or token.",
    403: "No right to do this, or a request from a page of another site.",
    404: "No such queue, message or link, or it is hidden from the user.",
    405: "It was done before; of a post, `create-next` is in Link.",
    408: "The body did not come in time.",
    409: "The queue gives no one-off links; or another queue has this name.",
    410: "The link is too old and was not used, or its consumer has timed out.",
    412: "The delivery has ended otherwise, or it is there already.",
    413: "Too large.",
    415: "A body of another media type is expected.",
    422: "Another message has this Idempotency-Key.",
    429: "Too much of this user at a time; see Retry-After.",
    503: "Not at this moment; see Retry-After.",
    507: "The queue or the outbox is full; see Retry-After.",
}


def _integer(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _header(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": schema, "description": text}


_CORRELATION = _query(
    QUERY,
    {"type": "string", "minLength": 1, "maxLength": CORRELATION_BYTES_MAX},
    "the id of the request that this replies to",
)

_POST_PARAMETERS = [
    _query("priority", _integer(PRIORITIES[0], PRIORITIES[-1]), "larger is earlier"),
    _query("ttl", _integer(1, TIME_MS_MAX), "milliseconds until it expires"),
    _query("expiration", {"type": "integer"}, "when it expires, in ms since 1970"),
    _query("delay", _integer(0, TIME_MS_MAX), "milliseconds before it is delivered"),
    _CORRELATION,
    _header("Msg-Properties", {"type": "string"}, "a dictionary of RFC 9651"),
]

_KEY = _header(
    "Idempotency-Key",
    {"type": "string", "pattern": f"^[!-~]([ -~]{{0,{ITEM_ID_CHARS_MAX - 2}}}[!-~])?$"},
    "the id of the message",
)

_SEND_PARAMETERS = [
    _query("ttl", _integer(1, TIME_MS_MAX), "milliseconds until it is not delivered"),
    _query("expiration", {"type": "integer"}, "the same, in ms since 1970"),
]

_WAIT_PARAMETERS = [
    _header("Prefer", {"type": "string"}, f"wait=SECONDS, at most {WAIT_S_MAX}"),
    _header("X-RS-Wait", _integer(0, 10**9 - 1), "seconds"),
]

_PARAMETERS: Mapping[str, list[dict[str, Any]]] = {
    "messages": [*_POST_PARAMETERS, _KEY],
    "batches": _POST_PARAMETERS,
    "once": [_CORRELATION],
    "batchonce": [_CORRELATION],
    "post": _POST_PARAMETERS,
    "postbatch": _POST_PARAMETERS,
    "sent": _WAIT_PARAMETERS,
    "consumer": [
        _query("selector", {"type": "string"}, "a condition as of JMS"),
        *_WAIT_PARAMETERS,
    ],
    "subscribers": [
        _header(
            "Push-Authorization",
            {"type": "string"},
            "the Authorization to send to the target",
        )
    ],
    "topic-first": _WAIT_PARAMETERS,
    "topic-last": _WAIT_PARAMETERS,
    "topic-next": [
        _query("after", {"type": "string"}, "given by the link next"),
        *_WAIT_PARAMETERS,
    ],
    **hornetq.PARAMETERS,
    "device": [*_SEND_PARAMETERS, _KEY],
    "send": _SEND_PARAMETERS,
}

_FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "acknowledge": {"enum": ["true", "false"]},
        "delivery-failed": {"enum": ["true", "false"]},
        "reject": {"type": "string"},
        "extend": {"type": "string", "pattern": "^[0-9]+$"},
    },
    "additionalProperties": False,
}

_ENABLED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"enabled": {"enum": ["true", "false"]}},
    "required": ["enabled"],
    "additionalProperties": False,
}

_SUBSCRIPTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "selector": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}

_BODIES: Mapping[str, dict[str, Any]] = {
    "messages": {_ANY: {}},
    "post": {_ANY: {}},
    "device": {_ANY: {}},
    "send": {_ANY: {}},
    "batches": {_MULTIPART: {}, _ATOM: {}},
    "postbatch": {_MULTIPART: {}, _ATOM: {}},
    "acknowledgement": {_FORM: {"schema": _FORM_SCHEMA}},
    "subscribers": {_ATOM: {}},
    "subscriber": {_FORM: {"schema": _ENABLED_SCHEMA}},
    "topic-subscriptions": {_FORM: {"schema": _SUBSCRIPTION_SCHEMA}},
    **hornetq.BODIES,
}


@cache
def document() -> bytes:
    """The document, as JSON."""
    paths: dict[str, Any] = {}
    for route in (*ROUTES, *HORNETQ_ROUTES):
        operations = paths.setdefault(route.template, {})
        operations["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in VARIABLE.findall(route.template)
        ]
        for method in route.methods:
            operations[method.lower()] = _operation(route, method)
    shown = {
        "openapi": "3.1.0",
        "info": {"title": "Queues by REST-*", "version": "1"},
        "security": [{"password": []}, {"token": []}],
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            }
        },
        "paths": paths,
    }
    return json.dumps(shown).encode()


def _operation(route: Route, method: str) -> dict[str, Any]:
    statuses = sorted({*STATUSES[route.name], *_ALWAYS})
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}-{route.name}",
        "summary": route.summary,
        "responses": {str(each): {"description": _MEANINGS[each]} for each in statuses},
    }
    # Topics take messages as queues do.
    shared = route.name.removeprefix("topic-")
    name = shared if shared in SHARED else route.name
    parameters = _PARAMETERS.get(name)
    # Of a route that can be posted to, they are of the post.
    if parameters and (method not in _SAFE or "POST" not in route.methods):
        operation["parameters"] = parameters
    body = _BODIES.get(name)
    if body and method in {"POST", "PUT"}:
        operation["requestBody"] = {"content": body}
    return operation


async def openapi(_call: Call) -> Answer:
    """Show the document."""
    return Answer(200, {"Content-Type": "application/json"}, body=document())
