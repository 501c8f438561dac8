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
        *((name,) for name in COMMANDS),
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
