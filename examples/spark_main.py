"""The command `xmpp-qos` as spark-submit wants it: a file of its own."""

import sys

from qos.cli import main

sys.exit(main())
