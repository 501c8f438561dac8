"""The recovery of prepared effects: each is applied or dropped, as the service answers.

See `qos.worker.effects` for the two transactions between which they are prepared.
"""

from __future__ import annotations

import logging
import sqlite3

from qos.errors import LocalProtocolError, RequestRefused
from qos.worker import effects
from xep_0254.queueing import XEP_0254

__all__ = ["recover"]

log = logging.getLogger(__name__)


async def recover(
    db: sqlite3.Connection, plugin: XEP_0254, *, service: str, account: str, node: str
) -> int:
    """Repeat the retract of each item whose effects are prepared.

    Args:
        db: the database of the effects.
        plugin: of the client.
        service: the service of the items.
        account: the account that held them.
        node: the queue of the items.

    Returns:
        The number of jobs whose end is not known yet. Call it again for them.

    Raises:
        NoAnswer: the service is away.
        LocalProtocolError: the connection is in a transaction.
        sqlite3.Error: the database cannot be used.
    """
    undecided = 0
    for key in effects.prepared(db, service=service, account=account, node=node):
        try:
            await plugin.retract(service, node, key.item_id, key.token)
        except RequestRefused as error:
            if error.is_temporary:
                raise
            if error.condition in effects.FINAL:
                effects.drop(db, key)
            else:
                undecided += 1
                log.info("effects of %r stay prepared: %s", key.item_id, error)
        else:
            try:
                effects.apply(db, key)
            except (sqlite3.Error, LocalProtocolError):
                undecided += 1
                log.exception("effects of %r failed", key.item_id)
    return undecided
