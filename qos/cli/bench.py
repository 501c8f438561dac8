"""`xmpp-qos bench`: measures this library on this machine.

Here are the words of it; what they do is in `bench_audit`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from qos.cli.options import Parser, whole

__all__ = ["parser", "run"]

_EVENTS = (1_000_000, 3_000_000, 10_000_000)
_UNITS = {"k": 1_000, "M": 1_000_000}

_EPILOG = """\
example:
  xmpp-qos bench audit --events 1M 3M 10M

Each has a --help of its own.
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


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(prog=prog, description="Measure this library here.", epilog=_EPILOG)
    whats = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
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
    audit.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.svg",
        help="draw them; needs the extra `bench`",
    )
    audit.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="make journals and tables in this folder, a new or an empty one, and "
        "leave them there",
    )
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    module = importlib.import_module(f"qos.cli.bench_{arguments.what}")
    status: int = await module.run(arguments)
    return status


def _events(text: str) -> int:
    """So many; or with a k or M behind it."""
    number = text.rstrip("kM")
    unit = _UNITS.get(text[len(number) :], 1 if text == number else 0)
    if not number.isdecimal() or not 0 < int(number) * unit <= sys.maxsize:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of events like 500k, 10M or 1234"
        )
    return int(number) * unit
