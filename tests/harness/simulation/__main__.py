"""`python -m simulation`, with tests/harness in the PYTHONPATH."""

import sys

from simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
