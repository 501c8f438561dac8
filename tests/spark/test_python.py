"""The Python that Spark starts is asked whether it can import this library."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qos.spark.session import NoSpark, check_python


def session(python: str) -> Any:
    """The part of a session that check_python uses."""
    system = SimpleNamespace(getenv={"PYSPARK_PYTHON": python}.get)
    java = SimpleNamespace(lang=SimpleNamespace(System=system))
    return SimpleNamespace(_jvm=SimpleNamespace(java=java))


def executable(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_another_python_that_cannot_import_us_is_an_error_that_says_what_to_set(
    tmp_path: Path,
) -> None:
    """Before, it was a traceback of a worker: No module named 'qos'."""
    said = "ModuleNotFoundError: No module named 'qos'"
    python = executable(tmp_path / "python3", f'echo "{said}" >&2; exit 1')
    with pytest.raises(NoSpark, match="No module named 'qos'") as raised:
        check_python(session(python))
    text = str(raised.value)
    assert python in text
    assert f"set PYSPARK_PYTHON={sys.executable} before" in text
    assert "\n" not in text


def test_a_python_that_is_not_there_is_the_same_error(tmp_path: Path) -> None:
    """PYSPARK_PYTHON may be misspelt, too."""
    with pytest.raises(NoSpark, match="set PYSPARK_PYTHON="):
        check_python(session(str(tmp_path / "python9")))


def test_another_python_that_can_import_us_is_good(tmp_path: Path) -> None:
    """A link to the environment's Python, say."""
    python = executable(tmp_path / "python3", f'exec {sys.executable} "$@"')
    check_python(session(python))
    check_python(session(sys.executable))
    check_python(SimpleNamespace(_jvm=None))  # type: ignore[arg-type]  # Spark Connect
