"""Read a person's answer at a prompt, and what of it is remembered. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

from agent_runtime import PendingCall, SettingsError

Permissions = Literal["auto", "ask", "all", "none"]
"""Who approves what waits: the agent file's own rules, a person every write and command, nobody (all granted), nobody
(all denied)."""
PERMISSIONS = get_args(Permissions)


class Word(StrEnum):
    """Commands of a chat."""

    HELP = "help"
    COST = "cost"
    MODEL = "model"
    RESET = "reset"
    QUIT = "quit"


_WORDS = {
    **{word.value: word for word in Word},
    "?": Word.HELP,
    "tokens": Word.COST,
    "clear": Word.RESET,
    "exit": Word.QUIT,
}
_COMMAND = re.compile(r"/([a-z?]+)", re.IGNORECASE)
_MODEL = re.compile(r"/model\s+(\S.*)", re.IGNORECASE)


def word(line: str) -> Word | None:
    """The command that a line is, with or without a slash before it; None for a line that is for the agent.

    Raises:
        SettingsError: the line is a single word with a slash before it, and there is no such command. A path such as
            `/etc` is none either; in a sentence, it is for the agent.
    """
    said = line.strip()
    if _MODEL.fullmatch(said):
        return Word.MODEL
    command = _COMMAND.fullmatch(said)
    found = _WORDS.get((command[1] if command else said).lower())
    if command and found is None:
        raise SettingsError(f"There is no command {said}. `/help` lists them.")
    return found


def model_in(line: str) -> str:
    """What `/model` is to switch to; empty where it says nothing."""
    named = _MODEL.fullmatch(line.strip())
    return named[1] if named else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What somebody says to a call that waits.

    Attributes:
        approved: whether it may be made; for a question, True.
        note: why not; for a question, the answer.
        always: whether the very same call may be made from now on without asking.
        answers: whether it is the answer to a question.
    """

    approved: bool
    note: str = ""
    always: bool = False
    answers: bool = False


def check_fit(said: ChatAnswer, call: PendingCall) -> None:
    """Make sure that a reply is to what waits: no answer may approve a call, and no approval may answer a question.

    Raises:
        SettingsError: it is not.
    """
    if said.answers and call.kind != "question":
        raise SettingsError(
            f"No question is waiting; {call.tool} waits for approval, and --answer does not approve: use --approve "
            "or --deny."
        )
    if said.approved and not said.answers and call.kind == "question":
        raise SettingsError("A question is waiting, and --approve does not answer it: use --answer TEXT, or --deny.")


def reply(line: str) -> ChatAnswer | None:
    """`y` once, `a` always, `n` with or without a reason; None for anything else, which approves nothing."""
    said, _, note = line.strip().partition(" ")
    match said.lower():
        case "y" | "yes" if not note:
            return ChatAnswer(approved=True)
        case "a" | "always" if not note:
            return ChatAnswer(approved=True, always=True)
        case "n" | "no":
            return ChatAnswer(approved=False, note=note.strip())
        case _:
            return None


@dataclass(slots=True)
class Remembered:
    """Calls that may be made again without asking, for as long as the program runs."""

    _calls: set[str] = field(default_factory=set)

    def add(self, call: PendingCall) -> None:
        """From now on, calls within the scope of this one need no approval."""
        if (scope := scope_of(call)) is not None:
            self._calls.add(scope)

    def __contains__(self, call: object) -> bool:
        return isinstance(call, PendingCall) and scope_of(call) in self._calls


def scope_of(call: PendingCall) -> str | None:
    """What "always" would mean for a call, in words; None where it could mean anything, as for a patch.

    Two commands are the same when every character is; where their terminal stands does not matter.
    """
    match call.tool, call.args:
        case "execute", {"command": str(command)}:
            return f"the command `{command}`"
        case "write_file", {"path": str(path)} if path:
            return f"every write to {path!r}"
        case "write_file", _:
            return None
        case tool, args:
            return f"{tool} with {json.dumps(args, sort_keys=True, ensure_ascii=False)}"
