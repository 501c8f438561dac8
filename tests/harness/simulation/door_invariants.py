"""The invariants of the doors: one function each, whose docstring is the rule.

Each returns None, or the problem.
"""

from __future__ import annotations

from collections.abc import Collection

from qos.core.queue.selector_time import ACCOUNT_S

__all__ = [
    "a_connection_stays",
    "a_dear_selector_is_given_up",
    "a_link_ends_with_its_connection",
    "a_name_belongs_to_its_account",
    "a_name_is_attached_once",
    "a_refused_attach_ends_nothing",
    "a_turn_ends",
    "accepted_is_in_its_node",
    "facts_of_a_contact_stay",
    "honest_are_answered",
    "its_own_list_counts",
    "no_stranger_is_asked",
    "nothing_fails",
    "nothing_of_a_stranger_is_kept",
    "nothing_of_a_stranger_is_read",
    "tables_of_strangers_are_bounded",
]

#: Seconds in which an honest request is answered, whatever the hostile do.
HONEST_S_MAX = 0.25

#: Seconds of a turn, and of what may come before its end is seen.
_TURN_S_MAX = 0.005


def honest_are_answered(what: str, waited_s: float, bound_s: float) -> str | None:
    """An honest request is answered within a bound, whatever hostile payers do."""
    if waited_s <= bound_s:
        return None
    return f"{what} waited {waited_s:.3f} s, not {bound_s:g} s"


def a_turn_ends(late_s: float, step_s: float) -> str | None:
    """A turn of the event loop ends after 5 ms, and the step that it is in."""
    bound_s = _TURN_S_MAX + 2 * step_s
    if late_s <= bound_s:
        return None
    return f"a timer was {late_s:.3f} s late, not {bound_s:g} s"


def a_connection_stays(who: str, closed: bool) -> str | None:
    """A connection whose peer keeps to the standard is not ended."""
    return f"the connection of {who} was ended" if closed else None


def a_dear_selector_is_given_up(taken_s: float, evaluation_s: float) -> str | None:
    """The selectors of one account take a second in all, and are given up then."""
    bound_s = 1.25 * ACCOUNT_S + evaluation_s
    if taken_s <= bound_s:
        return None
    return f"selectors have taken {taken_s:.3f} s, not {bound_s:g} s"


def nothing_fails(error: BaseException) -> str | None:
    """No callback of the event loop fails."""
    return f"{type(error).__name__}: {error}"


def nothing_of_a_stranger_is_read(content: bytes) -> str | None:
    """No message is read whose publisher has no right."""
    return f"the message of a stranger was read: {content!r}"


def accepted_is_in_its_node(item: str, node: str, nodes: Collection[str]) -> str | None:
    """A message that was accepted is in the node of its own link, and in no other."""
    if set(nodes) == {node}:
        return None
    return f"{item} was accepted for {node}, and is in {sorted(nodes)}"


def a_name_is_attached_once(name: str, links: int) -> str | None:
    """A name is attached once to a connection: a second link steals the first."""
    return None if links <= 1 else f"{links} links of the name {name!r} are attached"


def a_refused_attach_ends_nothing(name: str, ended: int) -> str | None:
    """An attach that is refused ends no other link of its name."""
    return f"a refused attach of {name!r} has ended {ended} links" if ended else None


def a_link_ends_with_its_connection(subscribed: Collection[str]) -> str | None:
    """Nothing is left of links whose connection is gone."""
    return f"{sorted(subscribed)} are still subscribed" if subscribed else None


def a_name_belongs_to_its_account(name: str, creator: str) -> str | None:
    """The name of a subscription is created by its own account only."""
    return None if creator in name else f"{name} was created by {creator}"


def no_stranger_is_asked(to: str, what: str) -> str | None:
    """Presence of a stranger draws no stanza of ours, and no question before others."""
    return f"{what} was sent to {to}"


def nothing_of_a_stranger_is_kept(stranger: str, kept: Collection[str]) -> str | None:
    """Presence of a stranger is in no table that is for contacts."""
    return f"{sorted(kept)} are kept, after presence of {stranger}" if kept else None


def tables_of_strangers_are_bounded(what: str, size: int, bound: int) -> str | None:
    """What is remembered of strangers, for whom we may be about to write to, is little."""
    return None if size <= bound else f"{size} {what} of strangers, not {bound}"


def facts_of_a_contact_stay(jid: str, kept: object, true: object) -> str | None:
    """What is known of a contact is what it has sent last, whatever strangers send."""
    return None if kept == true else f"of {jid} is known {kept}, not {true}"


def its_own_list_counts(jid: str, has_answered: bool) -> str | None:
    """A contact gets a message when it has sent its list of features itself."""
    return None if has_answered else f"{jid} gets a message, and has sent no list"
