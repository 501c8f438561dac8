"""A bad network: a seed decides what happens to each stanza.

It only decides, without I/O and without a clock. So one link serves both the embedded
server and tests in memory.
"""

import random
from dataclasses import dataclass

from qos import arguments
from qos.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one stanza.

    Deliver ``copies`` of it (0 if it is lost) after ``delay_s``. If ``cut``, the
    receiver's connection ends as soon as this has been decided. A stanza that is not
    lost is handed over before the cut, so it may be its answer that gets lost.
    """

    lost: bool
    copies: int
    delay_s: float
    cut: bool


@dataclass(slots=True)
class LinkCounts:
    """The counts of a link so far; one stanza may count in several of them."""

    stanzas: int = 0
    lost: int = 0
    duplicated: int = 0
    delayed: int = 0
    cut: int = 0


class Link:
    """A seeded bad link: the same seed gives the same fates.

    Args:
        seed: Decides everything. What happens to the n-th stanza in one respect does
            not depend on the other probabilities, so a test can change one of them
            alone.
        loss: Probability that a stanza is lost.
        duplicate: Probability that a stanza that is not lost arrives twice.
        delay_s: Shortest and longest delay, evenly distributed. Different ones change
            the order.
        cut: Probability that the receiver's connection ends. Half of the cuts lose the
            stanza too.

    Raises:
        ValueError: A probability is outside 0 to 1, or a delay is negative or not
            finite, or the longest delay is below the shortest.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        delay_s: tuple[float, float] = (0.0, 0.0),
        cut: float = 0.0,
    ) -> None:
        is_seed = isinstance(seed, int | str)
        if isinstance(seed, bool) or not is_seed:
            raise InvalidArgument("seed", seed, "a whole number or a string")
        for name, value in (("loss", loss), ("duplicate", duplicate), ("cut", cut)):
            arguments.number(name, value, least=0.0, most=1.0)
        is_pair = isinstance(delay_s, tuple | list)
        if not is_pair or len(delay_s) != 2:
            raise InvalidArgument("delay_s", delay_s, "(shortest, longest)")
        shortest, longest = delay_s
        arguments.number("delay_s", shortest, least=0.0)
        arguments.number("delay_s", longest, least=shortest)
        self.counts = LinkCounts()
        self._random = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self._loss = loss
        self._duplicate = duplicate
        self._delay_s = delay_s
        self._cut = cut

    def fate(self) -> Fate:
        """Decide, and count, the fate of the next stanza."""
        # Always the same number of draws, so that one probability never changes
        # another's results.
        draw = self._random.random
        lost, duplicated, wait, cut, lost_in_cut = (
            draw() < self._loss,
            draw() < self._duplicate,
            draw(),
            draw() < self._cut,
            draw() < 0.5,
        )
        lost = lost or (cut and lost_in_cut)
        shortest, longest = self._delay_s
        fate = Fate(
            lost=lost,
            copies=0 if lost else 1 + duplicated,
            delay_s=0.0 if lost else shortest + wait * (longest - shortest),
            cut=cut,
        )
        self.counts.stanzas += 1
        self.counts.lost += fate.lost
        self.counts.duplicated += fate.copies > 1
        self.counts.delayed += fate.delay_s > 0
        self.counts.cut += fate.cut
        return fate
