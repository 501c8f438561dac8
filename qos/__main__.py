"""`python -m qos`: the command, for systems where `xmpp-qos` is not in the PATH."""

import sys

from qos.cli import main

sys.exit(main())
