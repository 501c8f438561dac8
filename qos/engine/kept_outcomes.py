"""The outcomes that an outbox keeps, of messages that have ended, until they are old."""

from __future__ import annotations

from collections.abc import Callable

from qos.core.message.model import Ended
from qos.engine.clock import Clock, Timers
from qos.stores.base import ForgetEnded, Store

__all__ = ["KeptOutcomes"]

#: How often outcomes that are not to be kept any more are looked for, in seconds. They
#: are looked for earlier after _KEPT_MIN ended messages, or a quarter of those to be
#: kept if that is more.
_FORGET_EVERY_S = 600.0
_KEPT_MIN = 256


class KeptOutcomes:
    """The outcomes in a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        messages: int,
        ttl_s: float,
        next_seq: Callable[[], int],
    ) -> None:
        """Begin with the outcomes that earlier processes have left.

        Args:
            store: of the outbox.
            clock: the time.
            messages: the number of messages, of those accepted last, whose outcomes are
                kept; 0: none.
            ttl_s: how long outcomes are kept.
            next_seq: the number of the next message.
        """
        self._store = store
        self._clock = clock
        self._messages = messages
        self._ttl_s = ttl_s
        self._next_seq = next_seq
        self._timers: Timers[None] = Timers(clock, self._forget)
        self._stopped = False
        # The first message that ends also removes what earlier processes have left:
        # perhaps none of them ran for long enough.
        self._kept = self._kept_max = max(_KEPT_MIN, messages // 4)

    def last(self, msg_id: str) -> Ended | None:
        """The end of a message; None: it is not known.

        Of several messages with this id, the one accepted last.
        """
        since = self._clock.now() - self._ttl_s
        ends = [end for end in self._store.ended(msg_id) if end.ended_at > since]
        return ends[-1] if ends else None

    def find(self, msg_id: str) -> Ended | None:
        """The end of a message that was accepted with a digest; None: it is not known."""
        end = self._store.find_ended(msg_id)
        since = self._clock.now() - self._ttl_s
        return end if end is not None and end.ended_at > since else None

    def add(self) -> None:
        """Count an ended message.

        Outcomes that are too old or too many go in batches.
        """
        self._kept += 1
        if self._kept > self._kept_max:
            self._forget(None)
            self._kept = 1
        if self._kept == 1:
            self._timers.set(None, self._clock.now() + _FORGET_EVERY_S)

    def stop(self) -> None:
        """Forget nothing more."""
        self._stopped = True
        self._timers.stop()

    def _forget(self, _key: None) -> None:
        """Remove the outcomes that are too old, or too many."""
        self._kept = 0
        self._timers.clear(None)
        if self._stopped:
            return
        before = self._clock.now() - self._ttl_s
        below = self._next_seq() - self._messages
        write = self._store.write((ForgetEnded(before=before, below=below),))
        if write is not None:
            # It is tried again with the next ended message.
            write.add_done_callback(lambda future: future.exception())
