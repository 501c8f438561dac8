"""The bad link: only its seed decides its effects, and its counts are true."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.testing.link import Fate, Link

probabilities = st.floats(0, 1)


def test_a_link_without_faults_passes_everything_on_at_once() -> None:
    link = Link(1)
    fates = {link.fate() for _ in range(100)}
    assert fates == {Fate(lost=False, copies=1, delay_s=0.0, cut=False)}
    assert link.counts.stanzas == 100
    assert link.counts.lost == link.counts.duplicated == 0
    assert link.counts.delayed == link.counts.cut == 0


@given(st.integers() | st.text(), probabilities, probabilities, probabilities)
def test_the_same_seed_gives_the_same_fates_and_the_counts_tell_them(
    seed: int | str, loss: float, duplicate: float, cut: float
) -> None:
    one, two = (
        Link(seed, loss=loss, duplicate=duplicate, delay_s=(0.1, 0.2), cut=cut)
        for _ in range(2)
    )
    fates = [one.fate() for _ in range(50)]
    assert fates == [two.fate() for _ in range(50)]
    assert one.counts == two.counts
    assert one.counts.stanzas == 50
    assert one.counts.lost == sum(fate.lost for fate in fates)
    assert one.counts.duplicated == sum(fate.copies == 2 for fate in fates)
    assert one.counts.delayed == sum(fate.delay_s > 0 for fate in fates)
    assert one.counts.cut == sum(fate.cut for fate in fates)
    for fate in fates:
        assert fate.copies == 0 if fate.lost else fate.copies in (1, 2)
        assert fate.delay_s == 0 if fate.lost else 0.1 <= fate.delay_s <= 0.2


@pytest.mark.parametrize("name", ["loss", "duplicate", "cut"])
def test_probabilities_come_out_about_right(name: str) -> None:
    link = Link(7, **{name: 0.1})  # type: ignore[arg-type]  # one name at a time
    for _ in range(10_000):
        link.fate()
    count = {"loss": "lost", "duplicate": "duplicated", "cut": "cut"}[name]
    assert 900 < getattr(link.counts, count) < 1100


def test_one_probability_does_not_shift_the_luck_of_another() -> None:
    """Thus a test can increase the loss and keep its cuts at the same places."""
    calm, lossy = Link(3, cut=0.1), Link(3, cut=0.1, loss=0.5)
    assert [calm.fate().cut for _ in range(200)] == [
        lossy.fate().cut for _ in range(200)
    ]


def test_a_cut_takes_the_stanza_with_it_about_every_other_time() -> None:
    link = Link(4, cut=1.0)
    fates = [link.fate() for _ in range(1000)]
    assert all(fate.cut for fate in fates)
    assert 400 < sum(fate.lost for fate in fates) < 600


def test_certain_loss_leaves_nothing_to_duplicate_or_delay() -> None:
    link = Link(5, loss=1.0, duplicate=1.0, delay_s=(1.0, 2.0))
    assert link.fate() == Fate(lost=True, copies=0, delay_s=0.0, cut=False)


@pytest.mark.parametrize("name", ["loss", "duplicate", "cut"])
@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_an_impossible_probability_is_named(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=name):
        Link(1, **{name: bad})  # type: ignore[arg-type]  # one name at a time


@pytest.mark.parametrize(
    "bad", [(-1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)]
)
def test_an_impossible_delay_is_named(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="delay_s"):
        Link(1, delay_s=bad)
