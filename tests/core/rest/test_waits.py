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
def test_a_wait_is_in_whole_seconds_and_at_most_a_minute(
    headers: dict[str, str], wait: Wait
) -> None:
    assert wait_of(headers) == wait


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
