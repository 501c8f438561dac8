"""The truth that an audit can know, from the lines that it was given, in plain Python.

A *run* is a part of a boot without a missing line. Only a run proves that something did
not happen: a device was heard before and after, and nothing is missing in between. A clock that was set back
once in a boot proves nothing in all of it.
Where no run covers the moment, there is a reason for it.

Written from the documented rules alone: imports nothing of the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from nodes import SECOND, Line, account

__all__ = ["Key", "Verdict", "verdicts"]

#: A clock that goes back by more than this has jumped.
JUMP = 60 * SECOND

OUTCOMES = ("delivered", "not-delivered", "in-doubt", "withdrawn")


class Key(NamedTuple):
    """Names a message: the account of its sender, its id and its level."""

    sender: str
    msg_id: str
    level: str


class Verdict(NamedTuple):
    """What is known of a message; `reason` says why nothing is, or is empty."""

    verdict: str
    reason: str = ""
    rests_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Lines of a boot of which none is missing in between."""

    node: str
    boot: str
    first_seq: int
    last_seq: int
    first_at: int
    last_at: int


class Witness:
    """What the lines of each node prove about times of which they say nothing."""

    def __init__(self, lines: Iterable[Line], newer: set[str], skew: int) -> None:
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        self._wrong_clocks: set[str] = set()
        self._newer = newer
        self._skew = skew
        ordered = sorted(lines, key=lambda line: (line.node, line.boot, line.seq))
        for boot, some in groupby(ordered, key=lambda line: line.boot):
            given = list(some)
            # For how long the clock was wrong, nobody knows.
            if any(after.at < before.at - JUMP for before, after in pairwise(given)):
                self._wrong_clocks.add(boot)
            self._runs[given[0].node] += _runs(given)
        for runs in self._runs.values():
            runs.sort(key=lambda run: (run.first_at, run.first_seq))

    def knows(self, node: str) -> bool:
        return node in self._runs

    def run_of(self, line: Line) -> Run:
        """The run that a line is in."""
        (found,) = (
            run
            for run in self._runs[line.node]
            if run.boot == line.boot and run.first_seq <= line.seq <= run.last_seq
        )
        return found

    def in_one_run(self, lines: Sequence[Line]) -> bool:
        return len({self.run_of(line) for line in lines}) == 1

    def silence(self, node: str, begin: Line, end: Line) -> str:
        """Why nothing is proved by its silence between two lines of another node.

        Returns:
            The reason; or nothing: it is proved.
        """
        runs = self._runs.get(node)
        if not runs:
            return "no-journal"
        if {begin.boot, end.boot} & self._wrong_clocks:
            return "clock"
        since, until = begin.at - self._skew, end.at + self._skew
        around = [run for run in runs if run.first_at <= since and run.last_at >= until]
        if around:
            right = [run for run in around if run.boot not in self._wrong_clocks]
            return "" if right else "clock"
        if runs[0].first_at > since:
            return "began-later"
        if max(run.last_at for run in runs) < until:
            return "not-closed"
        for before, after in _gaps(runs):
            if before.last_at < until and after.first_at > since:
                return self._hole(node)
        return "journal-off"

    def broken(self, lines: Sequence[Line]) -> str:
        """Why these lines, of one node, may not be all that there were."""
        if len({line.boot for line in lines}) > 1:
            return "journal-off"
        run = self.run_of(lines[0])
        if run.first_seq > 1 or not self.in_one_run(lines):
            return self._hole(lines[0].node)
        return "began-later" if self._runs[run.node][0] is run else "journal-off"

    def after(self, line: Line) -> str:
        """Why there may have been more lines about a message, later; or nothing."""
        run = self.run_of(line)
        later = [each for each in self._runs[line.node] if each.last_at > run.last_at]
        if not later:
            return ""
        if any(each.boot == line.boot for each in later):
            return self._hole(line.node)
        return "journal-off"

    def _hole(self, node: str) -> str:
        return "newer-version" if node in self._newer else "hole"


def _gaps(runs: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    """Runs of one boot, each with the next one: lines are missing in between."""
    ordered = sorted(runs, key=lambda run: (run.boot, run.first_seq))
    return ((a, b) for a, b in pairwise(ordered) if a.boot == b.boot)


def _runs(boot: Sequence[Line]) -> list[Run]:
    """The runs of a boot."""
    found = []
    first = 0
    for index, line in enumerate(boot):
        if index + 1 == len(boot) or boot[index + 1].seq > line.seq + 1:
            found.append(_run(boot[first : index + 1]))
            first = index + 1
    return found


def _run(lines: Sequence[Line]) -> Run:
    first, last = lines[0], lines[-1]
    return Run(first.node, first.boot, first.seq, last.seq, first.at, last.at)


def verdicts(
    lines: Iterable[Line],
    newer: set[str],
    *,
    now: int,
    skew: int = 60 * SECOND,
    stuck_after: int = 3600 * SECOND,
) -> dict[Key, Verdict]:
    """The verdict about each message of which there are lines."""
    given = {(line.boot, line.seq): line for line in lines}.values()
    witness = Witness(given, newer, skew)
    messages: defaultdict[Key, list[Line]] = defaultdict(list)
    for line in given:
        if line.role in {"sender", "receiver"} and line.event != "refused":
            fields = {name: str(value) for name, value in line.fields.items()}
            sender = account(fields["from"])
            messages[Key(sender, fields["msg_id"], fields["level"])].append(line)
    return {
        key: _Message(
            sorted(some, key=lambda line: (line.at, line.seq)), witness
        ).judge(now, stuck_after, assured=key.level == "assured")
        for key, some in messages.items()
    }


class _Message:
    """The lines about one message, and what can be said of it."""

    def __init__(self, lines: Sequence[Line], witness: Witness) -> None:
        self._witness = witness
        self._sent = [line for line in lines if line.role == "sender"]
        self._got = [line for line in lines if line.role == "receiver"]
        outcomes = [line for line in self._sent if line.event in OUTCOMES]
        self._outcome = outcomes[-1] if outcomes else None
        self._hand_overs = self._receiver("handed-over")
        self._handed_over = self._receiver("handed-over", "redelivered")
        self._held = self._receiver("held")

    def _receiver(self, *events: str) -> list[Line]:
        return [line for line in self._got if line.event in events]

    def judge(self, now: int, stuck_after: int, *, assured: bool) -> Verdict:
        """An accusation before what is unproven, and the gravest before the others."""
        found = []
        if assured:
            found += [self._lost(), self._duplicated(), self._orphaned()]
        found += [self._stuck(now, stuck_after), self._in_doubt()]
        suspected = [each for each in found if each is not None]
        proved = [each for each in suspected if each.verdict != "unproven"]
        return (proved or suspected or [Verdict("ok")])[0]

    def _lost(self) -> Verdict | None:
        end = self._outcome
        if end is None or end.event != "delivered" or self._handed_over:
            return None
        accepted = [line for line in self._sent if line.event == "accepted"]
        if not accepted:
            return Verdict("unproven", self._witness.broken(self._sent))
        begin = accepted[0]
        if self._witness.in_one_run(self._sent):
            begin = next(line for line in self._sent if line.event == "released")
        to = str(end.fields["to"])
        device = self._device(to, {line.node for line in self._got})
        if not device:
            return Verdict("unproven", "which-device")
        reason = self._witness.silence(device, begin, end)
        if reason:
            return Verdict("unproven", reason)
        return Verdict("lost", rests_on=(end.node, device))

    def _duplicated(self) -> Verdict | None:
        count = len(self._hand_overs)
        if count < 2 or (not self._sent and count <= len(self._held)):
            return None
        # Without the sender's word the first hold may be missing.
        whole = self._witness.in_one_run(self._got) and self._got[0].event == "held"
        if not self._sent and not whole:
            return Verdict("unproven", self._witness.broken(self._got))
        return Verdict("duplicated", rests_on=(self._hand_overs[0].node,))

    def _orphaned(self) -> Verdict | None:
        if self._sent or not self._handed_over:
            return None
        first = self._handed_over[0]
        device = self._device(str(first.fields["from"]), set())
        if not device:
            return Verdict("unproven", "which-device")
        if not self._held:
            return Verdict("unproven", self._witness.broken(self._got))
        reason = self._witness.silence(device, self._held[0], first)
        if reason:
            return Verdict("unproven", reason)
        return Verdict("orphaned", rests_on=(first.node, device))

    def _device(self, jid: str, heard: set[str]) -> str:
        """The node that a JID names; '': nobody can know which."""
        if "/" in jid or "@" not in jid or self._witness.knows(jid):
            return jid
        return heard.pop() if heard else ""

    def _stuck(self, now: int, stuck_after: int) -> Verdict | None:
        if self._sent:
            if self._outcome is not None:
                return None
            last = self._sent[-1]
        else:
            expired = [line.at for line in self._receiver("expired")]
            waits = self._held[-1:] or self._receiver("released")[:1]
            if self._handed_over or not waits:
                return None
            if expired and expired[-1] >= waits[0].at:
                return None
            last = self._got[-1]
            if not self._witness.in_one_run(self._got):
                return Verdict("unproven", self._witness.broken(self._got))
        if now - last.at < stuck_after:
            return None
        run = self._witness.run_of(last)
        if run.last_at < last.at + stuck_after:
            return Verdict("unproven", "not-closed")
        reason = self._witness.after(last)
        if reason:
            return Verdict("unproven", reason)
        return Verdict("stuck", rests_on=(last.node,))

    def _in_doubt(self) -> Verdict | None:
        if self._outcome is None or self._outcome.event != "in-doubt":
            return None
        return Verdict("in-doubt", rests_on=(self._outcome.node,))
