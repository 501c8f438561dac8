"""Deterministic simulation: everything at once, in one thread, from one seed.

Several senders and receivers, a queue service, its publisher and its workers, all of
the real core and engines, on machines that die, with disks that fail, and a network
that loses, doubles, delays and reorders. `world.run(planner.plan_of(seed))` is always the
same run.

The package itself imports none of its modules: tests that take only its disks need no
extra of the library.

From a shell: `PYTHONPATH=tests/harness python -m simulation --help`.
"""
