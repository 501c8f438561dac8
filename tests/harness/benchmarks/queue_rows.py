"""Our queues, as contenders of a benchmark: a service and four workers on a Prosody."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from dataclasses import asdict
from pathlib import Path

from benchmarks.sample import BenchFailed, Contender, Sample, Work
from benchmarks.times import sample_of, unpack
from benchmarks.usage import Watch
from qos.testing.processes import PATIENCE_S, Child, NotInstalled
from qos.testing.prosody import Prosody, ProsodyError

__all__ = ["BATCH", "OurQueue", "queue_rows"]

#: The most items in a stanza of the second row.
BATCH = 32

_USER = "bench"
_SERVICE = "queue.localhost"
_ROLES = "benchmarks.queue_xep_0254"


def queue_rows() -> list[Contender]:
    """Return our rows."""
    return [OurQueue(batch=1), OurQueue(batch=BATCH)]


class OurQueue:
    """XEP-0254 on Prosody: the service is a component, with queues on disk.

    All options are the defaults. See benchmarks.sample.Contender. An item ends when its
    worker knows that it is accepted: the service has this on disk. The window is the
    publisher's: the number of unconfirmed items.

    Args:
        batch: the most items in a stanza, when published, delivered and settled. 1:
            each item has stanzas of its own.
    """

    caveat = ""

    def __init__(self, *, batch: int) -> None:
        self.name = "XEP-0254 on Prosody, " + (
            "one item a stanza" if batch == 1 else f"batches of {batch}"
        )
        self._batch = batch
        self._prosody: Prosody | None = None
        self._children: list[Child] = []

    async def start(self, folder: Path) -> None:
        """See Contender."""
        if shutil.which("prosody") is None:
            raise NotInstalled("prosody is not installed (Debian package: prosody)")
        password, secret = secrets.token_hex(16), secrets.token_hex(16)
        server_folder = folder / "server"
        server_folder.mkdir()
        self._prosody = Prosody(
            server_folder,
            accounts={_USER: password},
            components={_SERVICE: secret},
        )
        try:
            await self._prosody.start()
        except ProsodyError as error:
            raise BenchFailed(str(error)) from None
        service = await self._child("benchmarks.queue_service", "service", folder)
        await service.do(
            "serve",
            jid=_SERVICE,
            secret=secret,
            port=self._prosody.component_port,
            store=f"sqlite:{folder / 'queue.sqlite'}",
        )
        # The order of `_children`: service, receiver, sender.
        for role in ("receiver", "sender"):
            child = await self._child(_ROLES, role, folder)
            await child.do(
                "connect",
                port=self._prosody.c2s_port,
                account=f"{_USER}@{self._prosody.domain}",
                password=password,
                service=_SERVICE,
                batch=self._batch,
            )
        await self._children[1].do("receive")

    async def measure(self, work: Work) -> Sample:
        """See Contender."""
        service, receiver, sender = self._children
        assert self._prosody is not None
        pids = {
            "sender": sender.pid,
            "receiver": receiver.pid,
            "service": service.pid,
            "server": self._prosody.pid,
        }
        with Watch(pids) as used:
            sent = await sender.do(
                "send", patience_s=work.seconds + PATIENCE_S, **asdict(work)
            )
            given = unpack(sent["given"])
            got = await receiver.do("received", messages=len(given))
        others = {"confirmed_s": max(unpack(sent["ended"])) - min(given)}
        return sample_of(given, unpack(got["ended"]), used, others)

    async def stop(self) -> None:
        """See Contender."""
        children, self._children = self._children, []
        async with contextlib.AsyncExitStack() as stack:
            if self._prosody is not None:
                stack.push_async_callback(self._prosody.kill)
            for each in children:
                stack.push_async_callback(each.kill)

    async def _child(self, module: str, name: str, folder: Path) -> Child:
        child = await Child.start(module, name=name, folder=folder)
        self._children.append(child)
        return child
