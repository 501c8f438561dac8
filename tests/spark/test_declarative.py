"""The tables as a declarative pipeline, run by Spark's own command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fleets import NOW, Fleets, journals_in
from parquet import rows_of
from pipeline_project import make_project, run
from published import differences, rows, wrong_verdicts
from qos.audit.batch_tables import TABLES
from qos.audit.forgetting import FORGOTTEN

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(600),
]

#: Problems of files of which no line is read.
UNSEEN = ("empty-file", "foreign-file", "open-file")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Its journals are not there yet."""
    journals = journals_in(tmp_path / "journals")
    return make_project(tmp_path / "project", journals, tmp_path / "storage")


@pytest.mark.long
def test_two_runs_of_the_pipeline_come_to_what_an_audit_comes_to(
    project: Path, tmp_path: Path, fleets: Fleets, audited_fleets: Path
) -> None:
    """New journals come in between.

    They are taken in, and no old line is counted twice.
    """
    journals = tmp_path / "journals"
    fleets.write(journals, late=False)
    warehouse = project / "spark-warehouse"
    run(project, now="2026-01-05T00:00:00Z")
    early = rows_of(warehouse / "anomalies")
    assert not any("'kind': 'stuck'" in row for row in early)
    fleets.write(journals, late=True)
    run(project, now=NOW.isoformat())
    assert differences(warehouse, fleets.recount) == {}
    assert wrong_verdicts(warehouse, fleets.truth) == {}
    # A pipeline keeps no history of accusations.
    accused = ("kind", "sender", "msg_id")
    found, expected = (
        rows(out / "anomalies", accused) for out in (warehouse, audited_fleets)
    )
    assert found == expected
    for name in set(TABLES) - {"anomalies"}:
        assert rows_of(warehouse / name) == rows_of(audited_fleets / name), name
    # The same lines, in a copy; but files without a line are not seen here.
    problems = {
        row.replace(str(fleets.journals), str(journals)): count
        for row, count in rows_of(audited_fleets / "problems").items()
        if not any(f"'{kind}'" in row for kind in UNSEEN)
    }
    assert rows_of(warehouse / "problems") == problems


@pytest.mark.long
def test_an_account_that_an_audit_has_forgotten_is_in_no_result_of_the_pipeline(
    project: Path, tmp_path: Path, fleets: Fleets, audited_fleets: Path
) -> None:
    """The pipeline did not read the list; its rows came again with each run."""
    for late in (False, True):
        fleets.write(tmp_path / "journals", late=late)
    (first, *_) = sorted(rows(audited_fleets / "deliveries", ("sender",)))
    account = str(first[0]).partition("/")[0]
    out = tmp_path / "audited"
    pq_rows = pa.table({"account": [account], "at": [datetime.now(UTC)]})
    write_deltalake(out / FORGOTTEN, pq_rows)
    run(project, now=NOW.isoformat(), **{"spark.xmppQos.forgottenIn": str(out)})
    warehouse = project / "spark-warehouse"
    expected: dict[str, int] = {}
    for name in set(TABLES) - {"anomalies"}:
        found, before = (
            rows_of(folder / name) for folder in (warehouse, audited_fleets)
        )
        expected[name] = sum(account in row for row in before)
        assert not any(account in row for row in found), name
        assert found == {row: n for row, n in before.items() if account not in row}
    assert expected["deliveries"]
    assert expected["routes_hourly"]
