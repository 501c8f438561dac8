"""The command: its options, its runs one after the other, and what it prints."""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qos.cli.demo_output import ProgressLine, is_bold, show
from qos.cli.options import Parser
from qos.cli.output import note
from qos.cli.status import Status, UsageError
from qos.demo.text import number, table
from qos.testing.campaign.audit import Audited, audit
from qos.testing.campaign.count import Tally
from qos.testing.campaign.faults import KINDS
from qos.testing.campaign.run import SERVERS, Result, Run

__all__ = ["parser", "run"]

_STORES = ("sqlite", "files")

_EPILOG = """\
Senders, receivers, a queue service, workers with prepared effects and a publisher, each
a process, on a real server with TLS, through a TCP proxy. For that long they are killed
and stopped, the server too; connections are cut, stalled, trickle and are reordered; the
disk of the stores is full (where root can mount a tmpfs), and other processes want
stores that are in use. Then everything runs out, and is counted: by what the processes
wrote down, and by an audit of their journals where there is Spark.

The servers come one after the other, each for its part of the minutes. The seed decides
what is done to whom; the exact moments are not decided by it.

examples:
  python -m qos.testing.campaign --minutes 10
  python -m qos.testing.campaign --minutes 2 --server ejabberd --seed 7 --out evidence

exit status: 0 nothing lost, doubled or false; 1 something was; 2 wrong usage.
"""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A result, and what the audit of its journals says."""

    result: Result
    audited: Audited | str

    @property
    def clean(self) -> bool:
        by_audit = isinstance(self.audited, str) or not (
            set(self.audited.anomalies) - {"in-doubt"} or self.audited.problems
        )
        return self.result.clean and by_audit


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} --minutes N [options]",
        description="Try to break the promise, with real processes on real servers.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--minutes",
        type=_minutes,
        required=True,
        metavar="N",
        help="how long there are faults, on all servers together",
    )
    parser.add_argument(
        "--server", choices=(*SERVERS, "both"), default="both", help="(default: both)"
    )
    parser.add_argument(
        "--store",
        choices=(*_STORES, "both"),
        default="both",
        help="of senders and receivers; that of queues is SQLite (default: both)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="repeat the faults of another campaign"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="keep logs, journals and stores there; without, they are kept only if "
        "something was wrong",
    )
    return parser


def _minutes(text: str) -> float:
    with contextlib.suppress(ValueError):
        minutes = float(text)
        if 0 < minutes <= 100_000:
            return minutes
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes")


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    seed = arguments.seed
    if seed is None:
        seed = random.randrange(10**6)  # noqa: S311 - it keeps no secret
    servers = tuple(SERVERS) if arguments.server == "both" else (arguments.server,)
    stores = _STORES if arguments.store == "both" else (arguments.store,)
    note(f"the seed is {seed}", name="campaign: ")
    bar = ProgressLine()
    shown: list[_Shown] = []
    with _folder(arguments.out, shown) as folder:
        try:
            for server in servers:
                one = Run(
                    server,
                    _new(folder / server),
                    stores=stores,
                    seed=seed,
                    seconds=arguments.minutes * 60 / len(servers),
                    tell=bar.tell,
                )
                result = await one()
                bar.tell(f"{server}: auditing the journals")
                audited = await audit(one.files.journals, one.files.folder / "audit")
                shown.append(_Shown(result, audited))
        finally:
            bar.close()
        show(
            _faults(shown),
            _tallies(shown),
            "\n".join(map(_audited, shown)),
            "\n".join((*_problems(shown), _verdict(shown, seed))),
            json=False,
        )
    clean = all(each.clean for each in shown)
    return Status.DONE if clean else Status.NOT_DELIVERED


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@contextlib.contextmanager
def _folder(out: Path | None, shown: Sequence[_Shown]) -> Iterator[Path]:
    if out is not None:
        try:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(out.iterdir()):
                raise UsageError(f"--out {out}: there is something in it")
        except OSError as error:
            raise UsageError(f"--out {out}: {error.strerror}") from None
        yield out.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="xmpp-qos-campaign-"))
    try:
        yield folder
    finally:
        if shown and not all(each.clean for each in shown):
            note(f"the evidence is in {folder}", name="campaign: ")
        else:
            shutil.rmtree(folder, ignore_errors=True)


# -- what it prints --------------------------------------------------------


def _faults(shown: Sequence[_Shown]) -> str:
    heading = ("faults injected", *(each.result.server for each in shown))
    counts = [each.result.faults for each in shown]
    rows = [(kind, *(f"{count[kind]:,}" for count in counts)) for kind in KINDS]
    rows.append(("all", *(f"{count.total():,}" for count in counts)))
    return table([heading], rows, bold=is_bold(json=False))


def _tallies(shown: Sequence[_Shown]) -> str:
    columns = {
        "sent": "accepted",
        "delivered": "delivered",
        "not delivered": "not_delivered",
        "recognized": "again",
        "lost": "lost",
        "doubled": "doubled",
        "in doubt": "in_doubt",
        "false": "false",
        "open": "open",
    }
    rows = [
        (
            f"{what} ({each.result.server})",
            *(f"{getattr(tally, name):,}" for name in columns.values()),
        )
        for each in shown
        for what, tally in each.result.tallies.items()
    ]
    return table([("by the logs", *columns)], rows, bold=is_bold(json=False))


def _audited(shown: _Shown) -> str:
    server, audited = shown.result.server, shown.audited
    if isinstance(audited, str):
        return f"No audit of the journals on {server}: {audited}"
    found = {**audited.anomalies, **audited.problems}
    what = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.items()))
    return (
        f"The audit of the journals on {server}: {audited.lines:,} lines, "
        f"{what or 'no anomaly'}."
    )


def _problems(shown: Sequence[_Shown]) -> Iterator[str]:
    for each in shown:
        server = each.result.server
        for problem in each.result.problems:
            yield f"{server}: {problem}"
        for what, tally in each.result.tallies.items():
            for example in tally.examples:
                yield f"{server}, {what}: {example}"
        if not each.result.faults["disk full"]:
            yield f"{server}: the disk was never full: only root can mount a small one"


def _verdict(shown: Sequence[_Shown], seed: int) -> str:
    tallies = [tally for each in shown for tally in each.result.tallies.values()]
    faults = sum((each.result.faults for each in shown), Counter[str]()).total()
    total = sum(tallies, Tally(accepted=0, delivered=0))
    clean = all(each.clean for each in shown)
    return (
        f"{'Kept' if clean else 'BROKEN'}: {number(faults, 'fault')}, "
        f"{total.accepted:,} messages and items: {total.lost} lost, "
        f"{total.doubled} doubled, {total.false} false outcomes, "
        f"{total.in_doubt} in doubt. Seed {seed}."
    )
