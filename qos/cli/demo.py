"""`xmpp-qos demo`: the three levels, a queue, and an audit; no server, no network."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from qos.cli.demo_audit import Journals
from qos.cli.demo_levels import show_levels
from qos.cli.demo_queue import show_queue
from qos.cli.status import CommandError, Status
from qos.demo.process import ProcessDied
from qos.demo.run import Conditions
from qos.errors import RequestFailed, UsageError
from qos.options.parser import Parser, whole

__all__ = ["parser", "run"]

#: Above these, hardly any message arrives within the time of a demo.
_LOSS_MAX = 0.5
_CUT_MAX = 0.2
_DELAY_S_MAX = 0.5

_MESSAGES_MAX = 100_000

#: With fewer items the bee that is killed may have none: three bees pack a hundred a
#: second.
_ITEMS_LEAST = 30
_ITEMS_MAX = 10_000

_EPILOG = """\
examples:
  xmpp-qos demo
  xmpp-qos demo --seed 7 --loss 0.2 --kills 5
  xmpp-qos demo --only queue --items 1000
  xmpp-qos demo --out demo
  xmpp-qos demo --json 2>/dev/null

The seed decides the order in which people pass, the effect of the link on each stanza, and
when the counter is killed. For the queue it decides the orders, which deliveries fail, and
when a bee is killed. The results also depend on timing.

With --json there is an object for each level (with `level`), for each start of a bee
(`kind` is bee), for the queue (`kind` is queue), and for the audit (with `anomalies`).

The audit needs the extra `spark` and Java 17; it is left out if they are missing.

exit status: 0 if the assured messages were counted exactly once, each good item of the
queue was accepted exactly once, and the audit has found no anomaly; else 1.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Show the three levels over a link that loses, delays and cuts, to "
        "a receiver that is\nkilled: people are counted at two doors. Then show a queue "
        "with three worker-bees, and\nan audit of the journals that all of them have "
        "kept. It takes about half a minute, and\nneeds no server and no network.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--seed",
        type=whole(0),
        default=1,
        metavar="N",
        help="seed of everything that happens by chance (default: %(default)s)",
    )
    parser.add_argument(
        "--messages",
        type=whole(1, _MESSAGES_MAX),
        default=200,
        metavar="N",
        help="people who pass, for each level (default: %(default)s)",
    )
    for name, most, default, what in (
        ("loss", _LOSS_MAX, 0.05, "probability that a stanza is lost"),
        ("cut", _CUT_MAX, 0.01, "probability that a stanza cuts the session"),
        ("delay", _DELAY_S_MAX, 0.05, "longest delay of a stanza, in seconds"),
    ):
        parser.add_argument(
            f"--{name}",
            type=_real(most),
            default=default,
            metavar="S" if name == "delay" else "P",
            help=f"{what}, 0 to {most:g} (default: %(default)s)",
        )
    parser.add_argument(
        "--kills",
        type=whole(0, 100),
        default=2,
        metavar="N",
        help="how often the counter is killed, for each level (default: %(default)s)",
    )
    parser.add_argument(
        "--items",
        type=whole(_ITEMS_LEAST, _ITEMS_MAX),
        default=200,
        metavar="N",
        help="good items in the queue (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        choices=("levels", "queue"),
        help="show only this part",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="a new or empty folder for the journals, and for the tables and the report "
        "of the audit (default: a new one, named at the end)",
    )
    parser.add_argument("--no-audit", action="store_true", help="leave out the audit")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the rows as JSON on stdout, one object a line, and the table on "
        "stderr",
    )
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    conditions = Conditions(
        seed=arguments.seed,
        messages=arguments.messages,
        loss=arguments.loss,
        cut=arguments.cut,
        delay_s=arguments.delay,
        kills=arguments.kills,
    )
    if conditions.kills > conditions.messages:
        raise UsageError("--kills: there are not so many messages")
    with Journals(arguments.out, wanted=not arguments.no_audit) as journals:
        exact = await _show(conditions, arguments, journals.folder)
        clean = await journals.audit(json=arguments.json)
    return Status.DONE if exact and clean else Status.NOT_DELIVERED


async def _show(
    conditions: Conditions, arguments: argparse.Namespace, journal: Path | None
) -> bool:
    """Show the levels and the queue; returns whether all results were exact."""
    only, json = arguments.only, arguments.json
    exact = True
    try:
        if only in {None, "levels"}:
            exact = await show_levels(conditions, json=json, journal=journal)
        if only in {None, "queue"}:
            queue = await show_queue(
                arguments.seed,
                arguments.items,
                json=json,
                first=only is not None,
                journal=journal,
            )
            exact = queue and exact
    except (ProcessDied, RequestFailed, OSError) as error:
        # Without a text it is a TimeoutError: no session came about in time.
        why = getattr(error, "strerror", None) or str(error) or "a device cannot log in"
        text = f"the demo has failed: {why}"
        raise CommandError(text, Status.NOT_DELIVERED) from None
    return exact


# -- values ----------------------------------------------------------------


def _real(most: float) -> Callable[[str], float]:
    def value(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number from 0 to {most:g}"
            )
        return number

    return value
