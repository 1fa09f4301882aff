"""Threat 38: no line that the model, a program or a stranger wrote is carried out by the runner of a workflow."""

from __future__ import annotations

import pytest

from agent_runtime import Ended, Event, Outcome, Refused, Status, StepStarted, Streamed, ToolCalled, ToolReturned
from bot.action.outputs import StepLog, format_annotation, open_group
from bot.publishing.redact import Redactor

SECRET = "sk-ant-a-key-of-the-test"
HOSTILE = f"""fine
::set-output name=status::stolen
::add-mask::a\r::error::not ours
##[error]mine ##[add-mask]b
::endgroup::
::stop-commands::x
::x::
\x1b[2J {SECRET}
"""


def carried_out(log: str) -> list[str]:
    """Lines that a runner or its page would execute."""
    token, found = "", list[str]()
    for line in log.splitlines():
        if "##[" in line:
            found.append(line)
        if token:
            token = "" if line == f"::{token}::" else token
        elif line.startswith("::stop-commands::"):
            token = line.removeprefix("::stop-commands::")
        elif line.lstrip().startswith("::"):
            found.append(line)
    assert not token, "commands are still stopped"
    return found


def logged(*events: Event) -> str:
    lines: list[str] = []
    log = StepLog(lines.append, Redactor([SECRET]).redact)
    for event in events:
        log(event)
    return "\n".join(lines)


def test_a_run_injects_no_workflow_command() -> None:
    log = logged(
        StepStarted(step=1, max_steps=30),
        Streamed(text=HOSTILE),
        ToolCalled(number=1, tool="execute", args={}, label=HOSTILE),
        ToolReturned(number=1, tool="execute", args={}, value=None, text=HOSTILE, ok=True, seconds=0, label=""),
        Refused(error=HOSTILE),
        StepStarted(step=2, max_steps=30),
        Streamed(text=HOSTILE, completion=True),
        Ended(outcome=Outcome(status=Status.FINISHED, summary=HOSTILE)),
    )
    first, end, second, last = carried_out(log)
    assert first.startswith("::group::Step 1: fine ::set-output")
    assert second.startswith("::group::Step 2: fine ::set-output")
    assert end == last == "::endgroup::"
    assert SECRET not in log
    assert "\x1b" not in log


def test_each_text_has_an_end_of_its_own() -> None:
    """The log of one step must not reveal the end marker of the next."""
    log = logged(StepStarted(step=1, max_steps=30), *[Refused(error="no")] * 5)
    tokens = [line for line in log.splitlines() if line.startswith("::stop-commands::")]
    assert len(set(tokens)) == 5


@pytest.mark.parametrize("text", [HOSTILE, "\n::error::x", "a%0A::error::x"])
def test_a_strangers_words_in_a_command_of_ours_stay_in_it(text: str) -> None:
    for line in (format_annotation("error", text, title=text, file=text, line=1), open_group(text)):
        assert len(line.splitlines()) == 1
        assert "##[" not in line
    assert format_annotation("error", "x", title="a,file=b::c").startswith("::error title=a%2Cfile=b%3A%3Ac::x")
