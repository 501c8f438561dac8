"""The gate: which runs pass it, and what its last page says."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from gate.results import read
from gate.run import UNSTEADY_MAX, Gate

#: A test that fails at its first run, and passes at every later one.
UNSTEADY = """
    from pathlib import Path

    def test_unsteady():
        seen = Path(__file__).with_suffix(".seen")
        was_there = seen.exists()
        seen.touch()
        assert was_there, "too slow"
"""

RED = """
    def test_red():
        assert [] == [1], "it is wrong"
"""

GREEN = """
    import pytest

    @pytest.mark.parametrize("jid", ["alice@example.org", "bob"])
    def test_green(jid):
        pass
"""

#: The tests of a group have its name behind theirs, in the processes of pytest-xdist.
GROUP = """
    import pytest
    from pathlib import Path

    @pytest.mark.xdist_group("spark")
    @pytest.mark.parametrize("jid", ["alice@example.org"])
    def test_unsteady(jid):
        seen = Path(__file__).with_suffix(".seen")
        was_there = seen.exists()
        seen.touch()
        assert was_there, "too slow"
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate for the tests of an empty folder, one after the other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --dist=loadgroup\n")
    words = ("-q", "-n", "0", "-p", "no:cacheprovider")
    return Gate(tmp_path / "build", words)


def write(**files: str) -> None:
    """Write files of tests into the folder of the gate."""
    for name, text in files.items():
        Path(f"test_{name}.py").write_text(dedent(text))


def test_green_tests_pass(gate: Gate) -> None:
    write(green=GREEN)
    gate.tests("tests")
    assert gate.passed
    assert gate.summary().endswith("\n2 passed, 0 failed")


# That of a group is both; and beside a red test, the other one is in the gate too.
@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        pytest.param(UNSTEADY, "0", id="one", marks=pytest.mark.long),
        pytest.param(GROUP, "2", id="group"),
    ],
)
def test_an_unsteady_test_passes_and_is_named(gate: Gate, text: str, jobs: str) -> None:
    """A busy machine keeps nothing out; a reader of the page can mend the test."""
    write(green=GREEN, unsteady=text)
    gate.tests("tests", "-n", jobs)
    gate.keep_unsteady()
    assert gate.passed
    (test,) = gate.unsteady
    assert test.startswith("test_unsteady.py::test_unsteady")
    assert "@spark" not in test
    assert (gate.folder / "unsteady.txt").read_text().startswith(f"{test}  ")
    assert f"UNSTEADY\n{test}  AssertionError: too slow" in gate.summary()
    assert "FAILED" not in gate.summary()


def test_a_test_that_fails_twice_fails_the_gate(gate: Gate) -> None:
    write(green=GREEN, red=RED, unsteady=UNSTEADY)
    gate.tests("tests")
    assert not gate.passed
    assert list(gate.unsteady) == ["test_unsteady.py::test_unsteady"]
    page = gate.summary()
    assert "\nFAILED\ntest_red.py::test_red  AssertionError: it is wrong\n" in page
    assert page.endswith("\n3 passed, 1 failed")


def test_many_unsteady_tests_fail_the_gate(gate: Gate) -> None:
    """Then it is not the machine: they are not tried again."""
    write(**{f"unsteady{number}": UNSTEADY for number in range(UNSTEADY_MAX + 1)})
    gate.tests("tests")
    assert not gate.passed
    assert not gate.unsteady
    assert gate.summary().endswith(f"\n0 passed, {UNSTEADY_MAX + 1} failed")


@pytest.mark.parametrize(
    "text",
    [
        "import nothing_of_that_name",
        "import os\n\ndef test_dies():\n    os.kill(os.getpid(), 9)",
    ],
    ids=["no import", "dies"],
)
def test_a_run_without_an_end_has_not_passed(gate: Gate, text: str) -> None:
    """pytest itself dies here: it runs the tests in its own process."""
    write(odd=text, green=GREEN)
    gate.tests("tests")
    assert not gate.passed
    assert not gate.unsteady


def test_no_test_at_all_fails_the_gate(gate: Gate) -> None:
    gate.tests("tests")
    assert not gate.passed


def test_the_core_has_no_second_try(gate: Gate) -> None:
    """Nothing in it waits for anything."""
    write(unsteady=UNSTEADY)
    gate.core("core")
    assert not gate.passed
    assert list(gate.results.failed) == ["test_unsteady.py::test_unsteady"]


def test_a_stage_ends_with_its_first_command_that_fails(gate: Gate) -> None:
    touch = [sys.executable, "-P", "-c", "open('after', 'w')"]
    gate.stage("check", [sys.executable, "-P", "-c", "raise SystemExit(3)"], touch)
    assert not gate.passed
    assert not Path("after").exists()
    gate.stage("next", touch)
    assert Path("after").exists()
    assert [stage.passed for stage in gate.stages] == [False, True]


def test_without_a_file_there_are_no_results(tmp_path: Path) -> None:
    assert not read(tmp_path / "none").seconds
