"""`python -m benchmarks footprint`: the cost of the plugin besides messages."""

from __future__ import annotations

import argparse
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks.circumstances import about, in_words
from benchmarks.command_options import FOOTPRINT
from benchmarks.command_run import folders
from qos.cli.output import ProgressBar, print_json, print_parts
from qos.cli.status import Status
from qos.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.footprint import Part, Plan, Progress
    from benchmarks.servers import ProsodyServer

__all__ = ["run"]


async def run(arguments: argparse.Namespace) -> int:
    """Measure, and show the result."""
    from benchmarks.footprint import Plan
    from benchmarks.servers import ProsodyServer
    from qos.testing.processes import NotInstalled

    plan = Plan(
        repeat=arguments.repeat,
        messages=arguments.messages,
        flat_messages=arguments.flat_messages,
        seconds=arguments.seconds,
    )
    chosen = [each for each in FOOTPRINT if each in arguments.only]
    server = ProsodyServer()
    line = ProgressBar()
    try:
        parts = await measured(chosen, plan, server, line.tell)
    except NotInstalled as error:
        raise UsageError(str(error)) from None
    finally:
        line.close()
    circumstances = await about(server)
    if arguments.json:
        await print_json(
            {**circumstances, **{name: each.plain() for name, each in parts.items()}}
        )
    else:
        tables = (each.table() for each in parts.values())
        await print_parts(
            *tables, in_words(circumstances, with_server=server.version is not None)
        )
    return Status.DONE


async def measured(
    chosen: list[str], plan: Plan, server: ProsodyServer, progress: Progress
) -> dict[str, Part]:
    """Run the chosen measurements, with a server if one of them needs it."""
    from benchmarks import (
        footprint_flat,
        footprint_import,
        footprint_outstanding,
        footprint_stanzas,
    )

    at_server = {
        "stanzas": footprint_stanzas.measure,
        "outstanding": footprint_outstanding.measure,
        "flat": footprint_flat.measure,
    }
    found = {}
    with folders("server", *at_server) as (server_folder, *own_folders):
        own = dict(zip(at_server, own_folders, strict=True))
        async with AsyncExitStack() as stack:
            if set(chosen) & set(at_server):
                # The server is stopped even if it has started only in part.
                stack.push_async_callback(server.stop)
                await server.start(server_folder)
            for name in chosen:
                if name == "import":
                    found[name] = await footprint_import.measure(plan, progress)
                else:
                    measure = at_server[name]
                    found[name] = await measure(server, own[name], plan, progress)
    return found
