"""The versions of the measured software."""

from pathlib import Path

import pytest

from amqp_bench import rhea_folder
from benchmarks.versions import versions
from qos.testing import processes
from qos.testing.processes import completed

BROKERS = ("mosquitto", "rabbitmq-server", "nats-server")


async def test_the_versions_are_those_that_debian_has_installed() -> None:
    """A figure without them cannot be compared with another one."""
    found = await versions(peers=True)
    for package in BROKERS:
        asked = await completed(
            "dpkg-query", "--show", "--showformat=${Version}", package
        )
        assert found[package] == asked.out.partition("-")[0]
    assert found["gmqtt"].startswith("0.8")
    assert found["python-qpid-proton"].startswith("0.40")


async def test_the_version_of_rhea_is_that_of_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no program and no package of Python."""
    monkeypatch.setenv("NODE_PATH", str(rhea_folder()))
    assert (await versions(peers=True))["rhea"] == "3.0.5"


async def test_what_is_not_there_has_no_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This is no error: the rows name the package to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "SBIN", ())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NODE_PATH", raising=False)
    found = await versions(peers=True)
    assert not {*BROKERS, "rhea"} & set(found)


async def test_without_peers_only_our_own_are_told() -> None:
    """Software that was not measured is not listed."""
    found = await versions(peers=False)
    assert set(found) == {"python", "slixmpp", "xmpp-qos"}
