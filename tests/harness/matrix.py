"""The tests on each Python that is found here: `make matrix`.

    python matrix.py FOLDER VERSION… -- ARGUMENTS OF PYTEST…

Each version is looked for in the PATH and among those of pyenv, and has an environment of
its own in the folder. This needs nothing but the standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

#: The first pip with `--group`.
_PIP: Final = "pip>=25.1"

_ASK: Final = "import sys; print('%d.%d' % sys.version_info[:2])"


def main(words: Sequence[str]) -> int:
    """Run the tests on each version; returns the exit status."""
    given = list(words)
    between = given.index("--")
    folder, *versions = given[:between]
    verdicts: dict[str, str] = {}
    for version in versions:
        python = find(version)
        if python is None:
            verdicts[version] = "not found"
            continue
        print(f"-- Python {version}: {python}", flush=True)
        passed = _test(python, Path(folder, version), given[between + 1 :])
        verdicts[version] = "passed" if passed else "FAILED"
    for version, verdict in verdicts.items():
        print(f"Python {version}: {verdict}")
    found = set(verdicts.values())
    return 0 if "passed" in found and "FAILED" not in found else 1


def find(version: str) -> str | None:
    """Return the path of the Python of this version; None if there is none."""
    for path in _candidates(version):
        # A shim of pyenv is there even if its Python is not.
        asked = subprocess.run(
            (path, "-c", _ASK), check=False, capture_output=True, text=True
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return path
    return None


def _candidates(version: str) -> Iterator[str]:
    name = f"python{version}"
    for folder in os.get_exec_path():
        path = shutil.which(name, path=folder)
        if path is not None:
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for installed in sorted(pyenv.glob(f"versions/{version}*/bin/{name}")):
        yield str(installed)


def _test(python: str, folder: Path, words: Sequence[str]) -> bool:
    """Run pytest with these words in the environment, which is made if it is old."""
    its = str(folder / "bin" / "python")
    stamp = folder / "light.stamp"
    wanted = Path("pyproject.toml").stat().st_mtime
    if not stamp.exists() or stamp.stat().st_mtime < wanted:
        pip = (its, "-m", "pip", "install", "--quiet")
        made = (
            (python, "-m", "venv", "--clear", str(folder)),
            (*pip, _PIP),
            (*pip, "--editable", ".", "--group", "light"),
        )
        if not all(_runs(command) for command in made):
            return False
        stamp.touch()
    # Its cache is that of .venv, whose failed tests are others.
    return _runs((its, "-m", "pytest", "-p", "no:cacheprovider", *words))


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
