"""The import of matplotlib with any value of MPLBACKEND; no session of Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_IMPORT = """
import logging, os
logging.basicConfig()
from qos.audit.plotting import Figure
import matplotlib
print(matplotlib.rcParams["backend"], os.environ["MPLBACKEND"])
"""


@pytest.mark.parametrize("backend", ["module://ipympl.backend_nbagg", "qt"])
def test_a_backend_that_is_not_here_is_set_aside_with_a_sentence(backend: str) -> None:
    """A cell of a notebook names one for each command that it starts."""
    said, printed = _imported(backend)
    assert f"MPLBACKEND={backend}: set aside" in said
    assert printed[1] == backend


def test_a_backend_that_is_here_stays() -> None:
    """The library is imported in notebooks, too, which go on to draw."""
    assert _imported("svg") == ("", ["svg", "svg"])


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "in the folder"])
@pytest.mark.parametrize("backend", ["svg", "qt"])
def test_settings_that_nobody_can_read_are_set_aside_with_a_sentence(
    tmp_path: Path, backend: str, is_named: bool
) -> None:
    """Saved by an editor in Latin 1; matplotlib could not be imported then."""
    settings = tmp_path / "matplotlibrc"
    settings.write_bytes(b"# Gr\xfc\xdfe\nlines.linewidth: 9\n")
    named = {"MATPLOTLIBRC": str(settings)} if is_named else {}
    said, printed = _imported(backend, folder=None if is_named else tmp_path, **named)
    assert "the settings of matplotlib are set aside" in said
    assert printed[1] == backend


def _imported(
    backend: str, *, folder: Path | None = None, **settings: str
) -> tuple[str, list[str]]:
    """The import in a process with this backend: its stderr, and what it prints."""
    finished = subprocess.run(
        (sys.executable, "-P", "-c", _IMPORT),
        env={**os.environ, "MPLBACKEND": backend, **settings},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stderr, finished.stdout.split()
