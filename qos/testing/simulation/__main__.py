"""`python -m qos.testing.simulation`."""

import sys

from qos.testing.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
