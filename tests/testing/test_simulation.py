"""The simulation: it finds faults, proves that it can, and finds them again."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from qos.core.message.model import Level
from simulation import door_invariants, invariants
from simulation.by_hand import PLANS
from simulation.campaign import hunt, run_some
from simulation.command import main
from simulation.mutants import MUTANTS, Mutant
from simulation.plan import (
    FAULTS,
    MACHINES,
    Fault,
    Plan,
    PlannedItem,
    PlannedMessage,
)
from simulation.planner import plan_of
from simulation.shrinking import minimal, shrink
from simulation.world import run

#: `make simulate` runs any number of them, `make test-all` these, and `make test` the
#: first of them.
SEEDS, CHUNKS = 2000, 16
FIRST_CHUNKS = 1

COMMAND = "simulation"

SOURCES = Path(__file__).parents[2]

#: Processor time in seconds, of a processor that others may be using as well.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    "chunk",
    [
        *range(FIRST_CHUNKS),
        *(
            pytest.param(chunk, marks=pytest.mark.long)
            for chunk in range(FIRST_CHUNKS, CHUNKS)
        ),
    ],
)
def test_no_seed_violates_anything(chunk: int) -> None:
    """Kills, cuts, bad disks and clocks, all at once, at every moment."""
    seeds = SEEDS // CHUNKS
    totals = run_some(chunk * seeds, seeds)
    assert totals.seeds == seeds
    assert totals.faults
    assert not totals.violated, (
        f"PYTHONPATH=tests/harness python -m {COMMAND} --seeds 1 --first SEED"
    )


@pytest.mark.parametrize(
    "seed",
    [
        *(1164, 1421, 2239, 4074, 4135, 4333, 4353, 4658, 7864, 8407, 10017),
        *(13872, 15628, 16401, 18924),
    ],
)
def test_a_seed_that_once_failed_does_not_any_more(seed: int) -> None:
    """In 8407 an item was done twice, and in 4658 a loop worked on a message that was
    released while it was being parked. In 4333, 7864 and 18924 a message that was
    released before the first session was handed over again with it. In the others the
    check was too strict.

    4074 and 4135 are at level acknowledged, with a receiver whose disk fails with EIO.
    """
    assert not run(plan_of(seed)).violations


@pytest.mark.parametrize("seed", PLANS)
def test_a_plan_made_by_hand_violates_nothing(seed: int) -> None:
    """Each is an edge that hardly any seed meets; a mutant of each shows that it is."""
    result = run(plan_of(seed))
    assert not result.violations
    assert +result.faults
    assert any(each.seed == seed for each in MUTANTS)


@pytest.mark.long
@pytest.mark.parametrize("group", range(4))
def test_every_mutant_is_found_out(group: int) -> None:
    """A campaign that finds nothing proves something only if it can find it.

    Those that a test of their own finds take a process each: `make simulate` hunts them
    too.
    """
    mutants = [each for each in MUTANTS if not each.test][group::4]
    hunted = {each.name: each for each in hunt(mutants, first=0, seeds=500, jobs=1)}
    assert hunted.keys() == {each.name for each in mutants}
    for name, each in hunted.items():
        assert not each.error, f"{name}: {each.error}"
        assert each.violation, f"{name} survives {each.runs} seeds"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_source(mutant: Mutant) -> None:
    """A mutant that changes nothing would count as a survivor, and one with two places
    is unclear.
    """
    found = find_spec(mutant.module)
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text("utf-8")
    assert source.count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert mutant.breaks
    assert bool(mutant.by) != bool(mutant.test)
    rules = vars(invariants).keys() | vars(door_invariants).keys()
    assert rules >= set(mutant.by)


def test_the_pages_say_how_many_mutants_there_are() -> None:
    """A number that nobody counts again is soon a wrong one."""
    by_test = sum(bool(each.test) for each in MUTANTS)
    by_seed = len(MUTANTS) - by_test
    tried = " ".join((SOURCES / "docs/tried.md").read_text("utf-8").split())
    readme = (SOURCES / "README.md").read_text("utf-8")
    put_in = f"{len(MUTANTS)} faults put into the code on purpose"
    assert f"| {put_in}: each found out |" in tried
    assert f"| {put_in} | each was found out |" in readme
    assert f"{len(MUTANTS)} faults were put into" in tried
    assert f"found out: {by_seed} by a seed" in tried
    assert f"and {by_test} at sockets," in tried


def test_a_mutant_is_found_out_by_what_it_breaks_and_by_nothing_else() -> None:
    """An error that is raised on the way would prove nothing about a promise."""
    raises = next(each for each in MUTANTS if each.name == "window-leaks")
    other = replace(raises, by=("in_order",))
    (found,) = hunt([raises], first=0, seeds=1, jobs=1)
    assert (found.seed, found.violation) == (raises.seed, "everything_ends")
    (found,) = hunt([other], first=0, seeds=1, jobs=1)
    assert (found.runs, found.violation, found.error) == (1, "", "")


def test_a_mutant_may_name_the_test_that_finds_it() -> None:
    """Where the fault is at a socket or in a file; a test that does not fail finds none."""
    mutant = next(each for each in MUTANTS if each.test.startswith("core/test_reg"))
    other = "core/test_rate.py"
    mutants = [
        mutant,
        replace(mutant, name="no-test", test="core/no_such_test.py"),
        replace(mutant, name="unused", test=other),
        replace(mutant, name="harmless", new="if key in (*entries,):"),
    ]
    found = {each.name: each for each in hunt(mutants, first=0, seeds=1, jobs=2)}
    assert found[mutant.name].violation == mutant.test
    assert "there is no test core/no_such_test.py" in found["no-test"].error
    assert f"{other} does not use {mutant.module}" in found["unused"].error
    harmless = found["harmless"]
    assert (harmless.runs, harmless.violation, harmless.error) == (1, "", "")


def test_a_mutant_that_cannot_be_made_is_an_error_and_no_success() -> None:
    """When the source changes, a mutant that does nothing would look like a survivor."""
    lost = replace(MUTANTS[0], name="lost", old="what stands nowhere")
    unused = replace(MUTANTS[0], name="unused", module="qos.cli.worker")
    found = {each.name: each for each in hunt([lost, unused], first=0, seeds=1, jobs=1)}
    assert "0 times" in found["lost"].error
    assert "does not use qos.cli.worker" in found["unused"].error


@pytest.mark.parametrize("seed", range(5))
def test_the_same_plan_is_the_same_run(seed: int) -> None:
    """To the last line: otherwise no failure could be examined."""
    plan = plan_of(seed)
    first, second = run(plan, traced=True), run(plan, traced=True)
    assert first.trace == second.trace
    assert len(first.trace) > 20
    assert (first.seconds, first.faults) == (second.seconds, second.faults)


@pytest.mark.long
def test_a_run_does_not_depend_on_its_process() -> None:
    """The order in a set of strings differs between processes."""
    code = (
        "from simulation.planner import plan_of\n"
        "from simulation.world import run\n"
        "for seed in range(40):\n"
        "    print(*run(plan_of(seed), traced=True).trace, sep='\\n')\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-P", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for hash_seed in (1, 2)
    ]
    assert outputs[0] == outputs[1]


def test_what_is_minimal_fails_and_nothing_can_be_left_out() -> None:
    """Of a hundred parts, three cause the failure together."""

    def fails(parts: tuple[int, ...]) -> bool:
        return {7, 48, 93} <= set(parts)

    assert minimal(tuple(range(100)), fails) == (7, 48, 93)
    assert minimal((1, 2), lambda _parts: True) == ()


def test_a_failing_seed_is_shown_small_and_can_be_seen_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On a mutant, because nothing else fails; it is made in a process of its own."""
    mutant = next(each for each in MUTANTS if each.name == "no-mark-after-a-restart")
    words = ["--seeds", "1", "--first", str(mutant.seed)]
    shown = []
    for _ in range(2):
        status = main(["--mutant", mutant.name, "--jobs", "1", *words])
        out, err = capfd.readouterr()
        assert status == 1, err
        shown.append(out.partition("\n\n")[0].splitlines())
    assert shown[0] == shown[1]
    replay = f"PYTHONPATH=tests/harness python -m {COMMAND} {' '.join(words)} --mutant {mutant.name}"
    violates = f"seed {mutant.seed} violates once_without_the_mark: {replay}"
    assert shown[0][0] == violates
    # A message, a kill of its receiver at the wrong moment, and little else.
    assert any(" sends " in line for line in shown[0])
    assert any(" is killed" in line for line in shown[0])
    assert len(shown[0]) <= 9


def test_what_is_shrunk_still_fails_and_by_the_same_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a rule that nothing may be held, one message without any fault is enough."""

    def quotas_hold(name: str, used: int, _room: int) -> str | None:
        return f"{name} holds something" if used else None

    monkeypatch.setattr(invariants, "quotas_hold", quotas_hold)
    plans = (each for each in map(plan_of, range(100)) if len(each.messages) > 5)
    plan = next(each for each in plans if len(each.faults) > 5)
    (violation,) = run(plan).violations
    small = shrink(plan, violation.invariant)
    assert [each.invariant for each in run(small).violations] == ["quotas_hold"]
    assert (len(small.faults), len(small.messages), len(small.items)) == (0, 1, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds", "none"], "'none' is no whole number"),
        (["--seeds", "0"], "it must be 1 or more"),
        (["--first", "-99"], "there is no plan '-99' made by hand"),
        (["--mutant", "nobody"], "there is no mutant 'nobody'"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_words_are_one_line(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no traceback."""
    assert main(words) == 2
    _, err = capsys.readouterr()
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_clean_campaign_says_what_it_has_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Counts of seeds, work and faults, for the README."""
    assert main(["--seeds", "20", "--jobs", "1"]) == 0
    out, _ = capsys.readouterr()
    for row in ("seeds           20", "messages", "  kill", "seeds violated  0"):
        assert row in out


def test_plans_have_each_way_to_trust_and_drops_by_force() -> None:
    """Contacts, accounts and a domain; open to anyone or not; at each level."""
    plans = [plan_of(seed) for seed in range(600)]
    wary = [plan for plan in plans if plan.messages and plan.settings.distrusted]
    ways = {
        "contacts" if each.contacts else "domain" if each.domain else "accounts"
        for each in (plan.settings for plan in wary)
    }
    assert ways == {"contacts", "accounts", "domain"}
    assert {plan.settings.accepts_anyone for plan in wary} == {False, True}
    assert any(plan.settings.roster_s for plan in wary)
    levels = {
        message.level
        for plan in wary
        for message in plan.messages
        if message.sender in plan.settings.distrusted
    }
    assert levels == set(Level)
    assert any(fault.kind == "drop" for plan in plans for fault in plan.faults)


def test_an_empty_plan_ends_at_once() -> None:
    """An empty plan remains when everything can be left out."""
    result = run(Plan(seed=0, faults=(Fault("kill", "ann", 1.0, 1.0),)))
    assert not result.violations
    assert result.messages == result.items == 0


# -- what comes to pass, and what is counted -------------------------------

MESSAGE = PlannedMessage(0, 0.5, "ann", "lamp@x/1", Level.ASSURED)
ITEM = PlannedItem("item-0", 0.5)


@pytest.mark.parametrize(
    ("faults", "counted"),
    [
        # The second delivery finds nobody.
        ([Fault("kill", "ann", 1.0, 9.0), Fault("kill", "ann", 2.0)], {"kill": 1}),
        ([Fault("stop", "ann", 1.0, 9.0), Fault("stop", "ann", 2.0)], {"stop": 1}),
        ([Fault("cut", "ann", 1.0, 9.0), Fault("cut", "ann", 2.0)], {"cut": 1}),
        ([Fault("replay", "bell", 1.0, 8.0)], {}),
        ([Fault("partition", "bell", 1.0, 8.0)], {}),
        ([Fault("partition", "lamp", 0.4, 8.0)], {"partition": 1}),
        # No process reads the clock after that.
        ([Fault("jump", "ann", 1.0, 5.0)], {}),
        (
            [Fault("jump", "ann", 1.0, 5.0), Fault("kill", "ann", 2.0)],
            {"jump": 1, "kill": 1},
        ),
        # Nothing else can happen to a lost stanza.
        ([Fault("lose", "ann", 1), Fault("duplicate", "ann", 1)], {"lose": 1}),
        # For three commits, but only one fault.
        ([Fault("error", "ann", 1, 3)], {"error": 1}),
        ([Fault("slow", "ann", 1, 0.5)], {"slow": 1}),
        ([Fault("full", "bee", 1, 4)], {"full": 1}),
        ([Fault("error", "queue", 100_000, 1)], {}),
    ],
)
def test_a_fault_counts_once_and_if_it_has_come_to_pass(
    faults: list[Fault], counted: dict[str, int]
) -> None:
    """Otherwise the figures would show more than was tried."""
    plan = Plan(seed=0, faults=tuple(faults), messages=(MESSAGE,), items=(ITEM,))
    result = run(plan)
    assert not result.violations
    assert dict(+result.faults) == counted


@pytest.mark.long
def test_each_fault_of_a_plan_can_come_to_pass() -> None:
    """None is aimed at something that does not exist."""
    totals = run_some(0, 150)
    assert (+totals.faults).keys() == FAULTS.keys()
    planned = [fault for seed in range(500) for fault in plan_of(seed).faults]
    disks = {each.target for each in planned if each.kind in {"full", "error"}}
    assert disks == {*MACHINES} - {"shop", "target", "puller"}


@pytest.mark.parametrize("kind", ["full", "error"])
@pytest.mark.parametrize("first", range(1, 10))
def test_a_worker_lives_through_a_bad_disk(kind: str, first: int) -> None:
    """At each beginning and end of a transaction.

    The simulation starts the worker again.
    """
    away, bad = Fault("kill", "wasp", 0.0, 60.0), Fault(kind, "bee", first, 2)
    plan = Plan(seed=0, faults=(away, bad), items=(ITEM,))
    result = run(plan)
    assert not result.violations
    assert result.faults[kind] == (first <= 7)


def test_a_run_goes_on_until_nothing_is_on_its_way() -> None:
    """A late stanza, after everything has ended, may cause a fault too."""
    plan = Plan(seed=0, faults=(Fault("late", "ann", 1, 90.0),), messages=(MESSAGE,))
    result = run(plan, traced=True)
    assert not result.violations
    assert result.seconds > 90.0
    assert sum("gets from ann@x/1" in line for line in result.trace) == 3


@pytest.mark.parametrize(
    ("number", "killed", "handed"),
    [
        (0, True, 1),  # it was refused, and comes after a restart
        (0, False, 0),
        (1, True, 1),  # it is submitted again under its id, before the restart
        (1, False, 1),
    ],
)
def test_what_a_disk_has_not_confirmed_may_come_after_a_restart(
    number: int, killed: bool, handed: int
) -> None:
    """Once, even if it was submitted again: an error does not tell what was written."""
    faults = [Fault("error", "ann", 1, 2)]
    if killed:
        faults.append(Fault("kill", "ann", 2.0, 0.1))
    message = replace(MESSAGE, number=number)
    plan = Plan(seed=0, faults=tuple(faults), messages=(message,))
    result = run(plan, traced=True)
    assert not result.violations
    assert sum("hands over" in line for line in result.trace) == handed
    assert result.messages == handed
