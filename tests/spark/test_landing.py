"""The landing of a queue source: killed at every step, and used wrongly. No Spark."""

import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from killed_runs import Runs
from qos.spark.landed_items import LandingError, read_slice, slices
from qos.spark.queue_checkpoint import Checkpoint, CheckpointError
from qos.spark.queue_landing import Landing
from xep_0254.events import DeliveredItem

OWNER = {"service": "queue.localhost", "node": "orders"}
FENCE = "t"


def item(name: str, token: str = FENCE, payload: str = "<x/>") -> DeliveredItem:
    return DeliveredItem(item_id=name, payload=payload, token=token)


def opened(folder: Path, **owner: str) -> Landing:
    return Landing(folder, owner or OWNER, lock_s_max=0)


def rows(folder: Path, start: int, end: int, *, lines: int = 100) -> list[str]:
    parts = slices(folder, start, end, lines=lines)
    return [each.item_id for part in parts for each in read_slice(part)]


def check(folder: Path) -> None:
    """Check that all certain items are there, each in one file, and that all files are
    whole.
    """
    acks: dict[str, list[str]] = {}
    for line in (folder / "acks").read_text().splitlines():
        word, *rest = line.split()
        acks.setdefault(word, []).extend(rest)
    landing = opened(folder / "landing")
    try:
        assert {landing.id} >= set(acks.get("id", ()))
        for name in acks.get("landed", ()):
            assert landing.file_of(name) is not None, name
        for below in acks.get("removed", ()):
            assert landing.first >= int(below)
        found = rows(folder / "landing", landing.first, landing.next)
        assert max(Counter(found).values(), default=1) == 1
        open_claims = landing.claims().values()
        claimed = {each.item_id for claim in open_claims for each in claim}
        for name in acks.get("claimed", ()):
            assert name in claimed or landing.file_of(name) is not None, name
        assert not list((folder / "landing").glob("*.tmp"))
    finally:
        landing.close()


@pytest.mark.crash
@pytest.mark.timeout(120)
def test_a_landing_is_whole_after_a_kill_at_any_step(tmp_path: Path) -> None:
    """Files that were reported to Spark are there.

    Others are there whole or not at all.
    """
    number = 0
    status = -signal.SIGKILL.value
    with Runs(Path(__file__).with_name("landing_child.py")) as runs:
        while status:
            folder = tmp_path / str(number)
            folder.mkdir()
            # For an existing landing, and for a new one.
            if number % 2:
                assert runs.run(folder, -1) == 0
            status = runs.run(folder, number)
            assert status in {0, -signal.SIGKILL}
            check(folder)
            assert runs.run(folder, -1) == 0
            check(folder)
            number += 1
    assert number > 15


def test_an_item_that_comes_again_is_known(tmp_path: Path) -> None:
    """Also when its file has been removed, and after a restart."""
    landing = opened(tmp_path)
    assert landing.land([item("a"), item("b")]) == 1
    assert landing.land([item("c")]) == 2
    landing.redelivered("a", "newer")
    assert sorted(landing.unended(1)) == [("a", "newer"), ("b", "t")]
    landing.ended("a")
    landing.compact(2)
    assert landing.unended(2) == [("b", "t"), ("c", "t")]
    landing.ended("b")
    landing.compact(1)
    assert [landing.file_of(name) for name in "abcd"] == [-1, -1, 1, None]
    assert not (tmp_path / "items-0000000000.jsonl").exists()
    landing.close()
    again = opened(tmp_path)
    assert (again.id, again.first, again.next) == (landing.id, 1, 2)
    assert [again.file_of(name) for name in "abcd"] == [-1, -1, 1, None]
    again.ended("c")
    again.compact(2)
    again.close()
    assert opened(tmp_path).next == 2


def test_an_item_that_has_ended_is_forgotten_after_a_month(tmp_path: Path) -> None:
    """Otherwise a source that runs for years would remember every item."""
    now = 0.0
    landing = Landing(tmp_path, OWNER, clock=lambda: now)
    for number, days in enumerate((0, 30, 31)):
        now = 86_400.0 * days
        landing.land([item(f"m{number}")])
        landing.ended(f"m{number}")
        landing.compact(number + 1)
        found = [landing.file_of(f"m{each}") for each in range(number + 1)]
        assert found == ([-1] * (number + 1) if days <= 30 else [None, -1, -1])
    landing.close()


def test_a_landing_that_knew_items_for_good_goes_on(tmp_path: Path) -> None:
    """They are known for a month from when a newer version opens it."""
    landing = opened(tmp_path)
    landing.land([item("a")])
    landing.ended("a")
    landing.compact(1)
    landing.close()
    with sqlite3.connect(tmp_path / "ids.sqlite") as former:
        former.executescript(
            "DROP TABLE ended; "
            "CREATE TABLE ended (item_id TEXT PRIMARY KEY) WITHOUT ROWID; "
            "INSERT INTO ended VALUES ('a');"
        )
    former.close()
    for _ in range(2):
        again = opened(tmp_path)
        assert again.file_of("a") == -1
        again.close()


def test_files_are_read_in_parts(tmp_path: Path) -> None:
    """Whatever is in a payload: each row is in one part."""
    landing = opened(tmp_path)
    landing.land([item(f"é{number}", payload="<x>\n ü </x>") for number in range(7)])
    landing.land([item("last")])
    parts = slices(tmp_path, 0, 2, lines=3)
    assert [part.lines for part in parts] == [3, 3, 1, 1]
    found = [each for part in parts for each in read_slice(part)]
    assert [each.item_id for each in found] == [*(f"é{n}" for n in range(7)), "last"]
    assert found[0].payload == "<x>\n ü </x>"


def test_a_claim_that_is_settled_twice_lands_once(tmp_path: Path) -> None:
    """There is a crash between its two steps."""
    landing = opened(tmp_path)
    name = landing.claim([item("a"), item("b")])
    claim = (tmp_path / name).read_bytes()
    assert list(landing.claims()) == [name]
    landing.settle(name, [item("a")])
    (tmp_path / name).write_bytes(claim)
    landing.settle(name, [item("a")])
    assert landing.claims() == {}
    assert rows(tmp_path, 0, landing.next) == ["a"]
    assert landing.unended(landing.next) == []


def test_a_landing_is_that_of_one_query(tmp_path: Path) -> None:
    """And of one queue. The line says what is wrong, and where."""
    landing = opened(tmp_path)
    with pytest.raises(LandingError, match=f"landing {tmp_path}: another query uses"):
        opened(tmp_path)
    landing.close()
    with pytest.raises(LandingError, match="node orders, not of service x, node y"):
        opened(tmp_path, service="x", node="y")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("landing.json", "{", "landing.json is damaged"),
        ("landing.json", None, "there are items in it, and no landing.json"),
        ("landing.json", '{"version": 2, "landing": "x", "owner": {}}', "of version 2"),
        ("items-0000000000.jsonl", None, "items-0000000000.jsonl is missing"),
        ("items-0000000001.jsonl", '{"a"\n', "items-0000000001.jsonl is damaged"),
        ("ids.sqlite", "x" * 2000, "not a database"),
    ],
)
def test_a_damaged_landing_is_one_line(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    """It does not count as an empty one: items would come twice, or never."""
    landing = opened(tmp_path)
    landing.land([item("a")])
    landing.land([item("b")])
    landing.close()
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(LandingError, match=said) as caught:
        opened(tmp_path)
    assert str(caught.value).startswith(f"landing {tmp_path}: ")
    assert "\n" not in str(caught.value)


def test_a_task_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    """This is the most common mistake on a cluster."""
    landing = opened(tmp_path)
    landing.land([item("a")])
    (part,) = slices(tmp_path, 0, 1, lines=10)
    (tmp_path / "items-0000000000.jsonl").unlink()
    with pytest.raises(LandingError, match="a folder that all of it sees"):
        list(read_slice(part))
    with pytest.raises(LandingError, match=r"items-0000000000\.jsonl is missing"):
        slices(tmp_path, 0, 1, lines=10)


# -- the checkpoint --------------------------------------------------------


def checkpoint(folder: Path, *batches: str, commits: int) -> Checkpoint:
    """As Spark writes one."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"x"}')
    for number, offset in enumerate(batches):
        text = f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n-\n{offset}'
        (folder / "offsets" / str(number)).write_text(text)
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc\0")
    for number in range(commits):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    return Checkpoint(f"file://{folder}", "mine")


def offset(number: int, landing: str = "mine") -> str:
    return json.dumps({"landing": landing, "next": number})


def test_done_is_what_spark_has_committed(tmp_path: Path) -> None:
    """Rows that Spark only planned do not count."""
    found = checkpoint(tmp_path / "a", offset(1), offset(2), offset(3), commits=2)
    assert found.done() == 2
    assert checkpoint(tmp_path / "b", offset(1), commits=0).done() == 0
    other = checkpoint(tmp_path / "c", offset(4, "other"), offset(1), commits=2)
    assert other.done() == 1
    # Among other sources, and wrapped up as another version might do.
    wrapped = json.dumps({"sources": {"0": offset(7), "1": "-"}})
    assert checkpoint(tmp_path / "d", wrapped, commits=1).done() == 7


def test_the_checkpoint_of_another_query_is_one_line(tmp_path: Path) -> None:
    """Otherwise nothing would ever be retracted, or items that are not done would be."""
    with pytest.raises(CheckpointError, match=f"checkpoint {tmp_path}: there is none"):
        Checkpoint(str(tmp_path), "mine")
    found = checkpoint(tmp_path / "a", offset(1), offset(2), commits=1)
    found.check(0)
    found.check(2)
    with pytest.raises(CheckpointError, match="this landing has another one"):
        found.check(3)
    other = checkpoint(tmp_path / "b", offset(9, "other"), commits=1)
    with pytest.raises(CheckpointError, match="this landing has another one"):
        other.check(1)
