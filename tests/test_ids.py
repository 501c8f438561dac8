"""Ids: an attacker who could guess one could answer for another peer."""

from __future__ import annotations

import os
import re
import threading

from qos.ids import new_id


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
