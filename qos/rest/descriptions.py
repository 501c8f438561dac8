"""Requests and answers at the URLs of queues, topics and devices, for `qos.rest.openapi`."""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.item import PRIORITIES
from qos.core.rest.acknowledgement import EXTEND_S_MAX
from qos.core.rest.messages import TIME_MS_MAX
from qos.core.rest.replying import CORRELATION_BYTES_MAX, QUERY
from qos.rest.schemas import (
    ATOM,
    BINARY,
    BOOLEAN,
    MESSAGE,
    MESSAGE_HEADERS,
    STRING,
    TEXT,
    WAITS,
    XML,
    Answers,
    Body,
    Parameters,
    Shown,
    form,
    header,
    integer,
    json_of,
    query,
    refused,
)
from xep_0254.request_items import ITEM_ID_CHARS_MAX

__all__ = ["ANSWERS", "BODIES", "PARAMETERS"]

# -- requests --------------------------------------------------------------

_CORRELATION = query(
    QUERY,
    {"type": "string", "minLength": 1, "maxLength": CORRELATION_BYTES_MAX},
    "the id of the request that this replies to",
)

_POST = [
    query("priority", integer(PRIORITIES[0], PRIORITIES[-1]), "larger is earlier"),
    query("ttl", integer(1, TIME_MS_MAX), "milliseconds until it expires"),
    query("expiration", {"type": "integer"}, "when it expires, in ms since 1970"),
    query("delay", integer(0, TIME_MS_MAX), "milliseconds before it is delivered"),
    _CORRELATION,
]

_OF_MESSAGE = [
    header("Msg-Properties", STRING, "a dictionary of RFC 9651"),
    header("Msg-Hops", {"type": "integer"}, "how often services have forwarded it"),
    header("Content-Encoding", STRING, "comes back with the message"),
    header("Content-Language", STRING, "comes back with the message"),
    header("Link", STRING, "comes back with the message; reply-to names a queue"),
]

_KEY = header(
    "Idempotency-Key",
    {"type": "string", "pattern": f"^[!-~]([ -~]{{0,{ITEM_ID_CHARS_MAX - 2}}}[!-~])?$"},
    "the id of the message",
)

_SEND = [
    query("ttl", integer(1, TIME_MS_MAX), "milliseconds until it is not delivered"),
    query("expiration", {"type": "integer"}, "the same, in ms since 1970"),
]

#: The parameters of each route; of one that can be posted to, those of the post.
PARAMETERS: Mapping[str, Parameters] = {
    "messages": [*_POST, *_OF_MESSAGE, _KEY],
    "batches": _POST,
    "once": [_CORRELATION],
    "batchonce": [_CORRELATION],
    "post": [*_POST, *_OF_MESSAGE],
    "postbatch": _POST,
    "sent": WAITS,
    "consumer": [query("selector", STRING, "a condition as of JMS"), *WAITS],
    "subscribers": [
        header("Push-Authorization", STRING, "the Authorization to send to the target")
    ],
    "topic-first": WAITS,
    "topic-last": WAITS,
    "topic-next": [query("after", STRING, "given by the link next"), *WAITS],
    "device": [*_SEND, _KEY],
    "send": _SEND,
}

_MESSAGE = Body(
    BINARY,
    about="the message; the header Content-Type may be any media type, and comes back",
)
_BATCH = Body(
    {
        ATOM: {"schema": STRING},
        "multipart/mixed": {"schema": STRING},
    },
    about="the messages: the entries of an Atom feed, or the parts",
)

#: The bodies of posts, by route.
BODIES: Mapping[str, Body] = {
    "messages": _MESSAGE,
    "post": _MESSAGE,
    "device": Body(BINARY, required=False, about="the message, with Idempotency-Key"),
    "send": _MESSAGE,
    "batches": _BATCH,
    "postbatch": _BATCH,
    "acknowledgement": Body(
        form(
            **{
                "acknowledge": BOOLEAN,
                "delivery-failed": BOOLEAN,
                "reason": STRING,
                "reject": STRING,
                "extend": {
                    "type": "string",
                    "pattern": "^[0-9]+$",
                    "description": f"seconds, 1 to {EXTEND_S_MAX}",
                },
            }
        ),
        about="acknowledge=true, acknowledge=false, reject=REASON or extend=SECONDS",
    ),
    "subscribers": Body({ATOM: {"schema": STRING}}, about="an Atom link to the target"),
    "subscriber": Body(form("enabled", enabled=BOOLEAN)),
    "topic-subscriptions": Body(form("name", name=STRING, selector=STRING)),
}

# -- answers ---------------------------------------------------------------

_POSTED = Shown("It is posted.", headers=("Content-Location",))
_POSTED_ONCE = Shown(
    "It is posted; `create-next` is in Link.", headers=("Content-Location", "Link")
)
_LISTED = {"text/uri-list": {"schema": STRING}}
_BATCH_POSTED = Shown("All are posted; their URLs.", _LISTED)
_BATCH_POSTED_ONCE = Shown("All are posted; their URLs.", _LISTED, ("Link",))
_FACTORY = Shown("Post the message to `create-next` in Link.", headers=("Link",))
_NO_ONCE = Shown("The queue gives no one-off links.", TEXT)
_USED = Shown("It was done before; see Link.", TEXT, ("Allow", "Link"))
_TOO_OLD = Shown("The link is too old, and was not used.", TEXT, ("Link",))

_NEEDED, _MAYBE = MESSAGE_HEADERS
_READ = Shown("A message.", MESSAGE, _NEEDED, _MAYBE)
_TAKEN = Shown(
    "A message; `acknowledgement` is in Link.",
    MESSAGE,
    (*_NEEDED, "Msg-Lock-Expires"),
    (*_MAYBE, "Preference-Applied"),
)
_OF_TOPIC = Shown(
    "A message; `next` is in Link.",
    MESSAGE,
    _NEEDED,
    (*_MAYBE, "Msg-Missed", "Preference-Applied"),
)
_NONE_YET = Shown(
    "There is no message yet; ask again at Location.",
    TEXT,
    ("Location", "Retry-After", "Link"),
    ("Preference-Applied",),
)
_PAGE = {"text/html": {"schema": STRING}}
_DONE = Shown("Done.")
_MADE = Shown("It is made.", headers=("Location",))

_MESSAGES: Mapping[str, Mapping[str, Answers]] = {
    "messages": {"POST": {200: _POSTED, **refused(404, 422, 507)}},
    "batches": {"POST": {200: _BATCH_POSTED, **refused(404, 415, 422, 507)}},
    "once": {"POST": {200: _FACTORY, **refused(404), 409: _NO_ONCE}},
    "post": {
        "POST": {200: _POSTED_ONCE, **refused(404, 507), 405: _USED, 410: _TOO_OLD}
    },
    "batchonce": {"POST": {200: _FACTORY, **refused(404), 409: _NO_ONCE}},
    "postbatch": {
        "POST": {
            200: _BATCH_POSTED_ONCE,
            **refused(404, 415, 507),
            405: _USED,
            410: _TOO_OLD,
        }
    },
    "message": {"GET": {200: _READ, **refused(403, 404)}},
}

_NODE: Mapping[str, Answers] = {
    "GET": {
        200: Shown(
            "Its counts, and its links, which are in Link too.",
            {**json_of("Node"), **XML, **_PAGE},
            ("Vary",),
            ("Link",),
        ),
        **refused(404),
    }
}

_READERS: Mapping[str, Answers] = {
    "GET": {200: _OF_TOPIC, 202: _NONE_YET, **refused(403, 404)}
}

_SUBSCRIBED = Shown("It is there; its links.", headers=("Link",))
_OUTCOME = json_of("Outcome")

#: By route and method. What any request may be answered with is left out, and so is HEAD.
ANSWERS: Mapping[str, Mapping[str, Answers]] = {
    "service": {
        "GET": {
            200: Shown(
                "Each with its URL.", {**json_of("Service"), **XML, **_PAGE}, ("Vary",)
            )
        }
    },
    "openapi": {
        "GET": {
            200: Shown("OpenAPI 3.1.", {"application/json": {"schema": {}}}),
        }
    },
    "queue": _NODE,
    **_MESSAGES,
    "consumer": {"POST": {200: _TAKEN, 202: _NONE_YET, **refused(404)}},
    "subscribers": {
        "GET": {
            200: Shown("Yours.", json_of("PushSubscribers"), ("Cache-Control",)),
            **refused(403, 404),
        },
        "POST": {201: _MADE, **refused(404, 415, 507)},
    },
    "subscriber": {
        "GET": {
            200: Shown("It.", json_of("PushSubscriber"), ("Link", "Cache-Control")),
            **refused(404),
        },
        "POST": {204: _DONE, **refused(404)},
        "DELETE": {204: _DONE, **refused(404)},
    },
    "acknowledgement": {
        "POST": {
            204: _DONE,
            405: Shown("It was done before.", TEXT, ("Allow",)),
            **refused(404, 412, 415),
        }
    },
    "topic": _NODE,
    **{f"topic-{name}": described for name, described in _MESSAGES.items()},
    "topic-first": _READERS,
    "topic-last": _READERS,
    "topic-next": _READERS,
    "topic-subscriptions": {
        "POST": {
            200: _SUBSCRIBED,
            201: Shown("It is made; its links.", headers=("Location", "Link")),
            409: Shown("Another queue has this name.", TEXT),
            **refused(404, 415, 507),
        }
    },
    "topic-subscription": {
        "GET": {200: _SUBSCRIBED, **refused(404)},
        "DELETE": {
            204: Shown("It is deleted, with its queue."),
            **refused(404),
        },
    },
    "device": {
        "GET": {200: Shown("Its links.", headers=("Link",)), **refused(403)},
        "POST": {
            200: _FACTORY,
            202: Shown("It is sent.", _OUTCOME, ("Content-Location", "Cache-Control")),
            **refused(422, 507),
        },
    },
    "send": {
        "POST": {
            202: Shown(
                "It is sent; `create-next` is in Link.",
                _OUTCOME,
                ("Content-Location", "Cache-Control", "Link"),
            ),
            405: _USED,
            410: _TOO_OLD,
            **refused(404, 507),
        }
    },
    "sent": {
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
}
