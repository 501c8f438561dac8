"""The limits on what HTTP clients can make the gateway hold, and on their time."""

from __future__ import annotations

from xep_0254.request_items import ITEM_BYTES_MAX

__all__ = [
    "BATCH_BYTES_MAX",
    "BODIES_BYTES_MAX",
    "BODY_BYTES_MAX",
    "BODY_BYTES_PER_S_MIN",
    "BODY_S",
    "BODY_START_S",
    "CONSUMERS_PER_ACCOUNT_MAX",
    "CONSUMERS_PER_NODE_MAX",
    "CONSUMER_IDLE_S",
    "DELETED_CONSUMERS_MAX",
    "DRAIN_BYTES_MAX",
    "DRAIN_S",
    "HEADERS_MAX",
    "IDLE_S",
    "LINE_BYTES_MAX",
    "PUSH_ANSWER_BYTES_MAX",
    "PUSH_BODY_S",
    "PUSH_CONNECTIONS_MAX",
    "PUSH_FAILURES_MAX",
    "PUSH_INFORMATIONAL_MAX",
    "PUSH_LINKS_MAX",
    "PUSH_LOCK_S",
    "PUSH_LOOKUPS_MAX",
    "PUSH_MAX",
    "PUSH_PER_ACCOUNT_MAX",
    "PUSH_S",
    "READ_BYTES",
    "REQUESTS_PER_ACCOUNT_MAX",
    "SENDS_PER_S",
    "WRITE_S",
]

#: Seconds until the headers of the next request have to be complete. Proxies keep their
#: connections for 60 s, and one that the service ends first costs them a request.
IDLE_S = 75.0

#: Of a request line, of a header line, and the number of these.
LINE_BYTES_MAX = 8 * 1024
HEADERS_MAX = 64

#: As base64 with a few attributes, a body has to fit into an item.
BODY_BYTES_MAX = (ITEM_BYTES_MAX - 2048) * 3 // 4

#: Of a batch: it is in memory as a whole, and is published in one commit.
BATCH_BYTES_MAX = 8 * 1024 * 1024

#: Requests of one account at a time: others need connections too.
REQUESTS_PER_ACCOUNT_MAX = 200

#: Messages to devices of all accounts, a second. The number of remembered outcomes is
#: bounded; at this rate each is remembered for longer than its link can be used, so a
#: repeated post is never taken for a first one.
SENDS_PER_S = 250

#: Of all bodies that are in memory at a time; of one account, half of it.
BODIES_BYTES_MAX = 64 * 1024 * 1024

#: Seconds in which a body has to be complete.
BODY_S = 30.0

#: The slowest body: after the first seconds, so many bytes a second on average.
BODY_BYTES_PER_S_MIN = 4096
BODY_START_S = 5.0

#: Bytes of a body that wait in front of its reader; twice as many stop the connection.
READ_BYTES = 16 * 1024

#: Of a body that is not wanted, the bytes that are thrown away, and the seconds for that.
#: A client that reads nothing while it sends gets its answer, and its connection stays if
#: all of the body has come.
DRAIN_BYTES_MAX = 256 * 1024
DRAIN_S = 2.0

#: Seconds in which a client has to take an answer.
WRITE_S = 30.0

#: Pull consumers of HornetQ's dialect: each takes some 2 KB and a timer between its requests.
CONSUMERS_PER_ACCOUNT_MAX = 200
CONSUMERS_PER_NODE_MAX = 1000

#: Seconds after which a pull consumer without a request has timed out, as in HornetQ.
CONSUMER_IDLE_S = 300.0

#: Pull consumers that are remembered as deleted: all others are made again.
DELETED_CONSUMERS_MAX = 10_000

#: Sessions of the push subscribers of one account, and of all: each sends one message at
#: a time.
PUSH_PER_ACCOUNT_MAX = 20
PUSH_MAX = 500

#: One-off links that are kept for one subscriber: those of the messages whose outcome at
#: the target is not known.
PUSH_LINKS_MAX = 1000

#: Requests to targets at a time, and names that are looked up at a time.
PUSH_CONNECTIONS_MAX = 100
PUSH_LOOKUPS_MAX = 16

#: Seconds of one request to a target; and the seconds for which its message is locked,
#: which are more than a request with all its redirects takes.
PUSH_S = 15.0
PUSH_LOCK_S = 120.0

#: Seconds for the body of an answer: the message is settled by the status, and nobody reads
#: the body. A connection on which it has not come by then is closed.
PUSH_BODY_S = 1.0

#: Bytes of the answer of a target that are read; the rest is cut off.
PUSH_ANSWER_BYTES_MAX = 64 * 1024

#: Informational answers (1xx) of a target to one request; with one more, the attempt has
#: failed.
PUSH_INFORMATIONAL_MAX = 16

#: Attempts in a row that fail until a subscriber is disabled: with the delays between
#: them, about an hour.
PUSH_FAILURES_MAX = 30
