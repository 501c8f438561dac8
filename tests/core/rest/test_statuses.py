"""The status of each refusal: the table, and that the engine has no other condition."""

import re
from pathlib import Path

import pytest

import qos
from qos.core.queue.requests import Refusal
from qos.core.rest.statuses import Act, status_of

ROWS = {
    # POST, PULL, SETTLE, READ, CHANGE
    "bad-request": (400, 400, 400, 400, 400),
    "conflict": (422, 409, 412, 409, 409),
    "feature-not-implemented": (501, 501, 501, 501, 501),
    "forbidden": (403, 403, 412, 403, 403),
    "gone": (410, 410, 410, 410, 410),
    "internal-server-error": (503, 503, 503, 503, 503),
    "item-not-found": (404, 404, 412, 404, 404),
    "not-acceptable": (413, 400, 400, 400, 400),
    "not-allowed": (403, 403, 403, 403, 403),
    "not-authorized": (401, 401, 401, 401, 401),
    "policy-violation": (429, 429, 429, 429, 429),
    "resource-constraint": (507, 503, 507, 503, 507),
    "unexpected-request": (409, 409, 412, 409, 409),
    "unsupported-media-type": (415, 415, 415, 415, 415),
    "never-heard-of": (500, 500, 500, 500, 500),
}


@pytest.mark.parametrize("condition", ROWS)
def test_a_refusal_has_one_status_for_each_act(condition: str) -> None:
    refusal = Refusal("text", condition=condition, type="cancel")
    assert tuple(status_of(act, refusal) for act in Act) == ROWS[condition]


def test_each_condition_of_the_engine_has_a_row() -> None:
    """A new one must not become an internal error."""
    folder = Path(qos.__file__).parent
    sources = [
        *(folder / "core" / "queue").rglob("*.py"),
        *(folder / "core" / "rest").rglob("*.py"),
        folder / "engine" / "queue_commit.py",
    ]
    found = {
        name
        for path in sources
        for line in path.read_text().splitlines()
        if "condition=" in line
        for name in re.findall('"([a-z-]+)"', line.partition(", type=")[0])
    }
    assert len(found) > 8
    assert found <= ROWS.keys()
