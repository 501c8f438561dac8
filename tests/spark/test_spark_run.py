"""The output of a command when Java is gone, and Py4J reports many errors."""

import argparse
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import qos.cli.audit
from qos.cli import main
from qos.cli.spark_run import SparkRun

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


@contextlib.contextmanager
def hangs_up() -> Iterator[int]:
    """A port on which a process is that dies whenever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)


class Asks(SparkRun[None]):
    """Asks Java something when it dies, and when it is dead."""

    def _do(self, spark: SparkSession) -> None:
        with hangs_up() as port:
            client = GatewayClient(gateway_parameters=GatewayParameters(port=port))
            client.send_command("c\n", retry=False)
        with contextlib.suppress(Py4JError):
            client.send_command("c\n", retry=False)


def test_what_py4j_raises_is_not_said_twice(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The user who ended the command needs no message, and others get one line."""

    async def run(arguments: argparse.Namespace) -> int:
        await Asks(master=None, out="x").run()
        return 0

    monkeypatch.setattr(qos.cli.audit, "run", run)
    assert main(["audit", "x", "--out", "x"]) == 0
    assert capsys.readouterr() == ("", "")
