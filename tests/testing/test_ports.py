"""Ports for servers of tests: no other process gets them while a server is started."""

import socket
import subprocess
import sys

import pytest

from qos.testing.ports import ADDRESS, free_ports


def test_each_is_another_one_and_comes_again_much_later() -> None:
    """A server that restarts gets its port again, though the port was closed meanwhile."""
    ports = [port for _ in range(10) for port in free_ports(10)]
    assert len(set(ports)) == 100


def test_other_processes_have_others() -> None:
    """It happened once: a server did not get the port that it had been given."""
    ours = set(free_ports(100))
    program = (
        "from qos.testing.ports import free_ports; import sys\n"
        "print(*free_ports(100), flush=True); sys.stdin.read()"
    )
    others = [
        subprocess.Popen(
            (sys.executable, "-P", "-c", program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            theirs = {int(port) for port in other.stdout.readline().split()}
            assert len(theirs) == 100
            assert not theirs & ours
            ours |= theirs
    finally:
        for other in others:
            other.communicate()


def test_a_port_that_somebody_listens_on_is_passed_by() -> None:
    """The ports are not only ours: any program may listen there."""
    taken = free_ports(1)[0] + 1
    with socket.create_server((ADDRESS, taken)):
        assert taken not in free_ports(20)


def test_more_than_there_are_is_an_error() -> None:
    """Otherwise it would wait for ever."""
    with pytest.raises(OSError, match=r"no 128 ports of 127\.0\.0\.1 are free"):
        free_ports(128)
