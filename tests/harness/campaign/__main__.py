"""The command: `python -m campaign`, with tests/harness in the PYTHONPATH."""

from __future__ import annotations

import sys

from campaign import command
from campaign.disk import with_mounts_of_its_own
from qos.cli.entry import run_found

_MODULE = "campaign"


def main() -> int:
    """Run the command, with mounts of its own where that is possible."""
    words = sys.argv[1:]
    with_mounts_of_its_own([sys.executable, "-P", "-m", _MODULE, *words])
    return run_found(lambda: (command, f"python -m {_MODULE}", words))


if __name__ == "__main__":
    sys.exit(main())
