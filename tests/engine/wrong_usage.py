"""A command with wrong usage, as its tests run it."""

import pytest

from qos.cli import main

#: Characters of a line of a help text.
WIDTH_MAX = 94


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command with wrong usage; return its one line on stderr."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xmpp-qos: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err
