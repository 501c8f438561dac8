"""`xmpp-qos worker`: runs a command for each item of a queue."""

from __future__ import annotations

import argparse
import importlib
import shutil

from qos.cli.options import add_journal
from qos.core.queue.node_options import QUEUE_REQUESTS_MAX
from qos.errors import UsageError
from qos.options.login import add_login
from qos.options.parser import Parser, address, seconds, whole

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos worker queue.example.org orders --jid bee@example.org -- ./handle-order
  xmpp-qos worker queue.example.org orders --jid bee@example.org --parallel 4 -- \\
    sh -c 'xmllint --xpath "string(/*)" - >> done.txt'

The command gets the payload of an item, XML in UTF-8, on its stdin, and in its
environment QOS_ITEM_ID, QOS_NODE and QOS_DELIVERY_COUNT (prior deliveries that failed),
but not XMPP_QOS_PASSWORD. An item with an id of more than 64 KiB is rejected unseen.
How it exits decides what becomes of the item:
  0         accepted: it is done, and gone from the queue
  75        released: given back, for another time (sysexits.h: EX_TEMPFAIL)
  65        rejected: nobody can handle it (EX_DATAERR); the last line that the command
            has written to stderr is the reason
  the rest  failed, as by a signal: it comes again, until it has failed too often
What the command writes to its stdout and stderr goes to our stderr. For each item that
has ended there is one line on our stdout:
  {"id": "…", "outcome": "accepted", "seconds": 0.041, "delivery_count": 0,
   "exit": 0, "signal": null}
outcome is accepted, released, rejected or failed; lost: the item was not ours any more
(its command is killed, if it still runs), and somebody else gets it; or in doubt: the
service did not answer.

An item is locked for as long as its command runs. On SIGTERM or Ctrl-C what runs may
go on for the --grace time, and is killed then; the rest is given back. A second one ends
it at once. When the worker itself is killed (SIGKILL) its commands go on, and their items
come to others. Several workers share a queue, also from one account.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} SERVICE NODE [options] -- COMMAND …",
        description="Run a command for each item of a queue (XEP-0254), until Ctrl-C.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "service",
        type=address,
        metavar="SERVICE",
        help="the JID of the queue service; the full one, if it is an account",
    )
    parser.add_argument("node", metavar="NODE", help="the name of the queue")
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="a program, and its arguments"
    )
    parser.add_argument(
        "--parallel",
        type=whole(1, QUEUE_REQUESTS_MAX),
        default=1,
        metavar="N",
        help=f"so many commands at a time, 1 to {QUEUE_REQUESTS_MAX} "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=30.0,
        metavar="S",
        help="when it is stopped, what runs may go on for this time (default: "
        "%(default)g)",
    )
    parser.add_argument(
        "--lock-timeout",
        type=seconds,
        metavar="S",
        help="the lock_timeout of the queue, needed only where it is less than some "
        "seconds (default: not known)",
    )
    parser.add_argument(
        "--drain",
        type=seconds,
        metavar="S",
        help="end when there has been nothing to do for this time (default: go on)",
    )
    add_journal(parser)
    add_login(
        parser,
        jid_help="the own account; with a resource that one is asked for, and without "
        "one a new one each time, so that several workers stand side by side",
    )
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    if shutil.which(arguments.command[0]) is None:
        raise UsageError(f"{arguments.command[0]}: there is no such command")
    # This needs slixmpp, which takes a while: not for a --help.
    status: int = await importlib.import_module("qos.cli.worker_run").run(arguments)
    return status
