"""The other measurements of `python -m benchmarks`: their arguments and help texts.

The modules `bench_*` beside it measure.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.command_synth import add_synth
from benchmarks.plot_option import add_plot
from qos.options.parser import Parser, seconds, whole

__all__ = ["FOOTPRINT", "add_json", "add_other_measurements"]

#: The measurements of `footprint`, in order.
FOOTPRINT = ("import", "stanzas", "outstanding", "flat")

#: The first thousand messages do not count, and the rest is divided into ten parts.
_FLAT_MIN = 2000

#: A link to the moon and back has 2,600 ms.
_DELAY_MS_MAX = 10_000
_LINK_MESSAGES_MAX = 100_000

_EVENTS = (1_000_000, 3_000_000, 10_000_000)
_UNITS = {"k": 1_000, "M": 1_000_000}

_AUDIT = """\
examples:
  python -m benchmarks audit
  python -m benchmarks audit --events 1M 3M 10M 30M --repeat 3 --plot audit.svg
  python -m benchmarks audit --events 100k --repeat 1 --json

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
  python -m benchmarks footprint
  python -m benchmarks footprint --only import stanzas --repeat 9
  python -m benchmarks footprint --only flat --flat-messages 1M --json

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
  python -m benchmarks link
  python -m benchmarks link --delay 500 --messages 1500 --repeat 1

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
  python -m benchmarks guard

Takes half a minute. If something seems slower, it is measured once more, since another
program may have used the machine. The exit status is 1 if it is slower again.
"""


def add_other_measurements(parser: Parser, prog: str) -> None:
    """Add all of them to the parser of `benchmarks`."""
    whats = parser.add_subparsers(
        dest="what", metavar="WHAT", title="other measurements", prog=prog
    )
    _add_audit(whats)
    _add_footprint(whats)
    _add_link(whats)
    add_synth(whats)
    whats.add_parser(
        "guard",
        help="check that this library is as near to its floor as before",
        description="Measure the ratios to the floor on a Prosody, and fail if a ratio is "
        "much lower than recorded.",
        epilog=_GUARD,
    )


def _add_audit(whats: argparse._SubParsersAction[Parser]) -> None:
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
    add_json(audit)
    add_plot(audit)
    audit.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="put journals and tables into this new or empty folder, and keep them",
    )


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
    add_json(footprint)


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
    add_json(link)


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add --json."""
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON on stdout"
    )


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
