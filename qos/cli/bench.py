"""`xmpp-qos bench`: the rate and latency of messages and of a queue at the user's server."""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from qos.cli.output import note, print_json, print_text
from qos.cli.queue_options import add_service
from qos.cli.status import Status
from qos.core.message.model import Level
from qos.core.strings import bare
from qos.errors import CannotConnect, UsageError
from qos.options.login import add_login, login_from
from qos.options.parser import Parser, jid, seconds, whole
from qos.stream.login import AccountSession
from qos.stream.server import Login

if TYPE_CHECKING:
    from qos.bench.figures import Figures

__all__ = ["parser", "run"]

_T = TypeVar("_T")

_WINDOWS = (1, 64)
_STORES = ("sqlite", "files", "memory")

#: A larger window changes nothing but memory.
_WINDOW_MAX = 4096

#: Below the default limit of servers for a stanza.
_PAYLOAD_MAX = 200_000

_WORKERS_MAX = 100

_EPILOG = """\
examples:
  xmpp-qos bench messages --jid a@example.org
  xmpp-qos bench messages --jid a@example.org --to b@example.org --levels assured --json
  xmpp-qos bench queue queue.example.org --jid a@example.org --workers 8

Both ends run in this process, each with a session of its own. So if the server is fast,
what is measured is this process: `CPU µs` is its processor time for each message.
"""

_MESSAGES = """\
examples:
  xmpp-qos bench messages --jid a@example.org
  xmpp-qos bench messages --jid a@example.org --to b@example.org --windows 1 16 256
  xmpp-qos bench messages --jid a@example.org --levels assured --store memory --json

Messages go from --jid to --to, as many as there is time for, with a window of them in
flight. A row is a level and a window. Its latency is the time from giving a message to the
library to its end: the receiver has confirmed it. At level unacknowledged nobody does;
there it is the time to its arrival. `missing` did not arrive, or that is not known;
`twice` were handed over more than once.

The stores are in the temporary folder (TMPDIR), which should be on a disk. A run that is
stopped may leave messages at the server that it keeps for the receiving account.

exit status: 0 done, 1 messages of level acknowledged or assured are missing, or assured
ones came twice.
"""

_QUEUE = """\
examples:
  xmpp-qos bench queue queue.example.org --jid a@example.org
  xmpp-qos bench queue queue.example.org --jid a@example.org --workers 8 --windows 256

Makes a queue with a name of its own, which the account must be allowed to, and deletes it
at the end. A publisher gives it items, as many as there is time for, with a window of
unconfirmed ones; workers accept them. `confirm/s` is the rate at which the publisher
learns that items are on the disk of the service, and `items/s` that at which workers
learn that they are accepted. The latency is the time from the one's giving to the other's
learning. If items come faster than they are accepted, it grows with the time.

exit status: 0 done, 1 items are missing, or came twice. An item may come twice where a
session is lost.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Measure the rate and latency of messages, or of a queue, at your "
        "server.",
        epilog=_EPILOG,
    )
    whats = parser.add_subparsers(
        dest="what", metavar="WHAT", title="what to measure", prog=prog, required=True
    )
    messages = whats.add_parser(
        "messages",
        help="messages from one session to another",
        description="Measure messages from one session to another, at each level.",
        epilog=_MESSAGES,
    )
    _add_messages(messages)
    _add_work(messages, "messages in flight")
    add_login(messages, jid_help="the account that sends")
    queue = whats.add_parser(
        "queue",
        help="items from a publisher to workers, through a queue",
        description="Measure a queue: a publisher and some workers.",
        epilog=_QUEUE,
    )
    add_service(queue)
    queue.add_argument(
        "--workers",
        type=whole(1, _WORKERS_MAX),
        default=4,
        metavar="N",
        help="workers, each with a session (default: %(default)s)",
    )
    _add_work(queue, "items that the service has not confirmed")
    add_login(queue, jid_help="the account that publishes and works")
    return parser


def _add_messages(parser: Parser) -> None:
    levels = [level.value for level in Level]
    parser.add_argument(
        "--to",
        type=jid,
        metavar="JID",
        help="the account that receives (default: that of --jid)",
    )
    parser.add_argument(
        "--to-password-file",
        type=Path,
        metavar="FILE",
        help="a file with its password in the first line (default: that of --jid)",
    )
    parser.add_argument(
        "--levels",
        nargs="+",
        choices=levels,
        default=levels,
        metavar="LEVEL",
        help=f"some of {', '.join(levels)} (default: all)",
    )
    parser.add_argument(
        "--store",
        choices=_STORES,
        default=_STORES[0],
        help="the store at both ends (default: %(default)s)",
    )


def _add_work(parser: Parser, window: str) -> None:
    parser.add_argument(
        "--windows",
        type=whole(1, _WINDOW_MAX),
        nargs="+",
        default=_WINDOWS,
        metavar="N",
        help=f"{window} at once, a row for each (default: "
        f"{' '.join(map(str, _WINDOWS))})",
    )
    parser.add_argument(
        "--size",
        type=whole(1, _PAYLOAD_MAX),
        default=200,
        metavar="BYTES",
        help="size of each payload, in bytes (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=3.0,
        metavar="S",
        help="seconds for each row (default: %(default)g)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each row as JSON, one object a line"
    )


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    login = login_from(arguments)
    measure = _queue if arguments.what == "queue" else _messages
    return await measure(arguments, login)


# -- messages --------------------------------------------------------------


async def _messages(arguments: argparse.Namespace, login: Login) -> int:
    from qos.bench.messages import Traffic, options

    if arguments.to is None and arguments.to_password_file is not None:
        raise UsageError("--to-password-file is for the account of --to")
    ends = (login, _receiver(arguments, login))
    windows = _distinct(arguments.windows)
    table = _Table(arguments)
    with tempfile.TemporaryDirectory(prefix="xmpp-qos-bench-") as folder:
        plugins = [
            options(
                "memory:"
                if arguments.store == "memory"
                else f"{arguments.store}:{Path(folder, name)}",
                bare(login.jid),
                max(windows),
            )
            for name in ("sender", "receiver")
        ]

        def prepare(session: AccountSession, number: int) -> None:
            session.client.register_plugin("xep_qos", plugins[number])

        async with _sessions(ends, prepare) as (sender, receiver):

            async def work() -> None:
                traffic = Traffic(sender.client, receiver.client)
                for level in map(Level, _distinct(arguments.levels)):
                    for window in windows:
                        figures = await traffic.measure(
                            level,
                            window=window,
                            payload_bytes=arguments.size,
                            seconds=arguments.seconds,
                        )
                        plain = level is Level.UNACKNOWLEDGED
                        twice = figures.twice if level is Level.ASSURED else 0
                        await table.add(
                            figures, bad=twice + figures.missing * (not plain)
                        )
                table.explain(traffic.problems)

            await sender.work(receiver.work(work()))
    return table.status


def _receiver(arguments: argparse.Namespace, login: Login) -> Login:
    """The login of the receiving account."""
    if arguments.to is None:
        return login
    to = {"jid": arguments.to}
    if arguments.to_password_file is not None:
        to["password_file"] = arguments.to_password_file
    return login_from(argparse.Namespace(**vars(arguments) | to))


# -- a queue ---------------------------------------------------------------


async def _queue(arguments: argparse.Namespace, login: Login) -> int:
    import xep_0254  # noqa: F401 - makes the plugin known
    from qos.bench.queue import QueueTraffic, own_queue

    table = _Table(arguments, queue=True)
    logins = [login] * (1 + arguments.workers)

    def prepare(session: AccountSession, _number: int) -> None:
        session.client.register_plugin("xep_0254")

    async with _sessions(logins, prepare) as (publisher, *workers):

        async def work() -> None:
            async with own_queue(publisher.client, arguments.service) as node:
                traffic = QueueTraffic(
                    publisher.client,
                    [worker.client for worker in workers],
                    arguments.service,
                    node,
                )
                async with traffic.working():
                    for window in _distinct(arguments.windows):
                        figures = await traffic.measure(
                            window=window,
                            payload_bytes=arguments.size,
                            seconds=arguments.seconds,
                        )
                        await table.add(figures, bad=figures.missing + figures.twice)

        await publisher.work(work())
    return table.status


# -- both ------------------------------------------------------------------


@asynccontextmanager
async def _sessions(
    logins: Sequence[Login], prepare: Callable[[AccountSession, int], None]
) -> AsyncIterator[list[AccountSession]]:
    """A session for each login, online.

    Args:
        logins: of accounts; each session gets a resource of its own.
        prepare: called with each session and its number, before it begins.

    Raises:
        CannotConnect: one is not possible.
    """
    async with AsyncExitStack() as stack:
        sessions = []
        for number, login in enumerate(logins):
            own = replace(login, jid=f"{bare(login.jid)}/bench-{secrets.token_hex(4)}")
            session = await stack.enter_async_context(AccountSession(own))
            prepare(session, number)
            session.start()
            sessions.append(session)
        for session in sessions:
            try:
                await session.work(session.online.wait())
            except CannotConnect as error:
                # There may be two accounts.
                name = session.client.requested_jid.bare
                raise CannotConnect(f"{name}: {error}") from None
        yield sessions


def _distinct(values: Sequence[_T]) -> list[_T]:
    return list(dict.fromkeys(values))


class _Table:
    """Shows each row as soon as it is measured.

    Attributes:
        status: of the command.
    """

    def __init__(self, arguments: argparse.Namespace, *, queue: bool = False) -> None:
        self.status = Status.DONE
        self._json: bool = arguments.json
        self._queue = queue
        self._begun = False

    async def add(self, figures: Figures, *, bad: int) -> None:
        """Show a row; `bad` counts its messages that broke a promise."""
        from qos.bench.figures import head, line

        if bad:
            self.status = Status.NOT_DELIVERED
        if self._json:
            await print_json(asdict(figures))
            return
        if not self._begun:
            await print_text(f"{head(queue=self._queue)}\n")
        self._begun = True
        await print_text(f"{line(figures)}\n")

    def explain(self, problems: Counter[str]) -> None:
        """Say why messages have not ended well."""
        for reason, count in problems.most_common():
            note(f"{count:,} messages: {reason}")
