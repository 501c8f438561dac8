"""The entry point: it finds the command, runs it, and reports an error in one line."""

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
from qos.cli.children import Children, is_init
from qos.cli.options import parse
from qos.cli.output import NoteHandler, flush_notes, note, say
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

__all__ = ["COMMANDS", "Command", "command_named", "run", "run_found"]

#: Each command with a description. The module of this name in qos.cli is imported when
#: the command is run, or the one in _MODULES; see Command for its functions.
COMMANDS = {
    "send": "send messages, and report how each has ended",
    "listen": "print the messages that are delivered to an account",
    "outbox": "list messages that are not delivered yet, withdraw or resend them",
    "inbox": "list messages that wait here for their release, or drop them",
    "queue": "run a queue service, or use one",
    "worker": "run a command for each item of a queue",
    "bridge": "carry messages between a queue and an AMQP 1.0 broker",
    "backup": "copy stores, with everything that belongs to them, into a folder",
    "restore": "copy the stores of a backup back, as a whole",
    "audit": "find lost, duplicated, refused and stuck messages from journals",
    "bench": "measure the rate and latency of messages and queues at your server",
    "demo": "show the three levels over a bad link, a queue and an audit; no server",
    "completion": "print a script that completes words of this command in a shell",
}

#: The module of a command that has the name of a module of Python.
_MODULES = {"queue": "queues"}

_DESCRIPTION = (
    "Send and receive XMPP messages with quality of service, and share work by queues."
)

_EPILOG = """\
examples, in two terminals, each with the password of its account in XMPP_QOS_PASSWORD:
  xmpp-qos listen --jid lamp@example.org/1 --trust controller@example.org
  xmpp-qos send lamp@example.org/1 --jid controller@example.org --body on

  xmpp-qos queue serve --component queue.example.org
  xmpp-qos worker queue.example.org orders --jid bee@example.org -- ./handle-order

exit status:
  0  done
  1  certainly not delivered or not done, or refused
  2  wrong usage
  3  in doubt: perhaps delivered or done, but there was no answer
  4  no connection or login; nothing was done. What had been accepted before, stays in
     the outbox
  5  the store is damaged, read-only, full, too new or in use
  130  stopped by Ctrl-C, SIGTERM or SIGHUP; unfinished messages stay in the outbox
       (0: a command that runs until it is stopped was stopped by SIGTERM)
  141  stdout was closed by its reader (74: stdout cannot be written; 70: a bug of ours)
"""


class Command(Protocol):
    """The functions that the module of a command must have."""

    def parser(self, prog: str) -> Parser:
        """The parser of its arguments; `prog` is the command as the user calls it."""

    def run(self, arguments: argparse.Namespace) -> Coroutine[Any, Any, int]:
        """Run the command.

        Returns:
            The exit status.

        Raises:
            CommandError, StoreError: the command cannot be done.
        """


def command_named(name: str) -> Command:
    """The command of this name, imported now."""
    module = importlib.import_module(f"qos.cli.{_MODULES.get(name, name)}")
    return cast(Command, module)


Found: TypeAlias = tuple[Command, str, Sequence[str]]


def run(argv: Sequence[str] | None) -> int:
    """See qos.cli.main."""
    words = sys.argv[1:] if argv is None else argv

    def find() -> Found:
        name = _top_parser().parse_args(words[:1]).command
        return command_named(name), f"xmpp-qos {name}", words[1:]

    return run_found(find)


def run_found(find: Callable[[], Found]) -> int:
    """Find a command and run it; returns the exit status, whatever goes wrong.

    Args:
        find: returns the command, its name as the user calls it, and its arguments.
    """
    debug = False
    status: int
    _prepare_streams()
    try:
        command, prog, words = find()
        arguments = parse(command.parser(prog), words)
        debug = getattr(arguments, "debug", False)
        with _logging(debug=debug):
            if getattr(arguments, "until_stopped", False):
                running = _as_init(command.run(arguments))
            else:
                running = command.run(arguments)
            status = _run(running, serves=_serves(arguments))
    except CommandError as error:
        note(str(error))
        status = error.status
    except UsageError as error:
        note(str(error))
        status = Status.USAGE
    except (StoreError, JournalError) as error:
        note(str(error))
        status = Status.STORE
    except SystemExit as error:  # from argparse, after --help or --version
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
            say("".join(traceback.format_exception(error)))
        status = Status.INTERNAL
    _flush_streams()
    return int(status)


def _flush_streams() -> None:
    flush_notes()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # else the interpreter tries again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _prepare_streams() -> None:
    # A closed stream is None in Python, and its number would go to the next file that
    # is opened: perhaps the store.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _top_parser() -> Parser:
    width = max(map(len, COMMANDS))
    commands = "".join(
        f"\n  {name:{width}}  {summary}" for name, summary in COMMANDS.items()
    )
    parser = Parser(
        prog="xmpp-qos",
        description=_DESCRIPTION,
        usage="xmpp-qos COMMAND [options]  (more: xmpp-qos COMMAND --help)",
        epilog=f"commands:{commands}\n\n{_EPILOG}",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "command", metavar="COMMAND", choices=COMMANDS, help="one of the commands below"
    )
    return parser


def _serves(arguments: argparse.Namespace) -> bool:
    """Whether the command was to run until it is stopped."""
    ends_by_itself = (getattr(arguments, name, None) for name in ("count", "drain"))
    return getattr(arguments, "until_stopped", False) and not any(ends_by_itself)


def _run(command: Coroutine[Any, Any, int], *, serves: bool) -> int:
    """Run the command to its end, or until SIGINT, SIGTERM or SIGHUP cancels it.

    Args:
        command: the command.
        serves: it has no end of its own, so SIGTERM, by which service managers stop a
            service, is a good one.
    """
    signals: list[int] = []
    with asyncio.Runner() as runner:
        try:
            return runner.run(_until_stopped(command, signals, serves=serves))
        except asyncio.CancelledError:
            well = serves and signals == [signal.SIGTERM]
            return Status.DONE if well else Status.INTERRUPTED


async def _until_stopped(
    command: Coroutine[Any, Any, int], signals: list[int], *, serves: bool
) -> int:
    """Run the command; note the signals that have cancelled it."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    # Service managers and log rotation send SIGHUP so that files are read again. Where
    # there is a terminal, it says that this has been closed.
    goes_on = serves and not any(map(os.isatty, (0, 1, 2)))

    def stop(number: int) -> None:
        if number == signal.SIGHUP and goes_on:
            note("SIGHUP: going on; files are read again whenever they change")
            return
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup SIGHUP is ignored, and stays so.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    return await command


async def _as_init(command: Coroutine[Any, Any, int]) -> int:
    """Run the command; as process 1 of a container, reap orphans meanwhile."""
    if is_init():
        Children.of_loop()
    return await command


@contextlib.contextmanager
def _logging(*, debug: bool) -> Iterator[None]:
    """Show our own warnings as notes, and report when a connection is made again.

    Also those of Python: its own way to show them could block.

    slixmpp's warnings repeat what we report, and its debug log has passwords in it.
    """
    handler = NoteHandler()
    levels = {
        "": logging.INFO if debug else logging.WARNING,
        "slixmpp": logging.INFO if debug else logging.CRITICAL,
        "qos.stream": logging.INFO,
    }
    before = {name: logging.getLogger(name).level for name in levels}
    logging.captureWarnings(True)
    logging.getLogger().addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
