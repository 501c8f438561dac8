"""`xmpp-qos bench`: measures this library on this machine.

Here are the words of it; what they do is in the modules `bench_*` beside it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from qos.bench.sample import BenchFailed
from qos.bench.settings import STORES
from qos.cli.plots import add_plot
from qos.cli.status import CommandError, Status
from qos.core.message.model import Level
from qos.options.login import add_login
from qos.options.parser import Parser, jid, seconds, whole

__all__ = ["FOOTPRINT", "WINDOWS", "parser", "run"]

WINDOWS = (1, 16, 64, 256)

#: What `footprint` measures, in order.
FOOTPRINT = ("import", "stanzas", "outstanding", "flat")

#: The first thousand do not count, and the rest is cut into ten.
_FLAT_MIN = 2000

#: More makes no difference, but for memory.
_WINDOW_MAX = 4096

#: Below what servers take in a stanza by default.
_SIZE_MAX = 200_000

_EVENTS = (1_000_000, 3_000_000, 10_000_000)
_UNITS = {"k": 1_000, "M": 1_000_000}

_EPILOG = """\
examples:
  xmpp-qos bench --floor
  xmpp-qos bench --floor --levels assured --stores memory sqlite --plot speed.svg
  xmpp-qos bench --floor --peers --windows 64 --seconds 2 --plot speed.svg
  xmpp-qos bench --levels --queue --windows 16 64
  xmpp-qos bench --embedded --windows 1 64 --sizes 200 20000 --seconds 1 --repeat 3
  xmpp-qos bench --latency --nagle --floor --levels assured --stores memory
  xmpp-qos bench --jid a@example.org --to b@example.org --levels assured --json
  xmpp-qos bench audit --events 1M 3M 10M
  xmpp-qos bench footprint --only flat --flat-messages 1M
  xmpp-qos bench guard

Two processes are logged in at one server, and one sends to the other as many messages
as there is time for, with a window of them under way; each row has processes of its
own. All rows are measured in turns, so that what disturbs the machine disturbs all of
them, and the figures are medians of the turns. Whatever is sent is checked to have been
handed over. The rows of --floor do the same work for the server and nothing else; the
ratios to them, and to the rows of --peers that promise the same, are those of a row's
own turns. Latency is from giving a message to the library to its end: at level
unacknowledged that is its arrival.

Stores are in the temporary folder (TMPDIR): it should be on a disk. Everything as it is
by default takes some 7 minutes, 12 with --floor, and 27 with --floor --peers.
"""

_AUDIT = """\
examples:
  xmpp-qos bench audit
  xmpp-qos bench audit --events 1M 3M 10M 30M --repeat 3 --plot audit.svg
  xmpp-qos bench audit --events 100k --repeat 1 --json

Makes journals of each size, and then, in one Spark session and in turns, reads and
counts the files and audits them. What is compared with an audit is

  read      reading with the schema of a journal, every field parsed, and counting
  inferred  spark.read.json(folder).count(), which has to find out the schema first

The ratio is the median of the turns. One turn before them, at the smallest size, is not
counted: Java is slow before it has compiled what it runs. Ten million events take some
3 GB in the temporary folder (TMPDIR), and as much again while they are audited.
"""

_FOOTPRINT = """\
examples:
  xmpp-qos bench footprint
  xmpp-qos bench footprint --only import stanzas --repeat 9
  xmpp-qos bench footprint --only flat --flat-messages 1M --json

Four measurements, all in processes of their own, on a Prosody that is started:

  import       to import xep_qos in a fresh interpreter that has imported slixmpp: how long
               that takes, processor time, and modules that were not there before
  stanzas      pings (iq) and plain messages, each answered: processor time a stanza at
               an application that has the plugin loaded, one that has only slixmpp's
               XEP-0199, and one that has only what the plugin needs of slixmpp.
               Medians, and quartiles, of what is more in each turn; "without, again" is
               a second one without, and shows what is noise
  outstanding  messages to an account that is not there, in an outbox. RSS more: after they
               were submitted than before. Started: after a start with them than after
               one without. Load: until the plugin has opened the store; start: from
               there until a message to somebody else has ended, and the same without
               them. Rate: of messages to somebody else, beside them and without them
  flat         one assured message after another, SQLite and a journal at both ends: what
               one costs from the 1,000th on, in ten stretches; RSS and the files of each
               end after each; and the last stretch divided by the first

Below each table stands what the project wants to reach, and whether it has. The ratios
are of turns that follow each other; yet 2 % more can only be seen on a machine that has
nothing else to do. Everything takes some 5 minutes; a million messages take 10 and more.
Files are in the temporary folder (TMPDIR), which should be on a disk.
"""

_GUARD = """\
examples:
  xmpp-qos bench guard

Takes half a minute; another half if something seems to be slower, for it may have been
somebody else who used the machine. The exit status is 1 if it is slower again.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage="%(prog)s [options]\n       %(prog)s WHAT [options]",
        description="Measure this library here: what it brings over, how fast, and at "
        "which cost.",
        epilog=_EPILOG,
    )
    _add_rows(parser)
    _add_work(parser)
    _add_server(parser)
    whats = parser.add_subparsers(
        dest="what", metavar="WHAT", title="something else to measure", prog=prog
    )
    audit = whats.add_parser(
        "audit",
        help="an audit next to reading the same journals",
        description="Measure an audit next to reading and counting the same journals.",
        epilog=_AUDIT,
    )
    audit.add_argument(
        "--events",
        type=_events,
        nargs="+",
        default=_EVENTS,
        metavar="N",
        help="sizes of journals, in lines, roughly (default: 1M 3M 10M)",
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
        help="that Spark may use (default: %(default)s)",
    )
    audit.add_argument(
        "--json", action="store_true", help="the figures as JSON on stdout"
    )
    add_plot(audit)
    audit.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="make journals and tables in this folder, a new or an empty one, and "
        "leave them there",
    )
    _add_footprint(whats)
    whats.add_parser(
        "guard",
        help="whether this library is as near to its floor as it was",
        description="Measure the ratios to the floor on a Prosody, and fail if one is "
        "much less than it was when it was last looked at.",
        epilog=_GUARD,
    )
    return parser


def _add_footprint(whats: argparse._SubParsersAction[Parser]) -> None:
    footprint = whats.add_parser(
        "footprint",
        help="what the plugin costs beside its messages: import, other stanzas, memory",
        description="Measure what the plugin costs an application beside its messages.",
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
        help="outstanding ones, of 1,000 bytes (default: 100k)",
    )
    footprint.add_argument(
        "--flat-messages",
        type=_flat_count,
        default=100_000,
        metavar="N",
        help="that `flat` sends (default: 100k)",
    )
    footprint.add_argument(
        "--seconds",
        type=seconds,
        default=2.0,
        metavar="S",
        help="for each rate beside the outstanding ones (default: %(default)g)",
    )
    footprint.add_argument(
        "--repeat",
        type=whole(1),
        default=5,
        metavar="R",
        help="interpreters for `import`, sets of processes for `stanzas`, turns for "
        "`outstanding` (default: %(default)s)",
    )
    footprint.add_argument(
        "--json", action="store_true", help="the figures as JSON on stdout"
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
        help=f"at both ends, some of {', '.join(STORES)} (default: all)",
    )
    group.add_argument(
        "--sm",
        action="store_true",
        help="assured in memory with stream management (XEP-0198), too",
    )
    group.add_argument(
        "--journal",
        action="store_true",
        help="each row of level assured with a journal, too",
    )
    group.add_argument(
        "--floor",
        action="store_true",
        help="the same requests by strings and nothing else, and by slixmpp's Iq.send()",
    )
    group.add_argument(
        "--peers",
        action="store_true",
        help="the same messages over mosquitto, with paho-mqtt, aiomqtt and gmqtt; what "
        "is not installed is left out; needs the extra `bench`",
    )
    group.add_argument(
        "--queue",
        action="store_true",
        help="queues: ours (XEP-0254 on a Prosody of its own, one item a stanza and in "
        "batches), and beside them RabbitMQ with aio-pika and NATS JetStream with nats-py; "
        "what is not installed is left out; the peers need the extra `bench`",
    )


def _add_work(parser: Parser) -> None:
    group = parser.add_argument_group("work")
    group.add_argument(
        "--windows",
        type=whole(1, _WINDOW_MAX),
        nargs="+",
        metavar="N",
        help=f"messages under way at once (default: {' '.join(map(str, WINDOWS))})",
    )
    group.add_argument(
        "--sizes",
        type=whole(1, _SIZE_MAX),
        nargs="+",
        default=(200,),
        metavar="BYTES",
        help="of payloads (default: 200)",
    )
    group.add_argument(
        "--seconds",
        type=seconds,
        default=3.0,
        metavar="S",
        help="for each sample (default: %(default)g)",
    )
    group.add_argument(
        "--repeat",
        type=whole(1),
        default=5,
        metavar="R",
        help="turns (default: %(default)s)",
    )
    group.add_argument(
        "--latency",
        action="store_true",
        help="one message after the other, with a pause between them, so that the link "
        "is idle; the p50 is compared with that of the floor",
    )
    group.add_argument(
        "--json", action="store_true", help="the figures as JSON on stdout"
    )
    add_plot(group)


def _add_server(parser: Parser) -> None:
    group = parser.add_argument_group(
        "server", "If none is named, a Prosody is started on loopback."
    )
    group.add_argument(
        "--nagle",
        action="store_true",
        help="with Nagle's algorithm on, as Debian ships it",
    )
    group.add_argument(
        "--embedded",
        action="store_true",
        help="the server of qos.testing instead, which is no server to run",
    )
    group.add_argument(
        "--to",
        type=jid,
        metavar="JID",
        help="at a server of yours: the account that receives; --jid is that which sends",
    )
    group.add_argument(
        "--to-password-file",
        type=Path,
        metavar="FILE",
        help="a file whose first line is its password (default: that of --jid)",
    )
    add_login(parser, jid_help="the account that sends, at a server of yours")


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    what = arguments.what or "messages"
    module = importlib.import_module(f"qos.cli.bench_{what}")
    try:
        status: int = await module.run(arguments)
    except BenchFailed as error:
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
    """So many; or with a k or M behind it."""
    number = text.rstrip("kM")
    unit = _UNITS.get(text[len(number) :], 1 if text == number else 0)
    if not number.isdecimal() or not 0 < int(number) * unit <= sys.maxsize:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of {of} like 500k, 10M or 1234"
        )
    return int(number) * unit
