"""Deliberate faults on slow links and bad addresses; a test finds each."""

from __future__ import annotations

from simulation.mutant import Mutant

__all__ = ["LINKS"]

_UPLINK = "engine/test_uplink.py::test_"

LINKS = (
    Mutant(
        "repeats-behind-the-first-copy",
        "qos.engine.uplink",
        "        copy, now = message.copy, self._clock.now()\n"
        "        if copy is None:\n",
        "        copy, now = message.copy, self._clock.now()\n"
        "        if copy is None or copy.transmit is None:\n",
        "Nothing is repeated that the server has not read.",
        test=f"{_UPLINK}nothing_is_repeated_that_the_server_has_not_read",
    ),
    Mutant(
        "no-window-of-bytes",
        "qos.core.message.flow",
        "return self.used == 0 or self.used + size <= self.limit",
        "return True",
        "A small message does not wait behind a large backlog.",
        test=f"{_UPLINK}a_small_message_does_not_wait_behind_a_large_backlog",
    ),
    Mutant(
        "a-resumption-makes-due",
        "qos.engine.in_flight",
        "            elif message.copy is None:\n"
        "                self.feed(message, SenderInput.WAKE)\n",
        "            elif True:\n"
        "                self._uplink.forget(message)\n"
        "                self.feed(message, SenderInput.WAKE)\n",
        "A resumed session repeats nothing by itself.",
        test=f"{_UPLINK}a_resumed_session_repeats_nothing_by_itself",
    ),
    Mutant(
        "who-has-left-is-gone",
        "xep_qos.discovery",
        "        if not present and (last := self._left_last(record.to, record.sender)):\n",
        "        if not present and (last := ''):\n",
        "A resource that answers is found, though its presence is lost or came too early.",
        test="xep_qos/test_discovery.py::"
        "test_a_resource_that_answers_is_found_though_its_presence_is_not",
    ),
    Mutant(
        "no-time-for-the-bytes-ahead",
        "qos.core.message.flow",
        "return min(self._max_s, usual_s) + max(0, ahead - SMALL_BYTES) / self._rate",
        "return min(self._max_s, usual_s)",
        "A large message over the slow link of its peer is sent once.",
        test=f"{_UPLINK}large_messages_go_over_a_slow_link_once",
    ),
    Mutant(
        "what-never-left-may-have-arrived",
        "qos.engine.in_flight",
        "        if self._overdue(message):\n            if self._uplink.waits(message):\n",
        "        if self._overdue(message):\n            if False:\n",
        "What ends before it has left ends without doubt.",
        test=f"{_UPLINK}what_never_left_ends_without_doubt",
    ),
    Mutant(
        "a-suspect-goes-first-again",
        "qos.engine.uplink",
        "if self._sizes.careful and self._hold(message, transmit, now):",
        "if False:",
        "A stanza that may have ended a stream is sent last, and alone.",
        by=("a_suspect_goes_alone",),
        seed=-5,
    ),
    Mutant(
        "a-limit-is-not-learned",
        "qos.core.stanza_sizes",
        "if self.careful and largest.size >= self._suspected:",
        "if False:",
        "A stanza that has ended two streams is not sent again.",
        by=("few_streams_end",),
        seed=-5,
    ),
    Mutant(
        "an-end-is-not-kept",
        "qos.core.stanza_sizes",
        "        else:\n            self.careful = True\n",
        "        else:\n            self.careful = False\n",
        "A process that is killed between two ends of streams goes on where it was.",
        test="engine/test_stanza_that_ends_the_stream.py::"
        "test_a_process_that_is_killed_between_two_ends_does_not_begin_anew",
    ),
    Mutant(
        "one-address-at-a-time",
        "qos.stream.dialer",
        "timeout=beside_s if waiting else None,",
        "timeout=None,",
        "An address that swallows everything hides no other.",
        test="stream/test_dialer.py::test_one_that_accepts_and_says_nothing_hides_no_other",
    ),
    Mutant(
        "all-come-back-together",
        "qos.core.reconnects",
        "return self._jitter() * min(",
        "return 0.9 * min(",
        "Devices that a server has lost come back spread.",
        test="core/test_reconnects.py::"
        "test_devices_that_a_server_has_lost_come_back_spread",
    ),
    Mutant(
        "only-an-answer-is-life",
        "qos.stream.keepalive",
        "silent_s = 0.0 if acked > before else silent_s + min(since_s, 2 * step_s)",
        "silent_s += min(since_s, 2 * step_s)",
        "A large message that leaves slowly does not end the session.",
        test="live/test_keepalive.py::test_a_large_message_that_leaves_slowly_is_life",
    ),
    Mutant(
        "any-depth-is-read",
        "qos.stream.parser",
        "if len(self._open) > DEPTH_MAX:",
        "if len(self._open) > 10**9:",
        "A stanza that is nested too deeply ends alone, and not the stream.",
        test="stream/test_parser.py::"
        "test_a_stanza_that_is_too_deep_is_emptied_and_no_other",
    ),
    Mutant(
        "any-address-is-handed-over",
        "qos.stream.gate",
        "if self._open and not is_known and not refusals.admits(xml):",
        "if False:",
        "A stanza from an address that slixmpp cannot read is refused.",
        test="stream/test_refusals.py::"
        "test_a_request_with_an_address_that_is_none_is_answered",
    ),
    Mutant(
        "refused-is-not-received",
        "qos.stream.refusals",
        "        management.received()\n",
        "",
        "What was received is counted for XEP-0198, whatever becomes of it.",
        test="stream/test_refusals.py::test_a_stanza_that_was_cut_is_counted",
    ),
    Mutant(
        "plain-messages-wait-without-a-bound",
        "xep_qos.endpoint",
        "if self._plain_waiting >= _PLAIN_WAITING_MAX:",
        "if False:",
        "At level unacknowledged a bounded number of messages waits for a session.",
        test="xep_qos/test_plugin.py::"
        "test_plain_messages_wait_for_a_session_up_to_a_bound",
    ),
)
