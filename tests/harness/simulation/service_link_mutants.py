"""Deliberate faults about what the connection of the queue service has lost."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["SERVICE_LINK"]

_LINK = "engine/test_queue_link.py::test_"
_LOCKS = "worker/test_locks.py::test_"

SERVICE_LINK = (
    Mutant(
        "a-lock-runs-while-the-service-is-down",
        "qos.engine.queue_engine",
        "self._link.lost(now if heard_at is None else min(heard_at, now))",
        "self._link.lost(now)",
        "The time in which there was no service is nobody's.",
        by=("a_lock_lasts_while_nothing_is_heard",),
        seed=35,
    ),
    Mutant(
        "a-commit-is-a-worker-that-is-heard",
        "qos.engine.queue_engine",
        "heard_at = self._link.heard_at(now - self._port.silent_s())",
        "heard_at = now",
        "What a service writes without its connection shortens no lock.",
        test=f"{_LINK}a_service_that_ends_without_its_connection_takes_nothing",
    ),
    Mutant(
        "a-silence-is-heard",
        "qos.engine.queue_engine",
        "heard_at = self._link.heard_at(now - self._port.silent_s())",
        "heard_at = self._link.heard_at(now)",
        "A silence before the end of a service is no time of its workers.",
        test=f"{_LINK}a_service_that_ends_in_a_silence_takes_nothing",
    ),
    Mutant(
        "it-is-not-noted-that-workers-are-heard-again",
        "qos.engine.queue_engine",
        """        self._seen_at = -math.inf
        self._commit.outputs""",
        "        self._commit.outputs",
        "What was lost is given back once, over two processes too.",
        test=f"{_LINK}what_was_given_back_is_not_given_back_again",
    ),
    Mutant(
        "a-lost-connection-counts",
        "qos.core.queue.link_time",
        "if not needs_link(item.holder) or item.deadline <= self._heard_at:",
        "if item.deadline <= now:",
        "No lock of an XMPP worker ends while the service cannot hear it.",
        by=("a_lock_lasts_while_nothing_is_heard", "only_failures_are_counted"),
        seed=3,
    ),
    Mutant(
        "what-was-lost-is-not-given-back",
        "qos.core.queue.item_lifecycle",
        "    lost_s = now - max(since, item.locked_at)\n",
        "    lost_s = 0.0\n",
        "After a lost connection of the service as much of a lock is left as before.",
        by=("a_lock_lasts_while_nothing_is_heard", "only_failures_are_counted"),
        seed=65,
    ),
    Mutant(
        "a-gateway-is-not-heard-either",
        "qos.core.queue.link_time",
        "    return not is_consumer_jid(holder)\n",
        "    return True\n",
        "The lock of a consumer of a gateway runs on meanwhile.",
        test=f"{_LINK}a_consumer_of_a_gateway_is_heard_meanwhile",
    ),
    Mutant(
        "silence-is-a-loss",
        "qos.core.queue.link_time",
        "elif now - self._doubted_at > self._answer_s and not self._stalls:",
        "elif now > self._doubted_at and not self._stalls:",
        "A worker that died does not keep its item on a quiet connection.",
        test=f"{_LINK}nobody_who_is_silent_keeps_an_item_on_a_quiet_connection",
    ),
    Mutant(
        "a-slow-connection-stalls-for-ever",
        "qos.core.queue.link_time",
        "            self._answer_s = min(max(answer_s, _ANSWER_S_MIN), _ANSWER_S_MAX)\n",
        "",
        "The limit of a sign of life follows the round trip.",
        test=f"{_LINK}nobody_who_is_silent_keeps_an_item_on_a_slow_connection",
    ),
    Mutant(
        "a-worker-does-not-believe-its-server",
        "qos.worker.leases",
        "            self._deadlines[job] += more_s\n",
        "",
        "A job outlasts the absence of its service.",
        test=f"{_LOCKS}a_job_outlasts_the_absence_of_its_service",
    ),
)
