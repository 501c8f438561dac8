"""The status of each refusal, by what was asked for: the table is the law.

Statuses are those of RFC 9110 and RFC 6585. What they mean to a client of REST-* is in
docs/rest-checklist.md R5, P6, P9, P10, P14, C4 to C7 and C14.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from qos.core.queue.requests import Refusal

__all__ = ["RETRY_AFTER_S", "Act", "status_of"]


class Act(Enum):
    """The kind of a request."""

    POST = "post"
    PULL = "pull"
    SETTLE = "settle"
    READ = "read"
    #: Make, change or end something else than a message or a delivery.
    CHANGE = "change"


#: By the condition of a refusal, whatever was asked for.
_BY_CONDITION: Mapping[str, int] = {
    "bad-request": 400,
    "conflict": 409,
    "feature-not-implemented": 501,
    "forbidden": 403,
    "gone": 410,
    "internal-server-error": 503,
    "item-not-found": 404,
    "not-acceptable": 400,
    "not-allowed": 403,
    "not-authorized": 401,
    "policy-violation": 429,
    "resource-constraint": 507,
    "unexpected-request": 409,
    # Of this package: XMPP has no such condition.
    "unsupported-media-type": 415,
}

#: What means something else where it was asked for.
_BY_ACT: Mapping[tuple[Act, str], int] = {
    # Another content under the same Idempotency-Key.
    (Act.POST, "conflict"): 422,
    (Act.POST, "not-acceptable"): 413,
    # As many different selectors as are possible.
    (Act.PULL, "resource-constraint"): 503,
    # What reads needs no room: it was refused with what the disk had no room for.
    (Act.READ, "resource-constraint"): 503,
    # The delivery has ended otherwise: it was requeued, or somebody else has the item.
    (Act.SETTLE, "conflict"): 412,
    (Act.SETTLE, "forbidden"): 412,
    (Act.SETTLE, "item-not-found"): 412,
    (Act.SETTLE, "unexpected-request"): 412,
}

#: Seconds after which to ask again, by status.
RETRY_AFTER_S: Mapping[int, int] = {429: 5, 503: 2, 507: 5}


def status_of(act: Act, refusal: Refusal) -> int:
    """The status that answers a refusal."""
    condition = refusal.condition
    return _BY_ACT.get((act, condition)) or _BY_CONDITION.get(condition, 500)
