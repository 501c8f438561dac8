"""`python -m benchmarks`: measurements of this library on this machine.

This module has the arguments and help texts; the modules `bench_*` beside it measure.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.command_options import add_json, add_other_measurements
from benchmarks.plot_option import add_plot
from benchmarks.settings import STORES
from qos.cli.status import CommandError, Status
from qos.core.message.model import Level
from qos.options.login import add_login
from qos.options.parser import Parser, jid, seconds, whole
from qos.testing.processes import ProcessFailed

__all__ = ["WINDOWS", "parser", "run"]

WINDOWS = (1, 16, 64, 256)

#: Above, the peers that were seen first are forgotten.
_FAN_MAX = 10_000

#: A larger window changes nothing but memory.
_WINDOW_MAX = 4096

#: Below the default limit of servers for a stanza.
_SIZE_MAX = 200_000

_EPILOG = """\
examples:
  python -m benchmarks --floor
  python -m benchmarks --floor --levels assured --stores memory sqlite --plot speed.svg
  python -m benchmarks --floor --peers --windows 64 --seconds 2 --plot speed.svg
  python -m benchmarks --levels --queue --windows 16 64
  python -m benchmarks --levels --fan 1000 --windows 64
  python -m benchmarks --floor --peers --stores memory sqlite --windows 64 --markdown
  python -m benchmarks --embedded --windows 1 64 --sizes 200 20000 --seconds 1 --repeat 3
  python -m benchmarks --latency --nagle --floor --levels assured --stores memory
  python -m benchmarks --jid a@example.org --to b@example.org --levels assured --json
  python -m benchmarks audit --events 1M 3M 10M
  python -m benchmarks footprint --only flat --flat-messages 1M
  python -m benchmarks link --delay 500 --messages 1500
  python -m benchmarks guard
  python -m benchmarks synth --out journals --messages 100000 --lost 7

Two processes are logged in at one server. One sends the other as many messages as it can
in the given time, with a window of them in flight. Each row has processes of its own. All
rows are measured in turns, so that a disturbance of the machine hits all of them, and the
figures are medians of the turns. Every message sent is checked to have been handed over.
The rows of --floor do the same work for the server and nothing else. The ratios to them,
and to the rows of --peers with the same promise, are taken within the same turn; ± is half
the distance between the least and the greatest turn, and CPU ÷ compares the processor time
of both ends for a message, which depends less on what else the machine does. Latency
is the time from giving a message to the library to its end; at level unacknowledged, to
its arrival.

Stores are in the temporary folder (TMPDIR), which should be on a disk. With the defaults
a run takes some 7 minutes, 12 with --floor, and 27 with --floor --peers.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage="%(prog)s [options]\n       %(prog)s WHAT [options]",
        description="Measure this library here: whether messages arrive, how fast, and "
        "at what cost.",
        epilog=_EPILOG,
    )
    _add_rows(parser)
    _add_work(parser)
    _add_server(parser)
    add_other_measurements(parser, prog)
    return parser


def _add_rows(parser: Parser) -> None:
    group = parser.add_argument_group("rows")
    levels = [each.value for each in Level]
    group.add_argument(
        "--levels",
        nargs="*",
        choices=levels,
        default=levels,
        metavar="LEVEL",
        help=f"some of {', '.join(levels)}, or none (default: all)",
    )
    group.add_argument(
        "--stores",
        nargs="+",
        choices=STORES,
        default=STORES,
        metavar="STORE",
        help=f"the stores at both ends, some of {', '.join(STORES)} (default: all)",
    )
    group.add_argument(
        "--sm",
        action="store_true",
        help="add assured in memory with stream management (XEP-0198)",
    )
    group.add_argument(
        "--journal",
        action="store_true",
        help="add each row of level assured with a journal",
    )
    group.add_argument(
        "--fan",
        type=whole(2, _FAN_MAX),
        metavar="N",
        help="add assured in memory from N senders to one receiver, from one sender to N "
        "receivers, and both with one in place of N; they are addresses of a component",
    )
    group.add_argument(
        "--floor",
        action="store_true",
        help="add the same requests made from strings, and by slixmpp's Iq.send()",
    )
    group.add_argument(
        "--peers",
        action="store_true",
        help="add the same messages over mosquitto, with paho-mqtt, aiomqtt and gmqtt; a "
        "missing one is left out; needs the group `benchmarks`",
    )
    group.add_argument(
        "--queue",
        action="store_true",
        help="add queues: ours (XEP-0254 on a Prosody of its own, single items and "
        "batches; by AMQP 1.0, with rhea and proton; and by HTTP), RabbitMQ with "
        "aio-pika and by AMQP 1.0, and NATS JetStream with nats-py; by AMQP and HTTP "
        "also without workers, with aiohttp alone as the floor of HTTP; a missing one "
        "is left out; needs the group `benchmarks`, the extras `amqp` and `rest`, and for rhea `npm "
        "install rhea`",
    )


def _add_work(parser: Parser) -> None:
    group = parser.add_argument_group("work")
    group.add_argument(
        "--windows",
        type=whole(1, _WINDOW_MAX),
        nargs="+",
        metavar="N",
        help=f"messages in flight at once (default: {' '.join(map(str, WINDOWS))})",
    )
    group.add_argument(
        "--sizes",
        type=whole(1, _SIZE_MAX),
        nargs="+",
        default=(200,),
        metavar="BYTES",
        help="sizes of payloads, in bytes (default: 200)",
    )
    group.add_argument(
        "--seconds",
        type=seconds,
        default=3.0,
        metavar="S",
        help="seconds for each sample (default: %(default)g)",
    )
    group.add_argument(
        "--repeat",
        type=whole(1),
        default=5,
        metavar="R",
        help="the number of turns (default: %(default)s)",
    )
    group.add_argument(
        "--latency",
        action="store_true",
        help="send one message after the other, with a pause between them, so that the "
        "link is idle; compare the p50 with that of the floor",
    )
    group.add_argument(
        "--priority",
        action="store_true",
        help="let everything that is measured run ahead of other programs, by SCHED_RR "
        "or nice; needs root or CAP_SYS_NICE",
    )
    add_json(group)
    group.add_argument(
        "--markdown",
        action="store_true",
        help="print one short table in Markdown, of the largest size",
    )
    add_plot(group)


def _add_server(parser: Parser) -> None:
    group = parser.add_argument_group(
        "server", "Without these options a Prosody is started on loopback."
    )
    group.add_argument(
        "--nagle",
        action="store_true",
        help="leave Nagle's algorithm on in that Prosody, as Debian does",
    )
    group.add_argument(
        "--embedded",
        action="store_true",
        help="use the test server of qos.testing instead",
    )
    group.add_argument(
        "--to",
        type=jid,
        metavar="JID",
        help="the receiving account at a server of yours; --jid is the sending one",
    )
    group.add_argument(
        "--to-password-file",
        type=Path,
        metavar="FILE",
        help="a file with its password in the first line (default: that of --jid)",
    )
    add_login(parser, jid_help="the sending account at a server of yours")


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    what = arguments.what or "messages"
    module = importlib.import_module(f"benchmarks.command_{what}")
    try:
        status: int = await module.run(arguments)
    except ProcessFailed as error:
        kind = Status.UNREACHABLE if error.unreachable else Status.INTERNAL
        raise CommandError(str(error), kind) from None
    return status
