"""The arithmetic of the benchmark: a wrong median looks as good as a right one."""

from pathlib import Path

import pytest

from benchmarks.figures import Measured, ratio, spread
from benchmarks.gateway_rows import Gateway, PlainHttp, amqp_rows, http_rows
from benchmarks.peers import as_used, queue_peers, rabbitmq_rows, replying
from benchmarks.plot import plot
from benchmarks.queue_rows import queue_rows
from benchmarks.report import Results, absences, caveats, plain, tables
from benchmarks.sample import Sample
from benchmarks.sections import (
    Section,
    of_ours,
    of_peers,
    of_posting,
    of_publishing,
    of_queues,
    of_the_same_promise,
)
from benchmarks.settings import FLOOR, STORES, settings_for
from benchmarks.summary import markdown
from qos.bench.pace import percentile
from qos.core.message.model import Level


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
    """The nearest rank, not a mean of two: 0.07 of a hundred are seven."""
    assert percentile([float(n) for n in range(1, 101)], share) == expected


def test_of_one_message_all_percentiles_are_its_own() -> None:
    """A slow store at a small window may not handle more messages in the given time."""
    assert [percentile([0.3], share) for share in (0.5, 0.99, 0.999)] == [0.3] * 3


def test_the_median_is_that_of_the_turns() -> None:
    """A turn in which another program was busy does not decide."""
    row = measured("row", 90.0, 1.0, 100.0)
    assert row.median("rate") == 90.0
    assert row.median("p99_s") == 0.02


def test_what_is_not_known_is_not_counted_as_nothing() -> None:
    """A broker has no slixmpp that could count its bytes."""
    unknown = measured("row", 1.0)
    assert unknown.median("wire_bytes") is None
    assert unknown.median("cpu_us_server") is None
    both = Measured("row", 1, 200, [sample(), sample(50.0, wire_bytes=600)])
    assert both.median("wire_bytes") == 6.0


def test_figures_are_of_a_message() -> None:
    """CPU, bytes and stanzas are for each message; memory is that of the process."""
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
    """Not the ratio of the medians: a slow turn affects both rows."""
    ours, floor = (
        measured("ours", 50.0, 4.0, 90.0),
        measured("floor", 100.0, 5.0, 100.0),
    )
    assert ratio(ours, floor, "rate") == 0.8
    assert ratio(ours, ours, "rate") == 1.0
    assert ratio(ours, floor, "wire_bytes") is None


def test_the_spread_is_half_of_what_the_turns_differ_by() -> None:
    ours = measured("ours", 50.0, 4.0, 90.0)
    floor = measured("floor", 100.0, 5.0, 100.0)
    assert spread(ours, floor, "rate") == pytest.approx(0.2)
    assert spread(measured("ours", 1.0), measured("floor", 2.0), "rate") is None
    assert spread(ours, floor, "wire_bytes") is None


def test_the_processor_time_of_both_ends_is_compared() -> None:
    """It needs both; the server's is not ours."""
    ours = sample(50.0, cpu_s={"sender": 0.5, "receiver": 0.3, "server": 9.0})
    floor = sample(50.0, cpu_s={"sender": 0.1, "receiver": 0.1, "server": 9.0})
    half = sample(50.0, cpu_s={"sender": 0.1})
    one, other, unknown = (
        Measured(name, 1, 200, [each])
        for name, each in (("ours", ours), ("floor", floor), ("other", half))
    )
    assert one.median("cpu_us_ends") == pytest.approx(8000.0)
    assert ratio(one, other, "cpu_us_ends") == pytest.approx(4.0)
    assert ratio(one, unknown, "cpu_us_ends") is None


OURS = Section("ours", ["floor", "ours", "other"], {"floor": {"ours": "floor"}})


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
        sections=[OURS],
        caveats={"floor": "nothing is kept", "other": "nothing is kept", "ours": ""},
        absent={"broker": "it is not installed"},
        **options,
    )


def test_a_row_is_compared_at_its_own_window_and_size() -> None:
    """A window of 16 is no slower than a floor of 1."""
    found = results()
    ratios = [found.ratios(each, ratio, "rate") for each in found.measured]
    assert ratios == [{}, {}, {"floor": 0.8}, {"floor": 0.5}, {}, {}]


def test_a_row_can_be_compared_by_its_latency() -> None:
    """On an idle link, a rate only tells the length of the pauses."""
    slow = Measured("ours", 1, 200, [sample(10.0, 0.03)])
    floor = Measured("floor", 1, 200, [sample(10.0, 0.02)])
    found = Results(
        measured=[floor, slow], sections=[OURS], caveats={}, compared="p50_s"
    )
    assert found.ratios(slow, ratio, "p50_s") == {"floor": pytest.approx(1.5)}
    (table,) = tables(found)
    assert "p50 ÷" in table.splitlines()[1]


def test_a_table_has_a_line_for_each_row_and_window() -> None:
    """In the table, rows that are compared stand together."""
    (table,) = tables(results())
    title, head, names, *lines = table.splitlines()
    assert title == "ours"
    assert "rate ÷" in head
    # A figure that is not known of any row has no column.
    assert names.split() == ["row", "msg/s", "floor", "ms", "ms"]
    assert [line.split()[:3] for line in lines] == [
        ["window", "1,", "200"],
        ["floor", "1,000", "10.0"],
        ["ours", "800", "0.80"],
        ["other", "1,234", "10.0"],
        ["window", "16,", "200"],
        ["floor", "4,000", "10.0"],
        ["ours", "2,000", "0.50"],
        ["window", "16,", "9000"],
        ["ours", "100", "10.0"],
    ]


def test_a_table_says_how_much_the_machine_was_disturbed() -> None:
    """Above the rows that were measured at the same window."""
    rows = [
        Measured("ours", 1, 200, [sample(others_share=0.02), sample(others_share=0.4)]),
        Measured("floor", 1, 200, [sample(others_share=0.1), sample()]),
    ]
    (table,) = tables(Results(measured=rows, sections=[OURS], caveats={}))
    assert "window 1, 200 bytes; others used 2% to 40% of the processors" in table


def gateways() -> list[Gateway]:
    """The rows of our gateways, with workers."""
    return [*amqp_rows(), *http_rows()]


def test_every_table_fits_into_120_columns() -> None:
    """With the longest names, every figure known, and large ones."""
    ours = [*FLOOR, *settings_for(list(Level), STORES, managed=True)]
    queues = queue_peers()
    sections = [
        of_ours(ours),
        of_the_same_promise(ours, replying()),
        of_peers(as_used()),
        of_queues(queues[3:], gateways(), queues[:3]),
        of_publishing(amqp_rows(receives=False), rabbitmq_rows(receives=False)),
        of_posting(http_rows(receives=False), PlainHttp()),
    ]
    ends = ("sender", "receiver", "server")
    known = {
        "cpu_s": dict.fromkeys(ends, 100.0),
        "rss_bytes": dict.fromkeys(ends, 2**30),
        "wire_bytes": 100_000_000,
        "stanzas": 200_000,
        "confirmed_s": 2.0,
    }
    of_service = {"cpu_s": dict.fromkeys((*ends, "service"), 100.0)}
    rows = dict.fromkeys(row for section in sections for row in section.rows)
    full = {
        row: sample(25_000.0, 1.5, **known | (of_service if "Jet" in row else {}))
        for row in rows
    }
    found = Results(
        measured=[Measured(row, 4096, 200_000, [full[row]] * 2) for row in rows],
        sections=sections,
        caveats=dict.fromkeys(rows, "it keeps nothing of what it has"),
    )
    shown = tables(found)
    assert len(shown) == 6
    lines = "\n".join([*shown, caveats(found)]).splitlines()
    assert max(map(len, lines)) <= 120


def test_ours_is_compared_with_peers_that_promise_as_much() -> None:
    """Acknowledged with QoS 1 and a reply, assured with QoS 2 and a reply."""
    ours = [*FLOOR, *settings_for(list(Level), ["sqlite"])]
    section = of_the_same_promise(ours, replying())
    assert section.bases["gmqtt"] == {
        "acknowledged, sqlite": "MQTT QoS 1 + reply, gmqtt",
        "assured, sqlite": "MQTT QoS 2 + reply, gmqtt",
    }
    assert list(section.bases) == ["paho", "aiomqtt", "gmqtt"]
    assert section.rows[:2] == list(section.bases["gmqtt"])
    assert len(section.rows) == 2 + 6


def test_a_section_of_which_nothing_was_measured_is_no_table() -> None:
    """The broker may not be installed; a note below tells it."""
    found = Results(
        measured=[measured("ours", 1.0)], sections=[of_peers(as_used())], caveats={}
    )
    assert tables(found) == []


def test_what_rows_do_not_guarantee_is_said_once() -> None:
    """Beside the figures: a broker that forgets messages is easily faster."""
    assert caveats(results()) == "floor; other: nothing is kept."
    assert absences(results()) == "broker: it is not installed."


def test_json_has_medians_and_samples_and_who_is_absent() -> None:
    """A reader who doubts a median can look at its samples."""
    found = plain(results())
    assert found["absent"] == {"broker": "it is not installed"}
    rows = found["rows"]
    assert isinstance(rows, list)
    assert [(each["row"], each["ratios"]) for each in rows][2] == (
        "ours",
        {"floor": 0.8},
    )
    first = rows[0]
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
            "confirmed_s": None,
            "others_share": None,
        }
    ]


def test_a_picture_has_a_part_for_each_section_and_every_row_in_it(
    tmp_path: Path,
) -> None:
    """Two dozen lines in one picture could not be told apart."""
    ours = settings_for([Level.ASSURED], STORES)
    sections = [
        of_ours(ours),
        of_the_same_promise(ours, replying()),
        of_peers(as_used()),
        of_queues([], [], queue_peers()),
    ]
    rows = dict.fromkeys(row for section in sections[:3] for row in section.rows)
    found = Results(
        measured=[
            measured(row, 10.0, window=window) for row in rows for window in (1, 4)
        ],
        sections=sections,
        caveats={},
    )
    plot(found, tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    for section in sections:
        shown = 2 if section.rows[0] in rows else 0
        assert picture.count(f"<!-- {section.title} (200 bytes) -->") == shown / 2
    for row in rows:
        # In a legend, and beside its latencies.
        times = sum(row in section.rows for section in sections)
        assert picture.count(f"<!-- {row} -->") == 2 * times


def test_a_short_table_has_the_rows_that_are_compared() -> None:
    """At the largest size, for a README."""
    ours = [sample(50.0, cpu_s={"sender": 0.4, "receiver": 0.4})] * 2
    floor = [sample(rate, cpu_s={"sender": 0.2, "receiver": 0.2}) for rate in (100, 80)]
    found = Results(
        measured=[
            Measured("ours", 64, 100, [sample(1.0)] * 2),
            Measured("ours", 64, 200, ours),
            Measured("floor", 64, 200, floor),
        ],
        sections=[OURS],
        caveats={},
    )
    assert markdown(found).splitlines() == [
        "|  | msg/s | ÷ floor | CPU µs | CPU ÷ floor |",
        "| --- | --- | --- | --- | --- |",
        "| ours | 50 | 0.56 ± 0.06 | 8,000 | 3.6 |",
    ]


def test_a_short_table_has_each_window_that_was_asked_for() -> None:
    """A target may be for one of them."""
    rows = [("ours", 1.0), ("floor", 2.0)]
    found = Results(
        measured=[
            measured(name, rate, window=window)
            for name, rate in rows
            for window in (64, 256)
        ],
        sections=[OURS],
        caveats={},
    )
    assert markdown(found).splitlines()[0].startswith("|  | window | msg/s |")
    assert markdown(found).splitlines()[2:] == [
        "| ours | 64 | 1 | 0.50 |  |  |",
        "| ours | 256 | 1 | 0.50 |  |  |",
    ]


def test_a_short_table_leaves_out_what_is_not_known() -> None:
    """Without /proc there is no processor time."""
    rows = [measured("ours", 1.0), measured("floor", 2.0)]
    found = Results(measured=rows, sections=[OURS], caveats={})
    assert markdown(found).splitlines()[2:] == ["| ours | 1 | 0.50 |  |  |"]
    nothing = Results(measured=[], sections=[OURS], caveats={})
    assert len(markdown(nothing).splitlines()) == 2


def test_ours_are_compared_with_rabbitmq() -> None:
    """With the usual client of it; and those of the gateway with the same client."""
    section = of_queues(queue_rows(), gateways(), queue_peers())
    assert section.bases == {
        "aio-pika": {
            "XEP-0254 on Prosody, one item a stanza": "RabbitMQ, aio-pika",
            "XEP-0254 on Prosody, batches of 32": "RabbitMQ, aio-pika",
            "AMQP gateway, rhea": "RabbitMQ, aio-pika",
            "AMQP gateway, proton": "RabbitMQ, aio-pika",
            "HTTP gateway": "RabbitMQ, aio-pika",
        },
        "AMQP 1.0": {
            "AMQP gateway, rhea": "RabbitMQ, AMQP 1.0, rhea",
            "AMQP gateway, proton": "RabbitMQ, AMQP 1.0, proton",
        },
    }
    only = of_publishing(amqp_rows(receives=False), rabbitmq_rows(receives=False))
    assert only.bases["AMQP 1.0"] == {
        f"{one}, publish only": f"{other}, publish only"
        for one, other in section.bases["AMQP 1.0"].items()
    }
    by_http = of_posting(http_rows(receives=False), PlainHttp())
    assert by_http.bases["floor"] == {
        "HTTP gateway, publish only": "aiohttp alone, publish only",
        "HTTP gateway, one-off, publish only": "aiohttp alone, publish only",
    }


def test_a_short_table_of_queues_has_the_broker_and_its_confirms() -> None:
    """A broker that only takes items in is not measured by when they end."""
    ends = {"sender": 0.4, "receiver": 0.4}
    ours = sample(50.0, confirmed_s=1.0, cpu_s={**ends, "server": 0.1, "service": 0.2})
    theirs = sample(100.0, confirmed_s=1.0, cpu_s={**ends, "server": 0.2})
    found = Results(
        measured=[
            Measured("ours", 64, 200, [ours]),
            Measured("floor", 64, 200, [theirs]),
        ],
        sections=[OURS],
        caveats={},
    )
    assert markdown(found).splitlines() == [
        "|  | msg/s | ÷ floor | CPU µs | CPU ÷ floor | confirmed/s | CPU µs, server |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ours | 50 | 0.50 | 8,000 | 2.0 | 100 | 3,000 |",
        "| floor | 100 |  | 4,000 |  | 200 | 1,000 |",
    ]
