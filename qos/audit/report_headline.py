"""The top of the report: the verdict, and its basis.

Green needs at least one judged message. If there are no messages, or the journals
permit no verdict, nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qos.audit.foreign_lines import FOREIGN_NODE, FOREIGN_WORD
from qos.audit.report_data import ROWS_MAX, DayTotals, Proof, ReportData, Windows
from qos.audit.report_html import duration, plural, table, text

__all__ = [
    "KINDS",
    "OUTCOMES",
    "REASONS",
    "left_out",
    "nothing_judged",
    "proof",
    "tiles",
    "trend",
    "verdict",
    "windows",
]

#: The outcomes of a message, from good to bad.
OUTCOMES = ("delivered", "withdrawn", "open", "not-delivered", "in-doubt")

#: The anomalies, the worst first.
KINDS = {
    "lost": "the sender says delivered, and it was never handed over",
    "duplicated": "handed over more than once, and not marked as a repeat",
    "orphaned": "handed over, and its sender knows nothing of it",
    "stuck": "held or outstanding for too long",
    "in-doubt": "the sender could not find out how it ended",
}

#: The reasons why an anomaly is not proven.
REASONS = {
    "no-journal": "the device has no journal here",
    "began-later": "the journal of the device begins later",
    "not-closed": "the last line of the device is earlier: its file is not closed or not "
    "copied yet, or was cut",
    "hole": "lines of the device are missing there",
    "journal-off": "the device kept no journal then",
    "clock": "the clock of the device jumped",
    "newer-version": "lines of the device are of a newer version",
    "which-device": "sent to an account, and which device got it is not known",
    "which-journal": "several folders have journals of the device's JID, and not all of "
    "them tell of that time",
}

#: Traffic to strangers: usual, and no reason to doubt the rest.
_USUAL = "no-journal"


def nothing_judged(data: ReportData) -> str:
    """Why there is no verdict, in plain text; "" if there is one."""
    if data.anomaly_counts:
        return ""
    if data.messages:
        if data.proof is None or data.proof.judged:
            return ""
        why = f"the journals prove nothing of {plural(data.messages, 'message')}"
    else:
        why = "no message is in the lines that were read"
    if data.files_open:
        why += f"; {_not_closed(data.files_open)}"
    return why


def verdict(data: ReportData) -> str:
    """The verdict, in a sentence."""
    count = sum(data.anomaly_counts.values())
    if count:
        kinds = ", ".join(
            f"{data.anomaly_counts[kind]:,} {text(kind)}"
            for kind in [*KINDS, *sorted(set(data.anomaly_counts) - set(KINDS))]
            if kind in data.anomaly_counts
        )
        noun = "anomaly" if count == 1 else "anomalies"
        return _verdict("bad", f"{count:,} {noun}: {kinds}.")
    why = nothing_judged(data)
    if why:
        return _verdict("nothing", f"Nothing to judge: {why}.")
    reasons = {} if data.proof is None else data.proof.reasons
    doubts = sum(number for reason, number in reasons.items() if reason != _USUAL)
    unheard = left_out(data.problem_counts)
    if data.proof is not None and (doubts or unheard):
        judged = plural(data.proof.judged, "message")
        says = f"No anomaly among {judged} that could be judged"
        says += f"; {doubts:,} not proven" if doubts else ""
        says += f"; {plural(unheard, 'line')} left out" if unheard else ""
        return _verdict("partly", f"{says}.")
    return _verdict("good", "No anomaly: nothing lost, nothing doubled.")


def left_out(problems: Mapping[str, int]) -> int:
    """The lines that change nothing, since their node may not speak for the message.

    Args:
        problems: the number of lines by kind of problem.
    """
    return problems.get(FOREIGN_WORD, 0) + problems.get(FOREIGN_NODE, 0)


def _verdict(kind: str, says: str) -> str:
    return f'<p class="verdict {kind}">{says}</p>'


def proof(data: ReportData) -> str:
    """The reach of the verdict: the judged messages, and the missing ones."""
    items = "".join(f"<li>{item}</li>" for item in _limits(data))
    return f'<ul class="proof">{items}</ul>' if items else ""


def _limits(data: ReportData) -> Iterator[str]:
    proof = data.proof
    if proof is not None and proof.share is not None:
        total = proof.judged + proof.unproven
        yield (
            f"<b>{_part(proof.share)} provable:</b> {proof.judged:,} of "
            f"{plural(total, 'message')}, of either side, could be judged"
            f"{_reasons(proof)}"
        )
    if data.files_open:
        yield f"<b>{_not_closed(data.files_open)}, not judged:</b> their lines count when they are closed"
    if data.windows is not None:
        yield _counted(data.windows)
    unheard = left_out(data.problem_counts)
    if unheard:
        yield (
            f"<b>{plural(unheard, 'line')} left out:</b> of nodes that may not speak for "
            "what they tell of; no figure here has them"
        )
    missing = data.problem_counts.get("missing-lines", 0)
    if missing:
        yield f"<b>{plural(missing, 'line')} missing</b> between those that are here"


def _counted(counts: Windows) -> str:
    share = _part(counts.complete / counts.windows)
    says = f"<b>{share} counted at both ends:</b> {counts.complete:,} of "
    says += f"{plural(counts.windows, 'window')} of 5 minutes of a route"
    missing = [
        f"{number:,} without the count of the {end}'s device"
        for end, number in (
            ("sender", counts.without_sender),
            ("receiver", counts.without_receiver),
        )
        if number
    ]
    return "; ".join([says, *missing])


def windows(counts: Windows | None) -> str:
    """The routes for which the count of an end is missing."""
    names = ("sender", "receiver", "level", "sent", "received")
    columns = ("windows", "without_sender", "without_receiver")
    return table(
        f"Windows of 5 minutes in which the count of an end is missing, the {ROWS_MAX} "
        "routes with the most",
        (
            *("from", "to", "=level", "#sent", "#received", "#windows"),
            *("#without sender", "#without receiver"),
        ),
        (
            tuple(row[name] for name in (*names, *columns))
            for row in (counts.routes if counts else ())
        ),
    )


def _not_closed(files: int) -> str:
    return f"{plural(files, 'file')} not closed"


def _part(share: float) -> str:
    """A part of a whole, in words. It is "all" only if nothing is missing."""
    return "100 %" if share == 1 else f"{min(share, 0.9999):.2%}".replace("%", " %")


def _reasons(proof: Proof) -> str:
    if not proof.reasons:
        return ""
    most = sorted(proof.reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = "".join(
        f"<li>{number:,} <code>{text(reason)}</code> {text(REASONS.get(reason))}</li>"
        for reason, number in most
    )
    return f"; not proven:<ul>{lines}</ul>"


def unproven(proof: Proof | None) -> str:
    """The routes with messages that look wrong, without proof."""
    routes = [] if proof is None else proof.routes
    names = ("sender", "receiver", "suspected", "reason", "node", "messages")
    return table(
        f"Messages that look wrong and are not proven, the {ROWS_MAX} largest groups",
        ("from", "to", "=suspected", "=reason", "whose journal", "#messages"),
        (tuple(row[name] for name in names) for row in routes),
    )


def tiles(data: ReportData) -> str:
    """The outcomes of messages; and the queues, if there are any."""
    total = data.messages
    parts = [
        _tile(
            outcome.replace("-", " "),
            f"{data.outcomes.get(outcome, 0):,}",
            _part(data.outcomes[outcome] / total) if data.outcomes.get(outcome) else "",
            outcome,
        )
        for outcome in OUTCOMES
    ]
    html = f'<div class="tiles">{"".join(parts)}</div>'
    queues = data.queue_totals
    if queues is None:
        return html
    count = len(data.queues)
    parts = [
        _tile("queue items", text(queues["items"]), f"in {plural(count, 'queue')}"),
        _tile("accepted", text(queues["accepted"])),
        _tile("dead", text(queues["dead"])),
        _tile("still there", text(queues["open"])),
        _tile("oldest still there", duration(queues["oldest_s"]) or "none"),
    ]
    return f'{html}<div class="tiles">{"".join(parts)}</div>'


def _tile(name: str, value: str, more: str = "", outcome: str = "plain") -> str:
    return (
        f'<div class="tile" style="border-color:var(--{outcome})"><b>{value}</b>'
        f"<span>{name}</span><small>{more}</small></div>"
    )


def trend(days: tuple[DayTotals, DayTotals] | None) -> str:
    """The last day, compared with the day before."""
    if days is None:
        return ""
    before, after = days
    rows = [
        ("messages", before.messages, after.messages, _part_of),
        ("95 % delivered within (s)", before.p95, after.p95, _part_of),
        ("anomalies", before.anomalies, after.anomalies, _more),
    ]
    return table(
        f"{after.day} against {before.day}",
        ("of a day", "#before", "#now", "#change"),
        ((name, old, new, change(old, new)) for name, old, new, change in rows),
    )


def _part_of(old: float | None, new: float | None) -> str:
    """The increase in percent; "" if it is not known."""
    if not old or new is None:
        return ""
    return _more(0, round(100 * (new - old) / old)) + " %"


def _more(old: float | None, new: float | None) -> str:
    change = (new or 0) - (old or 0)
    return f"{change:+,}".replace("-", "\N{MINUS SIGN}") if change else "0"
