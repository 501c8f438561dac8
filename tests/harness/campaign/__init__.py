"""A campaign against the promise: real processes, a real server, and all that goes wrong.

    make campaign MINUTES=10

`command` is the command, `run` one run on one server, `cast` the processes, `faults`
what is done to them, `count` what came of it, by the processes' own logs; and `audit`
the same by their journals.
"""
