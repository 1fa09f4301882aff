"""What is typed at a prompt, and what of it is remembered."""

from __future__ import annotations

import pytest

from agent_runtime import PendingCall, SettingsError
from agent_runtime.core.values import Plain
from bot.cli.screen import ChatAnswer, Remembered, Word, reply, scope_of, word


def a_call(tool: str, **args: Plain) -> PendingCall:
    return PendingCall(
        request_id="0000aaaa", kind="permission", tool=tool, args=args, reason="", preview="", workspace=""
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("y", ChatAnswer(approved=True)),
        (" YES ", ChatAnswer(approved=True)),
        ("a", ChatAnswer(approved=True, always=True)),
        ("n", ChatAnswer(approved=False)),
        ("n use pip-tools instead", ChatAnswer(approved=False, note="use pip-tools instead")),
        ("no", ChatAnswer(approved=False)),
    ],
)
def test_an_answer_is_short(line: str, meant: ChatAnswer) -> None:
    assert reply(line) == meant


@pytest.mark.parametrize("line", ["", "yep", "y but only once", "a b", "ok", "approve", "ny", "pytest"])
def test_nothing_else_approves_anything(line: str) -> None:
    assert reply(line) is None


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("quit", Word.QUIT),
        ("Exit", Word.QUIT),
        (" reset", Word.RESET),
        ("help", Word.HELP),
        ("tokens", Word.COST),
        ("/help", Word.HELP),
        ("/COST ", Word.COST),
        ("/quit", Word.QUIT),
        ("/model", Word.MODEL),
        ("/model openai/gpt-6.2-sol", Word.MODEL),
        ("model the domain", None),
        ("/etc/hosts has a wrong line", None),
        ("/etc/hosts", None),
        ("reset the database fixture", None),
        ("", None),
    ],
)
def test_a_word_alone_is_not_for_the_agent(line: str, meant: Word | None) -> None:
    assert word(line) is meant


def test_a_mistyped_command_is_not_sent_to_the_agent() -> None:
    with pytest.raises(SettingsError, match="There is no command /hlep"):
        word("/hlep")


def test_always_is_for_the_very_same_command() -> None:
    remembered = Remembered()
    remembered.add(a_call("execute", session_id="main", command="pytest -q", timeout=60))
    assert a_call("execute", session_id="main", command="pytest -q") in remembered
    assert a_call("execute", session_id="main", command="pytest -q; rm -rf build") not in remembered
    assert a_call("execute", session_id="main", command="pytest  -q") not in remembered
    assert a_call("send_input", session_id="main", text="pytest -q") not in remembered


def test_always_is_for_writes_to_the_very_same_file() -> None:
    remembered = Remembered()
    remembered.add(a_call("write_file", path="a.py", mode="w"))
    assert a_call("write_file", path="a.py", mode="edit", start_line=1, end_line=1) in remembered
    assert a_call("write_file", path="b.py") not in remembered


def test_a_patch_could_be_about_anything_and_is_never_remembered() -> None:
    patch = a_call("write_file", mode="patch")
    remembered = Remembered()
    remembered.add(patch)
    assert patch not in remembered
    assert scope_of(patch) is None


def test_always_says_what_it_means() -> None:
    assert scope_of(a_call("execute", command="make")) == "the command `make`"
    assert scope_of(a_call("write_file", path="a b.py")) == "every write to 'a b.py'"
    assert scope_of(a_call("deploy", where="live")) == 'deploy with {"where": "live"}'
