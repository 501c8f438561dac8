"""The listings of docs/audit.md and docs/spark.md, twice in a row in one folder.

No server of the reader has a part in them: so they are run here, and not on a machine with
Prosody. What needs a fleet is left out.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from listings import listings
from waiting import PATIENCE

ROOT = Path(__file__).parents[2]

#: In the order in which a reader comes to them.
AUDIT = (
    *("docs/audit.md sh 2", "docs/code/read_tables.py", "docs/code/p99.py"),
    *("docs/code/vacuum_tables.py", "docs/audit.md sh 3"),
)
SPARK = ("examples/spark_queue.py",)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark-pages"),
]


def typed(folder: Path, text: str) -> str:
    """What a shell prints that ends with the first command that fails."""
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "--norc", "-e"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": scripts},
        timeout=400 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("keys", [AUDIT, SPARK], ids=["audit", "spark"])
def test_each_listing_survives_its_second_run(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    """A reader runs it again, in the same folder, and gets the same."""
    texts = {listing.key: listing for listing in listings()}
    lines = [
        texts[key].text if texts[key].language == "sh" else f"python {ROOT / key}\n"
        for key in keys
    ]
    first, second = (typed(tmp_path, "".join(lines)) for _ in range(2))
    assert len(first.splitlines()) == len(second.splitlines())
    if keys == SPARK:
        assert first == second
    else:
        # The last listing removes an account, and with it the report.
        assert (tmp_path / "audit" / "deliveries" / "_delta_log").is_dir()
