"""Wrong usage of the makers' benchmarks, refused before anything is started.

A row: the words, and a part of the one line that is printed.
"""

from pathlib import Path

import pytest

from benchmarks.__main__ import main

NAMED = ("--jid", "a@localhost", "--host", "127.0.0.1", "--tls", "off")

MESSAGES = [
    (("speed",), "'speed'"),
    (("--levels", "sure"), "'sure'"),
    (("--stores", "redis"), "'redis'"),
    (("--windows", "0"), "'0' is not a whole number from 1"),
    (("--windows", "1", "many"), "'many' is not a whole number"),
    (("--sizes", "300000"), "'300000' is not a whole number from 1 to 200000"),
    (("--seconds", "0"), "'0' is not a time in seconds"),
    (("--repeat", "0"), "'0' is not a whole number from 1"),
    (("--plot", "no/p.svg"), "there is no folder no"),
    (("--to", "b@localhost"), "--to is for a server of yours: --jid is needed"),
    (("--host", "example.org"), "--host is for a server of yours"),
    (("--to-password-file", "f"), "--to-password-file is for a server of yours"),
    (NAMED, "--to is needed"),
    ((*NAMED, "--to", "localhost"), "--to localhost: an account has the form"),
    ((*NAMED, "--to", "b@localhost", "--embedded"), "name two servers"),
    ((*NAMED, "--to", "b@localhost", "--nagle"), "--nagle is for the Prosody"),
    ((*NAMED, "--to", "b@localhost"), "XMPP_QOS_PASSWORD is not set"),
    (("--embedded", "--nagle"), "--nagle is for the Prosody"),
    (("--embedded", "--sm"), "the embedded server has no XEP-0198"),
    (("--latency", "--windows", "1"), "--latency is with a window of 1"),
    (("--latency", "--peers"), "--latency is not for --peers"),
    (("--latency", "--queue"), "--latency is not for --queue"),
    ((*NAMED, "--to", "b@localhost", "--fan", "9"), "--fan needs a component"),
    (("--fan", "1"), "'1' is not a whole number from 2 to 10000"),
    (("--levels",), "--levels: there is nothing to measure"),
]

FOOTPRINT = [
    (("--only", "speed"), "'speed'"),
    (("--only",), "--only"),
    (("--messages", "0"), "'0' is not a number of messages like 500k"),
    (("--messages", "many"), "'many' is not a number of messages"),
    (("--flat-messages", "1k"), "'1k' is less than 2000"),
    (("--repeat", "0"), "'0' is not a whole number from 1"),
    (("--seconds", "0"), "'0' is not a time in seconds"),
    (("--events", "1M"), "--events"),
]

SPARK = [
    (("speed",), "'speed'"),
    (("audit", "--events", "many"), "'many' is not a number of events"),
    (("audit", "--events", "1M", "0"), "'0' is not a number of events"),
    (("audit", "--events", "1G"), "'1G' is not a number of events"),
    (("audit", "--events", "1kM"), "'1kM' is not a number of events"),
    (("audit", "--repeat", "0"), "'0' is not a whole number from 1"),
    (("audit", "--cores", "-1"), "-1"),
    (("audit", "--plot", "no/p.svg"), "there is no folder no"),
    (("audit", "--keep", "full"), "--keep full: there is something in it"),
    (("audit", "--keep", "full/file"), "--keep full/file: "),
    (("synth",), "--out"),
    (("synth", "--out", "o", "--messages", "many"), "'many'"),
    (("synth", "--out", "o", "--devices", "0"), "from 1"),
    (("synth", "--out", "o", "--messages", "3", "--lost", "4"), "more anomalies"),
    (("synth", "--out", "full"), "there is something in it"),
    (("synth", "--out", "o", "--first-day", "x"), "'x' is not a date"),
]

ROWS = [
    *MESSAGES,
    *((("footprint", *words), said) for words, said in FOOTPRINT),
    *SPARK,
]


@pytest.mark.parametrize(("words", "said"), ROWS)
def test_wrong_usage_is_one_line_and_status_2(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is created either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XMPP_QOS_PASSWORD", raising=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert said in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["footprint", "guard"])
def test_without_a_prosody_it_says_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured; passing without that would be no guard."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("qos.testing.processes.SBIN", ())
    assert main([command]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "prosody is not installed (Debian package: prosody)" in err
