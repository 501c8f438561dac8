"""All deliberate faults; see `mutant`."""

from __future__ import annotations

from simulation.backlog_mutants import BACKLOG
from simulation.count_mutants import COUNTS
from simulation.door_mutants import DOORS
from simulation.link_mutants import LINKS
from simulation.message_mutants import CONSUMER, POSTED, RECEIVER, SENDER
from simulation.mutant import Mutant
from simulation.presence_mutants import PRESENCE
from simulation.pull_mutants import PULL
from simulation.push_mutants import PUSH
from simulation.push_table_mutants import PUSH_TABLES
from simulation.queue_mutants import BRIDGE, QUEUE, WORKER
from simulation.row_mutants import ROWS
from simulation.service_link_mutants import SERVICE_LINK
from simulation.socket_mutants import SOCKETS

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = (
    *SENDER,
    *POSTED,
    *RECEIVER,
    *CONSUMER,
    *QUEUE,
    *WORKER,
    *SERVICE_LINK,
    *BRIDGE,
    *PUSH,
    *PUSH_TABLES,
    *PULL,
    *DOORS,
    *SOCKETS,
    *LINKS,
    *PRESENCE,
    *ROWS,
    *COUNTS,
    *BACKLOG,
)
