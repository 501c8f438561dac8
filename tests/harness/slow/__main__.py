"""The command: `python -m slow`, with tests/harness in the PYTHONPATH."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import aligned
from qos.testing.xmpp_server import ServerError
from slow.cases import CASES, Case, Row
from slow.comings import COMINGS, Addresses, Crowd
from slow.servers import SERVERS

_HEAD = (
    *("case", "server", "s", "ideal", "at most", "bytes", "requests", "handed over"),
    "crowd",
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the cases; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m slow",
        description="Send messages over slow links and to slow servers, and compare the "
        "seconds, bytes and requests with what is needed; and let devices connect past "
        "an address that swallows, and all at once.",
    )
    parser.add_argument(
        "--server", choices=SERVERS, action="append", help="one kind of server (all)"
    )
    parser.add_argument(
        "--only", metavar="TEXT", help="the cases with this in the name"
    )
    options = parser.parse_args(words)
    rows: list[Row] = []
    cases: tuple[Case | Addresses | Crowd, ...] = (*CASES, *COMINGS)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, case in enumerate(cases):
                for kind in options.server or SERVERS:
                    if options.only and options.only not in case.name:
                        continue
                    if case.only in {"", kind}:
                        place = Path(folder) / f"{number}-{kind}"
                        print(f"{case.name}, {kind} …", file=sys.stderr, flush=True)
                        rows.append(asyncio.run(case.run(kind, place)))
    except ServerError as error:
        print(f"slow: {error}", file=sys.stderr)
        return 2
    print(shown(rows))
    print(f"\n{sum(not row.kept for row in rows)} of {len(rows)} are not as wanted")
    return int(any(not row.kept for row in rows))


def shown(rows: Sequence[Row]) -> str:
    """The table: seconds, and the parts of what is needed."""
    lines = aligned(
        [
            _HEAD,
            *(
                (
                    row.case if row.kept else f"{row.case} (!)",
                    row.server,
                    f"{row.seconds:.1f}",
                    f"{row.ideal_s:.1f}",
                    f"{row.limit_s:.0f}",
                    *(
                        "" if part is None else f"{part:.2f}"
                        for part in (row.carried, row.requests, row.handed, row.crowd)
                    ),
                )
                for row in rows
            ),
        ]
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
