"""`make matrix`: which Pythons it finds, and when it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import matrix

#: A Python of this version, whose environments have a Python that ends with this status.
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then echo {version}; exit; fi
if [ "$2" = venv ]; then
  mkdir -p "$4/bin"
  printf '#!/bin/sh\\ntest "$2" != pytest || exit {status}\\n' > "$4/bin/python"
  chmod 755 "$4/bin/python"
fi
"""

#: What pyenv leaves in the PATH for a version that is not chosen.
SHIM = "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Python."""
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path / "bin"), "/usr/bin")))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    Path("pyproject.toml").touch()
    return tmp_path


def install(path: str, text: str) -> Path:
    file = Path(path).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def python(version: str, *, status: int = 0) -> str:
    return PYTHON.format(version=version, status=status)


def run(*versions: str) -> int:
    return matrix.main(["build", *versions, "--", "tests"])


def test_a_python_of_pyenv_is_found_behind_its_shim(machine: Path) -> None:
    """The shim is in the PATH, and fails."""
    install("bin/python3.77", SHIM)
    found = install("pyenv/versions/3.77.1/bin/python3.77", python("3.77"))
    assert matrix.find("3.77") == str(found)
    assert matrix.find("3.78") is None


def test_a_version_that_is_not_here_is_named_and_fails_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    install("bin/python3.77", python("3.77"))
    assert run("3.77", "3.78") == 0
    out = capfd.readouterr().out
    assert out.endswith("Python 3.77: passed\nPython 3.78: not found\n")


def test_one_version_that_fails_fails_all(capfd: pytest.CaptureFixture[str]) -> None:
    """And those after it run all the same."""
    install("bin/python3.77", python("3.77", status=1))
    install("bin/python3.78", python("3.78"))
    assert run("3.77", "3.78") == 1
    out = capfd.readouterr().out
    assert out.endswith("Python 3.77: FAILED\nPython 3.78: passed\n")


def test_no_version_at_all_is_a_failure() -> None:
    """Otherwise a run in CI without its Python would be green."""
    assert run("3.77") == 1


def test_the_environment_of_a_version_is_made_once(machine: Path) -> None:
    """Until pyproject.toml changes."""
    install("bin/python3.77", python("3.77"))
    assert run("3.77") == 0
    install("bin/python3.77", python("3.77", status=1))
    assert run("3.77") == 0
    later = (machine / "build" / "3.77" / "light.stamp").stat().st_mtime + 1
    os.utime("pyproject.toml", (later, later))
    assert run("3.77") == 1
