"""`python -m benchmarks link`: the cost of a far link."""

from __future__ import annotations

import argparse

from benchmarks.circumstances import about, in_words
from benchmarks.command_run import folders
from qos.cli.output import ProgressBar, print_json, print_parts
from qos.cli.status import Status
from qos.errors import UsageError

__all__ = ["run"]


async def run(arguments: argparse.Namespace) -> int:
    """Measure, and show the result."""
    from benchmarks.link import Plan, measure
    from benchmarks.servers import ProsodyServer
    from qos.testing.processes import NotInstalled

    plan = Plan(
        round_trip_s=arguments.delay / 1000,
        messages=arguments.messages,
        repeat=arguments.repeat,
    )
    server = ProsodyServer(tls=True, contacts=True)
    line = ProgressBar()
    try:
        with folders("server", "stores") as (server_folder, stores):
            try:
                await server.start(server_folder)
                part = await measure(server, stores, plan, line.tell)
            finally:
                await server.stop()
    except NotInstalled as error:
        raise UsageError(str(error)) from None
    finally:
        line.close()
    circumstances = await about(server)
    if arguments.json:
        await print_json({**circumstances, **part.plain()})
    else:
        await print_parts(part.table(), in_words(circumstances))
    return Status.DONE
