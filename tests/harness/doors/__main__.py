"""The command: `python -m doors`, with tests/harness in the PYTHONPATH."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from doors.attacks import ATTACKS, NOBODY, SERVER_BUSY
from doors.place import HONEST_QUEUES, Service, place
from doors.report import BOUND_S, Row, shown
from qos.testing.processes import PATIENCE_S, Child, NotInstalled, ProcessFailed
from qos.testing.xmpp_server import ServerError

__all__ = ["flood", "main"]

#: The doors at which honest clients log in again and again.
_LOGINS = ("http", "amqp")

#: The looks, each of a second, until all of an attack is over: the honest clients are served
#: again, and the service has no more to do than they ask for. Prosody goes on for a while to
#: write what strangers have sent.
_LOOKS = 40
_IDLE_LOAD = 0.7


async def flood(folder: Path, *, seconds: float, attacks: Sequence[str]) -> list[Row]:
    """Attack for so many seconds each; returns the waits of the honest clients.

    One after the other, at the same servers. An attack that keeps the XMPP server busy for
    minutes has servers of its own.
    """
    rows = await _attacked(
        folder, seconds, [each for each in attacks if each not in SERVER_BUSY]
    )
    for each in attacks:
        if each in SERVER_BUSY:
            rows += await _attacked(_subfolder(folder, each), seconds, [each])
    return rows


def _subfolder(folder: Path, attack: str) -> Path:
    made = folder / attack.replace(" ", "-")
    made.mkdir()
    return made


async def _attacked(folder: Path, seconds: float, attacks: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    if not attacks:
        return rows
    async with AsyncExitStack() as stack:
        where, service = await stack.enter_async_context(place(folder))
        fields = dataclasses.asdict(where)
        attacker = await _child(stack, "attacker", folder)
        honest = {}
        for door in HONEST_QUEUES:
            honest[door] = await _child(stack, "honest", folder, name=door)
            await honest[door].do("begin", door=door, where=fields)
        await attacker.do("prepare", where=fields)
        for name in attacks:
            # The first look is for code that is loaded late.
            for _ in range(_LOOKS):
                if not service.process.running:
                    await service.start()
                calm = await _row(NOBODY, 1.0, honest, attacker, service, fields)
                if calm.kept(BOUND_S) and calm.load < _IDLE_LOAD:
                    break
            rows.append(await _row(name, seconds, honest, attacker, service, fields))
            sys.stderr.write(f"{shown(rows[-1:])}\n")
    return rows


async def _child(
    stack: AsyncExitStack, module: str, folder: Path, *, name: str = ""
) -> Child:
    child = await Child.start(f"doors.{module}", name=name or module, folder=folder)
    stack.push_async_callback(child.end)
    return child


async def _row(
    name: str,
    seconds: float,
    honest: Mapping[str, Child],
    attacker: Child,
    service: Service,
    where: Mapping[str, Any],
) -> Row:
    patience_s = seconds + PATIENCE_S
    attack = asyncio.ensure_future(
        attacker.do(
            *("attack",),
            patience_s=patience_s,
            name=name,
            where=where,
            seconds=seconds,
        )
    )
    before = service.usage()
    works = (
        child.do("work", patience_s=patience_s, seconds=seconds, logins=door in _LOGINS)
        for door, child in honest.items()
    )
    answers = await asyncio.gather(*works)
    done, after = await attack, service.usage()
    return Row(
        attack=name,
        waits=dict(zip(honest, answers, strict=True)),
        done=done,
        rss_mb=after.rss_bytes / 2**20,
        load=(after.cpu_s - before.cpu_s) / seconds,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns 1 if an honest client has waited too long."""
    parser = argparse.ArgumentParser(prog="python -m doors", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--only", action="append", default=[], metavar="ATTACK")
    parser.add_argument("--bound-ms", type=float, default=BOUND_S * 1000)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs there")
    options = parser.parse_args(arguments)
    attacks = [
        each
        for each in ATTACKS
        if not options.only or any(part in each for part in options.only)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            rows = asyncio.run(flood(folder, seconds=options.seconds, attacks=attacks))
        except (ProcessFailed, NotInstalled, ServerError) as error:
            sys.stderr.write(f"flood: {error}\n")
            return 1
    sys.stdout.write(f"{shown(rows)}\n")
    late = [row for row in rows if not row.kept(options.bound_ms / 1000)]
    for row in late:
        sys.stdout.write(f"too late: {row.attack}\n")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
