"""`xmpp-qos demo`: the three levels, a queue and an audit; no server, no network."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from qos.cli import audit
from qos.cli.listing import add_json, is_for_people, listing
from qos.cli.output import ProgressBar, say
from qos.cli.status import CommandError, Status
from qos.core.message.model import Level
from qos.demo.orders import DELIVERIES_MAX, POISONED, pack_orders
from qos.demo.people import count_people
from qos.errors import RequestFailed, UsageError
from qos.options.parser import Parser, whole
from qos.testing import Link
from qos.testing.processes import ProcessFailed

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos demo
  xmpp-qos demo --only levels --loss 20 --kills 5
  xmpp-qos demo --out demo --json 2>/dev/null

In the row of a level `delivered` is what the doors know, `stanzas` is for each message, and
`truth` is who is really inside. What a bee had when it was killed is `lost` to it, and goes
to other bees. Without a terminal, or with --json, each row is a JSON object on stdout, and
so is the result of the audit.

The audit needs the extra `spark` and Java 17; it is left out if they are missing.

exit status: 0 if each assured message was counted once, each good order was packed once,
and the audit has found no anomaly; else 1.
"""

_PEOPLE = """\
Two doors, an entrance and an exit, report each person who passes to a counter, by an event
(XEP-0337) in an XMPP message. All three are clients of a server that is part of this
program: nothing leaves this machine. {messages} people pass, while
  - the link between the three loses {loss} % of the stanzas, delays each by up to 50 ms,
    and with {cut:g} % of them cuts the connection of the receiver;
  - the counter, a process of its own, is killed {kills} times (SIGKILL) and started again.

The same people and the same link, first at most once (unacknowledged), then at least once
(acknowledged), then exactly once (assured), with --seed {seed}:
"""

_ORDERS = """\
A shop publishes {messages} orders to a queue (XEP-0254), and three worker-bees pack them,
each a process of its own. An item is locked until its bee accepts it, or has failed. Then
it goes to the next bee.
  - ben drops every fifth order that he is the first to get;
  - carl is killed (SIGKILL) with items locked, and started again;
  - no bee can pack order {poisoned}: after {deliveries} failures it is a dead letter.
What is packed, the bees write into a database, each order once:"""

_AUDIT = """
Doors, counter, service and bees have each kept a journal of what they did, without the
contents. An audit compares all of them (as does xmpp-qos audit)."""

#: There is one clock, and everything is over: all that the journals do not explain is
#: an anomaly.
_STRICT = ("--skew", "0.001", "--stuck-after", "1")


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Show the three levels over a bad link, a queue, and an audit. It takes "
        "half a minute, and\nneeds no server and no network.",
        epilog=_EPILOG,
    )
    # With fewer messages one of the bees may have no order.
    for name, least, most, default, text in (
        ("seed", 0, 2**31, 1, "decides what the link does to each stanza"),
        ("messages", 30, 1000, 200, "people, for each level, and orders"),
        ("loss", 0, 50, 5, "lost stanzas, in percent"),
        ("kills", 0, 10, 2, "how often the counter is killed, for each level"),
    ):
        parser.add_argument(
            f"--{name}",
            type=whole(least, most),
            default=default,
            metavar="N",
            help=f"{text} (default: %(default)s)",
        )
    parser.add_argument("--only", choices=("levels", "queue"), help="show this part")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="a new or empty folder for the journals, and for the tables and the report "
        "of the audit (default: a new one, named at the end)",
    )
    parser.add_argument("--no-audit", action="store_true", help="leave out the audit")
    add_json(parser)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    out = _folder(arguments.out).absolute()
    report = out / "report.html"
    exact = clean = True
    try:
        if arguments.only != "queue":
            exact = await show_levels(arguments, out)
        if arguments.only != "levels":
            exact = await show_queue(arguments, out) and exact
        if not arguments.no_audit:
            clean = await _audit(arguments, out)
        if arguments.out or report.exists():
            say(f"The journals: {out}/journals")
    except (ProcessFailed, RequestFailed, OSError) as error:
        # Without a text it is a TimeoutError.
        why = getattr(error, "strerror", None) or str(error) or "it takes too long"
        text = f"the demo has failed: {why}"
        raise CommandError(text, Status.NOT_DELIVERED) from None
    finally:
        stays = arguments.out or report.exists()
        shutil.rmtree(out / "stores" if stays else out, ignore_errors=True)
    return Status.DONE if exact and clean else Status.NOT_DELIVERED


def _folder(out: Path | None) -> Path:
    """The folder for journals and report, an empty one."""
    if out is None:
        return Path(tempfile.mkdtemp(prefix="xmpp-qos-demo-"))
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not any(out.iterdir()):
            return out
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    raise UsageError(f"--out {out}: there is something in it")


async def show_levels(arguments: argparse.Namespace, out: Path) -> bool:
    """Count people at each level; returns whether the last result is exact."""
    people, kills, loss = arguments.messages, arguments.kills, arguments.loss / 100
    say(_PEOPLE.format(cut=20 * loss, **vars(arguments)))
    row: dict[str, object] = {}
    async with listing(arguments) as add:
        for level in Level:
            link = Link(arguments.seed, loss=loss, cut=loss / 5, delay_s=(0.0, 0.05))
            with closing(ProgressBar()) as bar:
                bar.tell(f"{level.value} …")
                row = await count_people(level, people, link, out, kills)
            lost, cuts = link.counts.lost, link.counts.cut
            say(f"  {level.value:14}  {lost} stanzas lost, {cuts} connections cut")
            await add(row)
        say("")
    return _verdict(
        "Assured",
        row,
        "of {sent} messages each was counted once, and the doors know it",
        "failed: {lost} lost, {duplicated} duplicated, {delivered} known as delivered",
    )


async def show_queue(arguments: argparse.Namespace, out: Path) -> bool:
    """Let bees pack orders; returns whether the result is exact."""
    bad = {"poisoned": POISONED, "deliveries": DELIVERIES_MAX}
    story = _ORDERS.format(**bad, **vars(arguments))
    say(story if arguments.only else f"\n{story}")
    with closing(ProgressBar()) as bar:
        bar.tell("queue …")
        bees, row = await pack_orders(arguments.messages, out)
    for rows in (bees, [row]):
        say("")
        async with listing(arguments) as add:
            for record in rows:
                await add(record)
    return _verdict(
        "Queue",
        row,
        "each of the {accepted} good orders was packed once, and the bad one is dead",
        "failed: {lost} good orders lost, {duplicated} duplicated, {dead} dead letters",
    )


def _verdict(part: str, row: Mapping[str, object], good: str, bad: str) -> bool:
    say(f"\n{part}: {(good if row['exact'] else bad).format(**row)}.")
    return bool(row["exact"])


async def _audit(arguments: argparse.Namespace, out: Path) -> bool:
    """Audit the journals, if that is possible; returns whether nothing is wrong."""
    # Spark is not imported before it is needed.
    from qos.spark.session import NoSpark, check_spark

    words = [f"{out}/journals", "--out", str(out), *_STRICT]
    words += [] if is_for_people(arguments) else ["--json"]
    try:
        check_spark()
        say(_AUDIT)
        parsed = audit.parser("xmpp-qos audit").parse_args(words)
        return await audit.run(parsed) == Status.DONE
    except (NoSpark, UsageError) as error:
        say(f"\nNo audit of the journals: {error}")
        return True
