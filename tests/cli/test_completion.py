"""The completion script, in a real bash."""

import builtins
import subprocess
from typing import Any

import pytest

from qos.cli import main
from qos.cli.entry import COMMANDS

#: What bash does when somebody presses Tab after these words.
TAB = """
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p xmpp-qos | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def completed(script: str, words: str) -> list[str]:
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", script + TAB.format(words=words)],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_all_commands_are_completed(script: str) -> None:
    assert set(completed(script, "xmpp-qos ''")) >= set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("xmpp-qos se", "send"),
        ("xmpp-qos send --le", "--level"),
        ("xmpp-qos send x --level as", "assured"),
        ("xmpp-qos queue pub", "publish"),
        ("xmpp-qos queue dead re", "requeue"),
        ("xmpp-qos queue publish --pri", "--priority"),
        ("xmpp-qos listen --tls st", "starttls"),
    ],
)
def test_a_word_is_completed(script: str, words: str, wanted: str) -> None:
    assert completed(script, words) == [wanted]


def test_files_are_completed_where_an_option_takes_one(script: str) -> None:
    """For example --ca-file."""
    assert completed(script, "xmpp-qos send --ca-file /etc/host") != []


def test_there_is_a_script_for_zsh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef xmpp-qos")


def test_without_the_extra_there_is_a_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most do not have it."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "shtab":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["completion", "bash"]) == 2
    assert "pip install '.[completion]'" in capsys.readouterr().err
