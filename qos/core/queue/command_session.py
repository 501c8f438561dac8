"""A session of a command (XEP-0050 §3.3), and what its steps are made of.

Values only: a session, the jobs that a command gives to the service, and its replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from qos.core.queue.command_forms import Form, Table
from qos.core.queue.command_table import Command, Right
from qos.core.queue.requests import Refusal, Request
from qos.core.queue.results import Result
from qos.core.quick_enum import QuickEnum
from qos.core.record import record
from qos.errors import ErrorType

__all__ = [
    "Answered",
    "CommandRefusal",
    "CountNodes",
    "FindNodes",
    "Job",
    "Reply",
    "Session",
    "Stage",
    "Step",
    "actions_of",
    "bad",
]

Status: TypeAlias = Literal["executing", "completed", "canceled"]


class CommandRefusal(Refusal):
    """A request to a command is refused (XEP-0050 §4.4).

    Attributes:
        command: the specific condition, such as `bad-payload`.
    """

    def __init__(
        self,
        text: str,
        *,
        condition: str,
        type: ErrorType,  # noqa: A002 - as in RFC 6120
        command: str,
    ) -> None:
        super().__init__(text, condition=condition, type=type)
        self.command = command


class Stage(QuickEnum):
    """What a session has shown last, and waits for."""

    BEGIN = "begin"
    CHOOSE = "choose"
    PAGE = "page"
    SELECT = "select"
    FILL = "fill"
    CONFIRM = "confirm"


@record(frozen=True, slots=True, kw_only=True)
class Session:
    """A command that is being executed.

    Attributes:
        session_id: names it.
        account: the bare JID that executes it.
        command: the command.
        stage: what it has shown last.
        node: the chosen queue; '': none yet.
        state: of browsed items; see `Items`.
        after: where the next page begins; '': there is none.
        count: the items that were shown so far, or requeued.
    """

    session_id: str
    account: str
    command: Command
    stage: Stage = Stage.BEGIN
    node: str = ""
    state: str = "live"
    after: str = ""
    count: int = 0


@record(frozen=True, slots=True)
class FindNodes:
    """A job: find the nodes at which the account has this right; the result is sorted."""

    right: Right


@record(frozen=True, slots=True)
class CountNodes:
    """A job: the counts of these nodes by name; without those that are gone or hidden."""

    names: tuple[str, ...]


Job: TypeAlias = FindNodes | CountNodes | Request


@record(frozen=True, slots=True)
class Answered:
    """The result of a request, with the payloads of its items by seq."""

    result: Result
    payloads: Mapping[int, str]


@record(frozen=True, slots=True)
class Reply:
    """An answer to the client.

    Attributes:
        status: of the session, which has ended unless it is `executing`.
        actions: that go on with it (XEP-0050 §3.4), the default first.
        content: what is shown.
        note: for people; '': none.
    """

    status: Status
    actions: tuple[str, ...] = ()
    content: Form | Table | None = None
    note: str = ""


@record(frozen=True, slots=True)
class Step:
    """The session from now on, and what is done: a job first, or a reply.

    Only a reply makes the session last.
    """

    session: Session
    act: Job | Reply


def bad(text: str, command: str) -> CommandRefusal:
    """A request is wrong, and nothing is changed; command: the specific condition."""
    return CommandRefusal(text, condition="bad-request", type="modify", command=command)


def actions_of(session: Session) -> tuple[str, ...]:
    """What goes on with a session, the default first."""
    if session.stage is Stage.PAGE:
        return "next", "complete"
    if session.stage is Stage.CHOOSE and session.command not in _SHOWN_AT_ONCE:
        return ("next",)
    if session.stage is Stage.SELECT and session.after:
        return "complete", "next"
    return ("complete",)


#: The commands that end when the queue is chosen.
_SHOWN_AT_ONCE = frozenset({Command.QUEUE, Command.WORKERS})
