"""The cost of the loaded plugin for each other stanza of an application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.footprint import End, Part, Place, Plan, Progress, Spread, Target
from benchmarks.servers import Server
from xep_qos import XEP_QOS

__all__ = ["SHARE_MAX", "measure"]

#: The target, in percent.
SHARE_MAX = 2.0

KINDS = ("iq", "message")

#: The number of stanzas in flight.
_WINDOW = 16

_BARE, _LOADED, _NEEDED = "without", "with", "only what it needs"

#: The plugins of each end.
_PLUGINS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    _BARE: {},
    _LOADED: {XEP_QOS.name: {}},
    # The plugins of slixmpp that ours cannot do without.
    _NEEDED: {name: {} for name in sorted(XEP_QOS.dependencies)},
    # This one has nothing more than the first: it shows the noise.
    "without, again": {},
}

#: The ends that are compared, by the name in the table.
_COMPARED = {who: (who, _BARE) for who in list(_PLUGINS)[1:]}
_COMPARED["with ÷ only what it needs"] = (_LOADED, _NEEDED)


async def measure(server: Server, folder: Path, plan: Plan, progress: Progress) -> Part:
    """Ask ends with and without the plugin, in turns, and measure their cost.

    An iq is a ping that is answered; a message is answered by another message. Both are
    two stanzas, one in and one out.
    """
    found: dict[tuple[str, str], list[float]] = {
        (kind, who): [] for kind in KINDS for who in _PLUGINS
    }
    for number in range(plan.repeat):
        # Two processes of the same program differ, because of the place of their
        # memory.
        own = folder / str(number)
        own.mkdir()
        async with Place(server, own) as place:
            await _one_set(place, plan, found, progress, f"{number + 1}/{plan.repeat}")
    return _part(found)


def _part(found: Mapping[tuple[str, str], Sequence[float]]) -> Part:
    rows, targets = [], []
    figures: dict[str, object] = {"pairs": len(found[KINDS[0], _BARE])}
    for kind in KINDS:
        costs = {who: median(found[kind, who]) for who in _PLUGINS}
        rows.append((f"{kind}, {_BARE}", f"{costs[_BARE]:.1f}", "", ""))
        more = {}
        for label, (who, base) in _COMPARED.items():
            pairs = zip(found[kind, who], found[kind, base], strict=True)
            each = more[label] = Spread.of(
                [(one / its - 1) * 100 for one, its in pairs]
            )
            cost = f"{costs[who]:.1f}" if label == who else ""
            quartiles = f"{each.low:+.1f} to {each.high:+.1f}"
            rows.append((f"{kind}, {label}", cost, f"{each.median:+.1f}", quartiles))
        what = f"more for every other {kind}"
        targets.append(Target(what, more[_LOADED].median, SHARE_MAX, "%"))
        figures[kind] = {
            "cpu_us": costs,
            "more_percent": {label: asdict(each) for label, each in more.items()},
        }
    return Part(
        title="Other stanzas, at the end that has the plugin",
        head=(("", ""), ("CPU µs", "a stanza"), ("", "% more"), ("", "quartiles")),
        rows=rows,
        targets=targets,
        figures=figures,
    )


async def _one_set(
    place: Place,
    plan: Plan,
    found: Mapping[tuple[str, str], list[float]],
    progress: Progress,
    of: str,
) -> None:
    asking = await place.new_end("asking")
    await asking.connect(place.task(sends=False, plugins={}, account="sender"))
    ends = {}
    for who, plugins in _PLUGINS.items():
        end = ends[who] = await place.new_end(who)
        await end.connect(place.task(sends=False, plugins=plugins))
        await end.do("answer")
        for kind in KINDS:
            # This loads code, and the server finds out who is there.
            await _cost_us(asking, end, kind, plan.stanzas)
    order = list(ends)
    for pair in range(plan.pairs):
        progress(f"stanzas: processes {of}, turn {pair + 1} of {plan.pairs}")
        for kind in KINDS:
            for who in order:
                cost = await _cost_us(asking, ends[who], kind, plan.stanzas)
                found[kind, who].append(cost)
        order.reverse()


async def _cost_us(asking: End, end: End, kind: str, count: int) -> float:
    """The processor time of this end for each stanza, in and out."""
    before = end.used().cpu_s
    await asking.do("ask", peer=end.jid, kind=kind, messages=count, window=_WINDOW)
    return (end.used().cpu_s - before) / (2 * count) * 1e6
