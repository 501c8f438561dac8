"""The order of what may have ended a stream: last, alone, the smallest first."""

from __future__ import annotations

from qos.core.suspects import PATIENCE_S, Suspects

NOW = 1_000.0


def held(*sizes: int) -> Suspects[str]:
    suspects: Suspects[str] = Suspects()
    for size in sizes:
        suspects.add(size, f"of {size}", NOW)
    return suspects


def ask(
    suspects: Suspects[str],
    now: float = NOW,
    *,
    unread: bool = False,
    other_work: bool = False,
) -> str | None:
    return suspects.next(now, unread=unread, other_work=other_work)


def test_nothing_is_next_where_nothing_is_held() -> None:
    suspects = held()
    assert ask(suspects) is None
    assert not suspects.alone


def test_a_suspect_goes_when_the_others_have_been_answered() -> None:
    suspects = held(5)
    assert ask(suspects, unread=True, other_work=True) is None
    assert not suspects.alone
    assert ask(suspects) == "of 5"
    assert suspects.alone


def test_a_suspect_goes_alone() -> None:
    """When it is its turn, the others wait until it has been read."""
    suspects = held(5, 6)
    assert ask(suspects, unread=True) is None
    assert suspects.alone
    assert ask(suspects) == "of 5"
    assert ask(suspects) is None
    assert suspects.read(NOW) == 5
    assert not suspects.alone
    assert ask(suspects) == "of 6"


def test_the_smallest_goes_first() -> None:
    """If the smallest ends a stream, all that are larger do."""
    suspects = held(7, 5, 9, 5)
    order = []
    while suspects.held:
        order.append(ask(suspects))
        suspects.read(NOW)
    assert order == ["of 5", "of 5", "of 7", "of 9"]


def test_others_without_an_end_keep_a_suspect_waiting_for_a_while_only() -> None:
    suspects = held(5, 6)
    late = NOW + PATIENCE_S
    assert ask(suspects, late - 0.1, other_work=True) is None
    assert ask(suspects, late, other_work=True, unread=True) is None
    assert suspects.alone
    assert ask(suspects, late, other_work=True) == "of 5"
    suspects.read(late)
    # Then the others have their time again.
    assert ask(suspects, late + PATIENCE_S - 0.1, other_work=True) is None
    assert ask(suspects, late + PATIENCE_S, other_work=True) == "of 6"


def test_one_that_is_no_suspect_any_more_waits_no_longer() -> None:
    suspects = held(5, 7, 9)
    assert suspects.cleared(lambda size: size > 7) == ["of 5", "of 7"]
    assert suspects.cleared(lambda size: size > 7) == []
    assert [size for size, _ in suspects.held] == [9]
    assert ask(suspects, unread=True) is None
    assert suspects.cleared(lambda _: False) == ["of 9"]
    assert not suspects.alone


def test_the_one_on_its_way_stays_alone_though_the_others_are_cleared() -> None:
    suspects = held(5, 7)
    assert ask(suspects) == "of 5"
    assert suspects.cleared(lambda _: False) == ["of 7"]
    assert suspects.alone


def test_a_new_session_begins_without_any() -> None:
    suspects = held(5, 7)
    ask(suspects)
    suspects.started()
    assert (suspects.held, suspects.alone) == ([], False)
    assert ask(suspects) is None
