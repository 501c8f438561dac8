"""The table of commands that a queue service offers to any XMPP client (XEP-0050).

A command does one thing, and needs one right at one node at least. Its requests check the
rights again, as they do for all other doors; here they decide only what is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

from qos.core.queue.access import is_owner, may_subscribe, may_use
from qos.core.queue.item import Node
from qos.core.queue.node_options import NodeOptions
from qos.core.quick_enum import QuickEnum
from qos.core.record import record

__all__ = [
    "COMMANDS",
    "COMMAND_PREFIX",
    "Command",
    "CommandEntry",
    "Predicate",
    "Right",
    "available",
    "command_at",
    "has_right",
    "rights_at",
]

#: What the nodes of all commands begin with.
COMMAND_PREFIX: Final = "xmpp-qos:admin#"

#: Whether an account has a right at a node.
Predicate: TypeAlias = Callable[[Node, NodeOptions, str], bool]


class Right(QuickEnum):
    """A right at a node, which a command needs."""

    USE = "use"
    SUBSCRIBE = "subscribe"
    OWN = "own"
    #: The node is a topic, of which the account may create a copying queue.
    COPY = "copy"


class Command(QuickEnum):
    """A command; its node is COMMAND_PREFIX and the value."""

    QUEUES = "queues"
    QUEUE = "queue"
    BROWSE = "browse"
    DEAD = "dead"
    WORKERS = "workers"
    CREATE = "create"
    CONFIGURE = "configure"
    PURGE = "purge"
    DELETE = "delete"

    @property
    def node(self) -> str:
        """Its node, as service discovery shows it."""
        return f"{COMMAND_PREFIX}{self.value}"


@record(frozen=True, slots=True)
class CommandEntry:
    """A row of the table.

    Attributes:
        title: what people see in the list of commands, and over its forms.
        right: the right that it needs at one node at least. Whoever may create nodes
            may always create one.
    """

    title: str
    right: Right


#: In the order of the list that people see.
COMMANDS: Final[Mapping[Command, CommandEntry]] = {
    Command.QUEUES: CommandEntry("List the queues", Right.USE),
    Command.QUEUE: CommandEntry("Show the counts of a queue", Right.USE),
    Command.BROWSE: CommandEntry("Browse the items of a queue", Right.SUBSCRIBE),
    Command.DEAD: CommandEntry("Requeue the dead items of a queue", Right.OWN),
    Command.WORKERS: CommandEntry("List the workers of a queue", Right.OWN),
    Command.CREATE: CommandEntry("Create a queue", Right.COPY),
    Command.CONFIGURE: CommandEntry("Configure a queue", Right.OWN),
    Command.PURGE: CommandEntry("Purge a queue: remove all its items", Right.OWN),
    Command.DELETE: CommandEntry("Delete a queue", Right.OWN),
}

_BY_NODE: Final = {command.node: command for command in Command}


def command_at(node: str) -> Command | None:
    """The command with this node; None: there is none."""
    return _BY_NODE.get(node)


def _may_copy(node: Node, options: NodeOptions, account: str) -> bool:
    return options.node_type == "topic" and may_subscribe(node, options, account)


def _owns(node: Node, _options: NodeOptions, account: str) -> bool:
    return is_owner(node, account)


_PREDICATES: Final[Mapping[Right, Predicate]] = {
    Right.USE: may_use,
    Right.SUBSCRIBE: may_subscribe,
    Right.OWN: _owns,
    Right.COPY: _may_copy,
}


def has_right(right: Right) -> Predicate:
    """The predicate of a right."""
    return _PREDICATES[right]


def rights_at(rights: set[Right]) -> Predicate:
    """A predicate that is true of no node, and adds the rights at each node to a set."""
    return partial(_add_rights, rights)


def _add_rights(
    rights: set[Right], node: Node, options: NodeOptions, account: str
) -> bool:
    for right, may in _PREDICATES.items():
        if right not in rights and may(node, options, account):
            rights.add(right)
    return False


def available(rights: Collection[Right], *, creates: bool) -> list[Command]:
    """The commands that an account can use.

    Args:
        rights: that it has at any node.
        creates: it may create nodes.
    """
    return [
        command
        for command, entry in COMMANDS.items()
        if entry.right in rights or (creates and command is Command.CREATE)
    ]
