"""How messages have ended: a line on stdout for each, and the exit status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from qos.cli.connection import Connection
from qos.cli.output import note, print_json
from qos.cli.status import CommandError, Status
from qos.core.message.model import OutgoingState
from qos.engine import Outcome
from qos.errors import CannotConnect, StoreError

__all__ = ["Results", "attended"]

#: The exit statuses of the ends that are not good.
_BAD = {
    OutgoingState.NOT_DELIVERED: Status.NOT_DELIVERED,
    OutgoingState.IN_DOUBT: Status.IN_DOUBT,
}


async def attended(
    connection: Connection,
    work: Coroutine[Any, Any, None],
    progress: Callable[[], str] = str,
) -> None:
    """Connect and do the work; if that fails, say what becomes of the rest.

    Args:
        connection: not started yet.
        work: the work.
        progress: says how far the work got, or ''.
    """
    connection.start()
    try:
        await connection.work(work)
    except CommandError as error:
        text = f"{error}; {connection.what_stays}{progress()}"
        raise CommandError(text, error.status) from None
    except CannotConnect as error:
        text = f"{error}; {connection.what_stays}{progress()}"
        raise CommandError(text, Status.UNREACHABLE) from None
    except StoreError as error:
        text = f"{error}; what was accepted before stays in the outbox{progress()}"
        raise CommandError(text, Status.STORE) from None
    except asyncio.CancelledError:
        note(f"stopped; {connection.what_stays}{progress()}")
        raise


class Results:
    """Prints the outcome of each message, and keeps the worst one."""

    def __init__(self) -> None:
        self.status = Status.DONE
        self.ended = 0
        self.trouble = 0

    async def add(self, outcome: Outcome, *, to: str = "", why: str = "") -> None:
        """Print an outcome.

        Args:
            outcome: of a message that has ended.
            to: the receiver as the user gave it, if it differs from the outcome.
            why: the reason of a bad outcome, for people.
        """
        self.ended += 1
        bad = _BAD.get(outcome.status)
        if bad is not None:
            self.trouble += 1
            self.status = max(self.status, bad)
            note(
                f"{outcome.status.value} to {to or outcome.to}: {why or outcome.reason}"
            )
        await print_json(
            {
                "msg_id": outcome.msg_id,
                "to": to or outcome.to,
                "level": outcome.level.value,
                "outcome": outcome.status.value,
                "condition": outcome.condition,
                "attempts": outcome.attempts,
                "seconds": round(outcome.seconds, 3),
            }
        )
