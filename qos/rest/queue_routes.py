"""The routes of the service and of queues, and those that topics share with queues."""

from __future__ import annotations

from typing import Final

from qos.core.queue.item import PRIORITIES
from qos.core.rest.forms import EXTEND_S_MAX
from qos.core.rest.messages import TIME_MS_MAX
from qos.core.rest.replying import CORRELATION_BYTES_MAX, QUERY
from qos.core.rest.statuses import Act
from qos.rest import bounds, consuming, discovery, posting
from qos.rest import pushing as push
from qos.rest.route import Need, Route
from qos.rest.schemas import (
    ATOM,
    BINARY,
    BOOLEAN,
    IN_PART,
    MESSAGE,
    MESSAGE_HEADERS,
    STRING,
    TEXT,
    WAITS,
    XML,
    Answers,
    Body,
    Shown,
    form,
    header,
    integer,
    json_of,
    query,
    refused,
)
from xep_0254.request_items import ITEM_ID_CHARS_MAX

__all__ = [
    "DONE",
    "FACTORY",
    "KEY",
    "MESSAGES",
    "MESSAGE_BODY",
    "MESSAGE_PARTS",
    "NODE",
    "NONE_YET",
    "PAGE",
    "ROUTES",
    "TOO_OLD",
    "USED",
]

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

KEY: Final = header(
    "Idempotency-Key",
    {"type": "string", "pattern": f"^[!-~]([ -~]{{0,{ITEM_ID_CHARS_MAX - 2}}}[!-~])?$"},
    "the id of the message",
)

MESSAGE_BODY: Final = Body(
    BINARY,
    about="the message; the header Content-Type may be any media type, and comes back",
)
_BATCH = Body(
    {
        ATOM: {"schema": STRING},
        "multipart/mixed": {"schema": STRING},
    },
    about="the messages: the entries of an Atom feed, or the parts",
    bytes_max=bounds.BATCH_BYTES_MAX,
)
_SETTLEMENT = Body(
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
)

# -- answers ---------------------------------------------------------------

_POSTED = Shown("It is posted.", headers=("Content-Location",))
_POSTED_ONCE = Shown(
    "It is posted; `create-next` is in Link.", headers=("Content-Location", "Link")
)
_LISTED = {"text/uri-list": {"schema": STRING}}
_BATCH_POSTED = Shown("All are posted; their URLs.", _LISTED)
_BATCH_POSTED_ONCE = Shown("All are posted; their URLs.", _LISTED, ("Link",))
FACTORY: Final = Shown("Post the message to `create-next` in Link.", headers=("Link",))
_NO_ONCE = Shown("The queue gives no one-off links.", TEXT)
USED: Final = Shown("It was done before; see Link.", TEXT, ("Allow", "Link"))
TOO_OLD: Final = Shown("The link is too old, and was not used.", TEXT, ("Link",))

#: The headers that each message has, and those that it may have.
MESSAGE_PARTS: Final = MESSAGE_HEADERS
_NEEDED, _MAYBE = MESSAGE_PARTS
_READ = Shown(f"A message. {IN_PART}", MESSAGE, _NEEDED, _MAYBE)
_TAKEN = Shown(
    f"A message; `acknowledgement` is in Link. {IN_PART}",
    MESSAGE,
    (*_NEEDED, "Msg-Lock-Expires"),
    (*_MAYBE, "Preference-Applied"),
)
NONE_YET: Final = Shown(
    "There is no message yet; ask again at Location.",
    TEXT,
    ("Location", "Retry-After", "Link"),
    ("Preference-Applied",),
)
PAGE: Final = {"text/html": {"schema": STRING}}
DONE: Final = Shown("Done.")

NODE: Final[Answers] = {
    200: Shown(
        "Its counts, and its links, which are in Link too.",
        {**json_of("Node"), **XML, **PAGE},
        ("Vary",),
        ("Link",),
    ),
    **refused(404),
}

# -- routes ----------------------------------------------------------------

_ELSEWHERE = "nothing is created here: post the message to the link create-next"

#: The routes for messages of a queue; a topic has the same ones.
MESSAGES: Final = (
    Route(
        name="messages",
        summary="post a message",
        run=posting.message,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=[*_POST, *_OF_MESSAGE, KEY],
        body=MESSAGE_BODY,
        answers={"POST": {200: _POSTED, **refused(404, 422)}},
    ),
    Route(
        name="batches",
        summary="post several messages, all or none",
        run=posting.batch,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=_POST,
        body=_BATCH,
        answers={"POST": {200: _BATCH_POSTED, **refused(404, 415, 422)}},
    ),
    Route(
        name="once",
        summary="get a one-off link for a message",
        run=posting.factory,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=[_CORRELATION],
        nothing=_ELSEWHERE,
        answers={"POST": {200: FACTORY, **refused(404), 409: _NO_ONCE}},
    ),
    Route(
        name="post",
        summary="post a message once",
        run=posting.post,
        first=posting.check_link,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=[*_POST, *_OF_MESSAGE],
        body=MESSAGE_BODY,
        answers={"POST": {200: _POSTED_ONCE, **refused(404), 405: USED, 410: TOO_OLD}},
    ),
    Route(
        name="batchonce",
        summary="get a one-off link for a batch",
        run=posting.batch_factory,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=[_CORRELATION],
        nothing=_ELSEWHERE,
        answers={"POST": {200: FACTORY, **refused(404), 409: _NO_ONCE}},
    ),
    Route(
        name="postbatch",
        summary="post a batch once",
        run=posting.post_batch,
        first=posting.check_batch_link,
        act=Act.POST,
        need=Need.PUBLISH,
        parameters=_POST,
        body=_BATCH,
        answers={
            "POST": {
                200: _BATCH_POSTED_ONCE,
                **refused(404, 415),
                405: USED,
                410: TOO_OLD,
            }
        },
    ),
    Route(
        name="message",
        summary="a message, not taken",
        run=consuming.read,
        act=Act.READ,
        need=Need.SUBSCRIBE,
        answers={"GET": {200: _READ, **refused(403, 404, 406)}},
    ),
)

ROUTES: Final = (
    Route(
        name="service",
        summary="the queues and topics that the user may use",
        run=discovery.service,
        act=Act.READ,
        need=Need.LOGIN,
        answers={
            "GET": {
                200: Shown(
                    "Each with its URL.",
                    {**json_of("Service"), **XML, **PAGE},
                    ("Vary",),
                )
            }
        },
    ),
    Route(
        name="queue",
        summary="a queue, with its links",
        run=discovery.queue,
        act=Act.READ,
        need=Need.SEE,
        answers={"GET": NODE},
    ),
    *MESSAGES,
    Route(
        name="consumer",
        summary="take a message",
        run=consuming.take,
        act=Act.PULL,
        need=Need.SUBSCRIBE,
        parameters=[query("selector", STRING, "a condition as of JMS"), *WAITS],
        answers={"POST": {200: _TAKEN, 202: NONE_YET, **refused(404, 406)}},
    ),
    Route(
        name="subscribers",
        summary="have messages pushed to a URL",
        run=push.subscribers,
        act=Act.CHANGE,
        need=Need.SUBSCRIBE,
        parameters=[
            header(
                "Push-Authorization", STRING, "the Authorization to send to the target"
            )
        ],
        body=Body({ATOM: {"schema": STRING}}, about="an Atom link to the target"),
        answers={
            "GET": {
                200: Shown("Yours.", json_of("PushSubscribers"), ("Cache-Control",)),
                **refused(403, 404),
            },
            "POST": {
                201: Shown("It is made.", headers=("Location",)),
                **refused(404, 415),
            },
        },
    ),
    Route(
        name="subscriber",
        summary="a push subscriber: show, switch, end",
        run=push.subscriber,
        first=push.check_own,
        act=Act.CHANGE,
        need=Need.OWN,
        body=Body(form("enabled", enabled=BOOLEAN)),
        answers={
            "GET": {
                200: Shown("It.", json_of("PushSubscriber"), ("Link", "Cache-Control")),
                **refused(404),
            },
            "POST": {204: DONE, **refused(404)},
            "DELETE": {204: DONE, **refused(404)},
        },
    ),
    Route(
        name="acknowledgement",
        summary="end or extend a delivery",
        run=consuming.acknowledge,
        act=Act.SETTLE,
        need=Need.SETTLE,
        body=_SETTLEMENT,
        answers={
            "POST": {
                204: DONE,
                405: Shown("It was done before.", TEXT, ("Allow",)),
                **refused(404, 412, 415),
            }
        },
    ),
)
