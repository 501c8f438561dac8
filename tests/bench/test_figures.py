"""The arithmetic of the benchmark: a wrong median looks as good as a right one."""

import pytest

from qos.bench.figures import Measured, percentile, ratio
from qos.bench.report import Results, caveats, plain, table
from qos.bench.sample import Sample


def sample(rate: float = 100.0, p50_s: float = 0.01, **more: object) -> Sample:
    return Sample(
        messages=int(rate * 2),
        seconds=2.0,
        p50_s=p50_s,
        p99_s=p50_s * 2,
        p999_s=p50_s * 3,
        **more,  # type: ignore[arg-type]  # whatever a sample has
    )


def measured(row: str, *rates: float, window: int = 1, size: int = 200) -> Measured:
    return Measured(row, window, size, [sample(rate) for rate in rates])


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (0.07, 7.0), (0.001, 1.0), (1, 100.0)],
)
def test_a_percentile_is_one_that_was_measured(share: float, expected: float) -> None:
    """The nearest rank, and no mean of two: 0.07 of a hundred are seven."""
    assert percentile([float(n) for n in range(1, 101)], share) == expected


def test_of_one_message_all_percentiles_are_its_own() -> None:
    """A slow store at a small window may not do more in the time there is."""
    assert [percentile([0.3], share) for share in (0.5, 0.99, 0.999)] == [0.3] * 3


def test_the_median_is_that_of_the_turns() -> None:
    """A turn in which somebody else was busy does not decide."""
    row = measured("row", 90.0, 1.0, 100.0)
    assert row.median("rate") == 90.0
    assert row.median("p99_s") == 0.02


def test_what_is_not_known_is_not_counted_as_nothing() -> None:
    """A broker has no slixmpp in it that could count its bytes."""
    unknown = measured("row", 1.0)
    assert unknown.median("wire_bytes") is None
    assert unknown.median("cpu_us_server") is None
    both = Measured("row", 1, 200, [sample(), sample(50.0, wire_bytes=600)])
    assert both.median("wire_bytes") == 6.0


def test_figures_are_of_a_message() -> None:
    """CPU, bytes and stanzas by the message; memory is that of the process."""
    found = sample(
        50.0,
        cpu_s={"sender": 0.5, "server": 0.01},
        rss_bytes={"receiver": 2**20},
        wire_bytes=10_000,
        stanzas=400,
    )
    row = Measured("row", 1, 200, [found])
    names = ("cpu_us_sender", "cpu_us_server", "cpu_us_receiver", "rss_bytes_receiver")
    assert [row.median(name) for name in names] == [5000.0, 100.0, None, 2**20]
    assert (row.median("wire_bytes"), row.median("stanzas")) == (100.0, 4.0)


def test_the_ratio_is_the_median_of_those_of_the_turns() -> None:
    """Not that of the medians: of a slow turn both rows have had their share."""
    ours, floor = (
        measured("ours", 50.0, 4.0, 90.0),
        measured("floor", 100.0, 5.0, 100.0),
    )
    assert ratio(ours, floor, "rate") == 0.8
    assert ratio(ours, ours, "rate") == 1.0
    assert ratio(ours, floor, "wire_bytes") is None


def results(**options: str) -> Results:
    return Results(
        measured=[
            measured("floor", 1000.0, window=1),
            measured("floor", 4000.0, window=16),
            measured("ours", 800.0, window=1),
            measured("ours", 2000.0, window=16),
            measured("other", 1234.5, window=1),
            measured("ours", 100.0, window=16, size=9000),
        ],
        floors={"ours": "floor"},
        caveats={"floor": "nothing is kept", "other": "nothing is kept", "ours": ""},
        **options,
    )


def test_a_row_is_compared_at_its_own_window_and_size() -> None:
    """A window of 16 is no slower than a floor of 1."""
    found = results()
    ratios = [found.ratio(each) for each in found.measured]
    assert ratios == [None, None, 0.8, 0.5, None, None]


def test_a_row_can_be_compared_by_its_latency() -> None:
    """On an idle link a rate says how long the pauses are."""
    slow = Measured("ours", 1, 200, [sample(10.0, 0.03)])
    floor = Measured("floor", 1, 200, [sample(10.0, 0.02)])
    found = Results(
        measured=[floor, slow], floors={"ours": "floor"}, caveats={}, compared="p50_s"
    )
    assert found.ratio(slow) == pytest.approx(1.5)
    assert "p50 by" in table(found).splitlines()[0]


def test_the_table_has_a_line_for_each_row_and_window() -> None:
    """In which rows that are compared stand together."""
    head, names, *lines = table(results()).splitlines()
    assert "rate by" in head
    assert names.split()[:5] == ["row", "bytes", "window", "msg/s", "floor"]
    assert [line.split()[:5] for line in lines] == [
        ["floor", "200", "1", "1,000", "10.00"],
        ["ours", "200", "1", "800", "0.80"],
        ["other", "200", "1", "1,234", "10.00"],
        [],
        ["floor", "200", "16", "4,000", "10.00"],
        ["ours", "200", "16", "2,000", "0.50"],
        [],
        ["ours", "9000", "16", "100", "10.00"],
    ]


def test_what_rows_do_not_guarantee_is_said_once() -> None:
    """Beside the figures: a broker that forgets is easily faster."""
    assert caveats(results()) == "floor; other: nothing is kept."


def test_json_has_medians_and_samples() -> None:
    """Whoever doubts a median can look at what it is made of."""
    rows = plain(results())
    assert [(each["row"], each["ratio"]) for each in rows][2] == ("ours", 0.8)
    (first, *_) = rows
    assert first["rate"] == 1000.0
    assert first["samples"] == [
        {
            "messages": 2000,
            "seconds": 2.0,
            "p50_s": 0.01,
            "p99_s": 0.02,
            "p999_s": 0.03,
            "cpu_s": {},
            "rss_bytes": {},
            "wire_bytes": None,
            "stanzas": None,
        }
    ]
