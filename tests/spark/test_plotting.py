"""The import of matplotlib with any value of MPLBACKEND; no session of Spark."""

import os
import subprocess
import sys

import pytest

_IMPORT = """
import logging, os
logging.basicConfig()
from qos.audit.plotting import Figure
import matplotlib
print(matplotlib.rcParams["backend"], os.environ["MPLBACKEND"])
"""


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "qt"])
def test_a_backend_that_is_not_here_is_set_aside_with_a_sentence(backend: str) -> None:
    """A cell of a notebook names one for each command that it starts."""
    said, printed = _imported(backend)
    assert f"MPLBACKEND={backend}: set aside" in said
    assert printed[1] == backend


def test_a_backend_that_is_here_stays() -> None:
    """The library is imported in notebooks, too, which go on to draw."""
    assert _imported("svg") == ("", ["svg", "svg"])


def _imported(backend: str) -> tuple[str, list[str]]:
    """The import in a process with this backend: its stderr, and what it prints."""
    finished = subprocess.run(
        (sys.executable, "-P", "-c", _IMPORT),
        env={**os.environ, "MPLBACKEND": backend},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stderr, finished.stdout.split()
