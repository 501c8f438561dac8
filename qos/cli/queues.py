"""`xmpp-qos queue`: the command that runs a queue service or manages its queues.

This module declares the verbs and their options; the texts are in `queue_help`, and the
kinds of values in `queue_values`, and gateways in `queue_gateways`. The work itself is in `queue_serve`, `queue_publish`
and `queue_verbs`.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TypeAlias

from qos.cli import queue_gateways, queue_help, queue_options, queue_values
from qos.cli.listing import add_json
from qos.cli.options import add_journal, add_quotas
from qos.core.queue.bounds import MESSAGE_QUOTAS, RECOVER_FOR_S, QueueBounds
from qos.core.queue.item import PRIORITIES, PRIORITY, Affiliation
from qos.core.queue.node_options import NODE_FIELDS, NODE_TYPE
from qos.options.login import add_login
from qos.options.parser import Parser, seconds, sentence, whole
from qos.stream.server import PORT_COMPONENT

__all__ = ["parser", "run"]

_VERBS = (
    ("create", "create a queue", queue_help.CREATE),
    (
        "configure",
        "change the configuration of a queue, or print it",
        queue_help.CONFIGURE,
    ),
    ("delete", "delete a queue with everything in it", queue_help.DELETE),
    ("publish", "put items into a queue", queue_help.PUBLISH),
    ("browse", "look at the items of a queue, without locking them", queue_help.BROWSE),
    ("stats", "count the items and subscribers of a queue", queue_help.STATS),
    ("list", "list the queues of a service that you may use", queue_help.LIST),
    ("watch", "print the counts of a queue again and again", queue_help.WATCH),
    (
        "purge",
        "remove all items of a queue, locked and dead ones too",
        queue_help.PURGE,
    ),
    ("affiliate", "set or list who may do what with a queue", queue_help.AFFILIATE),
)

_DEAD_VERBS = (
    ("list", "list dead items", queue_help.DEAD_LIST),
    ("requeue", "put dead items back into their queue", queue_help.DEAD_REQUEUE),
)

#: Seconds for which a publish is repeated at most. It is well below the time for which
#: a service remembers an id (queue#dedupe_window, by default an hour).
_REPEAT_S = 300.0

_ANSWER_S = 30.0

_WATCH_S = 2.0

#: Characters of a line of the list of fields.
_WIDTH = 92

_BOUNDS = QueueBounds()

_Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Run a queue service (XEP-0254), or use one.",
        epilog=queue_help.QUEUE,
    )
    verbs: _Verbs = parser.add_subparsers(dest="action", required=True, metavar="VERB")
    _add_serve(verbs)
    for name, text, epilog in _VERBS:
        _add_verb(verbs, name, text, epilog)
    dead = verbs.add_parser(
        "dead",
        help="list dead items, or requeue them",
        description="List or requeue items that failed too often, expired or were rejected.",
        epilog=queue_help.DEAD,
    )
    dead_verbs: _Verbs = dead.add_subparsers(
        dest="dead_action", required=True, metavar="VERB"
    )
    for name, text, epilog in _DEAD_VERBS:
        _add_verb(dead_verbs, name, text, epilog, dead=True)
    queue_gateways.add_users(verbs)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    modules = {
        "serve": "queue_serve",
        "publish": "queue_publish",
        "amqp-user": "queue_users",
        "http-user": "queue_users",
    }
    name = modules.get(arguments.action, "queue_verbs")
    # These modules need slixmpp, which is slow to import: not for a --help.
    status: int = await importlib.import_module(f"qos.cli.{name}").run(arguments)
    return status


# -- declaring -------------------------------------------------------------


def _add_serve(verbs: _Verbs) -> None:
    text = "run a queue service, as a component or from an account"
    serve = verbs.add_parser(
        "serve", help=text, description=sentence(text), epilog=queue_help.SERVE
    )
    serve.set_defaults(until_stopped=True)
    _add_service(serve)
    queue_gateways.add_options(serve)
    _add_messages(serve)
    add_login(serve, jid_help="serve from this account, with or without a resource")


def _add_service(serve: Parser) -> None:
    group = serve.add_argument_group("service")
    group.add_argument(
        "--component",
        type=queue_values.domain,
        metavar="JID",
        help="serve as this component of the server (XEP-0114), instead of from an "
        "account; the password is the component's secret; the default of --host is then "
        f"127.0.0.1 and that of --port {PORT_COMPONENT}",
    )
    group.add_argument(
        "--insecure",
        action="store_true",
        help="let a component connect to another machine, although its stream is not "
        "encrypted",
    )
    group.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:PATH (default: a file for this JID, "
        "sqlite:$XDG_STATE_HOME/xmpp-qos/JID.queue.sqlite, or in ~/.local/state)",
    )
    group.add_argument(
        "--creators",
        type=queue_values.creators,
        default="domain",
        metavar="domain|anyone|JID,@DOMAIN…",
        help="the accounts that may create queues: all of the service's own domain (for "
        "the component queue.example.org that is example.org), anyone who can reach the "
        "service, or these accounts and all accounts of these domains (default: "
        "%(default)s)",
    )
    _add_bounds(group)
    group.add_argument(
        "--recover-for",
        type=seconds,
        default=RECOVER_FOR_S,
        metavar="S",
        help="if the store cannot be read any more, or not be written though the disk is "
        "not full, try again for this many seconds; then end with status 5, so that a "
        "supervisor starts the service anew (default: %(default)g)",
    )
    add_journal(group)


def _add_bounds(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--nodes-per-account",
        type=whole(1),
        default=_BOUNDS.nodes_per_account,
        metavar="N",
        help="the most queues created by one account; for all accounts of a foreign "
        f"domain together {_BOUNDS.nodes_per_domain} (default: %(default)s)",
    )
    group.add_argument(
        "--bytes-per-account",
        type=whole(1),
        default=_BOUNDS.bytes_per_account,
        metavar="N",
        help="the most bytes of waiting items in all queues that one account created "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--subscriptions-per-account",
        type=whole(1),
        default=_BOUNDS.subscriptions_per_account,
        metavar="N",
        help="the most workers of one account at each queue; for all accounts of a "
        f"foreign domain together {_BOUNDS.subscriptions_per_domain} (default: "
        "%(default)s)",
    )


def _add_messages(serve: Parser) -> None:
    messages = serve.add_argument_group(
        "items published by messages",
        "A message is held until its item is in the queue.",
    )
    messages.add_argument(
        "--trust",
        default="publishers",
        metavar="publishers|anyone|JID,@DOMAIN…",
        help="the accounts whose messages are accepted: those that may publish to a "
        "queue here, anyone, or these accounts and all accounts of these domains "
        "(default: %(default)s)",
    )
    add_quotas(messages, MESSAGE_QUOTAS)


def _add_verb(
    verbs: _Verbs, name: str, text: str, epilog: str, *, dead: bool = False
) -> None:
    verb = verbs.add_parser(name, help=text, description=sentence(text), epilog=epilog)
    if name != "list" or dead:
        queue_options.add_queue(verb)
    else:
        queue_options.add_service(verb)
    if name in {"create", "configure"}:
        _add_set(verb, creates=name == "create")
    elif name == "publish":
        _add_publish(verb)
    elif name == "browse" or (name == "list" and dead):
        _add_browse(verb, states=not dead)
    elif name == "delete":
        verb.add_argument(
            "--with-queues",
            action="store_true",
            help="of a topic: delete the queues that copy from it, too, without asking",
        )
    elif name == "watch":
        _add_watch(verb)
    elif name == "requeue":
        verb.add_argument(
            "ids", nargs="*", metavar="ID", help="the items (default: all dead items)"
        )
    elif name == "affiliate":
        verb.add_argument(
            "affiliations",
            nargs="*",
            type=queue_values.affiliation,
            metavar="JID=WHAT",
            help="an account, or @DOMAIN for all accounts of a domain; WHAT is "
            f"{', '.join(affiliation.value for affiliation in Affiliation)}",
        )
    if name in {"affiliate", "browse", "list", "stats"}:
        add_json(verb)
    add_login(
        verb,
        jid_help="your account; a resource is ignored, so that no other session of "
        "the account is disturbed",
    ).add_argument(
        "--timeout",
        type=seconds,
        default=_ANSWER_S,
        metavar="S",
        help="seconds to wait for an answer of the service (default: %(default)g)",
    )


def _add_set(verb: Parser, *, creates: bool) -> None:
    fields = "".join(
        f"\n{queue_values.described(field, width=_WIDTH)}" for field in NODE_FIELDS
    )
    verb.add_argument(
        "--set",
        dest="settings",
        type=queue_values.setting,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the configuration (listed below) and its value; may be repeated",
    )
    if creates:
        kind = verb.add_mutually_exclusive_group()
        kind.add_argument(
            "--topic",
            dest="settings",
            action="append_const",
            const=(NODE_TYPE, "topic"),
            help="create a topic (node_type=topic)",
        )
        kind.add_argument(
            "--from",
            dest="settings",
            type=queue_values.topic,
            action="append",
            metavar="TOPIC",
            help="copy each new item of this topic into the queue (topic=TOPIC)",
        )
    verb.epilog = f"fields:{fields}\n\n{verb.epilog}"


def _add_publish(verb: Parser) -> None:
    _add_content(verb)
    verb.add_argument(
        "--priority",
        type=int,
        choices=PRIORITIES,
        metavar="N",
        help=f"{PRIORITIES[0]} to {PRIORITIES[-1]}; larger is earlier (default: {PRIORITY})",
    )
    verb.add_argument(
        "--property",
        type=queue_values.property_,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property that selectors of workers read; 5 and 2.5 are numbers, true and "
        "false booleans, and all else is text; NAME:string=5, or another of "
        "int, float and boolean, gives the type (any number of times)",
    )
    verb.add_argument(
        "--ttl",
        type=seconds,
        metavar="S",
        help="seconds after which the item expires if no worker has it (default: as "
        "configured for the queue)",
    )
    verb.add_argument(
        "--delay",
        type=seconds,
        metavar="S",
        help="seconds before the item is delivered (default: 0)",
    )
    verb.add_argument(
        "--id",
        metavar="ID",
        help="the id of the item; publishing the same item again under its id adds "
        "nothing (default: a random id)",
    )
    verb.add_argument(
        "--deadline",
        type=seconds,
        default=_REPEAT_S,
        metavar="S",
        help="seconds after which an unanswered publish is not repeated any more, and is "
        "in doubt; keep it below the queue's dedupe_window (default: %(default)g)",
    )


def _add_content(verb: Parser) -> None:
    group = verb.add_argument_group("what is published, one of")
    group.add_argument("--payload", metavar="XML", help="the payload, one XML element")
    group.add_argument(
        "--file", type=Path, metavar="FILE", help="a file with the payload"
    )
    group.add_argument(
        "--json", metavar="JSON", help="a value as JSON instead of a payload (XEP-0335)"
    )
    group.add_argument("--text", help="a text instead of a payload")
    group.add_argument(
        "--lines",
        action="store_true",
        help="one item for each line of stdin, empty ones included; shows a progress bar "
        "if stderr is a terminal",
    )


def _add_browse(verb: Parser, *, states: bool) -> None:
    if states:
        verb.add_argument(
            "--state",
            choices=("live", "accepted", "dead"),
            default="live",
            help="live: items that are not done; accepted: accepted items that are still "
            "kept; dead: dead items (default: %(default)s)",
        )
    else:
        verb.set_defaults(state="dead")
    verb.add_argument(
        "--max",
        type=queue_values.positive,
        metavar="N",
        help="the most items to print (default: all)",
    )


def _add_watch(verb: Parser) -> None:
    verb.set_defaults(until_stopped=True)
    verb.add_argument(
        "--interval",
        type=seconds,
        default=_WATCH_S,
        metavar="S",
        help="seconds between two lines (default: %(default)g)",
    )
    verb.add_argument(
        "--count",
        type=queue_values.lines,
        metavar="N",
        help="end after this many lines (default: no limit)",
    )


# -- values ----------------------------------------------------------------
