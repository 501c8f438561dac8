"""A work queue of NATS JetStream on files, as a contender of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.brokered import Brokered, PythonProgram
from qos.testing.ports import ADDRESS
from qos.testing.processes import NotInstalled, Process, completed, find_program

__all__ = ["JetStream"]

_CONFIG = """\
listen: "{address}:{port}"
jetstream {{
  store_dir: "{folder}/jetstream"
  {sync}
}}
"""

_SYNCED = "it syncs its files after every write"
_NOT_SYNCED = (
    "it syncs its files every 2 minutes: a killed server loses nothing, a power cut up "
    "to that much of what was confirmed"
)
_NOT_CONFIRMED = (
    "nothing confirms an acknowledgement: what was acknowledged just before a crash is "
    "handed out again"
)


class JetStream(Brokered):
    """nats-py on JetStream: file storage, confirmed publishes, four workers.

    See benchmarks.sample.Contender. An item ends when its worker has acknowledged it.
    The window is the publisher's: the number of unconfirmed items. If the workers are
    slower than the publisher, items wait in the queue, and take longer by that time.

    Args:
        confirmed: whether a worker waits until the server has its acknowledgement
            (`ack_sync`), or only sends it (`ack`).
        synced: whether the server syncs its files after every write, instead of every
            two minutes, which is its default.
    """

    _confirms = True

    def __init__(self, *, confirmed: bool, synced: bool = False) -> None:
        ack = "ack_sync" if confirmed else "ack"
        caveats = [_SYNCED if synced else _NOT_SYNCED]
        if not confirmed:
            caveats.append(_NOT_CONFIRMED)
        super().__init__(
            f"JetStream, nats-py, {ack}{', synced' if synced else ''}",
            "; ".join(caveats),
            program=PythonProgram(module="benchmarks.nats_jetstream", needs="nats"),
        )
        self._confirmed = confirmed
        self._synced = synced

    async def _start_server(self, folder: Path, port: int) -> Process:
        program = find_program("nats-server", "nats-server")
        sync = "sync_interval: always" if self._synced else ""
        config = folder / "nats.conf"
        config.write_text(
            _CONFIG.format(address=ADDRESS, port=port, folder=folder, sync=sync),
            encoding="utf-8",
        )
        if self._synced:
            await _check_sync(program, config)
        return await Process.start(program, "-c", str(config), folder=folder)

    def _options(self, folder: Path) -> dict[str, Any]:
        return {"confirmed": self._confirmed}


async def _check_sync(program: str, config: Path) -> None:
    """Find out whether this version can sync every write: older ones could not."""
    tested = await completed(program, "-t", "-c", config)
    if 'unknown field "sync_interval"' in tested.err:
        raise NotInstalled(
            "nats-server is too old to sync every write: it knows no sync_interval"
        )
