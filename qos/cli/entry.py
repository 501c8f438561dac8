"""Finds the command, runs it, and turns whatever goes wrong into one line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, cast

from qos._version import __version__
from qos.cli.options import parse
from qos.cli.output import NoteHandler, note
from qos.cli.status import CommandError, Status
from qos.errors import (
    CannotConnect,
    JournalError,
    NoAnswer,
    QosError,
    StillOutstanding,
    StoreError,
    UsageError,
)
from qos.options.parser import Parser

__all__ = ["COMMANDS", "Command", "run", "run_found"]

#: Name, and what it does. The module of this name in qos.cli is imported when the
#: command is run; see Command for what it has.
COMMANDS = {
    "send": "send messages and say how each has ended",
    "listen": "print what is delivered to an account",
    "outbox": "see what has not been delivered yet, take it back or go on with it",
    "inbox": "see what is held for others to release, or drop it",
    "queue": "run a queue service, or put work into its queues",
    "worker": "run a command for each item of a queue",
    "audit": "find out from journals what was lost, done twice, refused or is stuck",
    "bench": "measure speed and cost, of messages or of an audit",
    "synth": "make journals with known anomalies in them, to try an audit",
    "demo": "see the three levels over a bad link, and a queue, without a server",
}

_DESCRIPTION = (
    "Send XMPP messages with quality of service, receive them, and share out work."
)

_EPILOG = """\
examples, in two terminals:
  export XMPP_QOS_PASSWORD=secret
  xmpp-qos listen --jid lamp@example.org/1
  xmpp-qos send lamp@example.org/1 --jid controller@example.org --body on

  xmpp-qos queue serve --component queue.example.org
  xmpp-qos worker queue.example.org orders --jid bee@example.org -- ./handle-order

exit status:
  0  done
  1  not delivered or not done, certainly: it was refused
  2  wrong usage
  3  in doubt: it may have been delivered, or done; there was no answer
  4  no connection or login; what was sent stays in the outbox
  5  the store is damaged, read-only, full, too new or in use
  130  stopped by Ctrl-C, SIGTERM or SIGHUP; what is unfinished stays in the outbox
  141  nobody reads stdout any more (74: it cannot be written; 70: our mistake)
"""


class Command(Protocol):
    """The functions of the module of a command."""

    def parser(self, prog: str) -> Parser:
        """Its arguments; `prog` is how the user calls it."""

    def run(self, arguments: argparse.Namespace) -> Coroutine[Any, Any, int]:
        """Do it.

        Returns:
            The exit status.

        Raises:
            CommandError, StoreError: it cannot be done.
        """


Found: TypeAlias = tuple[Command, str, Sequence[str]]


def run(argv: Sequence[str] | None) -> int:
    """See qos.cli.main."""
    words = sys.argv[1:] if argv is None else argv

    def find() -> Found:
        name = _top_parser().parse_args(words[:1]).command
        command = cast(Command, importlib.import_module(f"qos.cli.{name}"))
        return command, f"xmpp-qos {name}", words[1:]

    return run_found(find)


def run_found(find: Callable[[], Found]) -> int:
    """Run a command that is found first, whatever goes wrong; returns the exit status.

    Args:
        find: returns the command, how the user calls it, and the words behind that.
    """
    debug = False
    status: int
    _prepare_streams()
    try:
        command, prog, words = find()
        arguments = parse(command.parser(prog), words)
        debug = getattr(arguments, "debug", False)
        with _logging(debug=debug):
            status = _run(command.run(arguments))
    except CommandError as error:
        note(str(error))
        status = error.status
    except UsageError as error:
        note(str(error))
        status = Status.USAGE
    except (StoreError, JournalError) as error:
        note(str(error))
        status = Status.STORE
    except SystemExit as error:  # argparse, after --help or --version
        status = error.code if isinstance(error.code, int) else Status.USAGE
    except CannotConnect as error:
        note(str(error))
        status = Status.UNREACHABLE
    except (NoAnswer, StillOutstanding) as error:
        note(str(error))
        status = Status.IN_DOUBT
    except QosError as error:
        note(str(error))
        status = Status.NOT_DELIVERED
    except Exception as error:  # noqa: BLE001 - the last line of defence
        note(f"this is a mistake of ours: {type(error).__name__}: {error}")
        if debug:
            traceback.print_exception(error)
        status = Status.INTERNAL
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # or the interpreter tries again at its end, and complains
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return int(status)


def _prepare_streams() -> None:
    # One that is closed is None, and its number would go to the next file opened:
    # the store, say.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _top_parser() -> Parser:
    width = max(map(len, COMMANDS))
    commands = "".join(f"\n  {name:{width}}  {what}" for name, what in COMMANDS.items())
    parser = Parser(
        prog="xmpp-qos",
        description=_DESCRIPTION,
        usage="xmpp-qos COMMAND [options]  (xmpp-qos COMMAND --help says more)",
        epilog=f"commands:{commands}\n\n{_EPILOG}",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "command", metavar="COMMAND", choices=COMMANDS, help="one of those below"
    )
    return parser


def _run(command: Coroutine[Any, Any, int]) -> int:
    """Run it to its end, or until SIGINT, SIGTERM or SIGHUP cancels it."""
    with asyncio.Runner() as runner:
        try:
            return runner.run(_until_stopped(command))
        except asyncio.CancelledError:
            return Status.INTERRUPTED


async def _until_stopped(command: Coroutine[Any, Any, int]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup has it ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, task.cancel)
    return await command


@contextlib.contextmanager
def _logging(*, debug: bool) -> Iterator[None]:
    """Show warnings of ours as notes, and when a connection is made again.

    Those of slixmpp tell in other words what we tell, and its debug log has
    passwords in it.
    """
    handler = NoteHandler()
    levels = {
        "": logging.INFO if debug else logging.WARNING,
        "slixmpp": logging.INFO if debug else logging.CRITICAL,
        "qos.stream": logging.INFO,
    }
    before = {name: logging.getLogger(name).level for name in levels}
    logging.getLogger().addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
