"""`make proxied`: a day of work behind nginx and haproxy, and what it must not overlook."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxied import __main__ as command
from proxied.place import Lane, Target
from waiting import LIMIT_S
from web_proxies import WebProxy


def lane(tmp_path: Path) -> Lane:
    """Two items for a worker and two that are pushed; all is done."""
    target = Target()
    target.got.update(("c", "d"))
    lane = Lane(
        "nginx",
        WebProxy("nginx", tmp_path / "front", 1),
        WebProxy("nginx", tmp_path / "back", 1),
        target,
        work={"a", "b"},
        push={"c", "d"},
    )
    lane.done.update(("a", "b"))
    return lane


@pytest.mark.parametrize(
    ("change", "row", "status"),
    [
        ("", ("4", "2", "2", "0", "0", "0"), 0),
        ("dead", ("4", "2", "2", "0", "0", "1"), 1),
        ("missing", ("4", "2", "1", "0", "1", "0"), 1),
        ("repeated", ("4", "1", "2", "1", "0", "0"), 0),
    ],
)
def test_the_status_says_whether_an_item_is_dead_or_missing(
    change: str,
    row: tuple[str, ...],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An item that comes twice is what is promised: at least once."""
    found = lane(tmp_path)
    if change == "dead":
        found.dead += 1
    elif change == "missing":
        del found.target.got["c"]
    elif change == "repeated":
        found.done["a"] += 1

    async def run(folder: Path, seconds: float) -> list[Lane]:
        assert seconds == 30
        return [found]

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--minutes", "0.5"]) == status
    assert capsys.readouterr().out.split()[-len(row) :] == list(row)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.timeout(10 * LIMIT_S)
async def test_a_short_day_behind_proxies_leaves_no_dead_item(tmp_path: Path) -> None:
    """`make proxied` is longer, with quiet times beyond the time-outs of the proxies."""
    for found in await command.run(tmp_path, 20.0):
        assert (found.dead, found.missing) == (0, 0)
        assert len(found.work) == len(found.push) >= 80
