"""Lets multiprocessing's fork server die with the process that has started it.

A fork holds the pipe by whose end the fork server learns that its parent has ended. So,
without this, the forks of a process that was killed live on, and the server with them.

Only the fork server may import this module: see `forked`.
"""

from parents import die_with_parent

die_with_parent()
