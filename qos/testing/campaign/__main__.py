"""The command: `python -m qos.testing.campaign`."""

from __future__ import annotations

import sys

from qos.cli.entry import run_found
from qos.testing.campaign import command
from qos.testing.campaign.disk import with_mounts_of_its_own

_MODULE = "qos.testing.campaign"


def main() -> int:
    """Run it, with mounts of its own where that is possible."""
    words = sys.argv[1:]
    with_mounts_of_its_own([sys.executable, "-P", "-m", _MODULE, *words])
    return run_found(lambda: (command, f"python -m {_MODULE}", words))


if __name__ == "__main__":
    sys.exit(main())
