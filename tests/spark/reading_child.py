"""Reads the tables of audits without a pause, and reports the content.

It stops when it has read often enough and a certain file exists. A read that fails, or
whose tables do not fit together, ends it with a traceback.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.compute as pc
from deltalake import DeltaTable

from qos.audit.snapshot import snapshot

#: A snapshot that was opened this many reads ago is read once more.
_LATER = 50


def in_duckdb(tables: dict[str, DeltaTable]) -> dict[str, object]:
    """The content of the tables, read by DuckDB."""
    data = {name: table.to_pyarrow_dataset() for name, table in tables.items()}
    messages = duckdb.from_arrow(data["deliveries"])
    sent, all_of_them = messages.aggregate(
        "count(sender_last_at), count(*)"
    ).fetchall()[0]
    routes = duckdb.from_arrow(data["routes_hourly"])
    sums = routes.aggregate("sum(messages), sum(messages + one_sided)").fetchall()[0]
    assert sums == (sent, all_of_them), (sums, sent, all_of_them)
    standing = duckdb.from_arrow(data["anomalies"]).filter("withdrawn_at is null")
    kinds = standing.aggregate("kind, count(*)").fetchall()
    return {"sent": sent, "anomalies": dict(sorted(kinds))}


def in_arrow(tables: dict[str, DeltaTable]) -> dict[str, object]:
    """The same by pyarrow."""
    messages = tables["deliveries"].to_pyarrow_table(columns=["sender_last_at"])
    routes = tables["routes_hourly"].to_pyarrow_table(columns=["messages", "one_sided"])
    sent = len(messages) - messages["sender_last_at"].null_count
    assert pc.sum(routes["messages"]).as_py() == sent
    assert pc.sum(routes["one_sided"]).as_py() == len(messages) - sent
    # The other audit is of other journals: it withdraws the anomalies that it does not
    # find.
    kinds = tables["anomalies"].to_pyarrow_table()
    kinds = kinds.filter(pc.field("withdrawn_at").is_null())["kind"].to_pylist()
    return {
        "sent": sent,
        "anomalies": dict(sorted(Counter(kinds).items())),
    }


def main(out: str, reads: str, pause_s: str, stop: str, expected: str) -> None:
    states = json.loads(expected)
    seen: Counter[str] = Counter()
    versions, changes, last = set(), 0, ""
    earlier: list[tuple[dict[str, DeltaTable], dict[str, object]]] = []
    while seen.total() < int(reads) or not Path(stop).exists():
        time.sleep(float(pause_s))
        tables = snapshot(out)
        found = (in_duckdb, in_arrow)[seen.total() % 2](tables)
        assert found in states, found
        # A single table may be newer, but it is whole.
        alone = DeltaTable(f"{out}/deliveries").to_pyarrow_table()["sender_last_at"]
        sent = len(alone) - alone.null_count
        assert sent in {state["sent"] for state in states}, sent
        earlier.append((tables, found))
        if len(earlier) > _LATER:
            former, before = earlier.pop(0)
            assert in_arrow(former) == before
        text = json.dumps(found)
        seen[text] += 1
        versions.add(tuple(table.version() for table in tables.values()))
        changes += last not in {"", text}
        last = text
    print(json.dumps({"seen": seen, "snapshots": len(versions), "changes": changes}))


main(*sys.argv[1:])
