"""The wait of a consumer: three headers, one meaning."""

import pytest

from qos.core.queue.requests import Refusal
from qos.core.rest.waits import WAIT_S_MAX, Wait, wait_of


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, Wait(0)),
        ({"x-rs-wait": "5"}, Wait(5)),
        ({"accept-wait": " 5 "}, Wait(5)),
        ({"prefer": "wait=5"}, Wait(5, "wait=5")),
        ({"prefer": 'respond-async; x="a,wait=1", WAIT = "7"; y'}, Wait(7, "wait=7")),
        ({"prefer": "wait=1, wait=2", "x-rs-wait": "3"}, Wait(1, "wait=1")),
        ({"prefer": "return=minimal", "x-rs-wait": "3"}, Wait(3)),
        ({"prefer": "", "accept-wait": "4", "x-rs-wait": "3"}, Wait(4)),
        ({"x-rs-wait": "999999999"}, Wait(WAIT_S_MAX)),
        ({"prefer": "wait=61"}, Wait(WAIT_S_MAX, f"wait={WAIT_S_MAX}")),
        ({"prefer": "wait=0"}, Wait(0, "wait=0")),
    ],
)
def test_a_wait_is_in_whole_seconds_and_has_an_end(
    headers: dict[str, str], wait: Wait
) -> None:
    assert wait_of(headers) == wait


def test_the_longest_wait_ends_before_a_proxy_does() -> None:
    """nginx gives up after 60 s, and haproxy with Debian's configuration after 50 s."""
    longest = wait_of({"prefer": "wait=60"})
    assert longest == Wait(WAIT_S_MAX, f"wait={WAIT_S_MAX}")
    assert longest.seconds < 50


def test_a_part_of_a_wait_may_be_over() -> None:
    wait = Wait(5, "wait=5")
    assert wait.after(0.9) == wait
    assert wait.after(2.5) == Wait(3, "wait=5")
    assert wait.after(5.0) == wait.after(99.0) == Wait(0, "wait=5")


@pytest.mark.parametrize("name", ["prefer", "x-rs-wait", "accept-wait"])
@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "1e3", "٣", "9" * 10])
def test_another_wait_is_refused(name: str, value: str) -> None:
    text = f"wait={value}" if name == "prefer" else value
    with pytest.raises(Refusal, match="whole seconds are expected") as caught:
        wait_of({name: text})
    assert caught.value.condition == "bad-request"


def test_a_preference_without_a_value_is_no_number() -> None:
    with pytest.raises(Refusal, match="Prefer: wait: whole seconds"):
        wait_of({"prefer": "wait"})
