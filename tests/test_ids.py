"""Ids: an attacker who could guess one could answer for another peer."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time

from qos.ids import new_id, new_key


def test_no_id_is_given_twice_whichever_thread_asks() -> None:
    """Two messages under one id would be the same message for their receiver."""
    given: list[str] = []

    def take() -> None:
        given.extend([new_id() for _ in range(2000)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == len(given) == 8000
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in given)


def test_keys_grow_with_time_and_are_never_the_same_twice() -> None:
    """So a table of a million messages takes a new one at its end."""
    given = []
    for _ in range(20):
        given.append([new_key() for _ in range(50)])
        time.sleep(0.001)
    flat = [key for keys in given for key in keys]
    assert len(set(flat)) == len(flat)
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in flat)
    assert all(max(a)[:12] <= min(b)[:12] for a, b in itertools.pairwise(given))
    assert given[0][0][:12] < given[-1][0][:12]


def test_behind_its_time_a_key_is_random() -> None:
    """Nobody can guess the ids of others."""
    before = time.time_ns() // 1_000_000
    key = new_key()
    assert before <= int(key[:12], 16) <= time.time_ns() // 1_000_000
    assert len({new_key()[12:] for _ in range(1_000)}) == 1_000


def test_a_child_process_gives_other_ids_than_its_parent() -> None:
    """Ids drawn in advance would be in both processes after a fork."""
    new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(new_id() for _ in range(300)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = set(pipe.read().split())
    os.waitpid(child, 0)
    ours = {new_id() for _ in range(300)}
    assert len(theirs) == len(ours) == 300
    assert not theirs & ours
