"""The campaign command: its options, a run on each server, and its output."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.plot_option import add_plot, check_plot, plotting
from campaign.audit import Audited, audit
from campaign.count import Tally
from campaign.edges import EDGES
from campaign.faults import KINDS
from campaign.gateways import GATEWAY_FAULTS
from campaign.growth import MEASURES
from campaign.mutants import MUTANTS
from campaign.run import SERVERS, Result, Run
from campaign.soak import elders
from campaign.text import number, table
from qos.cli.output import ProgressBar, note, print_parts
from qos.cli.status import CommandError, Status
from qos.errors import UsageError
from qos.options.parser import Parser

__all__ = ["parser", "run"]

_STORES = ("sqlite", "files")

_EPILOG = """\
Senders, receivers, a queue service, workers with prepared effects and a publisher, each
a process, on a real server with TLS, through a TCP proxy. For that long they are killed
and stopped, the server too; connections are cut, stalled, trickle and are reordered, are
slow or far; the server has the limits for clients that distributions ship; the disk of
the stores is slow, or full (where root can mount a tmpfs); processes start with a wrong
clock, and other processes want stores that are in use. Then everything runs out, and is counted: by what the processes
wrote down, and by an audit of their journals where there is Spark.

Beside them there are the shipped commands of one account: `listen`, whose stdout is a
file on a disk that can be full, or a pipe whose reader can stop; and under two other
resources `worker`, and one command after the other of `send`, `outbox`, `inbox` and
`queue publish`. They get SIGKILL, SIGTERM and SIGHUP. Their stdout is read line by line.
At the queue of the workers there are also publishers and workers that speak HTTP (aiohttp
and httpx) and AMQP (Qpid Proton, Microsoft's pyamqp, and two that attach one name twice),
with their own proxies. What they do is in notebooks of theirs.

A foreign domain takes all the room that it can get, another one sends presence to all who
receive and must be asked nothing, an account makes the queue of somebody else its dead
letters, and an attacker on the network path writes messages before and behind the offer
of TLS.

Both servers run at the same time, each with processes of its own. The seed decides what
is done to whom; the exact moments are not decided by it.

With --soak there is steady traffic instead, of half of what the machine can do, with
fewer faults, and none that delays everything for long; and of those who are never killed, on each server another half, it is
measured whether anything has grown from the second quarter of the time to the last:
memory (RSS), open handles, tasks, stores, and how long messages take (p99). Logs and
journals tell everything: they take some GB an hour, until it has ended.

examples:
  PYTHONPATH=tests/harness python -m campaign --minutes 10
  PYTHONPATH=tests/harness python -m campaign --minutes 2 --server ejabberd --seed 7 --out evidence
  PYTHONPATH=tests/harness python -m campaign --hours 1 --soak --plot soak.svg

exit status: 0 nothing lost, doubled, false or grown; 1 something was; 2 wrong usage.
"""


class _Broken(CommandError):
    """The promise was not kept: the command ends, and the evidence is kept."""

    def __init__(self) -> None:
        super().__init__("the promise was not kept", Status.NOT_DELIVERED)


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} (--minutes N | --hours N) [options]",
        description="Try to break the promise, with real processes on real servers.",
        epilog=_EPILOG,
    )
    long = parser.add_mutually_exclusive_group(required=True)
    long.add_argument(
        "--minutes",
        type=partial(_number, "minutes"),
        metavar="N",
        help="how long there are faults",
    )
    long.add_argument(
        "--hours",
        type=partial(_number, "hours"),
        metavar="N",
        help="how long there are faults",
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
        "--programs",
        choices=("all", "library", "commands", "gateways"),
        default="all",
        help="programs that use the library, the shipped commands, clients of the "
        "gateways (a soak never has these two), or all (default: %(default)s)",
    )
    parser.add_argument(
        "--mutant",
        choices=tuple(MUTANTS),
        default="",
        help="let the shipped commands or the queue service make a mistake, which must be "
        "found",
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
    parser.add_argument(
        "--soak", action="store_true", help="steady traffic; figures of what may grow"
    )
    add_plot(parser, note=" and --soak")
    return parser


def _number(unit: str, text: str) -> float:
    with contextlib.suppress(ValueError):
        long = float(text)
        if 0 < long <= 100_000:
            return long
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit}")


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    seed = arguments.seed
    if seed is None:
        seed = random.randrange(10**6)
    servers = tuple(SERVERS) if arguments.server == "both" else (arguments.server,)
    stores: tuple[str, ...] = (arguments.store,)
    if arguments.store == "both":
        stores = _STORES
    if arguments.soak and arguments.programs in {"commands", "gateways"}:
        raise UsageError(f"--soak does not go with --programs {arguments.programs}")
    if arguments.programs == "commands":
        stores = ()
    if arguments.plot is not None and not arguments.soak:
        raise UsageError("--plot needs --soak")
    check_plot(arguments.plot)
    note(f"the seed is {seed}", name="campaign: ")
    with _folder(arguments.out) as folder:
        results, audited = await _results(arguments, folder, servers, stores, seed)
        clean = all(result.clean for result in results)
        clean &= isinstance(audited, str) or audited.clean
        if arguments.plot is not None:
            # matplotlib is not imported before it is needed.
            from campaign.plot import plot

            with plotting(arguments.plot):
                plot(results, arguments.plot)
        await print_parts(
            _faults(results),
            _tallies(results),
            *_growths(results),
            "\n".join((*_problems(results), _audited(audited))),
            _verdict(results, seed, clean=clean),
        )
        if not clean:
            raise _Broken
    return Status.DONE


async def _results(
    arguments: argparse.Namespace,
    folder: Path,
    servers: Sequence[str],
    stores: tuple[str, ...],
    seed: int,
) -> tuple[list[Result], Audited | str]:
    bar = ProgressBar()
    states: dict[str, str] = {}
    together = asyncio.Barrier(len(servers))
    minutes = arguments.minutes or arguments.hours * 60

    def tell(server: str, state: str) -> None:
        states[server] = f"{server}: {state}"
        bar.tell("; ".join(states.values()))

    runs = [
        Run(
            server,
            _new(folder / server),
            stores=stores,
            commands=_commands(arguments),
            gateways=_gateways(arguments),
            mutant=arguments.mutant,
            seed=seed,
            seconds=minutes * 60,
            tell=partial(tell, server),
            elders=elders(place, stores) if arguments.soak else frozenset(),
            together=together,
        )
        for place, server in enumerate(servers)
    ]
    running = [asyncio.ensure_future(run()) for run in runs]
    try:
        results = await asyncio.gather(*running)
        bar.tell("auditing the journals")
        journals = [run.files.journals for run in runs]
        audited = await audit(journals, folder / "audit", greedy=_commands(arguments))
        return results, audited
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        bar.close()


def _commands(arguments: argparse.Namespace) -> bool:
    """Whether the installed commands take part, and the hostile members."""
    return arguments.programs in {"all", "commands"} and not arguments.soak


def _gateways(arguments: argparse.Namespace) -> bool:
    """Whether publishers and workers that speak HTTP and AMQP take part."""
    return arguments.programs in {"all", "gateways"} and not arguments.soak


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The output folder; one of our own is kept if the block ends in an error."""
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
    except _Broken:
        note(f"the evidence is in {folder}", name="campaign: ")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


# -- what it prints --------------------------------------------------------


def _faults(results: Sequence[Result]) -> str:
    heading = ("faults injected", *(result.server for result in results))
    counts = [result.faults for result in results]
    kinds = [
        kind
        for kind in (*KINDS, *GATEWAY_FAULTS, *EDGES)
        if kind in KINDS or any(count[kind] for count in counts)
    ]
    rows = [(kind, *(f"{count[kind]:,}" for count in counts)) for kind in kinds]
    rows.append(("all", *(f"{count.total():,}" for count in counts)))
    return table(heading, rows)


def _tallies(results: Sequence[Result]) -> str:
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
            f"{what} ({result.server})",
            *(f"{getattr(tally, name):,}" for name in columns.values()),
        )
        for result in results
        for what, tally in result.tallies.items()
    ]
    return table(("by the logs", *columns), rows)


def _growths(results: Sequence[Result]) -> Iterator[str]:
    """For a soak, the second and the last quarter of each elder and each store."""
    for result in results:
        if not result.series:
            return
        found = {
            (series.who, series.measure): series.growth(result.seconds)
            for series in result.series
        }
        rows = []
        for who in dict.fromkeys(who for who, _ in found):
            cells = []
            for measure in MEASURES:
                growth = found.get((who, measure))
                cells.append(
                    ""
                    if growth is None
                    else f"{growth.before:,.4g} → {growth.after:,.4g}"
                )
            rows.append((who, *cells))
        heading = (f"growth ({result.server})", *(each.title for each in MEASURES))
        yield table(heading, rows)


def _audited(audited: Audited | str) -> str:
    if isinstance(audited, str):
        return f"No audit of the journals: {audited}"
    if audited.failure:
        return f"The audit of the journals has failed: {audited.failure}"
    found = {**audited.anomalies, **audited.problems}
    what = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.items()))
    return (
        f"The audit of the journals: {audited.lines:,} lines, {what or 'no anomaly'}; "
        f"{audited.judged:,} of {audited.messages:,} messages can be judged."
    )


def _problems(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        for problem in result.problems:
            yield f"{result.server}: {problem}"
        for what, tally in result.tallies.items():
            for example in tally.examples:
                yield f"{result.server}, {what}: {example}"
        if not result.small_disk:
            yield f"{result.server}: the disk was never full: see --help"


def _verdict(results: Sequence[Result], seed: int, *, clean: bool) -> str:
    tallies = [tally for result in results for tally in result.tallies.values()]
    faults = sum((result.faults for result in results), Counter[str]()).total()
    total = sum(tallies, Tally(accepted=0, delivered=0))
    return (
        f"{'Kept' if clean else 'BROKEN'}: {number(faults, 'fault')}, "
        f"{total.accepted:,} messages and items: {total.lost} lost, "
        f"{total.doubled} doubled, {total.false} false outcomes, "
        f"{total.in_doubt} in doubt. Seed {seed}."
    )
