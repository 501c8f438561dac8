"""`xmpp-qos demo`: the three levels over a bad link, without a server or a network."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from qos.cli.options import Parser
from qos.cli.output import ProgressBar, note, print_json
from qos.cli.status import CommandError, Status, UsageError
from qos.core.model import Level
from qos.demo.process import CounterDied, Spares
from qos.demo.run import Conditions, Progress, run_level
from qos.demo.table import Row, render

__all__ = ["parser", "run"]

#: Beyond these, hardly anything arrives any more in the time of a demo.
_LOSS_MAX = 0.5
_CUT_MAX = 0.2
_DELAY_S_MAX = 0.5

_MESSAGES_MAX = 100_000

_EPILOG = """\
examples:
  xmpp-qos demo
  xmpp-qos demo --seed 7 --loss 0.2 --kills 5
  xmpp-qos demo --json 2>/dev/null

The seed decides who passes when, what the link does to the n-th stanza, and at which
passing the counter is killed. What comes of it also depends on the moment, as ever.

exit status: 0 if the assured messages were counted exactly once, else 1.
"""

_STORY = """\
Counting people in a closed space, by the example in the text of the protocol.

Two doors, an entrance and an exit, report each person who passes to a counter: an
event (XEP-0337) in an XMPP message, Entered or Left. All three are clients of a server
that is part of this program: nothing leaves this machine. {messages} people pass, while
  - the link between the three loses {loss:g} % of the stanzas, delays each by up to
    {delay:g} ms, and with {cut:g} % of them cuts the connection of who was to get it;
  - the counter, a process of its own, is killed {kills} (SIGKILL) and started again.

The counter writes each event to disk, with the id of the message, before it says that
it is done with it. Killed in between, it is handed the message again, marked as
redelivered. Then, and only then, it looks whether it knows the id, and counts it once.

The same people and the same link, first at most once (unacknowledged), then at least
once (acknowledged), then exactly once (assured), with --seed {seed}:
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="See the three levels over a link that loses, delays and cuts, to "
        "a receiver that is\nkilled: people are counted through two doors. It takes "
        "some ten seconds, and needs no\nserver and no network.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--seed",
        type=_whole(0, sys.maxsize),
        default=1,
        metavar="N",
        help="decides what happens by chance (default: %(default)s)",
    )
    parser.add_argument(
        "--messages",
        type=_whole(1, _MESSAGES_MAX),
        default=200,
        metavar="N",
        help="people who pass, at each level (default: %(default)s)",
    )
    for name, most, default, what in (
        ("loss", _LOSS_MAX, 0.05, "probability that a stanza is lost"),
        ("cut", _CUT_MAX, 0.01, "probability that one costs its receiver the session"),
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
        type=_whole(0, 100),
        default=2,
        metavar="N",
        help="how often the counter is killed, at each level (default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="the rows as JSON on stdout, one object a line, and the table on stderr",
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
    note(_story(conditions), name="")
    try:
        rows = await _run_levels(conditions, json=arguments.json)
    except TimeoutError:
        text = "the demo has failed: a device cannot log in"
        raise CommandError(text, Status.NOT_DELIVERED) from None
    except (CounterDied, OSError) as error:
        text = f"the demo has failed: {getattr(error, 'strerror', None) or error}"
        raise CommandError(text, Status.NOT_DELIVERED) from None
    assured = rows[-1]
    result = "\n".join(("", _table(rows, json=arguments.json), "", _verdict(assured)))
    if arguments.json:
        note(result, name="")
    else:
        _print(result)
    return Status.DONE if assured.exact else Status.NOT_DELIVERED


async def _run_levels(conditions: Conditions, *, json: bool) -> list[Row]:
    rows: list[Row] = []
    progress = _ProgressLine()
    with tempfile.TemporaryDirectory(prefix="xmpp-qos-demo-") as name:
        folder = Path(name)
        try:
            async with Spares(folder) as spares:
                for level in Level:
                    stores = folder / level.value
                    stores.mkdir()
                    row = await run_level(
                        level, conditions, stores, spares, progress.tell
                    )
                    progress.close()
                    note(_ended(row), name="")
                    rows.append(row)
                    if json:
                        print_json({"seed": conditions.seed} | row.as_dict())
        finally:
            progress.close()
    return rows


class _ProgressLine(ProgressBar):
    """What is going on, on stderr where that is a terminal."""

    def tell(self, progress: Progress) -> None:
        """Draw it anew."""
        if self._shown:
            self._set(
                f"  {progress.level.value:14}  {progress.sent}/{progress.messages} "
                f"sent, {progress.counted} counted; {_luck(progress)}"
            )


# -- what it says ----------------------------------------------------------


def _story(conditions: Conditions) -> str:
    return _STORY.format(
        messages=conditions.messages,
        loss=100 * conditions.loss,
        cut=100 * conditions.cut,
        delay=1000 * conditions.delay_s,
        kills=_times(conditions.kills),
        seed=conditions.seed,
    )


def _ended(row: Row) -> str:
    return f"  {row.level:14}  {_luck(row)}, {_number(row.recognized, 'repeat')} recognized"


def _luck(on_the_way: Progress | Row) -> str:
    return ", ".join(
        (
            f"{_number(on_the_way.stanzas_dropped, 'stanza')} lost",
            _number(on_the_way.cuts, "cut"),
            _number(on_the_way.kills, "kill"),
        )
    )


def _table(rows: list[Row], *, json: bool) -> str:
    stream = sys.stderr if json else sys.stdout
    return render(rows, bold=stream.isatty())


def _verdict(assured: Row) -> str:
    if assured.exact:
        return (
            f"Assured: of {_number(assured.sent, 'message')} each was counted once, "
            "and the doors know it."
        )
    outcomes = ", ".join(f"{n} {what}" for what, n in assured.outcomes.items())
    return (
        f"Assured has failed: {assured.lost} lost, {assured.duplicated} duplicated; "
        f"the doors were told: {outcomes}."
    )


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise CommandError("nobody reads stdout any more", Status.PIPE) from None
    except OSError as error:
        problem = f"cannot write to stdout: {error.strerror or error}"
        raise CommandError(problem, Status.OUTPUT) from None


# -- values ----------------------------------------------------------------


def _whole(least: int, most: int) -> Callable[[str], int]:
    def value(text: str) -> int:
        number = int(text) if text.isdecimal() else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {most}"
            )
        return number

    return value


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
