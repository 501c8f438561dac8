"""The shim between socket and engine: what the engine hides is read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.amqp import frame_shim, values
from qos.core.amqp.delivery_states import PeerOutcome, write_unsettled
from qos.core.amqp.frame_parts import Attach, AttachAnswer, InUse, Part, Transfer
from qos.core.amqp.frame_shim import ABORTED, RESUMED, FrameShim
from qos.core.amqp.frames import (
    FrameCutter,
    fields_of,
    list_at,
    rewritten,
    usual_transfer,
)
from qos.core.amqp.resuming import Position
from qos.core.amqp.values import NULL, DecodeError
from qos.core.queue.item import ItemOutcome

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
HEADER = b"AMQP\x00\x01\x00\x00"
TRUE, FALSE = values.boolean(True), values.boolean(False)
ACCEPTED = b"\x00\x53\x24\x45"
FRAME_BYTES_MAX = 4096


def frame(
    code: int, *fields: bytes, payload: bytes = b"", channel: int = 0, head: bytes = b""
) -> bytes:
    body = b"\x00" + values.ulong(code) + values.pack_list(fields) + payload
    words = 2 + len(head) // 4
    size = (8 + len(head) + len(body)).to_bytes(4, "big")
    return size + bytes((words, 0)) + channel.to_bytes(2, "big") + head + body


def attach(
    name: str = "mine",
    *,
    receiver: bool = True,
    handle: int = 0,
    unsettled: bytes = NULL,
    incomplete: bytes = NULL,
    source: bytes = NULL,
    channel: int = 0,
) -> bytes:
    return frame(
        ATTACH,
        values.string(name),
        values.uint(handle),
        values.boolean(receiver),
        NULL,
        NULL,
        source,
        NULL,
        unsettled,
        incomplete,
        channel=channel,
    )


def transfer(
    *more: bytes, tag: bytes = b"t", handle: int = 0, channel: int = 0
) -> bytes:
    fields = values.uint(handle), values.uint(7), values.binary(tag)
    return frame(TRANSFER, *fields, *more, payload=b"payload", channel=channel)


def source(default: bytes) -> bytes:
    fields = [values.string("orders")] + [NULL] * 7 + [default]
    return b"\x00\x53\x28" + values.pack_list(fields)


def begin(channel: int = 0, answers: bytes = NULL) -> bytes:
    """A begin; `answers`: the channel of the other end's session."""
    return frame(BEGIN, answers, values.uint(0), channel=channel)


def begun(*frames: bytes) -> FrameShim:
    new = FrameShim(FRAME_BYTES_MAX)
    new.receive(HEADER + b"".join(frames))
    return new


def answering(*frames: bytes) -> FrameShim:
    """The engine has answered the session on channel 7 of the peer, on its channel 0."""
    new = begun(begin(7), *frames)
    new.send(HEADER + begin(0, values.uint(7)))
    return new


def given_to_engine(parts: list[Part]) -> bytes:
    return b"".join(each for each in parts if isinstance(each, bytes))


def told(parts: list[Part]) -> list[Part | str]:
    """Actions that are no bytes; an error by its text."""
    return [
        str(each) if isinstance(each, DecodeError) else each
        for each in parts
        if not isinstance(each, bytes)
    ]


# -- cutting ---------------------------------------------------------------

frames_strategy = st.lists(
    st.one_of(
        st.just(b"\x00\x00\x00\x08\x02\x00\x00\x00"),
        st.just(frame(BEGIN, NULL, values.uint(0))),
        st.just(attach(unsettled=values.pack_map([values.binary(b"t"), ACCEPTED]))),
        st.just(transfer(values.uint(0), FALSE)),
        st.just(transfer(values.uint(5), FALSE)),
        st.just(frame(DETACH, values.uint(0))),
        st.just(frame(END)),
    ),
    max_size=12,
)


@given(frames_strategy, st.data())
def test_any_cuts_of_a_stream_give_the_same(
    frames: list[bytes], data: st.DataObject
) -> None:
    """And the engine gets every byte that came, in order, until something is used twice."""
    stream = HEADER + b"".join(frames)
    whole = FrameShim(FRAME_BYTES_MAX).receive(stream)
    cut, found, at = FrameShim(FRAME_BYTES_MAX), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream)))
        found += cut.receive(stream[at : at + size])
        at += size
    passed = given_to_engine(whole)
    assert given_to_engine(found) == passed
    refused = isinstance(whole[-1], InUse)
    assert stream.startswith(passed) if refused else stream == passed
    assert told(found) == told(whole)
    assert FrameShim(FRAME_BYTES_MAX).send(stream) == stream


def test_many_frames_come_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is handled in one go, so it is short."""
    monkeypatch.setattr(frame_shim, "_RUN_FRAMES", 2)
    beat = b"\x00\x00\x00\x08\x02\x00\x00\x00"
    assert begun().receive(5 * beat) == [2 * beat, 2 * beat, beat]


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_any_bytes_are_passed_or_refused(chunks: list[bytes], log_in: bool) -> None:
    """Nothing else is raised, and what is passed is what came."""
    new = FrameShim(FRAME_BYTES_MAX)
    chunks = [HEADER, *chunks] if log_in else chunks
    found = [part for each in chunks for part in new.receive(each)]
    passed = given_to_engine(found)
    assert b"".join(chunks).startswith(passed)
    errors = [each for each in found if isinstance(each, DecodeError)]
    assert errors in ([], [found[-1]] if found else [])


performatives = st.builds(
    lambda code, fields, payload, channel: frame(
        code, *fields, payload=payload, channel=channel
    ),
    st.sampled_from((OPEN, ATTACH, TRANSFER, DETACH, END, CLOSE)),
    st.lists(
        st.one_of(
            st.sampled_from((NULL, TRUE, FALSE, b"\x43", ACCEPTED, source(ACCEPTED))),
            st.binary(max_size=10).map(values.binary),
            st.integers(0, 2**32 - 1).map(values.uint),
            st.text(max_size=5).map(values.string),
            st.binary(max_size=6),
        ),
        max_size=11,
    ),
    st.binary(max_size=10),
    st.integers(0, 3),
)


@given(st.lists(performatives, max_size=6))
def test_any_fields_are_read_or_refused(frames: list[bytes]) -> None:
    new = FrameShim(FRAME_BYTES_MAX)
    found = new.receive(HEADER + b"".join(frames))
    # One that is refused is not given to the engine.
    passed = given_to_engine(found)
    assert (HEADER + b"".join(frames)).startswith(passed)
    assert (passed == HEADER + b"".join(frames)) == (
        not any(isinstance(each, DecodeError) for each in found)
    )


@pytest.mark.parametrize("size", [0, 7, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_frame_of_an_impossible_size_is_the_end(size: int) -> None:
    new = begun(frame(BEGIN))
    first = frame(END)
    found = new.receive(first + size.to_bytes(4, "big") + b"\x02\x00\x00\x00" + first)
    position = len(HEADER + frame(BEGIN) + first)
    assert found[0] == first
    assert str(found[1]) == f"a frame of {size} bytes at byte {position}"
    assert new.receive(first) == []


def test_what_is_kept_of_a_frame_is_not_more_than_a_frame() -> None:
    cutter = FrameCutter(FRAME_BYTES_MAX)
    cutter.cut(HEADER)
    for _ in range(3):
        assert cutter.cut(FRAME_BYTES_MAX.to_bytes(4, "big") + bytes(1000)) == []
        assert len(cutter.cut(bytes(FRAME_BYTES_MAX - 1004))) == 1
    cutter.cut(b"\xff" * 8)
    assert cutter.error is not None
    assert cutter.cut(bytes(100)) == []


@pytest.mark.parametrize("offset", [0, 1, 255])
def test_a_data_offset_that_is_none_is_refused(offset: int) -> None:
    damaged = bytearray(frame(END))
    damaged[4] = offset
    (error,) = begun().receive(bytes(damaged))
    assert str(error) == f"a data offset of {offset} words at byte 4"


def test_other_performatives_pass_unread() -> None:
    for code, at in (
        list_at(b"\x00\x00\x00\x08\x02\x00\x00\x00"),
        list_at(b"\x00\x00\x00\x0b\x02\x01\x00\x00\x00\x53\x14"),
        list_at(frame(ATTACH)[:8] + b"\x00\xa3\x01x\x45"),
    ):
        assert code == -1
        assert at >= 8
    assert list_at(frame(ATTACH, head=bytes(8)))[0] == ATTACH
    long_code = frame(ATTACH)[:8] + b"\x00\x80" + bytes(7) + b"\x12\x45"
    assert list_at(long_code) == (ATTACH, 18)
    with pytest.raises(DecodeError):
        list_at(frame(ATTACH)[:8] + b"\x00\x53")


# -- what the peer sends ---------------------------------------------------


def test_an_attach_tells_what_the_peer_has_not_settled() -> None:
    entries = values.pack_map(
        [values.binary(b"t1"), NULL, values.binary(b"t2"), ACCEPTED]
    )
    whole = attach(unsettled=entries, incomplete=TRUE, source=source(ACCEPTED))
    told, passed = begun().receive(whole)
    assert passed == whole
    assert isinstance(told, Attach)
    assert told.key == (0, "mine", True)
    assert told.unsettled == {b"t1": None, b"t2": PeerOutcome(ItemOutcome.ACCEPTED)}
    assert told.incomplete
    assert (told.default_outcome, told.default_bytes) == (
        PeerOutcome(ItemOutcome.ACCEPTED),
        ACCEPTED,
    )


@pytest.mark.parametrize("given", [NULL, source(NULL), source(b"\x00\x53\x23\x45")])
def test_an_attach_without_a_default_outcome_has_none(given: bytes) -> None:
    """A position is none either."""
    told, _ = begun().receive(attach(source=given))
    assert isinstance(told, Attach)
    assert (told.default_outcome, told.unsettled, told.incomplete) == (
        None,
        None,
        False,
    )
    assert told.default_bytes == b""


@pytest.mark.parametrize(("size", "least"), [(NULL, 2**31), (values.uint(512), 0)])
def test_the_room_for_our_map_is_what_a_frame_of_the_peer_has(
    size: bytes, least: int
) -> None:
    opened = frame(OPEN, values.string("peer"), NULL, size)
    told, _ = begun(opened).receive(attach())
    assert isinstance(told, Attach)
    assert told.room >= least
    if size != NULL:
        assert told.room < 512 - len(attach())
    # A peer cannot have less than 512 bytes.
    small = frame(OPEN, NULL, NULL, values.uint(1))
    told, _ = begun(small).receive(attach("x" * 300))
    assert isinstance(told, Attach)
    assert told.room == 0


def test_a_transfer_is_told_if_it_is_resumed_or_of_another_format() -> None:
    new = begun(attach(receiver=False))
    usual = transfer(values.uint(0), FALSE, FALSE)
    assert new.receive(usual) == [usual]
    other = transfer(values.uint(5))
    assert new.receive(usual + other) == [
        usual,
        Transfer((0, "mine", False), b"t", 5, None, False),
        other,
    ]
    state = b"\x00\x53\x23" + values.pack_list([values.uint(1), values.ulong(2)])
    resumed = transfer(NULL, TRUE, TRUE, NULL, state, TRUE, TRUE)
    told = Transfer((0, "mine", False), b"t", 0, Position(1, 2), True)
    assert new.receive(resumed) == [told, resumed]


def test_a_transfer_of_a_tracked_link_is_always_told() -> None:
    new = begun(attach(receiver=False), attach("other", receiver=False, handle=1))
    new.tracked.add((0, "mine", False))
    told = Transfer((0, "mine", False), b"t", 0, None, False)
    assert new.receive(transfer()) == [told, transfer()]
    other = transfer(handle=1)
    assert new.receive(other) == [other]
    # Without a tag, it goes on; and a link that is not there is for the engine.
    rest = frame(TRANSFER, values.uint(0))
    assert new.receive(rest) == [rest]
    stray = transfer(handle=9)
    assert new.receive(stray) == [stray]
    text = frame(TRANSFER, values.uint(0), NULL, values.string("t"))
    assert new.receive(text) == [text]


def test_an_outcome_by_its_symbol_reaches_the_engine_by_its_number() -> None:
    """A symbol is as good, but the engine knows numbers only."""
    symbol = b"\x00" + values.symbol("amqp:accepted:list") + b"\x45"
    start = TRUE, values.uint(0), values.uint(0), TRUE
    new = begun()
    usual = frame(DISPOSITION, *start, ACCEPTED)
    assert new.receive(frame(DISPOSITION, *start, symbol)) == [usual]
    none = frame(DISPOSITION, *start, NULL, values.string(":list"))
    for same in (usual, none):
        assert new.receive(same) == [same]


@pytest.mark.parametrize("ending", [frame(DETACH, values.uint(0)), frame(END)])
def test_a_link_that_has_ended_is_forgotten(ending: bytes) -> None:
    key = (0, "mine", True)
    new = begun(attach(), attach("other", channel=1))
    new.tracked.add(key)
    new.answer(key, AttachAnswer(TRUE))
    new.receive(ending + frame(DETACH, values.uint(5)))
    assert not new.tracked
    ours = attach(receiver=False)
    assert new.send(HEADER + ours) == HEADER + ours
    resumed = transfer(NULL, TRUE, TRUE, NULL, NULL, TRUE)
    assert new.receive(resumed) == [resumed]
    other = transfer(NULL, TRUE, TRUE, NULL, NULL, TRUE, channel=1)
    assert len(new.receive(other)) == 2


def test_a_peer_has_a_limit_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_shim, "HANDLES_MAX", 2)
    new = begun(attach("1"), attach("2", handle=1))
    (error,) = new.receive(attach("3", handle=2))
    assert str(error).startswith("more than 2 links")


def test_a_name_is_a_string() -> None:
    (error,) = begun().receive(frame(ATTACH, values.binary(b"mine")))
    assert str(error).startswith("the name of a link is no string")


USUAL = values.uint(0), values.uint(300), values.binary(b"t")


@pytest.mark.parametrize(
    ("fields", "usual"),
    [
        ((), True),
        (USUAL[:1], True),
        (USUAL, True),
        ((*USUAL, NULL), True),
        ((*USUAL, b"\x43"), True),
        ((*USUAL, b"\x52\x00"), True),
        ((*USUAL, b"\x70\x00\x00\x00\x00", FALSE), True),
        ((*USUAL, b"\x52\x01"), False),
        ((*USUAL, b"\x70\x01\x00\x00\x00"), False),
        ((*USUAL, b"\xa1\x00"), False),
        ((*USUAL, *[NULL] * 5), True),
        ((*USUAL, *[NULL] * 6), True),
        ((*USUAL, b"\x43", *[FALSE] * 6), True),
        ((*USUAL, b"\x43", *[NULL] * 4, TRUE, FALSE), False),
        ((*USUAL, b"\x43", *[NULL] * 3, ACCEPTED, FALSE), False),
        ((values.string("x"),), False),
        ((*USUAL[:2], values.binary(bytes(300))), False),
        ((*USUAL[:2], values.binary(b"")), False),
        ((TRUE,), False),
    ],
)
def test_a_usual_transfer_is_known_at_first_sight(
    fields: tuple[bytes, ...], usual: bool
) -> None:
    whole = frame(TRANSFER, *fields)
    code, at = list_at(whole)
    assert code == TRANSFER
    tag = b"t" if len(fields) > 2 else b""
    assert usual_transfer(whole, at) == ((0, tag) if usual else None)
    assert usual_transfer(whole[: at + 1], at) is None
    assert usual_transfer(whole[:at] + b"\x45", at) is None


# -- what we send ----------------------------------------------------------


def test_our_attach_has_the_answer() -> None:
    """Once, and that of its own direction."""
    new = answering(attach(channel=7))
    written, incomplete = write_unsettled({b"t": None}, 100)
    new.answer((7, "mine", True), AttachAnswer(written, incomplete, ACCEPTED))
    new.answer((7, "other", True), AttachAnswer(written, incomplete))
    another = begin(1, values.uint(8))
    ours = attach(receiver=False, source=source(NULL))
    backwards = attach(receiver=True)
    sent = new.send(another + backwards + ours + ours)
    expected = attach(
        receiver=False, source=source(ACCEPTED), unsettled=written, incomplete=FALSE
    )
    assert sent == another + backwards + expected + ours


def test_two_links_of_one_name_get_their_own_answers() -> None:
    """One on each session: the name and the role are the same."""
    new = begun(begin(7), begin(8), attach(channel=7), attach(channel=8))
    new.answer((7, "mine", True), AttachAnswer(values.pack_map([])))
    new.answer((8, "mine", True), AttachAnswer(incomplete=True))
    begins = begin(0, values.uint(8)) + begin(1, values.uint(7))
    ours = [attach(receiver=False, channel=channel) for channel in (0, 1)]
    expected = [
        attach(receiver=False, incomplete=TRUE),
        attach(
            receiver=False, unsettled=values.pack_map([]), incomplete=FALSE, channel=1
        ),
    ]
    sent = new.send(HEADER + begins + b"".join(ours))
    assert sent == HEADER + begins + b"".join(expected)


@pytest.mark.parametrize(
    ("again", "text"),
    [
        (begin(7), "the channel 7 is in use"),
        (attach("other", channel=7), "the handle 0 is in use"),
        (attach(channel=7, handle=1), "the link 'mine' is attached on this session"),
    ],
)
def test_what_is_in_use_is_not_written_over(again: bytes, text: str) -> None:
    """A link that is written over would be found by nobody any more."""
    found = begun(begin(7), attach(channel=7)).receive(again)
    assert isinstance(found[-1], InUse)
    assert str(found[-1]).startswith(text)


def test_what_has_ended_may_be_used_again() -> None:
    new = begun(begin(7), attach(channel=7), frame(DETACH, values.uint(0), channel=7))
    new.receive(attach("other", channel=7) + frame(END, channel=7))
    parts = new.receive(begin(7) + attach(channel=7))
    assert [type(each) for each in parts] == [bytes, Attach, bytes]
    assert not isinstance(new.receive(attach(channel=8))[-1], DecodeError)


def test_our_attach_without_a_source_has_no_default_outcome() -> None:
    """It refuses the link."""
    new = answering(attach(channel=7))
    new.answer((7, "mine", True), AttachAnswer(NULL, False, ACCEPTED))
    sent = new.send(attach(receiver=False))
    fields, _ = fields_of(*_list(sent))
    assert fields[5] == NULL
    short = b"\x00\x53\x28" + values.pack_list([values.string("orders")])
    new.answer((7, "mine", True), AttachAnswer(NULL, False, ACCEPTED))
    sent = new.send(attach(receiver=False, source=short))
    fields, _ = fields_of(*_list(sent))
    assert fields[5] == source(ACCEPTED)


def _list(whole: bytes) -> tuple[bytes, int]:
    return whole, list_at(whole)[1]


@pytest.mark.parametrize(("mark", "aborted"), [(RESUMED, False), (ABORTED, True)])
def test_a_mark_of_the_tag_becomes_flags(mark: str, aborted: bool) -> None:
    """The frame gets no longer by that: it may have been as long as is possible."""
    tag = bytes(range(16)).hex().encode()
    marked = transfer(values.uint(0), FALSE, tag=tag + mark.encode())
    new = begun()
    new.send(HEADER)
    sent = new.send(marked)
    assert len(sent) <= len(marked)
    fields, end = fields_of(*_list(sent))
    assert fields[2] == values.binary(tag)
    assert fields[8:] == [TRUE, TRUE] if aborted else [TRUE]
    assert sent[end:] == b"payload"


def test_a_mark_elsewhere_is_none() -> None:
    new = begun()
    payload = RESUMED.encode()
    fields = values.uint(0), values.uint(7), values.binary(b"t")
    whole = frame(TRANSFER, *fields, payload=payload)
    note = frame(DISPOSITION, values.string(RESUMED))
    assert new.send(HEADER + whole + note) == HEADER + whole + note


def test_a_frame_can_be_rewritten_without_changes() -> None:
    whole = transfer()
    assert rewritten(whole, list_at(whole)[1], {}) == whole
