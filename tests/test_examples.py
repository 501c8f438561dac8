"""The examples run as they stand, and the README shows what is in them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(example: str) -> str:
    """Run an example; returns what it printed."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / example],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_quickstart_delivers_its_message() -> None:
    """The first thing that anybody runs."""
    assert run("quickstart.py").splitlines() == ["lamp: on", "controller: delivered"]


def test_the_light_ends_at_the_level_sent_last() -> None:
    """Acknowledged: each level arrives, at least once, over a link that loses."""
    lines = run("light_switch.py").splitlines()
    levels = re.findall(r"Light is (\d+)", "\n".join(lines))
    assert list(dict.fromkeys(levels)) == ["0", "20", "40", "60", "80"]
    assert sum("delivered" in line for line in lines) == 5


def test_the_people_counted_are_those_who_went_through() -> None:
    """Assured: over a link that loses, doubles and cuts."""
    output = run("count_people.py")
    assert "30 entered, 18 left, 12 inside" in output
    assert not re.search(r"lost=0,|cut=0\)", output)


def test_the_readme_shows_the_quickstart() -> None:
    """Word for word: what is shown is what is tested."""
    quickstart = (ROOT / "examples" / "quickstart.py").read_text()
    assert f"```python\n{quickstart}```" in (ROOT / "README.md").read_text()


def test_every_example_is_tested() -> None:
    """A new one gets its test here."""
    source = Path(__file__).read_text()
    for example in (ROOT / "examples").glob("*.py"):
        assert f'run("{example.name}")' in source


@pytest.mark.parametrize("path", ["README.md", "CHANGELOG.md"])
def test_files_that_are_named_exist(path: str) -> None:
    """Links inside the repository do not go stale."""
    text = (ROOT / path).read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)]+)\)", text):
        assert (ROOT / target).exists(), target
