"""`xmpp-qos queue`: a queue service, and the requests to one.

This module has the arguments and help texts; `queue_serve`, `queue_publish` and
`queue_verbs` do the work.
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

`xmpp-qos worker` works on the items of a queue. Each verb has a --help of its own.
"""

_SERVE = """\
examples:
  export XMPP_QOS_PASSWORD=secret
  xmpp-qos queue serve --component queue.example.org
  xmpp-qos queue serve --component queue.example.org --creators boss@example.org
  xmpp-qos queue serve --jid queue@example.org --creators @example.org,boss@example.com

The server must know a component, with its secret. A service of an account is addressed
by its full JID, such as queue@example.org/queue; the resource is `queue` unless --jid has
one. When the service is ready there is one line on stderr: ready JID.
Accounts of the service's own domain may create queues, or the accounts that --creators
names. The creator of a queue owns it. Nobody else may use the queue until its owner allows
it (`xmpp-qos queue affiliate`, or access_model=open). At the start, rights that everybody
has are listed on stderr.
The service runs until Ctrl-C or SIGTERM, and connects again after the connection is lost.
"""

_CREATE = """\
example:
  xmpp-qos queue create queue.example.org orders --jid boss@example.org \\
    --set lock_timeout=30 --set max_deliveries=3
  xmpp-qos queue create queue.example.org letters --jid boss@example.org
  xmpp-qos queue create queue.example.org jobs --jid boss@example.org \\
    --set dead_letter_node=letters

Prints the name of the queue: {"node": "orders"}. Only its owner may use the queue, until
other accounts are made members or publishers (`xmpp-qos queue affiliate`). A
dead_letter_node must exist before it is named.
"""

_CONFIGURE = """\
examples:
  xmpp-qos queue configure queue.example.org orders --jid boss@example.org
  xmpp-qos queue configure queue.example.org orders --jid boss@example.org --set ttl=3600

Without --set it prints the configuration, as one JSON object. Fields that are not set stay
as they are; present locks keep their time. A dead_letter_node is shown while it is in
force: it exists, and the account that set it still owns this queue and may publish to it.
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
For each item that is in the queue, on disk, there is one line on stdout; with --lines it
has `line`:
  {"id": "…", "line": 1}
An item without an --id gets a random one. A publish without an answer is repeated under
the same id, so that the item is in the queue once. Many lines go out together, and later
lines may overtake those that are repeated.
A refused line is named on stderr, and the exit status is 1. If a line is refused because
of its own content, the lines after it are still published. If none can be published any
more (no such queue, not allowed, the queue is full), the command ends.
"""

_BROWSE = """\
examples:
  xmpp-qos queue browse queue.example.org orders --jid boss@example.org
  xmpp-qos queue browse queue.example.org orders --jid boss@example.org --state dead --max 5

One JSON object a line, in the order of delivery as far as it is known.
"""

_STATS = """\
example:
  xmpp-qos queue stats queue.example.org orders --jid boss@example.org

Prints one JSON object: the numbers of items that are available, acquired, delayed and
dead, the number of items ever accepted, the subscribers, and oldest_seconds, the age of
the oldest item that is not done (null: there is none).
"""

_LIST = """\
example:
  xmpp-qos queue list queue.example.org --jid boss@example.org

One JSON object a line for each queue that the service shows to this account: its name as
`node`, and the numbers of `queue stats`, if this account may see them.
"""

_WATCH = """\
examples:
  xmpp-qos queue watch queue.example.org orders --jid boss@example.org
  xmpp-qos queue watch queue.example.org orders --jid boss@example.org --interval 60 \\
    >> orders.jsonl

One JSON object a line: the time, and the numbers of `queue stats`. The command runs until
Ctrl-C, or until --count lines are printed; it connects again after a lost connection.
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

Without any JID it lists the affiliations, one JSON object a line. An owner may do
everything, a publisher may publish, a member may work. An outcast may do nothing, and
loses the items that it holds.
"""

_DEAD = """\
examples:
  xmpp-qos queue dead list queue.example.org orders --jid boss@example.org
  xmpp-qos queue dead requeue queue.example.org orders --jid boss@example.org
"""

_DEAD_LIST = """\
example:
  xmpp-qos queue dead list queue.example.org orders --jid boss@example.org

One JSON object a line; reason and history say what happened. Items that were moved to the
dead_letter_node of the queue are listed too, under their former id.
"""

_DEAD_REQUEUE = """\
examples:
  xmpp-qos queue dead requeue queue.example.org orders --jid boss@example.org
  xmpp-qos queue dead requeue queue.example.org orders 3f2c… --jid boss@example.org

Prints {"id": …} for each requeued item. Its former failures do not count any more.
"""

#: Name, description, and the end of the help.
_VERBS = (
    ("create", "create a queue", _CREATE),
    ("configure", "change the configuration of a queue, or print it", _CONFIGURE),
    ("delete", "delete a queue with everything in it", _DELETE),
    ("publish", "put items into a queue", _PUBLISH),
    ("browse", "look at the items of a queue, without locking them", _BROWSE),
    ("stats", "count the items and subscribers of a queue", _STATS),
    ("list", "list the queues of a service that you may use", _LIST),
    ("watch", "print the counts of a queue again and again", _WATCH),
    ("purge", "remove all items of a queue, locked and dead ones too", _PURGE),
    ("affiliate", "set or list who may do what with a queue", _AFFILIATE),
)

_DEAD_VERBS = (
    ("list", "list dead items", _DEAD_LIST),
    ("requeue", "put dead items back into their queue", _DEAD_REQUEUE),
)

#: Seconds for which a publish is repeated at most. It is well below the time for which
#: a service remembers an id (queue#dedupe_window, by default an hour).
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
        help="list dead items, or requeue them",
        description="Dead items: they failed too often, have expired or were rejected.",
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
    # These modules need slixmpp, which is slow to import: not for a --help.
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
        type=_creators,
        default="domain",
        metavar="domain|all|JID,@DOMAIN…",
        help="the accounts that may create queues: all of the service's own domain (for "
        "the component queue.example.org that is example.org), all that can reach the "
        "service, or these accounts and all accounts of these domains (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--nodes-per-account",
        type=whole(1),
        default=_BOUNDS.nodes_per_account,
        metavar="N",
        help="the most queues created by one account; for all accounts of a foreign "
        f"domain together {_BOUNDS.nodes_per_domain} (default: %(default)s)",
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
    add_journal(group)
    held = serve.add_argument_group(
        "items published by messages", "They are held until they are in the queue."
    )
    held.add_argument(
        "--trust",
        default="publishers",
        metavar="publishers|all|JID,JID…",
        help="the accounts whose assured messages are held: those that may publish to a "
        "queue here, all, or these (default: %(default)s)",
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
        help="the JID of the queue service; of an account, the full JID",
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
            "ids", nargs="*", metavar="ID", help="the items (default: all dead items)"
        )
    elif name == "affiliate":
        verb.add_argument(
            "affiliations",
            nargs="*",
            type=_affiliation,
            metavar="JID=WHAT",
            help=f"WHAT is {', '.join(each.value for each in Affiliation)}",
        )
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
        help="a field of the configuration (listed below) and its value; may be repeated",
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
        help="one item for each line of stdin, empty ones included; shows a progress bar "
        "if stderr is a terminal",
    )
    verb.add_argument(
        "--priority",
        type=int,
        choices=PRIORITIES,
        metavar="N",
        help=f"{PRIORITIES[0]} to {PRIORITIES[-1]}; larger is earlier (default: {PRIORITY})",
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
        type=_positive,
        metavar="N",
        help="the most items to print (default: all)",
    )


def _add_watch(verb: Parser) -> None:
    verb.add_argument(
        "--interval",
        type=seconds,
        default=_WATCH_S,
        metavar="S",
        help="seconds between two lines (default: %(default)g)",
    )
    verb.add_argument(
        "--count",
        type=_lines,
        metavar="N",
        help="end after this many lines (default: no limit)",
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
