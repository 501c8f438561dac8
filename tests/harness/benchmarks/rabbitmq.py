"""RabbitMQ on loopback, and a durable queue of it as a contender of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.amqp_clients import CLIENTS
from benchmarks.brokered import Brokered, PythonProgram
from qos.testing.ports import ADDRESS, free_ports
from qos.testing.processes import Process, find_program

__all__ = ["RabbitMq", "start_rabbitmq"]

# Debian's program in the PATH would become another user, or refuse to start; it runs
# this one.
_DEBIANS_OWN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

_CONFIG = """\
listeners.tcp.1 = {address}:{port}
log.file = false
log.console = true
log.console.level = warning
"""

_CAVEAT = (
    "an item is on disk, or acknowledged, when the broker confirms it; but nothing "
    "confirms an acknowledgement: what was acknowledged just before a crash is handed "
    "out again"
)


_AIO_PIKA = PythonProgram(module="benchmarks.amqp_aio_pika", needs="aio_pika")

_PLUGIN = "rabbitmq_amqp1_0"

# The login of every new RabbitMQ, for connections from its own machine. Its plugin
# closes the session of a client that does not settle what it accepts.
_OPTIONS = {"user": "guest", "password": "guest", "confirmed": False}


class RabbitMq(Brokered):
    """A durable queue of RabbitMQ: persistent items, confirms, four consumers.

    See benchmarks.sample.Contender. An item ends when its consumer has acknowledged it,
    which can be before the publisher gets its confirm. The window is the publisher's:
    the number of unconfirmed items.

    Args:
        client: one of CLIENTS, which work over its plugin for AMQP 1.0; None: aio-pika,
            by its own protocol AMQP 0-9-1.
        receives: see Brokered.

    Attributes:
        client: the same.
    """

    _confirms = True

    def __init__(self, client: str | None = None, *, receives: bool = True) -> None:
        super().__init__(
            f"RabbitMQ, AMQP 1.0, {client}" if client else "RabbitMQ, aio-pika",
            _CAVEAT,
            program=CLIENTS[client] if client else _AIO_PIKA,
            receives=receives,
        )
        self.client = client
        self._plugins = (_PLUGIN,) if client else ()

    async def _start_server(self, folder: Path, port: int) -> Process:
        server, epmd = await start_rabbitmq(folder, port, plugins=self._plugins)
        self._keep(epmd)
        return server

    def _options(self, folder: Path) -> dict[str, Any]:
        return dict(_OPTIONS)


async def start_rabbitmq(
    folder: Path, port: int, *, plugins: Sequence[str] = ()
) -> tuple[Process, Process]:
    """Start a RabbitMQ of its own; returns at once.

    Args:
        folder: for its configuration, data and log; what a former one has left there is
            used again.
        port: on loopback.
        plugins: those to enable.

    Returns:
        The broker, and the name server of Erlang that it needs.

    Raises:
        NotInstalled: there is no RabbitMQ.
    """
    program = _program()
    epmd_port, distribution_port = free_ports(2)
    config = folder / "rabbitmq.conf"
    config.write_text(_CONFIG.format(address=ADDRESS, port=port), encoding="ascii")
    enabled = folder / "plugins"
    enabled.write_text(f"[{','.join(plugins)}].\n", encoding="ascii")
    # Our own epmd: RabbitMQ would start one that stays for ever.
    epmd = await Process.start(
        find_program("epmd", "erlang-base"),
        *("-port", str(epmd_port), "-address", ADDRESS),
        folder=folder,
    )
    server = await Process.start(
        program,
        folder=folder,
        environment={
            # The place of Erlang's cookie.
            "HOME": str(folder),
            # Otherwise the process is a shell that waits for the broker.
            "RUNNING_UNDER_SYSTEMD": "1",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1}"
            ),
        },
    )
    return server, epmd


def _program() -> Path:
    found = Path(find_program("rabbitmq-server", "rabbitmq-server"))
    return _DEBIANS_OWN if _DEBIANS_OWN.exists() else found
