"""The door for contributors: what CONTRIBUTING.md says works, in a clone of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from new_machine import ROOT, copy_packages
from qos.testing.processes import Child
from waiting import PATIENCE

#: The group `light`, what pip needs for the package itself, and pip.
PACKAGES = (
    *("aiofiles", "slixmpp", "editables", "hatchling", "pip", "ruff"),
    *("hypothesis", "lark", "looptime", "pytest", "pytest-asyncio", "pytest-timeout"),
    "pytest-xdist",
)

#: What is in no clone.
NOT_CLONED = (
    ".git",
    ".venv",
    "build",
    "dist",
    ".*_cache",
    "__pycache__",
    ".hypothesis",
)

MAKEFILE = (ROOT / "Makefile").read_text()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_page_for_contributors(tmp_path: Path) -> None:
    """Typed word for word. What pip would load is here already, without an extra."""
    clone, packages = tmp_path / "xmpp-qos", tmp_path / "packages"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*NOT_CLONED))
    copy_packages(packages, PACKAGES)
    prepare_environment(clone / ".venv", packages)
    ours = ("PYTHON", "PYTEST", "PIP_", "MAKE", "XMPP_QOS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        (*Child.mortal(), sys.executable, "tests/docs/type_page.py", "CONTRIBUTING.md"),
        cwd=clone,
        env=environment
        | {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PATIENCE": "10"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=1190 * PATIENCE,
        text=True,
        check=False,
    )
    assert "all of CONTRIBUTING.md" in done.stdout, done.stdout[-20_000:]
    with pytest.raises(FileNotFoundError):
        (clone / ".venv" / "dev.stamp").stat()
    print(done.stdout)


def prepare_environment(folder: Path, packages: Path) -> None:
    """Make an environment that finds these packages, as if pip had loaded them."""
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    for name in ("pip", "pytest"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {folder}/bin/python -m {name} "$@"\n')
        script.chmod(0o755)
    shutil.copy(Path(sys.executable).with_name("ruff"), folder / "bin")


def test_each_target_that_the_page_names_is_there_and_has_a_line_of_help() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\bmake ([a-z-]+)", page))
    assert named >= {"light", "quick", "light-test", "matrix", "check", "test"}
    assert named <= targets()
    helped = set(re.findall(r"^\t@echo 'make ([a-z-]+) ", MAKEFILE, re.MULTILINE))
    assert named - {"help"} <= helped


def test_each_file_that_the_page_names_is_there_and_defines_what_it_should() -> None:
    """A pointer to a file that was moved costs a newcomer more than none."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    names = re.findall(r"`((?:qos|plugins|tests|docs)/[\w./]+)`", page)
    assert len(names) > 20
    assert [name for name in names if not (ROOT / name).exists()] == []
    defined = re.findall(r"`([A-Z]\w+)` in `([\w/]+\.py)`", page)
    assert {kind for kind, _ in defined} >= {"Disposition", "Store", "QueueStore"}
    for kind, name in defined:
        assert f"class {kind}" in (ROOT / name).read_text()


def test_ci_runs_only_targets_of_make_and_the_gate() -> None:
    """So whoever has the project can run what CI runs, on each Python."""
    ci = loaded(".github/workflows/ci.yml")
    runs = [
        step["run"]
        for job in ci["jobs"].values()
        for step in job["steps"]
        if "run" in step and "apt-get" not in step["run"]
    ]
    assert runs == ["make matrix VERSIONS=${{ matrix.python }}", ".ci/run"]
    versions = ci["jobs"]["matrix"]["strategy"]["matrix"]["python"]
    (ours,) = re.findall(r"^VERSIONS \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert ours.split() == versions
    assert "secrets" not in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_hooks_before_a_commit_load_nothing() -> None:
    for repo in loaded(".pre-commit-config.yaml")["repos"]:
        assert repo["repo"] == "local"
        for hook in repo["hooks"]:
            assert hook["language"] == "system"
            command, *words = hook["entry"].split()
            assert command == ".venv/bin/ruff"
            done = subprocess.run(
                (Path(sys.executable).with_name("ruff"), *words, __file__),
                check=False,
                capture_output=True,
            )
            assert done.returncode == 0, done.stdout


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())
