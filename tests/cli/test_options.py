"""Options and the config file, and the settings made from them."""

from pathlib import Path

import pytest

from qos.cli.account import Account, account_from, store_url
from qos.cli.listen import parser as listen_parser
from qos.cli.options import parse
from qos.cli.outbox import parser as outbox_parser
from qos.cli.send import parser as send_parser

JID = ("--jid", "a@example.org")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def account(*words: str) -> Account:
    return account_from(parse(listen_parser("xmpp-qos listen"), words))


def test_the_defaults_are_safe() -> None:
    """TLS with checks, the roster, and a limit on everything."""
    a = account(*JID)
    assert (a.tls, a.ca_file, a.host, a.port) == ("starttls", None, None, 5222)
    assert a.plugin["trust"] == "roster"
    assert a.plugin["deadline_s"] is None
    assert a.connect_timeout_s == 30


def test_the_config_file_gives_any_option(tmp_path: Path) -> None:
    """With one file for a device, its commands are short."""
    (tmp_path / "c.toml").write_text(
        """
        jid = "Lamp@example.org/1"
        host = "192.0.2.1"
        port = 5299
        tls = "direct"
        connect-timeout = 4.5
        store = "files:held"
        retry-first = 1
        retry-max = 10
        deadline = 60
        ordered = true
        namespaces = ["urn:nf:iot:qos:1.0", "urn:xmpp:qos"]
        trust = ["a@example.org", "b@example.org"]
        quota-messages = 5
        quota-bytes = 6
        quota-total-messages = 7
        quota-total-bytes = 8
        quota-domain-messages = 9
        quota-domain-bytes = 10
        journal = "told"
        count = 3
        quiet = true
        debug = true
        """
    )
    a = account("--config", "c.toml")
    assert (a.jid, a.host, a.port, a.tls) == (
        "lamp@example.org/1",
        "192.0.2.1",
        5299,
        "direct",
    )
    assert a.connect_timeout_s == 4.5
    assert a.plugin == {
        "store": "files:held",
        "retry_first_s": 1,
        "retry_max_s": 10,
        "deadline_s": 60,
        "ordered": True,
        "namespaces": ("urn:nf:iot:qos:1.0", "urn:xmpp:qos"),
        "trust": "a@example.org,b@example.org",
        "quota_messages": 5,
        "quota_bytes": 6,
        "quota_total_messages": 7,
        "quota_total_bytes": 8,
        "quota_domain_messages": 9,
        "quota_domain_bytes": 10,
        "journal": Path("told"),
    }


def test_the_command_line_wins_over_the_config_file(tmp_path: Path) -> None:
    """Even if the file switches something on."""
    (tmp_path / "c.toml").write_text("port = 1\nordered = true\nquiet = false\n")
    a = account("--port", "2", *JID, "--config", "c.toml", "--no-ordered")
    assert a.port == 2
    assert a.plugin["ordered"] is False


def test_one_config_file_does_for_all_commands(tmp_path: Path) -> None:
    """`outbox list` does not need a password file, but accepts the option."""
    (tmp_path / "c.toml").write_text(
        'store = "sqlite:x.db"\npassword-file = "p"\ntrust = "all"\nport = 1\n'
    )
    config = ("--config", "c.toml")
    listing = parse(outbox_parser("xmpp-qos outbox"), ("list", *config))
    assert store_url(listing) == "sqlite:x.db"
    words = ("b@example.org", "--body", "x", *JID, *config)
    assert parse(send_parser("xmpp-qos send"), words).trust == "all"


def test_the_password_is_the_first_line_of_the_file(tmp_path: Path) -> None:
    """Editors end a file with a line feed; blanks may belong to a password."""
    (tmp_path / "p").write_bytes(b" a secret \r\nand a comment\n")
    assert account(*JID, "--password-file", "p").password.split(" ") == [
        "",
        "a",
        "secret",
        "",
    ]


def test_the_password_is_not_in_the_repr() -> None:
    """A repr in a traceback, for example, must not show a password."""
    assert "secret" not in repr(account(*JID))


@pytest.mark.parametrize(
    ("words", "host", "port"),
    [
        ((), None, 5222),
        (("--tls", "direct"), None, 5223),
        (("--port", "1"), "example.org", 1),
        (("--host", "h"), "h", 5222),
        (("--host", "h", "--tls", "direct"), "h", 5223),
        (("--host", "127.0.0.2", "--tls", "off"), "127.0.0.2", 5222),
        (("--host", "[::1]", "--tls", "off"), "::1", 5222),
        (("--host", "localhost", "--tls", "off"), "localhost", 5222),
    ],
)
def test_the_server_is_found(
    words: tuple[str, ...], host: str | None, port: int
) -> None:
    """DNS is asked only if no host is given, and never without TLS."""
    a = account(*JID, *words)
    assert (a.host, a.port) == (host, port)


def test_each_jid_has_a_store_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`send` and `listen` at the same time need two resources, and so have two stores."""
    folder = tmp_path / "state" / "xmpp-qos"
    full = account("--jid", "a@example.org/my lamp")
    assert full.plugin["store"] == f"sqlite:{folder}/a@example.org%2Fmy lamp.sqlite"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert account(*JID).plugin["store"] == f"sqlite:{folder}/a@example.org.sqlite"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    state = tmp_path / ".local" / "state"
    expected = f"sqlite:{state}/xmpp-qos/a@example.org.sqlite"
    assert account(*JID).plugin["store"] == expected
