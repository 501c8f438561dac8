"""The progress of one request to a push target, and what its end means.

    UNSENT ─connects─▶ SENT ──────────status──▶ ANSWERED
       │                ▲
       │             connects, or cut
       │                │
       └──reuses──▶ ON_KEPT ─cut, 408─▶ AGAIN
                        └─────────────status──▶ ANSWERED

Before its first byte has left, a request has certainly not arrived. From the status line
on, its outcome is known, whatever becomes of the headers and the body after it. Between
the two nobody knows.

A connection that earlier requests have used may have been closed by the target while the
request was on its way. So a request that such a connection ends is made once more, on a
new connection and with the same key. A 408 on such a connection means the same: the target
had waited for a request (RFC 9110 §15.5.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from qos.core.record import record
from qos.core.rest.forwarding import NoReply, PushReply

__all__ = ["TRANSITIONS", "Progress", "Stage", "Step", "end_of"]

_REQUEST_TIMEOUT = 408


class Stage(Enum):
    """A stage of a request."""

    #: No byte of it has left.
    UNSENT = "unsent"
    #: It has left, on a connection that earlier requests have used.
    ON_KEPT = "on kept"
    #: That connection has ended; the request wants a new one.
    AGAIN = "again"
    #: It has left, for the last time.
    SENT = "sent"
    #: Its status line has come.
    ANSWERED = "answered"


class Step(Enum):
    """A step of a request."""

    #: A new connection takes it.
    CONNECTS = "connects"
    #: A connection that earlier requests have used takes it.
    REUSES = "reuses"
    #: The connection has ended, or there was none.
    CUT = "cut"
    #: A status line has come that says that no request did.
    STALE = "stale"
    #: Any other status line has come.
    STATUS = "status"


TRANSITIONS: Mapping[tuple[Stage, Step], Stage] = {
    (Stage.UNSENT, Step.CONNECTS): Stage.SENT,
    (Stage.UNSENT, Step.REUSES): Stage.ON_KEPT,
    (Stage.UNSENT, Step.CUT): Stage.UNSENT,
    (Stage.ON_KEPT, Step.CUT): Stage.AGAIN,
    (Stage.ON_KEPT, Step.STALE): Stage.AGAIN,
    (Stage.ON_KEPT, Step.STATUS): Stage.ANSWERED,
    (Stage.AGAIN, Step.CONNECTS): Stage.SENT,
    # The connection that ended may have brought it to the target.
    (Stage.AGAIN, Step.CUT): Stage.SENT,
    (Stage.SENT, Step.CUT): Stage.SENT,
    (Stage.SENT, Step.STALE): Stage.ANSWERED,
    (Stage.SENT, Step.STATUS): Stage.ANSWERED,
    # Headers or a body that end too early.
    (Stage.ANSWERED, Step.CUT): Stage.ANSWERED,
}


@record(frozen=True, slots=True)
class Progress:
    """The progress of a request.

    Attributes:
        stage: of it.
        status: of its answer; 0: it has not come.
    """

    stage: Stage = Stage.UNSENT
    status: int = 0

    def then(self, step: Step) -> Progress:
        """The progress after a step."""
        return Progress(TRANSITIONS[self.stage, step], self.status)

    def answered(self, status: int) -> Progress:
        """The progress after a status line; one that follows the first means nothing."""
        if self.stage not in {Stage.ON_KEPT, Stage.SENT}:
            return self
        stale = status == _REQUEST_TIMEOUT
        stage = TRANSITIONS[self.stage, Step.STALE if stale else Step.STATUS]
        return Progress(stage, status if stage is Stage.ANSWERED else 0)


def end_of(
    progress: Progress, url: str, reason: str, *, headers: Mapping[str, str] | None
) -> PushReply | NoReply:
    """The meaning of the end of a request.

    Args:
        progress: of the request.
        url: of the request.
        reason: why it ended, if it has no answer; for people.
        headers: of the answer, by their names in lower case; None: they have not come.
    """
    if progress.stage is Stage.ANSWERED:
        return PushReply(url, progress.status, headers or {}, whole=headers is not None)
    return NoReply(reason, unsent=progress.stage is Stage.UNSENT)
