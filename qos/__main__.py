"""`python -m qos`: the command, where `xmpp-qos` is not in the PATH."""

import sys

from qos.cli import main

sys.exit(main())
