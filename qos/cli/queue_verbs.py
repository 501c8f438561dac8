"""What an owner does to a queue: each verb asks the service once, and prints."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from qos.cli.logins import AccountSession
from qos.cli.output import print_json, time_text
from qos.cli.queue_client import asked
from qos.cli.status import CommandError, Status
from xep_0254.queueing import XEP_0254, BrowsedItem

__all__ = ["run"]


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""

    async def ask(_session: AccountSession, queueing: XEP_0254) -> None:
        await _VERBS[getattr(arguments, "dead_action", arguments.action)](
            queueing, arguments
        )

    await asked(arguments, ask)
    return Status.DONE


async def _create(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    config = dict(arguments.settings)
    node = await queueing.create(arguments.service, arguments.node, config)
    print_json({"node": node})


async def _configure(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    if arguments.settings:
        config = dict(arguments.settings)
        await queueing.configure(arguments.service, arguments.node, config)
    else:
        config = await queueing.configuration(arguments.service, arguments.node)
        print_json({var.rpartition("#")[2]: value for var, value in config.items()})


async def _delete(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    await queueing.delete(arguments.service, arguments.node)


async def _purge(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    await queueing.purge(arguments.service, arguments.node)


async def _stats(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    stats = await queueing.stats(arguments.service, arguments.node)
    if not stats:
        text = f"{arguments.service} shows no numbers of {arguments.node!r}"
        raise CommandError(text, Status.REFUSED)
    print_json(stats)


async def _browse(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    left = arguments.max
    after = ""
    while left is None or left > 0:
        page = await queueing.items(
            arguments.service,
            arguments.node,
            state=arguments.state,
            max_items=left,
            after=after,
        )
        for item in page.items[:left]:
            print_json(_shown(item, arguments.node))
        if not page.items or page.last in {"", after}:
            return
        after = page.last
        left = None if left is None else left - len(page.items)


async def _requeue(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    node, ids = arguments.node, arguments.ids
    for item_id in await queueing.requeue(arguments.service, node, ids):
        print_json({"id": item_id})


async def _affiliate(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    service, node = arguments.service, arguments.node
    if arguments.affiliations:
        affiliations = dict(arguments.affiliations)
        await queueing.set_affiliations(service, node, affiliations)
        return
    for jid, affiliation in (await queueing.affiliations(service, node)).items():
        print_json({"jid": jid, "affiliation": affiliation.value})


_VERBS: dict[str, Callable[[XEP_0254, argparse.Namespace], Awaitable[None]]] = {
    "create": _create,
    "configure": _configure,
    "delete": _delete,
    "browse": _browse,
    "stats": _stats,
    "purge": _purge,
    "affiliate": _affiliate,
    "list": _browse,
    "requeue": _requeue,
}


def _shown(item: BrowsedItem, node: str) -> dict[str, object]:
    """An item as a line of JSON; what is not known of it is left out.

    One that died in this node and was moved away has the id that it had here: by it
    `dead requeue` knows it.
    """
    died_here = item.origin == node
    shown: dict[str, object] = {
        "id": item.origin_id if died_here else item.item_id,
        "state": item.state,
        "priority": item.priority,
        "delivery_count": item.delivery_count,
        "published": time_text(item.published_at),
        "publisher": item.publisher,
        "holder": item.holder,
        "origin": "" if died_here else item.origin,
        "origin_id": "" if died_here else item.origin_id,
        "reason": item.reason,
        "history": [
            {"at": time_text(each.at), "by": each.by, "reason": each.reason}
            for each in item.history
        ],
        "payload": item.payload,
    }
    optional = ("holder", "origin", "origin_id", "reason", "history")
    return {
        name: value for name, value in shown.items() if value or name not in optional
    }
