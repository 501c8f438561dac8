"""Options and the config file, and the settings made from them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from qos.cli.account import Account, account_from, store_url
from qos.cli.listen import parser as listen_parser
from qos.cli.options import parse
from qos.cli.outbox import parser as outbox_parser
from qos.cli.queues import parser as queues_parser
from qos.cli.send import parser as send_parser
from qos.core.message.trust import TrustPolicy
from qos.errors import UsageError

JID = ("--jid", "a@example.org")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def account(*words: str) -> Account:
    return account_from(parse(listen_parser("xmpp-qos listen"), words))


def test_the_defaults_are_safe() -> None:
    """TLS with checks, the roster, and a limit on everything."""
    a = account(*JID)
    assert (a.tls, a.ca_file, a.host, a.port) == ("starttls", None, None, 5222)
    assert (a.plugin["trust"], a.plugin["accepts"]) == ("contacts", "trusted")
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
        accepts = "anyone"
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
        "trust": "contacts,a@example.org,b@example.org",
        "accepts": "anyone",
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
        'store = "sqlite:x.db"\npassword-file = "p"\ntrust = "anyone"\nport = 1\n'
    )
    config = ("--config", "c.toml")
    listing = parse(outbox_parser("xmpp-qos outbox"), ("list", *config))
    assert store_url(listing) == "sqlite:x.db"
    words = ("b@example.org", "--body", "x", *JID, *config)
    assert parse(send_parser("xmpp-qos send"), words).trust == "anyone"


USUAL = """
host = "192.0.2.1"
context = "home"
[contexts.home]
jid = "me@home.example"
[contexts.work]
jid = "me@work.example"
host = "192.0.2.2"
"""


@pytest.fixture
def usual(tmp_path: Path) -> Path:
    """The file that is read without being named."""
    path = tmp_path / "config" / "xmpp-qos" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(USUAL)
    return path


@pytest.mark.usefixtures("usual")
def test_a_user_has_a_usual_file_and_contexts_in_it() -> None:
    """As with kubectl and docker: the words that are always the same are left out."""
    home, work = account(), account("--context", "work")
    assert (home.jid, home.host) == ("me@home.example", "192.0.2.1")
    assert (work.jid, work.host) == ("me@work.example", "192.0.2.2")
    assert account("--jid", "a@example.org").jid == "a@example.org"


@pytest.mark.usefixtures("usual")
def test_a_file_that_is_named_replaces_the_usual_one(tmp_path: Path) -> None:
    """It may have contexts of its own."""
    (tmp_path / "c.toml").write_text('[contexts.x]\njid = "x@example.org"\n')
    a = account("--config", "c.toml", "--context", "x")
    assert (a.jid, a.host) == ("x@example.org", None)


@pytest.mark.usefixtures("usual")
def test_a_component_does_not_read_the_file_of_who_starts_it() -> None:
    """Its address would be that of the person, too: only one of them is possible."""
    words = ("serve", "--component", "queue.example.org")
    assert parse(queues_parser("xmpp-qos queue"), words).jid is None


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (USUAL, ("--context", "sea"), "no context 'sea'; there are: 'home', 'work'"),
        ('context = "a"', (), "no context 'a'; there are: none"),
        ("contexts = 5", (), "'contexts' must be tables, such as [contexts.home]"),
        ('[contexts.a]\ncontext = "b"', ("--context", "a"), "no option 'context'"),
        (None, ("--context", "home"), "--context home: there is no file "),
    ],
)
def test_a_wrong_context_is_told(
    usual: Path, content: str | None, words: tuple[str, ...], said: str
) -> None:
    """By the name of the file, and with the contexts that there are."""
    if content is None:
        usual.unlink()
    else:
        usual.write_text(content)
    with pytest.raises(UsageError) as caught:
        account(*words)
    assert said in str(caught.value)
    assert str(usual) in str(caught.value)


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


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without a line in /etc/passwd, as in a container."""

    def no_line(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_line)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_needs_no_config_file() -> None:
    """With --store all that a command needs is given."""
    assert account(*JID, "--store", "sqlite:x.db").plugin["store"] == "sqlite:x.db"
    with pytest.raises(UsageError, match=r"no home folder .*HOME.*: give --config"):
        account(*JID, "--store", "sqlite:x.db", "--context", "home")


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_is_told_to_name_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"no home folder .*HOME.*: give --store"):
        account(*JID)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    expected = f"sqlite:{tmp_path}/xmpp-qos/a@example.org.sqlite"
    assert account(*JID).plugin["store"] == expected


@pytest.mark.parametrize(
    ("words", "trust"),
    [
        ((), "contacts"),
        (("--trust", "@example.net, a@b.c"), "contacts,@example.net, a@b.c"),
        (("--trust", "a@b.c", "--no-contacts"), "a@b.c"),
        (("--no-contacts",), "nobody"),
        (("--trust", "anyone"), "anyone"),
        (("--trust", "anyone", "--no-contacts"), "anyone"),
        (("--trust", "contacts"), "contacts,contacts"),
    ],
)
def test_trust_adds_to_the_contacts(words: Sequence[str], trust: str) -> None:
    found = account(*JID, *words).plugin["trust"]
    assert found == trust
    TrustPolicy.parse(found)


@pytest.mark.parametrize("words", [("nobody",), ("a@b.c,nobody",)])
def test_whoever_trusts_nobody_says_no_contacts(words: Sequence[str]) -> None:
    with pytest.raises(UsageError, match="--no-contacts"):
        account(*JID, "--trust", *words)
