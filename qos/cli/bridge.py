"""`xmpp-qos bridge`: carries messages between a queue and an AMQP 1.0 broker."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from qos.cli.options import add_journal
from qos.cli.queue_options import add_drain, add_own_login, add_queue
from qos.options.parser import Parser, seconds

__all__ = ["PASSWORD_FILE", "PASSWORD_VARIABLE", "parser", "run"]

PASSWORD_VARIABLE = "XMPP_QOS_BROKER_PASSWORD"  # noqa: S105 - the name of the variable
PASSWORD_FILE = "--broker-password-file"  # noqa: S105 - the name of the option

_EPILOG = f"""\
examples, with the password of the account in XMPP_QOS_PASSWORD, and that of the broker's
user in {PASSWORD_VARIABLE}:
  xmpp-qos bridge --from-broker amqp://shop@127.0.0.1:5672/orders \\
    queue.example.org orders --jid bridge@example.org
  xmpp-qos bridge --to-broker amqps://shop@broker.example.org/orders \\
    queue.example.org orders --jid bridge@example.org/1

The URL is amqp://USER@HOST:PORT/ADDRESS, or amqps:// for TLS, which is needed for every
host but this one. The usual ports are 5672, and 5671 with TLS. Without USER the login is
ANONYMOUS. The address is what comes after the first slash; what is special in a URL is
written as %XX. RabbitMQ (plugin rabbitmq_amqp1_0) knows orders, /queue/orders,
/amq/queue/orders and /exchange/NAME/KEY: amqp://HOST:PORT//exchange/NAME/KEY.

--from-broker: a message becomes an item, whose id is its message-id with its type
(string:order-1), and is accepted at the broker after the item is on the disk of the
queue service. Whatever is killed, each message is in the queue exactly once, as long as
the queue remembers its id (dedupe_window), and the same account publishes. A message
without a message-id is in the queue at least once. What the queue refuses for good (too
large, or its id belongs to another message) is rejected at the broker.

--to-broker: an item is locked, sent as a durable message, and ends in the queue after
the broker has accepted it. Its message-id is that with which it was published by AMQP,
or else its id. Each item is at the broker at least once: after a crash or a lost link it
may be sent again, with the same message-id. A broker that looks for duplicates drops it;
RabbitMQ does not. What the broker rejects is dead in the queue, with the reason;
released and modified are passed on. If the bridge is killed (SIGKILL), its items stay
locked until their locks end (lock_timeout of the queue), or until a bridge logs in with
the same resource: give it a JID with one if it is started again. Several bridges can share
a queue, without a resource or each with another one.

The body, properties and application-properties stay as they are, and so do the priority
and the time to live. Annotations are not carried.

With --journal, a bridge to a broker records what becomes of each item, as a worker does.

The bridge connects again to either side for as long as it runs. With --drain it ends when the
giving side was asked and has no more: not while that is away, or stands still. On Ctrl-C or
SIGTERM it finishes what it has begun, within the --grace time; the rest is given back.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} (--from-broker | --to-broker) URL SERVICE NODE [options]",
        description="Carry messages between a queue (XEP-0254) and an AMQP 1.0 broker, "
        "until Ctrl-C (extra [amqp]).",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "broker", metavar="URL", help="the node of the broker; see below"
    )
    add_queue(parser)
    direction = parser.add_mutually_exclusive_group(required=True)
    direction.add_argument(
        "--from-broker",
        dest="direction",
        action="store_const",
        const="from",
        help="publish the messages of the broker's node to the queue",
    )
    direction.add_argument(
        "--to-broker",
        dest="direction",
        action="store_const",
        const="to",
        help="send the items of the queue to the broker's node",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=15.0,
        metavar="S",
        help="seconds that a stop takes at most; what has begun has most of them to end "
        "(default: %(default)g)",
    )
    add_drain(parser, without="a message")
    add_journal(parser)
    _add_broker(parser)
    add_own_login(parser, several="bridges")
    parser.set_defaults(until_stopped=True)
    return parser


def _add_broker(parser: Parser) -> None:
    group = parser.add_argument_group(
        "broker",
        f"The password comes from the variable {PASSWORD_VARIABLE} or a file.",
    )
    group.add_argument(
        PASSWORD_FILE,
        type=Path,
        metavar="FILE",
        help="a file with the password in its first line; used before the variable",
    )
    group.add_argument(
        "--broker-ca-file",
        type=Path,
        metavar="FILE",
        help="trust the certificates in this PEM file (default: those of the system)",
    )


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    # This module needs slixmpp, which is slow to import: not for a --help.
    status: int = await importlib.import_module("qos.cli.bridge_run").run(arguments)
    return status
