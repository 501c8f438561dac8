"""The pace of a benchmark: messages in flight and their times, as for every row."""

import asyncio
import threading
import time
from array import array
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from benchmarks.pace import Window
from benchmarks.sample import BenchFailed, Sample
from benchmarks.times import pack, sample_of, unpack
from benchmarks.usage import Watch
from qos.bench.pace import Times, keep_in_flight

#: How long a message takes, on a clock of which a message alone takes time.
ENDS_S = 1.0

Form = Callable[..., Awaitable[tuple[Times, int]]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the figures is that of the loop, which looptime turns."""

    def now() -> float:
        return asyncio.get_running_loop().time()

    for module in ("benchmarks.pace", "qos.bench.pace"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=now))


async def called_back(
    window: int, seconds: float, pause_s: float = 0.0
) -> tuple[Times, int]:
    """By a library that calls back."""
    loop = asyncio.get_running_loop()
    flying = most = 0

    def give(number: int) -> None:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        loop.call_later(ENDS_S, end, number)

    def end(number: int) -> None:
        nonlocal flying
        flying -= 1
        pace.ended(number)

    pace = Window(give, window=window, seconds=seconds, pause_s=pause_s)
    return await pace.run(), most


async def awaited(
    window: int, seconds: float, pause_s: float = 0.0
) -> tuple[Times, int]:
    """By one that is awaited."""
    flying = most = 0

    async def one(_number: int) -> None:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(ENDS_S)
        flying -= 1

    times = await keep_in_flight(one, window=window, seconds=seconds, pause_s=pause_s)
    return times, most


@pytest.mark.looptime
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("form", [called_back, awaited])
async def test_a_window_is_always_under_way_until_the_time_is_over(form: Form) -> None:
    """And never more: otherwise rows at one window would not be comparable."""
    times, most = await form(3, 20)
    assert most == 3
    first = times.given[0]
    given = [round(each - first, 3) for each in times.given]
    assert given == [number for number in range(20) for _ in range(3)]
    for began, ended in zip(times.given, times.ended, strict=True):
        assert ended - began == pytest.approx(ENDS_S)


@pytest.mark.looptime
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("form", [called_back, awaited])
async def test_between_two_messages_there_is_the_pause(form: Form) -> None:
    """Otherwise the link would not be idle."""
    times, most = await form(1, 30, pause_s=3)
    assert most == 1
    first = times.given[0]
    assert [round(each - first, 3) for each in times.given] == [*range(0, 29, 4)]


async def test_a_window_takes_ends_from_any_thread() -> None:
    """paho calls back in its own thread, while the first messages are being given."""
    asked: list[int] = []
    more, over = threading.Semaphore(0), threading.Event()

    def give(number: int) -> None:
        asked.append(number)
        more.release()

    pace = Window(give, window=50, seconds=0.05)

    def end_all() -> None:
        while True:
            more.acquire()
            if over.is_set():
                return
            pace.ended(asked.pop())

    threads = [threading.Thread(target=end_all, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    times = await pace.run()
    over.set()
    more.release(2)
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(times.given) >= 50
    sample = sample_of(times.given, times.ended, Watch({}))
    assert sample.messages == len(times.given)


async def test_what_fails_ends_the_window() -> None:
    """A wrong answer must not be counted, nor waited for."""
    pace = Window(lambda _: pace.failed(ValueError("wrong")), window=2, seconds=60)
    with pytest.raises(ValueError, match="wrong"):
        await pace.run()


def test_a_sample_is_of_all_messages_from_the_first_to_the_last() -> None:
    """The order of the ends does not matter."""
    given, ended = array("d", [1.0, 1.5, 2.0]), array("d", [4.0, 2.0, 2.25])
    found = sample_of(given, ended, Watch({}), {"stanzas": 6})
    assert found == Sample(
        messages=3, seconds=3.0, p50_s=0.5, p99_s=3.0, p999_s=3.0, stanzas=6
    )


def test_a_message_that_has_not_ended_is_an_error() -> None:
    """It is easy to be fast and to leave something out."""
    times = Times()
    times.end(times.begin())
    times.begin()
    with pytest.raises(BenchFailed, match=r"^2 messages were given, and 1 have ended$"):
        sample_of(times.given, times.ended, Watch({}))
    with pytest.raises(BenchFailed, match=r"^0 messages were given"):
        sample_of(array("d"), array("d"), Watch({}))


def test_times_are_the_same_in_another_process() -> None:
    """To the last bit: a latency is a small difference of two of them."""
    times = array("d", [time.monotonic(), 0.1, 1e9])
    assert unpack(pack(times)) == times
