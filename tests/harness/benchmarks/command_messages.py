"""`python -m benchmarks`: the rate, latency and cost of messages, by several ways."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.circumstances import about, in_words
from benchmarks.command import WINDOWS
from benchmarks.command_run import measured_on
from benchmarks.plot_option import check_plot, plotting
from qos.cli.output import print_json, print_parts
from qos.cli.status import Status
from qos.core.message.model import Level
from qos.errors import UsageError
from qos.options.login import login_from

if TYPE_CHECKING:
    from benchmarks.report import Results
    from benchmarks.sample import Contender
    from benchmarks.sections import Section
    from benchmarks.servers import Server
    from benchmarks.settings import Settings

__all__ = ["run"]

#: Longer than TCP treats a connection as recently busy (40 ms).
_PAUSE_S = 0.05


async def run(arguments: argparse.Namespace) -> int:
    """Measure, and show the result."""
    _check(arguments)
    server = _server(arguments)
    priority = _raised() if arguments.priority else None
    results = await _measured(arguments, server)
    circumstances = await about(server, peers=arguments.peers or arguments.queue)
    circumstances["priority"] = priority
    if arguments.plot is not None:
        # matplotlib is not imported before it is needed.
        from benchmarks.plot import plot

        with plotting(arguments.plot):
            plot(results, arguments.plot)
    from benchmarks.report import absences, caveats, plain, tables
    from benchmarks.summary import markdown

    if arguments.json:
        turns = {"seconds": arguments.seconds, "repeat": arguments.repeat}
        await print_json({**circumstances, **turns, **plain(results)})
    else:
        how = f"Medians of {arguments.repeat} turns of {arguments.seconds:g} s"
        how += f", all at {priority}." if priority else "."
        words = in_words(circumstances, how)
        if arguments.markdown:
            await print_parts(markdown(results), words)
        else:
            below = (caveats(results), absences(results), words)
            await print_parts(*tables(results), *filter(None, below))
    return Status.DONE


# -- arguments -------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> None:
    check_plot(arguments.plot)
    named = arguments.jid is not None
    for option, value in (
        ("--to", arguments.to),
        ("--to-password-file", arguments.to_password_file),
        ("--host", arguments.host),
        ("--port", arguments.port),
    ):
        if value is not None and not named:
            raise UsageError(f"{option} is for a server of yours: --jid is needed")
    if named and arguments.to is None:
        raise UsageError("--to is needed: the account that receives")
    if named and arguments.embedded:
        raise UsageError("--embedded and --jid name two servers")
    if arguments.markdown and arguments.json:
        raise UsageError("--markdown and --json are two forms of the same figures")
    if arguments.nagle and (named or arguments.embedded):
        raise UsageError("--nagle is for the Prosody that is started here")
    if arguments.sm and arguments.embedded:
        raise UsageError("--sm: the embedded server has no XEP-0198")
    if arguments.latency and arguments.windows is not None:
        raise UsageError("--latency is with a window of 1, and --windows says more")
    for name in ("peers", "queue"):
        if arguments.latency and getattr(arguments, name):
            raise UsageError(f"--latency is not for --{name}: they make no pause")
    if arguments.fan and named:
        raise UsageError("--fan needs a component, and --jid names only accounts")
    names = ("levels", "fan", "floor", "peers", "queue")
    if not any(getattr(arguments, name) for name in names):
        raise UsageError("--levels: there is nothing to measure without any")


def _raised() -> str:
    from benchmarks.priority import raise_priority

    raised = raise_priority()
    if raised is None:
        raise UsageError(
            "--priority is not allowed here: it needs root or CAP_SYS_NICE"
        )
    return raised


def _server(arguments: argparse.Namespace) -> Server:
    from benchmarks.servers import EmbeddedServer, NamedServer, ProsodyServer

    components = [each.component for each in _fan(arguments)]
    if arguments.embedded:
        return EmbeddedServer(components=components)
    if arguments.jid is None:
        return ProsodyServer(nagle=arguments.nagle, components=components)
    if "@" not in arguments.to:
        raise UsageError(f"--to {arguments.to}: an account has the form user@domain")
    sender = login_from(arguments)
    password_file = arguments.to_password_file or arguments.password_file
    to = {"jid": arguments.to, "password_file": password_file}
    return NamedServer(sender, login_from(argparse.Namespace(**vars(arguments) | to)))


def _rows(arguments: argparse.Namespace) -> list[Settings]:
    from benchmarks.settings import FLOOR, settings_for

    levels = [each for each in Level if each.value in arguments.levels]
    stores = list(dict.fromkeys(arguments.stores))
    ours = settings_for(
        levels,
        stores,
        batches=not arguments.latency,
        managed=arguments.sm,
        journal=arguments.journal,
    )
    return [*(FLOOR if arguments.floor else ()), *ours]


def _fan(arguments: argparse.Namespace) -> list[Settings]:
    from benchmarks.settings import fan_of

    return [] if arguments.fan is None else fan_of(arguments.fan)


def _others(
    arguments: argparse.Namespace, ours: Sequence[Settings], fan: Sequence[Settings]
) -> tuple[list[Contender], list[Section]]:
    """The other rows to measure, and the sections of the report, ours included."""
    from benchmarks import peers, sections
    from benchmarks.gateway_rows import PlainHttp, amqp_rows, http_rows
    from benchmarks.queue_rows import queue_rows

    others: list[Contender] = []
    shown = [sections.of_ours(ours)]
    if fan:
        shown.append(sections.of_fan(fan))
    if arguments.sm or arguments.journal:
        shown.append(sections.of_additions(ours))
    if arguments.peers:
        replying, as_used = peers.replying(), peers.as_used()
        others += [*replying, *as_used]
        shown.append(sections.of_the_same_promise(ours, replying))
        shown.append(sections.of_peers(as_used))
    if arguments.queue:
        queues, gateways = queue_rows(), [*amqp_rows(), *http_rows()]
        its_peers = peers.queue_peers()
        others += [*queues, *gateways, *its_peers]
        shown.append(sections.of_queues(queues, gateways, its_peers))
        amqp, rabbits = amqp_rows(receives=False), peers.rabbitmq_rows(receives=False)
        http, floor = http_rows(receives=False), PlainHttp()
        others += [*amqp, *rabbits, *http, floor]
        shown.append(sections.of_publishing(amqp, rabbits))
        shown.append(sections.of_posting(http, floor))
    return others, shown


# -- measuring -------------------------------------------------------------


async def _measured(arguments: argparse.Namespace, server: Server) -> Results:
    from benchmarks.report import Results
    from benchmarks.rows import Row
    from benchmarks.run import Plan
    from qos.testing.processes import NotInstalled

    windows = [1] if arguments.latency else sorted(set(arguments.windows or WINDOWS))
    plan = Plan(
        windows=windows,
        sizes=sorted(set(arguments.sizes)),
        seconds=arguments.seconds,
        repeat=arguments.repeat,
    )
    rows = _rows(arguments)
    fan = _fan(arguments)
    pause_s = _PAUSE_S if arguments.latency else 0.0
    contenders: list[Contender] = [
        Row(each, server, window_max=windows[-1], pause_s=pause_s)
        for each in [*rows, *fan]
    ]
    others, sections = _others(arguments, rows, fan)
    contenders += others
    try:
        measured, absent = await measured_on(server, contenders, plan)
    except NotInstalled as error:
        text = f"{error}; --embedded needs none, and --jid names one of yours"
        raise UsageError(text) from None
    return Results(
        measured=measured,
        sections=sections,
        caveats={each.name: each.caveat for each in contenders},
        absent=absent,
        compared="p50_s" if arguments.latency else "rate",
    )
