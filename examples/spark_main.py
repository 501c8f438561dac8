"""The command `xmpp-qos` as a file of its own, as spark-submit needs it."""

import sys

from qos.cli import main

sys.exit(main())
