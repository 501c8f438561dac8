"""`xmpp-qos queue`: a queue service, and what one does to its queues.

Here are the words of it; what they do is in `queue_serve`, `queue_publish` and
`queue_verbs`.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TypeAlias

from qos.cli.options import add_journal, add_quotas
from qos.core.queue.item import PRIORITIES, PRIORITY, Affiliation
from qos.core.queue.node_options import NODE_FIELDS, BadOption, Field
from qos.core.queue.service import MESSAGE_QUOTAS, QueueBounds
from qos.options.login import add_login
from qos.options.parser import Parser, address, jid, seconds, whole
from qos.stream.server import PORT_COMPONENT

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos queue serve --component queue.example.org
  xmpp-qos queue create queue.example.org orders --jid boss@example.org
  seq 1000 | xmpp-qos queue publish queue.example.org orders --jid boss@example.org --lines
  xmpp-qos queue stats queue.example.org orders --jid boss@example.org

`xmpp-qos worker` works on a queue. Each verb has a --help of its own.
"""

_SERVE = """\
examples:
  export XMPP_QOS_PASSWORD=secret
  xmpp-qos queue serve --component queue.example.org
  xmpp-qos queue serve --component queue.example.org --creators boss@example.org
  xmpp-qos queue serve --jid queue@example.org --creators @example.org,boss@example.com

A component has to be known to the server, with its secret. An account is addressed by
its full JID, as in queue@example.org/queue; the resource is `queue` unless --jid has
one. Once others are answered there is one line on stderr: ready JID.
Who may do what: accounts of the service's own domain create queues, or those that
--creators names; who creates a queue owns it, and nobody else may use it until the owner
says so (`xmpp-qos queue affiliate`, or access_model=open). What everybody may do is said
on stderr at the start.
It serves until Ctrl-C or SIGTERM, and connects again when the connection is lost.
"""

_CREATE = """\
example:
  xmpp-qos queue create queue.example.org orders --jid boss@example.org \\
    --set lock_timeout=30 --set max_deliveries=3
  xmpp-qos queue create queue.example.org letters --jid boss@example.org
  xmpp-qos queue create queue.example.org jobs --jid boss@example.org \\
    --set dead_letter_node=letters

Prints the name of the queue: {"node": "orders"}. Only its owner may use it until others
are made members or publishers (`xmpp-qos queue affiliate`). A dead_letter_node has to
exist before it is named.
"""

_CONFIGURE = """\
examples:
  xmpp-qos queue configure queue.example.org orders --jid boss@example.org
  xmpp-qos queue configure queue.example.org orders --jid boss@example.org --set ttl=3600

Without --set it prints the configuration, one JSON object. What is not set stays as it
is; locks that are held keep their time. A dead_letter_node is shown while it is in force:
it exists, and the account that set it still owns this queue and may publish to that one.
"""

_DELETE = """\
example:
  xmpp-qos queue delete queue.example.org orders --jid boss@example.org
"""

_PUBLISH = """\
examples:
  xmpp-qos queue publish queue.example.org orders --jid boss@example.org \\
    --payload '<order xmlns="urn:example:shop" number="7"/>' --priority 9
  seq 1000 | xmpp-qos queue publish queue.example.org orders --jid boss@example.org --lines

With --lines the payload of an item is <line xmlns='xmpp-qos:line:0'>…</line>.
For each item that is in the queue, on disk, there is one line on stdout; `line` is there
with --lines:
  {"id": "…", "line": 1}
An item without an --id gets one that nobody else makes. A publish without an answer is
repeated under the same id, so that the item is in the queue once. Lines go out together,
and those that are repeated may be overtaken by later ones.
A line that is refused is named on stderr, and the exit status is 1. Lines after one that
is refused for what it is are published; if none can be published any more (no such queue,
not allowed, the queue is full) the command ends.
"""

_BROWSE = """\
examples:
  xmpp-qos queue browse queue.example.org orders --jid boss@example.org
  xmpp-qos queue browse queue.example.org orders --jid boss@example.org --state dead --max 5

One JSON object a line, in the order of delivery as far as there is one.
"""

_STATS = """\
example:
  xmpp-qos queue stats queue.example.org orders --jid boss@example.org

Prints one JSON object: items that are available, acquired, delayed and dead, how many
were accepted ever, the subscribers, and oldest_seconds, the age of the oldest item that
is not done (null: there is none).
"""

_LIST = """\
example:
  xmpp-qos queue list queue.example.org --jid boss@example.org

One JSON object a line for each queue that the service shows to this account: its name,
`node`, and the numbers that `queue stats` prints, where this account may see them.
"""

_WATCH = """\
examples:
  xmpp-qos queue watch queue.example.org orders --jid boss@example.org
  xmpp-qos queue watch queue.example.org orders --jid boss@example.org --interval 60 \\
    >> orders.jsonl

One JSON object a line: the time, and what `queue stats` prints. It goes on until Ctrl-C,
also when the connection is lost and found, or until --count lines are printed.
"""

_PURGE = """\
example:
  xmpp-qos queue purge queue.example.org orders --jid boss@example.org
"""

_AFFILIATE = """\
examples:
  xmpp-qos queue affiliate queue.example.org orders --jid boss@example.org
  xmpp-qos queue affiliate queue.example.org orders --jid boss@example.org \\
    shop@example.org=publisher bee@example.org=member

Without any, it lists them, a JSON object a line. An owner may do all, a publisher may
publish, a member may work; an outcast may do nothing, and loses what it holds.
"""

_DEAD = """\
examples:
  xmpp-qos queue dead list queue.example.org orders --jid boss@example.org
  xmpp-qos queue dead requeue queue.example.org orders --jid boss@example.org
"""

_DEAD_LIST = """\
example:
  xmpp-qos queue dead list queue.example.org orders --jid boss@example.org

One JSON object a line; reason and history say what happened. Those that were moved to
the dead_letter_node of the queue are among them, under the id that they had.
"""

_DEAD_REQUEUE = """\
examples:
  xmpp-qos queue dead requeue queue.example.org orders --jid boss@example.org
  xmpp-qos queue dead requeue queue.example.org orders 3f2c… --jid boss@example.org

Prints {"id": …} for each that lives again: none of its failures counts any more.
"""

#: Name, what it does, and how to use it.
_VERBS = (
    ("create", "create a queue", _CREATE),
    ("configure", "change the configuration of a queue, or print it", _CONFIGURE),
    ("delete", "delete a queue with all that is in it", _DELETE),
    ("publish", "put items into a queue", _PUBLISH),
    ("browse", "look at the items of a queue; this locks nothing", _BROWSE),
    ("stats", "count what is in a queue", _STATS),
    ("list", "list the queues of a service that you may use", _LIST),
    ("watch", "count what is in a queue, again and again", _WATCH),
    ("purge", "remove all items of a queue, locked and dead ones too", _PURGE),
    ("affiliate", "say who may do what with a queue, or list it", _AFFILIATE),
)

_DEAD_VERBS = (
    ("list", "list the items that died", _DEAD_LIST),
    ("requeue", "give items that died a new life", _DEAD_REQUEUE),
)

#: A publish is repeated for so long, at most: well inside the time in which a service
#: knows an id again (queue#dedupe_window), which is an hour unless its owner says.
_REPEAT_S = 300.0

_ANSWER_S = 30.0

_WATCH_S = 2.0

_BOUNDS = QueueBounds()

_Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Run a queue service (XEP-0254), or use one.",
        epilog=_EPILOG,
    )
    verbs: _Verbs = parser.add_subparsers(dest="action", required=True, metavar="VERB")
    _add_serve(verbs)
    for name, text, epilog in _VERBS:
        _add_verb(verbs, name, text, epilog)
    dead = verbs.add_parser(
        "dead",
        help="see the items that died, or give them a new life",
        description="The items that died: they failed too often, expired or were "
        "rejected.",
        epilog=_DEAD,
    )
    dead_verbs: _Verbs = dead.add_subparsers(
        dest="dead_action", required=True, metavar="VERB"
    )
    for name, text, epilog in _DEAD_VERBS:
        _add_verb(dead_verbs, name, text, epilog, dead=True)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    modules = {"serve": "queue_serve", "publish": "queue_publish"}
    name = modules.get(arguments.action, "queue_verbs")
    # These need slixmpp, which takes a while: not for a --help.
    status: int = await importlib.import_module(f"qos.cli.{name}").run(arguments)
    return status


# -- declaring -------------------------------------------------------------


def _add_serve(verbs: _Verbs) -> None:
    text = "run a queue service, as a component or from an account"
    serve = verbs.add_parser(
        "serve", help=text, description=text.capitalize() + ".", epilog=_SERVE
    )
    group = serve.add_argument_group("service")
    group.add_argument(
        "--component",
        type=_domain,
        metavar="JID",
        help="serve as this component of the server (XEP-0114), instead of from an "
        "account; the password is its secret, the default of --host is 127.0.0.1 "
        f"and that of --port {PORT_COMPONENT}",
    )
    group.add_argument(
        "--insecure",
        action="store_true",
        help="let a component connect to a host that is not this machine: all of it "
        "goes there without encryption",
    )
    group.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:PATH (default: a file for this JID, "
        "sqlite:$XDG_STATE_HOME/xmpp-qos/JID.queue.sqlite, or in ~/.local/state)",
    )
    group.add_argument(
        "--creators",
        type=_creators,
        default="domain",
        metavar="domain|all|JID,@DOMAIN…",
        help="who may create queues: the accounts of the service's own domain (for the "
        "component queue.example.org those of example.org, for an account those of its "
        "domain), everybody who can reach the service, or these accounts and all "
        "accounts of these domains (default: %(default)s)",
    )
    group.add_argument(
        "--nodes-per-account",
        type=whole(1),
        default=_BOUNDS.nodes_per_account,
        metavar="N",
        help="queues that one account may create; all accounts of a foreign domain "
        f"together at most {_BOUNDS.nodes_per_domain} (default: %(default)s)",
    )
    group.add_argument(
        "--subscriptions-per-account",
        type=whole(1),
        default=_BOUNDS.subscriptions_per_account,
        metavar="N",
        help="workers of one account, to each queue; all accounts of a foreign domain "
        f"together at most {_BOUNDS.subscriptions_per_domain} (default: %(default)s)",
    )
    add_journal(group)
    held = serve.add_argument_group(
        "items published by messages", "They are held until they are in their queue."
    )
    held.add_argument(
        "--trust",
        default="publishers",
        metavar="publishers|all|JID,JID…",
        help="whose assured messages are held: of those who may publish to a queue "
        "here, of everyone, or of these (default: %(default)s)",
    )
    add_quotas(held, MESSAGE_QUOTAS)
    add_login(serve, jid_help="serve from this account, with or without a resource")


def _add_verb(
    verbs: _Verbs, name: str, text: str, epilog: str, *, dead: bool = False
) -> None:
    verb = verbs.add_parser(
        name, help=text, description=text.capitalize() + ".", epilog=epilog
    )
    verb.add_argument(
        "service",
        type=address,
        metavar="SERVICE",
        help="the JID of the queue service; the full one, if it is an account",
    )
    if name != "list" or dead:
        verb.add_argument(
            "node", type=_node, metavar="NODE", help="the name of the queue"
        )
    if name in {"create", "configure"}:
        _add_set(verb)
    elif name == "publish":
        _add_publish(verb)
    elif name == "browse" or (name == "list" and dead):
        _add_browse(verb, states=not dead)
    elif name == "watch":
        _add_watch(verb)
    elif name == "requeue":
        verb.add_argument(
            "ids", nargs="*", metavar="ID", help="of which items (default: of all)"
        )
    elif name == "affiliate":
        verb.add_argument(
            "affiliations",
            nargs="*",
            type=_affiliation,
            metavar="JID=WHAT",
            help=f"what is {', '.join(each.value for each in Affiliation)}",
        )
    add_login(
        verb,
        jid_help="the own account; its resource does not count, so that nobody else "
        "who is logged in to it is disturbed",
    ).add_argument(
        "--timeout",
        type=seconds,
        default=_ANSWER_S,
        metavar="S",
        help="wait so long for an answer of the service (default: %(default)g)",
    )


def _add_set(verb: Parser) -> None:
    fields = "".join(
        f"\n  {_short(field)}: {_described(field)}" for field in NODE_FIELDS
    )
    verb.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of the configuration, see below; any number of times",
    )
    verb.epilog = f"fields:{fields}\n\n{verb.epilog}"


def _add_publish(verb: Parser) -> None:
    group = verb.add_mutually_exclusive_group()
    group.add_argument("--payload", metavar="XML", help="the payload, one XML element")
    group.add_argument(
        "--file", type=Path, metavar="FILE", help="a file with the payload"
    )
    group.add_argument(
        "--lines",
        action="store_true",
        help="an item for each line of stdin, empty ones included; a progress bar "
        "where stderr is a terminal",
    )
    verb.add_argument(
        "--priority",
        type=int,
        choices=PRIORITIES,
        metavar="N",
        help=f"{PRIORITIES[0]} to {PRIORITIES[-1]}, more is earlier (default: {PRIORITY})",
    )
    verb.add_argument(
        "--ttl",
        type=seconds,
        metavar="S",
        help="give it up if nobody has taken it after this time (default: as "
        "configured for the queue)",
    )
    verb.add_argument(
        "--delay",
        type=seconds,
        metavar="S",
        help="hand it out after this time (default: at once)",
    )
    verb.add_argument(
        "--id",
        metavar="ID",
        help="the id of the item; a repeat of the same item under the same id is "
        "none (default: one that is made up)",
    )
    verb.add_argument(
        "--deadline",
        type=seconds,
        default=_REPEAT_S,
        metavar="S",
        help="stop repeating what is not answered after this time: it is in doubt "
        "then (default: %(default)g; keep it below the dedupe_window of the queue)",
    )


def _add_browse(verb: Parser, *, states: bool) -> None:
    if states:
        verb.add_argument(
            "--state",
            choices=("live", "accepted", "dead"),
            default="live",
            help="which: those that are not done, those that were accepted and are "
            "kept for a while, or those that died (default: %(default)s)",
        )
    else:
        verb.set_defaults(state="dead")
    verb.add_argument(
        "--max",
        type=_positive,
        metavar="N",
        help="so many items at most (default: all)",
    )


def _add_watch(verb: Parser) -> None:
    verb.add_argument(
        "--interval",
        type=seconds,
        default=_WATCH_S,
        metavar="S",
        help="from one line to the next (default: %(default)g)",
    )
    verb.add_argument(
        "--count",
        type=_lines,
        metavar="N",
        help="end after so many lines (default: go on)",
    )


# -- values ----------------------------------------------------------------


def _short(field: Field) -> str:
    return field.var.partition("#")[2]


def _described(field: Field) -> str:
    default = f" (default: {field.default})" if field.default else ""
    return f"{field.label}{default}"


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    found = [field for field in NODE_FIELDS if name in {field.var, _short(field)}]
    if not equals or not found:
        names = ", ".join(map(_short, NODE_FIELDS))
        problem = f"there is no field {name!r}" if equals else f"{text!r} has no ="
        raise argparse.ArgumentTypeError(f"{problem}; the fields are {names}")
    try:
        return found[0].var, found[0].check(value)
    except BadOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _affiliation(text: str) -> tuple[str, Affiliation]:
    name, _, word = text.rpartition("=")
    try:
        affiliation = Affiliation(word)
    except ValueError:
        words = ", ".join(each.value for each in Affiliation)
        raise argparse.ArgumentTypeError(
            f"{text!r} does not end in = and one of {words}"
        ) from None
    account = jid(name)
    if "/" in account:
        raise argparse.ArgumentTypeError(f"{name!r} is not a bare JID")
    return account, affiliation


def _creators(text: str) -> str | frozenset[str]:
    if text in {"all", "domain"}:
        return text
    from qos.jids import account_or_domain

    names = [name for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names nobody")
    try:
        return frozenset(map(account_or_domain, names))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _domain(text: str) -> str:
    name = jid(text)
    if "@" in name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a component's JID")
    return name


def _node(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("a queue needs a name")
    return text


def _lines(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of items")
    return int(text)
