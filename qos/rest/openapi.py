"""The description of the URLs as OpenAPI 3.1, made from the table of routes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from qos.core.rest.statuses import Act
from qos.rest.paths import Path
from qos.rest.route import SAFE, Route
from qos.rest.schemas import HEADERS, SCHEMAS, TEXT, Answers, Shown, refused

__all__ = ["document"]

#: What any request may be answered with; any that changes something; any that finds the
#: disk full, by whatever it writes; and a post.
_ALWAYS = refused(400, 401, 429, 500, 503)
_UNSAFE = refused(403)
_WRITES = refused(507)
_WITH_BODY = refused(408, 413)

#: The kinds of requests that are answered otherwise when the disk is full.
_NEED_NO_ROOM = frozenset({Act.READ, Act.PULL})

_RETRY = (), ("Retry-After",)

#: The refusals.
_REFUSALS: Mapping[int, Shown] = {
    400: Shown("A header, a parameter or the body is wrong; it says where.", TEXT),
    401: Shown(
        "No user, or a wrong password or token.", TEXT, (), ("WWW-Authenticate",)
    ),
    403: Shown("No right to do this, or a request from a page of another site.", TEXT),
    404: Shown("No such queue, message or link, or it is hidden from the user.", TEXT),
    406: Shown(
        "The headers of the message are too large for proxies: ask for it with "
        "Accept: multipart/mixed, and they are in the body. It has not been taken.",
        TEXT,
        (),
        ("Link",),
    ),
    408: Shown("The body did not come in time.", TEXT),
    412: Shown("The delivery has ended otherwise, or it is there already.", TEXT),
    413: Shown("Too large.", TEXT),
    415: Shown("A body of another media type is expected.", TEXT),
    422: Shown("Another message has this Idempotency-Key.", TEXT),
    429: Shown("Too much of this user at a time.", TEXT, *_RETRY),
    500: Shown("An error of the service itself; its log has it.", TEXT),
    503: Shown("Not at this moment.", TEXT, *_RETRY),
    507: Shown(
        "The queue, the outbox or the disk of the service is full.", TEXT, *_RETRY
    ),
}


def document(
    routes: Iterable[Route], path_of: Mapping[str, Path], prefix: str
) -> bytes:
    """The document, as JSON.

    Args:
        routes: to be described.
        path_of: their paths, by their names.
        prefix: the path that all URLs begin with; ''.
    """
    paths: dict[str, Any] = {}
    for route in routes:
        path = path_of[route.name]
        operations = paths.setdefault(path.template, {})
        operations["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in path.variables
        ]
        for method in route.methods:
            operations[method.lower()] = _operation(route, path, method)
    root = {
        "openapi": "3.1.0",
        "info": {"title": "Queues by REST-*", "version": "1"},
        **({"servers": [{"url": prefix}]} if prefix else {}),
        "security": [{"password": []}, {"token": []}],
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
            "schemas": SCHEMAS,
            "headers": HEADERS,
            "responses": {
                _name(status): _response(refusal)
                for status, refusal in _REFUSALS.items()
            },
        },
        "paths": paths,
    }
    return json.dumps(root).encode()


def _operation(route: Route, path: Path, method: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}-{route.name}",
        "summary": route.summary,
        "tags": [_tag(path)],
        "responses": _responses(route, method),
    }
    # Of a route that can be posted to, they are of the post.
    parameters = route.parameters
    if parameters and (method not in SAFE or "POST" not in route.methods):
        operation["parameters"] = parameters
    body = route.body
    if body and method in {"POST", "PUT"}:
        request_body: dict[str, Any] = {
            "content": body.content,
            "required": body.required,
        }
        if body.about:
            request_body["description"] = body.about
        operation["requestBody"] = request_body
    return operation


def _tag(path: Path) -> str:
    """The first part of the path: a client has its calls by these."""
    return path.template.split("/")[1].partition(".")[0] or "service"


def _responses(route: Route, method: str) -> dict[str, Any]:
    # RFC 9110 §9.3.2: the answer to HEAD is that to GET, without its content.
    is_head = method == "HEAD"
    own = route.answers["GET" if is_head else method]
    answers: Answers = {
        **_ALWAYS,
        **({} if method in SAFE else _UNSAFE),
        **({} if route.act_of(method) in _NEED_NO_ROOM else _WRITES),
        # The body of any other method is not read.
        **(_WITH_BODY if method in {"POST", "PUT"} else {}),
        **own,
    }
    return {
        str(status): _answer(status, answers[status], is_head=is_head)
        for status in sorted(answers)
    }


def _answer(status: int, answer: Shown | None, *, is_head: bool) -> dict[str, Any]:
    if answer is None and not is_head:
        return {"$ref": f"#/components/responses/{_name(status)}"}
    response = _response(answer or _REFUSALS[status])
    if is_head:
        response.pop("content", None)
    return response


def _response(answer: Shown) -> dict[str, Any]:
    response: dict[str, Any] = {"description": answer.meaning}
    headers: dict[str, Any] = {
        name: {**HEADERS[name], "required": True} for name in answer.headers
    }
    for name in answer.optional:
        headers[name] = {"$ref": f"#/components/headers/{name}"}
    if headers:
        response["headers"] = headers
    if answer.content:
        response["content"] = answer.content
    return response


def _name(status: int) -> str:
    return f"Refused{status}"
