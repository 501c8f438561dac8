"""The truth that an audit can know from the given lines, in plain Python.

A *run* is a part of a boot without a missing line. Only a run proves that something did
not happen: a device has lines before and after, and nothing is missing in between. If a
clock was set back once in a boot, nothing in the whole boot is a proof. Between runs
there are *gaps*, and a gap is a reason why nothing is proved. If several journals, each
in a folder of its own, are of the same node, a run of each of them is needed.

Written only from the documented rules: it imports nothing of the product.
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
    """The verdict on a message.

    Attributes:
        reasons: why nothing is proved, if it is unproven: each of them is true.
        rests_on: the nodes with the lines for an accusation.
    """

    verdict: str
    reasons: frozenset[str] = frozenset()
    rests_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Lines of a boot without a missing line in between."""

    node: str
    folder: str
    boot: str
    first_seq: int
    last_seq: int
    first_at: int
    last_at: int


class Gap(NamedTuple):
    """A time without lines of a node."""

    begin: float
    end: float
    reason: str


class Witness:
    """The proof by the lines of each node for times without lines."""

    def __init__(
        self,
        lines: Iterable[Line],
        newer: Iterable[Line],
        named: Iterable[tuple[str, str]],
        skew: int,
    ) -> None:
        # The folders of the journals of each node.
        self._folders: defaultdict[str, set[str]] = defaultdict(set)
        lines, newer = list(lines), list(newer)
        of_lines = ((line.node, line.folder) for line in (*lines, *newer))
        for node, folder in (*named, *of_lines):
            self._folders[node].add(folder)
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        self._wrong_clocks: set[str] = set()
        # All times of a boot with a wrong clock, by node.
        self._wrong: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._skew = skew
        ordered = sorted(lines, key=lambda line: (line.node, line.boot, line.seq))
        for boot, some in groupby(ordered, key=lambda line: line.boot):
            given = list(some)
            # It is not known for how long the clock was wrong.
            if any(after.at < before.at - JUMP for before, after in pairwise(given)):
                self._wrong_clocks.add(boot)
                times = [line.at for line in given]
                self._wrong[given[0].node].append((min(times), max(times)))
            self._runs[given[0].node] += _runs(given)
        self._gaps = {node: list(_gaps(runs)) for node, runs in self._runs.items()}
        for line in newer:
            self._gaps.setdefault(line.node, [])
            self._gaps[line.node] += [
                gap._replace(reason="newer-version")
                for gap in self._gaps[line.node]
                if gap.begin <= line.at <= gap.end
            ]

    def knows(self, jid: str) -> bool:
        """Whether there are lines of this node, or of a node of this account."""
        return any(jid in {node, account(node)} for node in self._runs)

    def run_of(self, line: Line) -> Run:
        """The run that a line is in."""
        (found,) = (
            run
            for run in self._runs[line.node]
            if run.boot == line.boot and run.first_seq <= line.seq <= run.last_seq
        )
        return found

    def in_one_run(self, lines: Sequence[Line]) -> bool:
        """Whether no other line can be between these."""
        times = [line.at for line in lines]
        node, begin, end = lines[0].node, min(times), max(times)
        if self._is_wrong(node, begin, end) or not self.is_alone(node, begin, end):
            return False
        return len({self.run_of(line) for line in lines}) == 1

    def is_alone(self, node: str, begin: int, end: int) -> bool:
        """Whether only one run of the node touches this time."""
        runs = self._runs[node]
        return sum(run.first_at <= end and run.last_at >= begin for run in runs) == 1

    def silence(self, node: str, begin: Line, end: Line) -> frozenset[str]:
        """Why its silence between two lines of another node proves nothing.

        Returns:
            The reasons; or none: it is a proof.
        """
        runs = self._runs.get(node)
        if not runs:
            return frozenset({"no-journal"})
        since, until = begin.at - self._skew, end.at + self._skew
        wrong = self._is_wrong(begin.node, begin.at, end.at)
        if wrong or {begin.boot, end.boot} & self._wrong_clocks:
            # The lines between which it was silent.
            return self.gaps(node, since, until) | {"clock"}
        whole = {
            run.folder for run in runs if run.first_at <= since and run.last_at >= until
        }
        if whole == self._folders[node] and not self._is_wrong(node, since, until):
            return frozenset()
        return self.gaps(node, since, until)

    def gaps(self, node: str, since: float, until: float) -> frozenset[str]:
        """The reasons of the gaps that touch a time of a node's clock."""
        found = {
            gap.reason
            for gap in self._gaps[node]
            if gap.begin < until and gap.end > since
        }
        if self._is_wrong(node, since, until):
            found.add("clock")
        if len(self._folders[node]) > 1:
            found.add("which-journal")
        return frozenset(found)

    def _is_wrong(self, node: str, since: float, until: float) -> bool:
        """Whether the clock of a node was wrong in a boot of that time."""
        return any(low <= until and high >= since for low, high in self._wrong[node])

    def until(self, lines: Sequence[Line]) -> frozenset[str]:
        """Why the first line, or a line between these, may be missing.

        All of one node.
        """
        return self.gaps(lines[0].node, float("-inf"), max(line.at for line in lines))

    def after(self, line: Line) -> frozenset[str]:
        """Why there may have been more lines later; none if it is the last run."""
        run = self.run_of(line)
        if all(each.last_at <= run.last_at for each in self._runs[line.node]):
            return frozenset()
        return self.gaps(line.node, run.last_at, run.last_at + 1)


def _gaps(runs: Sequence[Run]) -> Iterator[Gap]:
    """The gaps between all runs of a node, before them and after them."""
    yield Gap(float("-inf"), min(run.first_at for run in runs), "began-later")
    yield Gap(max(run.last_at for run in runs), float("inf"), "not-closed")
    boots = [
        sorted(some, key=lambda run: run.first_seq)
        for _, some in groupby(runs, key=lambda run: run.boot)
    ]
    boots.sort(key=lambda boot: boot[0].first_at)
    for boot in boots:
        for before, after in pairwise(boot):
            yield Gap(before.last_at, after.first_at, "hole")
    begin = float("-inf")
    for boot in boots:
        end = boot[0].first_at
        if begin > float("-inf"):
            yield Gap(begin, end, "journal-off")
        if boot[0].first_seq > 1:
            yield Gap(begin, end, "hole")
        begin = boot[-1].last_at


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
    return Run(
        first.node, first.folder, first.boot, first.seq, last.seq, first.at, last.at
    )


def verdicts(
    lines: Iterable[Line],
    newer: Iterable[Line],
    named: Iterable[tuple[str, str]],
    *,
    now: int,
    skew: int = 60 * SECOND,
    stuck_after: int = 3600 * SECOND,
) -> dict[Key, Verdict]:
    """The verdict on each message with at least one line."""
    given = {(line.boot, line.seq): line for line in lines}.values()
    witness = Witness(given, newer, named, skew)
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
    """The lines about one message, and the conclusions from them."""

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
        """The gravest accusation, or else that it is unproven."""
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
        to = str(end.fields["to"])
        device = self._device(to, {line.node for line in self._got})
        if not self._witness.knows(device or to):
            return Verdict("unproven", frozenset({"no-journal"}))
        if not accepted:
            return Verdict("unproven", self._witness.until(self._sent))
        begin = accepted[0]
        if self._witness.in_one_run(self._sent):
            begin = next(line for line in self._sent if line.event == "released")
        if not device:
            return self._which(begin, end)
        reasons = self._witness.silence(device, begin, end)
        if reasons:
            return Verdict("unproven", reasons)
        return Verdict("lost", rests_on=(end.node, device))

    def _duplicated(self) -> Verdict | None:
        count = len(self._hand_overs)
        if count < 2 or (not self._sent and count <= len(self._held)):
            return None
        # Without a line of the sender, the first hold may be missing.
        whole = self._witness.in_one_run(self._got) and self._got[0].event == "held"
        if not self._sent and not whole:
            return Verdict("unproven", self._witness.until(self._got))
        return Verdict("duplicated", rests_on=(self._hand_overs[0].node,))

    def _orphaned(self) -> Verdict | None:
        if self._sent or not self._handed_over:
            return None
        first = self._handed_over[0]
        source = str(first.fields["from"])
        device = self._device(source, set())
        if not self._witness.knows(device or source):
            return Verdict("unproven", frozenset({"no-journal"}))
        if not device:
            return self._which(self._got[0], first)
        if not self._held:
            return Verdict("unproven", self._witness.until(self._got))
        reasons = self._witness.silence(device, self._held[0], first)
        if reasons:
            return Verdict("unproven", reasons)
        return Verdict("orphaned", rests_on=(first.node, device))

    def _device(self, jid: str, heard: set[str]) -> str:
        """The node that a JID names; '': it is not known which."""
        device = jid if "/" in jid or "@" not in jid else ""
        if not device and heard:
            device = heard.pop()
        component = account(jid).rpartition("@")[2]
        alone = not self._witness.knows(device or jid)
        return component if alone and self._witness.knows(component) else device

    def _which(self, begin: Line, end: Line) -> Verdict:
        """An anomaly of an unknown device; or at an unknown time, if the clock was wrong."""
        wrong = "clock" in self._witness.gaps(begin.node, begin.at, end.at)
        reasons = {"which-device", "clock"} if wrong else {"which-device"}
        return Verdict("unproven", frozenset(reasons))

    def _stuck(self, now: int, stuck_after: int) -> Verdict | None:
        if self._sent:
            if self._outcome is not None:
                return None
            last = self._sent[-1]
        else:
            expired = [line.at for line in self._receiver("expired")]
            waits = self._held[-1:] or self._receiver("released")[:1]
            if self._receiver("handed-over", "redelivered", "done") or not waits:
                return None
            if expired and expired[-1] >= waits[0].at:
                return None
            last = self._got[-1]
            if not self._witness.in_one_run(self._got):
                return Verdict("unproven", self._witness.until(self._got))
        if now - last.at < stuck_after:
            return None
        run = self._witness.run_of(last)
        until = last.at + stuck_after
        gaps = self._witness.gaps(last.node, last.at, until)
        alone = self._witness.is_alone(last.node, last.at, until)
        if run.last_at < until or "clock" in gaps or not alone:
            return Verdict("unproven", gaps | {"not-closed"})
        reasons = self._witness.after(last)
        if reasons:
            return Verdict("unproven", reasons)
        return Verdict("stuck", rests_on=(last.node,))

    def _in_doubt(self) -> Verdict | None:
        if self._outcome is None or self._outcome.event != "in-doubt":
            return None
        return Verdict("in-doubt", rests_on=(self._outcome.node,))
