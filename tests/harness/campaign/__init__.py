"""A campaign against the promise: real processes, a real server, and many faults.

    make campaign MINUTES=10

`command` is the command, `run` one run on one server, `supervisor` keeps the processes
running, and `faults` injects faults. `count` compares the processes' own logs, and
`audit` their journals.
"""
