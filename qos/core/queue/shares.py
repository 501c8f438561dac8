"""The rule by which accounts share what a node has only so much of.

Whoever comes first does not take everything: an account may have half of what the others
have left, so that there is always something for the next one. An owner of the node gets in
even if nothing is left, since the node is there for him, up to half of everything.
"""

from __future__ import annotations

__all__ = ["OWNERS_MAX", "has_room"]

#: So many times the bound there may be of a thing, with what only owners may still have.
OWNERS_MAX = 2


def has_room(own: int, total: int, most: int, *, owner: bool = False) -> bool:
    """Whether an account may have one more.

    Args:
        own: how many it has.
        total: how many all accounts have, this one too.
        most: the bound for all.
        owner: the account owns the node.
    """
    if owner and own < most // 2 and total < OWNERS_MAX * most:
        return True
    remainder = most - (total - own)
    # Rounded up: the last one is somebody's.
    return total < most and own < (remainder + 1) // 2
