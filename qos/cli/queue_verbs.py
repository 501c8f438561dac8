"""The verbs of `queue` that send a request, and print its answer."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from qos.cli.listing import listing, print_record
from qos.cli.output import ask, note, print_json, time_text
from qos.cli.queue_client import asked
from qos.cli.status import CommandError, Status
from qos.core.queue.node_options import NODE_FIELDS
from qos.errors import NoAnswer, RequestRefused
from qos.stream.login import AccountSession
from xep_0254.queueing import XEP_0254, BrowsedItem, NodeInfo

__all__ = ["run"]

#: What people see of each queue, and of each item; --json shows all there is.
_NODE_COLUMNS = (
    *("node", "node_type", "available", "acquired", "delayed", "dead", "accepted"),
    *("subscribers", "oldest_seconds", "bytes"),
)
_ITEM_COLUMNS = (
    *("id", "state", "priority", "delivery_count", "published", "holder"),
    *("origin", "origin_id", "reason"),
)


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""

    async def ask(session: AccountSession, queueing: XEP_0254) -> None:
        if arguments.action == "watch":
            await _watch(session, queueing, arguments)
            return
        dead = getattr(arguments, "dead_action", "")
        verb = f"dead {dead}" if dead else arguments.action
        await _VERBS[verb](queueing, arguments)

    await asked(arguments, ask)
    return Status.DONE


async def _list(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    empty = f"{arguments.service} shows no queue to this account"
    async with listing(arguments, empty=empty, columns=_NODE_COLUMNS) as show:
        for node in await queueing.nodes(arguments.service):
            try:
                info = await queueing.node_info(arguments.service, node)
            except RequestRefused:  # its name may be shown, but no more
                info = NodeInfo("", {})
            node_type = {"node_type": info.node_type} if info.node_type else {}
            await show({"node": node, **node_type, **info.stats})


async def _watch(
    session: AccountSession, queueing: XEP_0254, arguments: argparse.Namespace
) -> None:
    """Print the numbers again and again, through losses of the connection."""
    rounds = arguments.count
    while rounds is None or rounds > 0:
        await session.online.wait()
        at = time_text(time.time())
        try:
            stats = await queueing.stats(arguments.service, arguments.node)
        except NoAnswer as error:
            note(f"{error}; asking again")
        else:
            _need_numbers(stats, arguments)
            await print_json({"time": at, **stats})
            rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            await asyncio.sleep(arguments.interval)


async def _create(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    config = dict(arguments.settings)
    try:
        node = await queueing.create(arguments.service, arguments.node, config)
    except RequestRefused as error:
        node = arguments.node
        if error.condition != "conflict" or not await _is_as_configured(
            queueing, arguments
        ):
            raise
        note(f"{node!r} is there already, with this configuration")
    await print_json({"node": node})


async def _is_as_configured(queueing: XEP_0254, arguments: argparse.Namespace) -> bool:
    """Whether the queue to be created is ours already, with the configuration asked for.

    Only its owner may see the configuration.
    """
    try:
        config = await queueing.configuration(arguments.service, arguments.node)
    except RequestRefused:
        return False
    settings = dict(arguments.settings)
    expected = {field.var: field.default for field in NODE_FIELDS} | settings
    return all(config.get(var, "") == value for var, value in settings.items()) and all(
        expected.get(var, value) == value for var, value in config.items()
    )


async def _configure(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    if arguments.settings:
        config = dict(arguments.settings)
        await queueing.configure(arguments.service, arguments.node, config)
    else:
        config = await queueing.configuration(arguments.service, arguments.node)
        await print_json(
            {var.rpartition("#")[2]: value for var, value in config.items()}
        )


async def _delete(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    if not arguments.with_queues:
        await _ask_about_queues(queueing, arguments)
    await queueing.delete(arguments.service, arguments.node)


async def _ask_about_queues(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    """Ask before queues are deleted that others may have made.

    Raises:
        CommandError: they are not to be deleted, or nobody can be asked.
    """
    try:
        info = await queueing.node_info(arguments.service, arguments.node)
    except RequestRefused as error:
        if error.condition != "item-not-found":
            raise
        return  # the service says the same when it is to delete it
    count = info.stats.get("subscribers")
    if info.node_type != "topic" or not count:
        return
    copying = "the queue that copies" if count == 1 else f"the {count} queues that copy"
    loss = f"{copying} from topic {arguments.node!r}, with all that is in there"
    if not sys.stdin.isatty():
        text = f"nothing was deleted: --with-queues also deletes {loss}"
        raise CommandError(text, Status.REFUSED)
    ask(f"Delete {loss}? [y/N] ")
    answer = await asyncio.to_thread(sys.stdin.readline)
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was deleted", Status.REFUSED)


async def _purge(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    await queueing.purge(arguments.service, arguments.node)


async def _stats(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    stats = await queueing.stats(arguments.service, arguments.node)
    _need_numbers(stats, arguments)
    await print_record(arguments, stats)


def _need_numbers(stats: Mapping[str, object], arguments: argparse.Namespace) -> None:
    if not stats:
        text = f"{arguments.service} shows no numbers of {arguments.node!r}"
        raise CommandError(text, Status.REFUSED)


async def _browse(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    state = arguments.state
    empty = f"{arguments.node!r} has no {state} item"
    count = arguments.max
    after = ""
    async with listing(arguments, empty=empty, columns=_ITEM_COLUMNS) as show:
        while count is None or count > 0:
            page = await queueing.items(
                arguments.service,
                arguments.node,
                state=state,
                max_items=count,
                after=after,
            )
            for item in page.items[:count]:
                await show(_as_json(item, arguments.node))
            if not page.items or page.last in {"", after}:
                return
            after = page.last
            count = None if count is None else count - len(page.items)


async def _requeue(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    node, ids = arguments.node, arguments.ids
    if ids:
        for item_id in await queueing.requeue(arguments.service, node, ids):
            await print_json({"id": item_id})
        return
    count = 0
    async for item_id in queueing.requeue_all(arguments.service, node):
        await print_json({"id": item_id})
        count += 1
    if not count:
        note(
            f"nothing to requeue: no item has died in {node!r}. A dead letter is "
            "requeued in the queue where it died, its `origin` in `dead list`"
        )


async def _affiliate(queueing: XEP_0254, arguments: argparse.Namespace) -> None:
    service, node = arguments.service, arguments.node
    if arguments.affiliations:
        affiliations = dict(arguments.affiliations)
        await queueing.set_affiliations(service, node, affiliations)
        return
    affiliations = await queueing.affiliations(service, node)
    async with listing(arguments) as show:
        for jid, affiliation in affiliations.items():
            await show({"jid": jid, "affiliation": affiliation.value})


_VERBS: dict[str, Callable[[XEP_0254, argparse.Namespace], Awaitable[None]]] = {
    "create": _create,
    "configure": _configure,
    "delete": _delete,
    "browse": _browse,
    "stats": _stats,
    "purge": _purge,
    "affiliate": _affiliate,
    "list": _list,
    "dead list": _browse,
    "dead requeue": _requeue,
}


def _as_json(item: BrowsedItem, node: str) -> dict[str, object]:
    """An item as a JSON object; unknown values are left out.

    An item that died in this node and was moved away has its former id: `dead requeue`
    expects that.
    """
    died_here = item.origin == node
    fields: dict[str, object] = {
        "id": item.origin_id if died_here else item.item_id,
        # It is available there, to the workers of the other queue; here it is dead.
        "state": "dead" if died_here and item.state == "available" else item.state,
        "priority": item.priority,
        "delivery_count": item.delivery_count,
        "published": time_text(item.published_at),
        "publisher": item.publisher,
        "holder": item.holder,
        "origin": "" if died_here else item.origin,
        "origin_id": "" if died_here else item.origin_id,
        "reason": item.reason,
        "history": [
            {"at": time_text(event.at), "by": event.by, "reason": event.reason}
            for event in item.history
        ],
        "properties": dict(item.properties),
        "payload": item.payload,
    }
    optional = ("properties", "holder", "origin", "origin_id", "reason", "history")
    return {
        name: value for name, value in fields.items() if value or name not in optional
    }
