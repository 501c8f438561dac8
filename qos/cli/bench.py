"""`xmpp-qos bench`: measurements of this library on this machine.

This module has the arguments and help texts; the modules `bench_*` beside it measure.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from qos.bench.settings import STORES
from qos.cli.plots import add_plot
from qos.cli.status import CommandError, Status
from qos.core.message.model import Level
from qos.options.login import add_login
from qos.options.parser import Parser, jid, seconds, whole
from qos.testing.processes import ProcessFailed

__all__ = ["FOOTPRINT", "WINDOWS", "parser", "run"]

WINDOWS = (1, 16, 64, 256)

#: The measurements of `footprint`, in order.
FOOTPRINT = ("import", "stanzas", "outstanding", "flat")

#: The first thousand messages do not count, and the rest is divided into ten parts.
_FLAT_MIN = 2000

#: Above, the peers that were seen first are forgotten.
_FAN_MAX = 10_000

#: A larger window changes nothing but memory.
_WINDOW_MAX = 4096

#: Below the default limit of servers for a stanza.
_SIZE_MAX = 200_000

#: A link to the moon and back has 2,600 ms.
_DELAY_MS_MAX = 10_000
_LINK_MESSAGES_MAX = 100_000

_EVENTS = (1_000_000, 3_000_000, 10_000_000)
_UNITS = {"k": 1_000, "M": 1_000_000}

_EPILOG = """\
examples:
  xmpp-qos bench --floor
  xmpp-qos bench --floor --levels assured --stores memory sqlite --plot speed.svg
  xmpp-qos bench --floor --peers --windows 64 --seconds 2 --plot speed.svg
  xmpp-qos bench --levels --queue --windows 16 64
  xmpp-qos bench --levels --fan 1000 --windows 64
  xmpp-qos bench --floor --peers --stores memory sqlite --windows 64 --markdown
  xmpp-qos bench --embedded --windows 1 64 --sizes 200 20000 --seconds 1 --repeat 3
  xmpp-qos bench --latency --nagle --floor --levels assured --stores memory
  xmpp-qos bench --jid a@example.org --to b@example.org --levels assured --json
  xmpp-qos bench audit --events 1M 3M 10M
  xmpp-qos bench footprint --only flat --flat-messages 1M
  xmpp-qos bench link --delay 500 --messages 1500
  xmpp-qos bench guard

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

_AUDIT = """\
examples:
  xmpp-qos bench audit
  xmpp-qos bench audit --events 1M 3M 10M 30M --repeat 3 --plot audit.svg
  xmpp-qos bench audit --events 100k --repeat 1 --json

Makes journals of each size. Then, in one Spark session and in turns, it reads and counts
the files, and audits them. An audit is compared with two ways to read the same files:

  read      reading with the schema of a journal, every field parsed, and counting
  inferred  spark.read.json(folder).count(), which must first find out the schema

The ratio is the median of the turns. One turn before them, at the smallest size, is not
counted: Java is slow until it has compiled what it runs. Ten million events take some
3 GB in the temporary folder (TMPDIR), and as much again while they are audited.
"""

_FOOTPRINT = """\
examples:
  xmpp-qos bench footprint
  xmpp-qos bench footprint --only import stanzas --repeat 9
  xmpp-qos bench footprint --only flat --flat-messages 1M --json

Four measurements, all in processes of their own, on a Prosody that is started for them:

  import       importing xep_qos in a fresh interpreter that has imported slixmpp: time,
               processor time, and the number of additional modules
  stanzas      pings (iq) and plain messages, each answered: processor time per stanza in
               an application with the plugin loaded, in one with slixmpp's XEP-0199 only,
               and in one with only those parts of slixmpp that the plugin needs. Shown are
               medians and quartiles of the difference within each turn; "without, again"
               is a second run without the plugin, and shows the noise
  outstanding  the outbox full of messages to an account that is not there. "RSS more":
               memory after submitting them, less that before. "Started": memory after a
               start with them, less that after a start without. "Load": time until the
               plugin has opened the store. "Start": time from then until a message to
               another account has ended, with and without them. "Rate": messages to
               another account, with and without them
  flat         one assured message after another, with SQLite and a journal at both ends:
               the cost of a message from the 1,000th on, in ten stretches; RSS and file
               sizes of each end after each stretch; and the last stretch divided by the
               first

Below each table is the goal of the project, and whether it is reached. The ratios are
taken between neighbouring turns; even so, a difference of 2 % is visible only on a machine
that does nothing else. A full run takes some 5 minutes; a million messages take 10 or more.
Files are in the temporary folder (TMPDIR), which should be on a disk.
"""

_LINK = """\
examples:
  xmpp-qos bench link
  xmpp-qos bench link --delay 500 --messages 1500 --repeat 1

The sender reaches a Prosody on loopback through a relay that delays all bytes; the
receiver is next to the server. A sample is a login, and then one message or many at level
assured, until the sender knows that the last one is delivered. It begins with the first
byte on the link. `turns` counts how often the sender has to wait for the other side: each
costs a round trip. By bare JID the sender looks for a resource of the receiver first. At
a later start the store knows what the peer supports.

A run with the defaults takes a minute. Stores are in the temporary folder (TMPDIR).
"""

_GUARD = """\
examples:
  xmpp-qos bench guard

Takes half a minute. If something seems slower, it is measured once more, since another
program may have used the machine. The exit status is 1 if it is slower again.
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
    whats = parser.add_subparsers(
        dest="what", metavar="WHAT", title="other measurements", prog=prog
    )
    audit = whats.add_parser(
        "audit",
        help="an audit, compared with reading the same journals",
        description="Measure an audit, compared with reading and counting the journals.",
        epilog=_AUDIT,
    )
    audit.add_argument(
        "--events",
        type=_events,
        nargs="+",
        default=_EVENTS,
        metavar="N",
        help="approximate sizes of journals, in lines (default: 1M 3M 10M)",
    )
    audit.add_argument(
        "--repeat",
        type=whole(1),
        default=2,
        metavar="R",
        help="turns for each size (default: %(default)s)",
    )
    audit.add_argument(
        "--cores",
        type=whole(1),
        default=2,
        metavar="N",
        help="cores that Spark may use (default: %(default)s)",
    )
    _add_json(audit)
    add_plot(audit)
    audit.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="put journals and tables into this new or empty folder, and keep them",
    )
    _add_footprint(whats)
    _add_link(whats)
    whats.add_parser(
        "guard",
        help="check that this library is as near to its floor as before",
        description="Measure the ratios to the floor on a Prosody, and fail if a ratio is "
        "much lower than recorded.",
        epilog=_GUARD,
    )
    return parser


def _add_footprint(whats: argparse._SubParsersAction[Parser]) -> None:
    footprint = whats.add_parser(
        "footprint",
        help="what the plugin costs besides messages: import, other stanzas, memory",
        description="Measure what the plugin costs an application besides its messages.",
        epilog=_FOOTPRINT,
    )
    footprint.add_argument(
        "--only",
        nargs="+",
        choices=FOOTPRINT,
        default=FOOTPRINT,
        metavar="WHAT",
        help=f"some of {', '.join(FOOTPRINT)} (default: all)",
    )
    footprint.add_argument(
        "--messages",
        type=_count,
        default=100_000,
        metavar="N",
        help="outstanding messages, of 1,000 bytes each (default: 100k)",
    )
    footprint.add_argument(
        "--flat-messages",
        type=_flat_count,
        default=100_000,
        metavar="N",
        help="messages that `flat` sends (default: 100k)",
    )
    footprint.add_argument(
        "--seconds",
        type=seconds,
        default=2.0,
        metavar="S",
        help="seconds for each rate beside the outstanding messages (default: "
        "%(default)g)",
    )
    footprint.add_argument(
        "--repeat",
        type=whole(1),
        default=5,
        metavar="R",
        help="interpreters for `import`, sets of processes for `stanzas`, turns for "
        "`outstanding` (default: %(default)s)",
    )
    _add_json(footprint)


def _add_link(whats: argparse._SubParsersAction[Parser]) -> None:
    link = whats.add_parser(
        "link",
        help="a far link: the round trips and seconds until messages are delivered",
        description="Measure a login and messages over a link with a delay.",
        epilog=_LINK,
    )
    link.add_argument(
        "--delay",
        type=whole(0, _DELAY_MS_MAX),
        default=50,
        metavar="MS",
        help="the round trip of the link, in milliseconds (default: %(default)s)",
    )
    link.add_argument(
        "--messages",
        type=whole(1, _LINK_MESSAGES_MAX),
        default=1000,
        metavar="N",
        help="messages in the rows with many (default: %(default)s)",
    )
    link.add_argument(
        "--repeat",
        type=whole(1),
        default=3,
        metavar="R",
        help="samples of each row; their medians are shown (default: %(default)s)",
    )
    _add_json(link)


def _add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON on stdout"
    )


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
        "missing one is left out; needs the extra `bench`",
    )
    group.add_argument(
        "--queue",
        action="store_true",
        help="add queues: ours (XEP-0254 on a Prosody of its own, single items and "
        "batches; and by AMQP 1.0, with rhea and proton), RabbitMQ with aio-pika and by "
        "AMQP 1.0, and NATS JetStream with nats-py; by AMQP also without workers; a "
        "missing one is left out; needs the "
        "extras `bench` and `amqp`, and for rhea `npm install rhea`",
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
    _add_json(group)
    group.add_argument(
        "--markdown",
        action="store_true",
        help="print one short table in Markdown, of the largest window and size",
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
    module = importlib.import_module(f"qos.cli.bench_{what}")
    try:
        status: int = await module.run(arguments)
    except ProcessFailed as error:
        kind = Status.UNREACHABLE if error.unreachable else Status.INTERNAL
        raise CommandError(str(error), kind) from None
    return status


def _events(text: str) -> int:
    return _count(text, "events")


def _flat_count(text: str) -> int:
    count = _count(text)
    if count < _FLAT_MIN:
        raise argparse.ArgumentTypeError(f"{text!r} is less than {_FLAT_MIN}")
    return count


def _count(text: str, of: str = "messages") -> int:
    """A number, perhaps followed by k or M."""
    number = text.rstrip("kM")
    unit = _UNITS.get(text[len(number) :], 1 if text == number else 0)
    if not number.isdecimal() or not 0 < int(number) * unit <= sys.maxsize:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of {of} like 500k, 10M or 1234"
        )
    return int(number) * unit
