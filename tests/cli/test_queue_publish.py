"""`queue publish`: each item once, whatever fails."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from qos.testing.server import LoopbackServer

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Running

#: Ten of the parts in which lines are published.
MANY = 1000

START = ("queue", "publish", "queue.localhost", "orders", "--lines")


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))


def texts(items: list[dict[str, object]]) -> list[str]:
    """The texts of the lines from which these items were made."""
    start, end = "<text xmlns='xmpp-qos:text:0'>", "</text>"
    return [
        str(item["payload"]).removeprefix(start).removesuffix(end) for item in items
    ]


async def test_a_repeat_is_no_second_item(queues: Commands, tmp_path: Path) -> None:
    """A script in doubt runs it again; another item under the same id is refused."""
    file = tmp_path / "order.xml"
    file.write_text("<?xml version='1.0'?><order xmlns='urn:x'>é &amp; ü</order>\n")
    words = ("--file", file, "--id", "o1")
    for repeated in ({}, {"repeated": True}):
        ended = await queues.queue("publish", *words)
        assert (ended.status, ended.out) == (0, [{"id": "o1", **repeated}]), ended.err
    other = await queues.queue("publish", "--payload", "<other/>", "--id", "o1")
    assert (other.status, other.out) == (1, [])
    assert "refused to publish: conflict" in other.err
    browsed = (await queues.queue("browse")).out
    assert [item["payload"] for item in browsed] == [
        "<order xmlns='urn:x'>é &amp; ü</order>"
    ]


TYPED: tuple[tuple[tuple[str, ...], dict[str, object]], ...] = (
    (("n=5", "f=2.5", "e=1e3"), {"n": 5, "f": 2.5, "e": 1000.0}),
    (("t=true", "f=false", "N=None"), {"t": True, "f": False, "N": "None"}),
    (("a=", "b=x=y", "c:d=red"), {"a": "", "b": "x=y", "c:d": "red"}),
    (("zip=01234", "i=NaN", "l=[1]"), {"zip": "01234", "i": "NaN", "l": "[1]"}),
    (("n:string=5", "b:string=true"), {"n": "5", "b": "true"}),
    (("n:int=5", "f:float=5", "b:boolean=true"), {"n": 5, "f": 5.0, "b": True}),
    (("n=1", "n=2"), {"n": 2}),
)


async def test_properties_have_types(queues: Commands) -> None:
    """A selector tells 5 from '5'. All items of a command have them."""
    for given, _ in TYPED:
        words = [word for each in given for word in ("--property", each)]
        ended = await queues.queue("publish", "--lines", *words, input_=b"a\nb\n")
        assert ended.status == 0, (given, ended.err)
    items = (await queues.queue("browse")).out
    assert len(items) == 2 * len(TYPED)
    for number, (given, properties) in enumerate(TYPED):
        for item in items[2 * number : 2 * number + 2]:
            assert repr(item["properties"]) == repr(properties), given


async def test_too_many_properties_are_refused_before_anything_is_sent(
    queues: Commands,
) -> None:
    """Each may be right, and all together too much."""
    words = [word for n in range(65) for word in ("--property", f"n{n}=1")]
    ended = await queues.queue("publish", "--payload", "<x/>", *words)
    assert ended.status != 0
    assert "65 properties, over the limit of 64" in ended.err
    assert "Traceback" not in ended.err


async def test_every_line_is_an_item_in_its_order(queues: Commands) -> None:
    """Also an empty one, one with markup in it, and the last without a line feed."""
    ended = await queues.queue("publish", "--lines", input_=b"<a> & 'b'\n\nc d \n  e")
    assert ended.status == 0, ended.err
    assert [line["line"] for line in ended.out] == [1, 2, 3, 4]
    assert ended.notes == ["xmpp-qos: 4 of 4 lines are published"]
    browsed = (await queues.queue("browse")).out
    assert [item["id"] for item in browsed] == [line["id"] for line in ended.out]
    assert [item["payload"] for item in browsed] == [
        "<text xmlns='xmpp-qos:text:0'>&lt;a&gt; &amp; 'b'</text>",
        "<text xmlns='xmpp-qos:text:0'/>",
        "<text xmlns='xmpp-qos:text:0'>c d </text>",
        "<text xmlns='xmpp-qos:text:0'>  e</text>",
    ]


async def test_json_and_a_text_need_no_xml(queues: Commands) -> None:
    """JSON is checked, so that a slip of the pen is seen before a worker sees it."""
    given = (("--json", '{"n": "<1>"}'), ("--text", "a < b"))
    for words in given:
        item_id = words[0].strip("-")
        ended = await queues.queue("publish", *words, "--id", item_id)
        assert (ended.status, ended.out) == (0, [{"id": item_id}])
    browsed = (await queues.queue("browse")).out
    assert [item["payload"] for item in browsed] == [
        '<json xmlns=\'urn:xmpp:json:0\'>{"n":"&lt;1&gt;"}</json>',
        "<text xmlns='xmpp-qos:text:0'>a &lt; b</text>",
    ]


WRONG = (
    (("--json", "{"), "--json: "),
    (("--json", "NaN"), "--json: not well-formed: NaN is no number of JSON"),
    (("--text", "a\x01b"), "--text: "),
    (("--json", "1", "--text", "a"), "--json and --text exclude each other"),
    (("--lines", "--file", "a"), "--file and --lines exclude each other"),
    ((), "one of --json, --text, --payload, --file and --lines is needed"),
)


async def test_a_wrong_content_is_refused_with_a_reason(queues: Commands) -> None:
    """Before anything is sent."""
    for words, said in WRONG:
        ended = await queues.queue("publish", *words)
        assert ended.status == 2, words
        assert said in ended.err, words
        assert "Traceback" not in ended.err, words
    assert (await queues.queue("browse")).out == []


async def test_nothing_on_stdin_is_nothing_to_do(queues: Commands) -> None:
    """As for any filter."""
    ended = await queues.queue("publish", "--lines")
    assert (ended.status, ended.out) == (0, [])
    assert ended.notes == ["xmpp-qos: 0 of 0 lines are published"]


async def test_a_line_goes_out_when_it_comes(queues: Commands) -> None:
    """`tail -f` never ends, and must not wait for a hundred lines."""
    running = await queues.start(*START, user="alice")
    assert running.process.stdin is not None
    for number in (1, 2):
        running.process.stdin.write(b"x\n")
        assert (await running.line())["line"] == number
    assert (await running.end()).status == 0


async def test_a_bad_line_is_named_and_the_others_are_published(
    queues: Commands,
) -> None:
    """Exit status 1 says that something failed."""
    long, large = b"x" * (1024 * 1024 + 1), b"&" * 120_000
    bad = (b"\xff", b"a\x00b", long, large)
    given = b"\n".join((b"good 1", *bad, b"good 6")) + b"\n"
    ended = await queues.queue("publish", "--lines", input_=given)
    assert ended.status == 1
    assert [line["line"] for line in ended.out] == [1, 6]
    said = "\n".join(ended.notes)
    assert "line 2: 'utf-8' codec" in said
    assert "line 3: character U+0000" in said
    assert "line 4: longer than 1048576 bytes" in said
    assert "line 5: " in said
    assert ended.notes[-1] == "xmpp-qos: 2 of 6 lines are published"
    assert texts((await queues.queue("browse")).out) == ["good 1", "good 6"]


async def test_a_full_queue_is_filled_and_then_says_which_line_was_too_many(
    queues: Commands,
) -> None:
    """If a publish does not fit as a whole, the part that fits is published."""
    assert (await queues.queue("configure", "--set", "max_items=130")).status == 0
    ended = await queues.queue("publish", "--lines", input_=lines(150))
    assert ended.status == 1
    assert "resource-constraint" in ended.notes[-1]
    assert "130 of 150 lines are published" in ended.notes[-1]
    stored = texts((await queues.queue("browse")).out)
    assert sorted(stored) == sorted(f"line {line['line']}" for line in ended.out)
    assert len(stored) == 130


async def test_no_such_queue_ends_it_at_once(
    commands: Commands, serving: Running
) -> None:
    """Even if stdin goes on: each further line would be refused too."""
    running = await commands.start(*START, user="alice")
    assert running.process.stdin is not None
    running.process.stdin.write(b"x\n")
    note = await running.note("item-not-found")
    assert "line 1: queue.localhost refused to publish" in note
    assert await running.process.wait() == 1


async def test_a_service_that_is_killed_costs_no_line_and_doubles_none(
    queues: Commands, serving: Running
) -> None:
    """Lines in flight are published again, under the same ids."""
    running = await queues.start(*START, "--timeout", "2", user="alice")
    assert running.process.stdin is not None
    running.process.stdin.write(lines(MANY))
    running.process.stdin.close()
    first = await running.line()
    serving.process.kill()
    await serving.process.wait()
    await queues.serve()
    ended = await running.end()
    assert ended.status == 0, ended.err
    assert f"{MANY} of {MANY} lines are published" in ended.err
    told = {str(line["id"]) for line in (first, *ended.out)}
    browsed = (await queues.queue("browse")).out
    assert {str(item["id"]) for item in browsed} == told
    expected = [f"line {number}" for number in range(1, MANY + 1)]
    assert sorted(texts(browsed)) == sorted(expected)


async def test_a_lost_connection_costs_no_line_and_doubles_none(
    server: LoopbackServer, queues: Commands
) -> None:
    """As with a killed service."""
    running = await queues.start(*START, user="alice")
    assert running.process.stdin is not None
    running.process.stdin.write(lines(MANY))
    running.process.stdin.close()
    first = await running.line()
    assert server.disconnect("alice@localhost") == 1
    ended = await running.end()
    assert ended.status == 0, ended.err
    assert len({str(line["id"]) for line in (first, *ended.out)}) == MANY
    expected = [f"line {number}" for number in range(1, MANY + 1)]
    assert sorted(texts((await queues.queue("browse")).out)) == sorted(expected)


async def test_what_is_not_answered_in_time_is_in_doubt(
    queues: Commands, serving: Running
) -> None:
    """Repeated for ever, it could be published after the service has forgotten its id."""
    serving.process.send_signal(signal.SIGSTOP)
    words = ("--timeout", "0.5", "--deadline", "2")
    ended = await queues.queue("publish", "--lines", *words, input_=b"a\nb\n")
    assert (ended.status, ended.out) == (3, [])
    assert "lines 1 to 2: queue.localhost did not answer" in ended.notes[-1]
    assert "0 of 2 lines are published" in ended.notes[-1]


async def test_ctrl_c_says_how_far_it_got(queues: Commands) -> None:
    """So that the rest can be published by hand."""
    running = await queues.start(*START, user="alice")
    assert running.process.stdin is not None
    running.process.stdin.write(lines(3))
    for _ in range(3):
        await running.line()
    running.process.send_signal(signal.SIGINT)
    ended = await running.end()
    assert ended.status == 130
    assert ended.notes == ["xmpp-qos: stopped; 3 of 3 lines are published"]


async def test_nobody_who_reads_its_stdout_ends_it(queues: Commands) -> None:
    """As a shell reports SIGPIPE; items that are not printed may be published."""
    running = await queues.start(*START, user="alice")
    assert running.process.stdin is not None
    running.process.stdin.write(b"x\n")
    await running.line()
    running.close_stdout()
    running.process.stdin.write(b"y\n")
    note = await running.note("stdout")
    assert "nobody reads stdout any more; 2 of 2 lines are published" in note
    assert await running.process.wait() == 141
