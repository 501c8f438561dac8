"""Wrong usage, refused before anything is done; and the help."""

import subprocess
import sys
from pathlib import Path

import pytest

from qos import __version__
from qos.cli import main
from qos.cli.entry import COMMANDS
from qos.core.message.model import NAMESPACES
from wrong_usage import WIDTH_MAX, refused

JID = ("--jid", "a@example.org")
TO = "b@example.org/1"


pytestmark = pytest.mark.usefixtures("environment")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "COMMAND"),
        (("fly",), "'fly'"),
        (("--fly",), "COMMAND"),
        (("send",), "TO"),
        (("send", TO, *JID), "one of --body, --json, --xml or --lines"),
        (("send", TO, *JID, "--json", "{"), "--json: Expecting property name"),
        (("send", TO, *JID, "--json", "NaN"), "--json: json must be a value"),
        (("send", TO, "--body", "x"), "--jid is needed"),
        (("send", TO, "--body", "x", "--jid", "example.org"), "user@domain"),
        (("send", TO, "--body", "x", "--jid", "a@b@c"), "'a@b@c' is not a JID"),
        (("send", "@", "--body", "x", *JID), "'@' is not a JID"),
        (("send", TO, "--body", "x", "--lines", *JID), "--lines"),
        (("send", TO, "--body", "x", "--level", "sure", *JID), "'sure'"),
        (("send", TO, "--body", "a\x00b", *JID), "--body: character U+0000"),
        (("send", TO, "--xml", "no.xml", *JID), "--xml no.xml: No such file"),
        (("send", TO, "--body", "x", "--host"), "--host"),
        (("send", TO, "--bod", "x", *JID), "--bod"),
        (("send", TO, "--lines", "--id", "x", *JID), "--id is for one message"),
        (
            ("send", TO, "--body", "x", "--id", "x", "--level", "unacknowledged", *JID),
            "has no id",
        ),
        (("listen", *JID, "--port", "0"), "'0' is not a port"),
        (("listen", *JID, "--port", "x"), "'x' is not a whole number"),
        (("listen", *JID, "--count", "0"), "'0' is not a number of messages"),
        (("listen", *JID, "--retry-first", "0"), "'0' is not a time in seconds"),
        (("listen", *JID, "--retry-max", "nan"), "'nan' is not a time"),
        (("listen", *JID, "--deadline", "inf"), "'inf' is not a time"),
        (("listen", *JID, "--retry-first", "9", "--retry-max", "3"), "9.0 and 3.0"),
        (("listen", *JID, "--quota-bytes", "-1"), "--quota-bytes"),
        (("listen", *JID, "--quota-total-messages", "many"), "'many'"),
        (("listen", *JID, "--trust", ","), "trust"),
        (("listen", *JID, "--namespaces", "urn:x"), "urn:x"),
        (("listen", *JID, "--namespaces", ","), "namespaces"),
        (("listen", *JID, "--store", "redis:x"), "redis:x"),
        (("listen", *JID, "--tls", "maybe"), "maybe"),
        (("listen", *JID, "--tls", "off"), "example.org is not known as one"),
        (("listen", *JID, "--tls", "off", "--host", "192.0.2.1"), "192.0.2.1"),
        (("listen", *JID, "--ca-file", "no.pem"), "--ca-file no.pem: No such file"),
        (("listen", *JID, "--password-file", "no"), "--password-file no: No such"),
        (("listen", *JID, "--password", "secret"), "--password"),
        (
            (
                "worker",
                "queue.example.org",
                "orders",
                "--selector",
                "n >",
                *JID,
                "true",
            ),
            "--selector: expected a value, found the end (at character 4)",
        ),
        (("outbox",), "ACTION"),
        (("outbox", "burn"), "'burn'"),
        (("outbox", "list"), "--store is needed, or --jid"),
        (("outbox", "list", "--store", "memory:"), "empty at each start"),
        (("outbox", "list", "--store", "file:x"), "file:x"),
        (("outbox", "show", "--store", "sqlite:x"), "ID"),
        (("outbox", "withdraw", "a", "b", "--store", "sqlite:x"), "b"),
        (("outbox", "resend"), "--jid is needed"),
        (("inbox", "drop", "--store", "sqlite:x"), "ID"),
        (("inbox", "show", "x", "--store", "sqlite:x", "--from", "@"), "'@'"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misunderstood command must neither send anything nor create a store."""
    assert said in refused(capsys, *words)


def test_a_password_is_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never an argument: all users of a machine can see arguments."""
    monkeypatch.delenv("XMPP_QOS_PASSWORD")
    assert "XMPP_QOS_PASSWORD is not set" in refused(capsys, "listen", *JID)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "first line is empty"),
        (b"\nsecret", "first line is empty"),
        (b"\xff", "not UTF-8"),
        (b"se\x07cret", "characters that no password can have"),
    ],
)
def test_a_bad_password_file_is_a_usage_error(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file takes precedence over the variable: the user has named it."""
    (tmp_path / "password").write_bytes(content)
    words = ("listen", *JID, "--password-file", "password")
    assert said in refused(capsys, *words)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<message><body>on</message>", "not well-formed"),
        (b"", "not well-formed"),
        (b"<iq/>", "must be <message>"),
        (b"<message xmlns='urn:x'/>", "must be <message>"),
    ],
)
def test_a_bad_xml_file_is_a_usage_error(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the file."""
    (tmp_path / "m.xml").write_bytes(content)
    line = refused(capsys, "send", TO, *JID, "--xml", "m.xml")
    assert "m.xml: " in line
    assert said in line


def test_a_ca_file_that_is_none_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise every certificate would be refused later, for a reason hard to find."""
    (tmp_path / "ca.pem").write_text("no certificate")
    line = refused(capsys, "listen", *JID, "--ca-file", "ca.pem")
    assert "--ca-file ca.pem: not PEM" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("jid = ", "is not TOML"),
        ("colour = 'red'", "no option 'colour'"),
        ("password = 'x'", "no option 'password'"),
        ("help = true", "no option 'help'"),
        ("config = 'other.toml'", "no option 'config'"),
        ("retry_first = 1", "no option 'retry_first'"),
        ("ordered = 1", "'ordered' must be true or false"),
        ("port = true", "'port' must be a string or a number"),
        ("port = 'x'", "'x' is not a whole number"),
        ("trust = [1]", "'trust' must be a string or a number"),
        ("[retry]\nfirst = 1", "no option 'retry'"),
        ("tls = 'none'", "'none'"),
        ("body = 'x'", "no option 'body'"),
    ],
)
def test_a_bad_config_file_is_a_usage_error_that_names_file_and_key(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt key must not silently leave a default."""
    (tmp_path / "c.toml").write_text(content)
    line = refused(capsys, "listen", *JID, "--config", "c.toml")
    assert "c.toml" in line
    assert said in line


def test_a_config_file_that_is_not_there_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The user has named it."""
    line = refused(capsys, "listen", "--config", "c.toml")
    assert "c.toml: No such file" in line


@pytest.mark.parametrize(
    "words",
    [
        *((name,) for name in COMMANDS if name != "demo"),
        *(("outbox", action) for action in ("list", "show", "withdraw", "resend")),
        *(("inbox", action) for action in ("list", "show", "drop")),
    ],
)
def test_help_has_an_example(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody should need the README to begin."""
    assert main([*words, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"xmpp-qos {' '.join(words)}" in out.split("example", 1)[1]
    assert max(map(len, out.splitlines())) <= WIDTH_MAX


def test_help_of_the_command_lists_commands_and_exit_statuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first thing that anyone tries."""
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for word in (*COMMANDS, "exit status", "in doubt", "130"):
        assert word in out


def test_help_shows_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """Especially those of the quotas: they decide what is refused."""
    assert main(["listen", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for default in ("1000", "4194304", "10000", "67108864", "30", "2", "300"):
        assert f"(default: {default})" in out
    for default in ("starttls", "those of contacts", "trusted", "never", "any order"):
        assert f"default: {default}" in out or f"(default: in {default})" in out
    assert all(namespace in out.replace(" ", "") for namespace in NAMESPACES)


def test_the_package_is_the_command_too(tmp_path: Path) -> None:
    """pip's folder for scripts is not always in the PATH."""
    done = subprocess.run(
        (sys.executable, "-m", "qos", "--version"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{__version__}\n"


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """For bug reports."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip()[0].isdigit()
