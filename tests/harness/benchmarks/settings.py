"""Our own rows, and the settings of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qos.core.message.model import Level

__all__ = ["FLOOR", "STORES", "Settings", "fan_of", "settings_for"]

STORES = ("memory", "sqlite", "files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a row.

    Attributes:
        name: the name of the row.
        caveat: the guarantee that it does not give.
        floor: the name of the row that is its floor; '': none.
        without: the name of the row without the feature that this one adds.
        way: see node.Task; `level` and `steps` likewise.
        store: one of STORES, at both ends; '': the plugin is not used.
        managed: whether XEP-0198 is used.
        journal: whether both ends have a journal.
        options: further options of the plugin, at both ends.
        senders: see node.Task; `receivers` likewise.
        component: the domain of their component; '': there is none.
    """

    name: str
    caveat: str = ""
    floor: str = ""
    without: str = ""
    way: str = "plugin"
    level: str = ""
    steps: int = 0
    store: str = ""
    managed: bool = False
    journal: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    senders: int = 0
    receivers: int = 0
    component: str = ""


_KEEPS_NOTHING = "nothing is kept, repeated or recognised: what is lost is lost"

#: The floor of a row with one request for each message, and with two; and `Iq.send()`.
FLOOR = (
    Settings(name="floor of one", caveat=_KEEPS_NOTHING, way="raw", steps=1),
    Settings(name="floor of two", caveat=_KEEPS_NOTHING, way="raw", steps=2),
    Settings(
        name="one Iq.send()",
        caveat=_KEEPS_NOTHING,
        floor="floor of one",
        way="iq",
        steps=1,
    ),
    Settings(
        name="two Iq.send()",
        caveat=_KEEPS_NOTHING,
        floor="floor of two",
        way="iq",
        steps=2,
    ),
)

#: Waiting requests do not share a stanza.
_ONE_BY_ONE: dict[str, Any] = {"batch_max": 1}

_FLOORS = {
    Level.UNACKNOWLEDGED: "",
    Level.ACKNOWLEDGED: "floor of one",
    Level.ASSURED: "floor of two",
}


def settings_for(
    levels: Sequence[Level],
    stores: Sequence[str],
    *,
    batches: bool = False,
    managed: bool = False,
    journal: bool = False,
) -> list[Settings]:
    """The rows of these levels and stores.

    Args:
        levels: the levels.
        stores: some of STORES. Level unacknowledged uses none.
        batches: also level assured in batches.
        managed: also level assured, in memory and one by one, with XEP-0198.
        journal: also each row of level assured with a journal.
    """
    rows = []
    for level in levels:
        if level is Level.UNACKNOWLEDGED:
            rows.append(
                Settings(
                    name=level.value,
                    caveat="it may be lost, and nobody is told",
                    level=level.value,
                    store="memory",
                )
            )
            continue
        rows += [
            Settings(
                name=f"{level.value}, {store}",
                caveat=_caveat(level, store),
                floor=_FLOORS[level],
                level=level.value,
                store=store,
                options=_ONE_BY_ONE,
            )
            for store in stores
        ]
    if batches and Level.ASSURED in levels:
        rows += [
            replace(
                plain,
                name=f"{plain.level} in batches, {plain.store}",
                options={},
            )
            for plain in settings_for([Level.ASSURED], stores)
        ]
    assured = [each for each in rows if each.level == Level.ASSURED.value]
    if managed:
        plain = settings_for([Level.ASSURED], ["memory"])[0]
        rows.append(_with(plain, "XEP-0198", managed=True))
    if journal:
        rows += [_with(plain, "journal", journal=True) for plain in assured]
    return rows


def fan_of(peers: int) -> list[Settings]:
    """The rows with as many senders to one receiver, and with one sender to as many.

    They are addresses of a component, which spares their logins. Each is compared with
    the same row with one address.
    """
    plain = replace(
        settings_for([Level.ASSURED], ["memory"])[0],
        floor="",
        # An allow list has no word for all addresses of a domain.
        options={**_ONE_BY_ONE, "trust": "anyone"},
    )
    rows = []
    for way in ("from", "to"):
        one = f"{plain.name}, {way} 1 address"
        many = f"{plain.name}, {way} {peers:,} addresses"
        for name, count, without in ((one, 1, ""), (many, peers, one)):
            row = replace(
                plain,
                name=name,
                without=without,
                # All rows are connected at once, and a component only once.
                component=f"{way}-{count}.localhost",
                senders=count if way == "from" else 0,
                receivers=count if way == "to" else 0,
            )
            rows.append(row)
    return rows


def _with(plain: Settings, what: str, **changes: Any) -> Settings:
    name = f"{plain.name}, {what}"
    return replace(plain, name=name, floor="", without=plain.name, **changes)


def _caveat(level: Level, store: str) -> str:
    twice = "it may come twice" if level is Level.ACKNOWLEDGED else ""
    lost = "what is under way is lost with its process" if store == "memory" else ""
    return "; ".join(filter(None, (twice, lost)))
