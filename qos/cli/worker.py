"""`xmpp-qos worker`: runs a command for each item of a queue."""

from __future__ import annotations

import argparse
import importlib
import shutil

from qos.cli.options import add_journal
from qos.cli.queue_options import add_drain, add_own_login, add_queue
from qos.cli.queue_values import selector
from qos.core.queue.node_options import QUEUE_REQUESTS_MAX
from qos.errors import UsageError
from qos.options.parser import Parser, seconds, whole

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos worker queue.example.org orders --jid bee@example.org -- ./handle-order
  xmpp-qos worker queue.example.org orders --jid bee@example.org \\
    --selector "color = 'red' AND n > 5" -- ./handle-order
  xmpp-qos worker queue.example.org orders --jid bee@example.org --parallel 4 -- \\
    sh -c 'xmllint --xpath "string(/*)" - >> done.txt'

The command gets the payload of an item, as XML in UTF-8, on its stdin; with --content the
JSON or text that is in it, or the body that came by HTTP or AMQP. Its environment has
QOS_ITEM_ID, QOS_NODE, QOS_DELIVERY_COUNT (earlier deliveries that failed) and QOS_PROPERTIES
(the properties of the item, as one JSON object), but neither NOTIFY_SOCKET nor any variable
whose name begins with XMPP_QOS_. An item with an id of more than 64 KiB is rejected unseen.
The exit status of the command decides the outcome of the item:
  0         accepted: the item is done, and leaves the queue
  75        released: the item is given back, for another time (sysexits.h: EX_TEMPFAIL)
  65        rejected: nobody can handle the item (EX_DATAERR); the reason is the last line
            that the command has written to stderr
  any other, or a signal
            failed: the item is delivered again, until it has failed too often; the
            reason is the status, and the last line on stderr
A command that ends by SIGTERM, SIGINT or SIGHUP (or with 128 and its number) when the worker
is stopped, is released. If a command cannot be started, its item is released, and the worker
takes only as many items as it can start, until another attempt succeeds.
stdout and stderr of the command go to the worker's stderr, in whole lines. If nobody reads
that, lines are dropped and counted, and the command is not kept waiting for more than a
second. With --drain the worker ends when it has asked for items, and the service has answered
that there are none. For each item that has ended there is one line on the worker's stdout:
  {"id": "…", "outcome": "accepted", "seconds": 0.041, "delivery_count": 0,
   "exit": 0, "signal": null}
outcome is accepted, released, rejected or failed; lost: this worker lost the item
(its command is killed, if it still runs), and another worker gets it; or in doubt: the
service did not answer.

An item is locked as long as its command runs. On SIGTERM or Ctrl-C, running commands have
the --grace time to end, less a second, and are killed then; other items are given back. The
grace time is all that a stop takes. A second signal stops them at once. If the worker itself
is killed (SIGKILL), its commands keep running, and their items go to other workers when their
locks end (lock_timeout of the queue), or to a worker that logs in with the same resource, at
once: give it a JID with one if it is started again. Several workers can share a queue, also
from one account, without a resource or each with another one.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} SERVICE NODE [options] -- COMMAND …",
        description="Run a command for each item of a queue (XEP-0254), until Ctrl-C.",
        epilog=_EPILOG,
    )
    add_queue(parser)
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="a program and its arguments"
    )
    parser.add_argument(
        "--parallel",
        type=whole(1, QUEUE_REQUESTS_MAX),
        default=1,
        metavar="N",
        help=f"commands that run at a time, 1 to {QUEUE_REQUESTS_MAX} "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--content",
        action="store_true",
        help="give the command what is in a payload: JSON, a text, or the bytes that came "
        "by HTTP or AMQP; other XML as it is",
    )
    parser.add_argument(
        "--selector",
        type=selector,
        default="",
        metavar="CONDITION",
        help="take only items whose properties fulfil this condition, such as "
        "\"color = 'red' AND n > 5\" (default: all items)",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=30.0,
        metavar="S",
        help="seconds that a stop takes at most; running commands have nearly all of them to "
        "end (default: %(default)g)",
    )
    parser.add_argument(
        "--lock-timeout",
        type=seconds,
        metavar="S",
        help="the lock_timeout of the queue, in seconds; needed only if it is just a few "
        "seconds (default: not known)",
    )
    add_drain(parser, without="work")
    add_journal(parser)
    add_own_login(parser, several="workers")
    parser.set_defaults(until_stopped=True)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    if shutil.which(arguments.command[0]) is None:
        raise UsageError(f"{arguments.command[0]}: there is no such command")
    # This module needs slixmpp, which is slow to import: not for a --help.
    status: int = await importlib.import_module("qos.cli.worker_run").run(arguments)
    return status
