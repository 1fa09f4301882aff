"""What a run looks like in a terminal, and where there is none."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent_runtime import (
    Comparison,
    CompletionWithdrawn,
    Event,
    Faulted,
    ModelAwaited,
    Outcome,
    PendingCall,
    Refused,
    Replayed,
    SettingsError,
    Started,
    Status,
    StepStarted,
    Streamed,
    StreamReset,
    Task,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
    Usage,
)
from agent_runtime.core.values import Plain
from bot.cli.screen import (
    ApprovedCalls,
    ChatAnswer,
    ChatScreen,
    Word,
    comparison_report,
    escape_invisible,
    format_footer,
    format_usage,
    read_answer,
    read_word,
    replay_report,
    scope_of,
)


def called(label: str = "Running `pytest -q`", number: int = 1) -> ToolCalled:
    return ToolCalled(number=number, tool="execute", args={}, label=label)


def returned(*, ok: bool = True, text: str = "", tool: str = "execute", label: str = "Running") -> ToolReturned:
    return ToolReturned(number=1, tool=tool, args={}, value=None, text=text, ok=ok, seconds=1.24, label=label)


def a_call(preview: str, *, kind: str = "permission", reason: str = "you asked", **args: Plain) -> PendingCall:
    return PendingCall(
        request_id="0000aaaa",
        kind="question" if kind == "question" else "permission",
        tool="execute",
        args=args,
        reason=reason,
        preview=preview,
        workspace="",
    )


class Display:
    """A screen, and what stands on it."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._file = io.StringIO()
        self.screen = ChatScreen(
            Console(file=self._file, force_terminal=terminal, color_system="standard" if terminal else None, width=40)
        )

    def after(self, *events: Event) -> str:
        for event in events:
            self.screen.on_event(event)
        return self.text

    @property
    def text(self) -> str:
        return self._file.getvalue()


def test_words_appear_as_they_come_and_a_call_starts_a_line_of_its_own() -> None:
    text = Display().after(Streamed(text="Looking "), Streamed(text="first."), called(), returned())
    assert text == "Looking first.\n● Running `pytest -q` ✓ 1.2 s\n"


def test_a_failed_call_shows_the_end_of_what_it_said() -> None:
    output = "\n".join(f"line {number}" for number in range(1, 10))
    text = Display().after(called(), returned(ok=False, text=output))
    assert text == "● Running `pytest -q` ✗ 1.2 s\n" + "".join(f"  line {n}\n" for n in range(4, 10))


def test_progress_stands_between_a_call_and_its_result() -> None:
    text = Display().after(called(), ToolProgressed(number=1, tool="execute", text="half"), returned(label="Running"))
    assert text == "● Running `pytest -q`\n  half\n  Running ✓ 1.2 s\n"


def test_long_lines_are_left_in_one_piece() -> None:
    assert Display().after(Streamed(text="x" * 100 + "\n")) == "x" * 100 + "\n"


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (StreamReset(attempt=2), "(the reply broke off; trying again)\n"),
        (ModelAwaited(reason="HTTP 529", seconds=12.4), "(no reply: HTTP 529; trying again in 12 s)\n"),
        (CompletionWithdrawn(step=1), ""),
        (Streamed(text="Done.", completion=True), ""),
        (Refused(error="execute is denied"), "✗ not allowed: execute is denied\n"),
        (Faulted(error="Traceback\n  line\nKeyError: 'a'\n"), "✗ KeyError: 'a'\n"),
        (Started(task=Task(goal="x"), opening="x"), ""),
    ],
)
def test_what_else_happens_is_said_in_a_line(event: Event, told: str) -> None:
    assert Display().after(event) == told


def test_a_reply_that_broke_off_is_told_once() -> None:
    waits = ModelAwaited(reason="HTTP 529", seconds=3)
    assert Display().after(waits, StreamReset(attempt=2), StreamReset(attempt=3)).count("\n") == 2


def test_colour_is_for_terminals_only() -> None:
    events = (Streamed(text="Looking."), called(), returned())
    assert "\x1b[" in Display(terminal=True).after(*events)
    assert "\x1b" not in Display().after(*events)


def test_what_waits_is_shown_whole_with_a_coloured_diff() -> None:
    preview = "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-old\n+new"
    plain, coloured = Display(), Display(terminal=True)
    for shown in (plain, coloured):
        shown.screen.show_call(a_call(preview, reason="the agent file asks"))
    assert plain.text.splitlines() == [
        "",
        "execute requires approval (the agent file asks)",
        *[f"  {line}" for line in preview.splitlines()],
    ]
    assert "\x1b[31m  -old" in coloured.text
    assert "\x1b[32m  +new" in coloured.text
    long = Display()
    long.screen.show_call(a_call("\n".join(f"+{number}" for number in range(5000))))
    assert "  +4999\n" in long.text


def test_what_can_be_answered_is_said() -> None:
    shown = Display()
    shown.screen.show_choices(a_call("", command="make"))
    assert shown.text == "y = yes, once · a = always, for the command `make` · n [why] = no\n"


def test_a_question_is_asked_in_its_own_words() -> None:
    shown = Display()
    shown.screen.show_call(a_call("", kind="question", reason="Which port?"))
    assert shown.text == "\n? Which port?\n"


def test_the_end_says_what_it_took_and_which_files_were_written() -> None:
    shown = Display()
    usage = Usage(requests=2, input_tokens=1000, cached_tokens=200, output_tokens=34, cost_usd=0.01234)
    patched = "[write_file] 'a.py' updated (3 bytes, 1 lines). Version x.\n[write_file] \"it's\" deleted."
    shown.after(
        returned(tool="write_file", text=patched),
        returned(tool="write_file", text="[write_file] 'a.py' edited (3 bytes, 1 lines). Version y."),
    )
    shown.screen.show_end(
        Outcome(status=Status.MAX_STEPS, reason="The limit of 2 steps was reached.", steps=2, usage=usage, seconds=3.2)
    )
    assert shown.text.splitlines()[-2:] == [
        "The limit of 2 steps was reached.",
        "max steps · 2 steps · 1,234 tokens (200 cached) · $0.0123 · 3.2 s · 2 files changed: a.py, it's",
    ]


def test_the_files_are_those_of_one_run() -> None:
    shown = Display()
    shown.after(
        returned(tool="write_file", text="[write_file] 'a.py' written (3 bytes, 1 lines). Version x."),
        Started(task=Task(goal="x"), opening="x"),
    )
    shown.screen.show_end(Outcome(status=Status.FINISHED, steps=1))
    assert "changed" not in shown.text


def test_a_summary_that_was_the_prose_of_the_last_reply_is_not_shown_twice() -> None:
    shown = Display(terminal=True)
    shown.after(StepStarted(step=1, max_steps=2), Streamed(text="It is "), StreamReset(attempt=2))
    shown.after(Streamed(text="All "), Streamed(text="done.\n"))
    shown.screen.show_end(Outcome(status=Status.FINISHED, summary="All done.", steps=1))
    assert shown.text.count("done.") == 1


def test_a_completion_stands_at_the_end_of_a_terminal() -> None:
    outcome = Outcome(status=Status.FINISHED, summary="All **done**:\n\n* one\n* two\x1b[2K", steps=1)
    terminal, pipe = Display(terminal=True), Display()
    for shown in (terminal, pipe):
        shown.screen.show_end(outcome)
    assert "All \x1b[1mdone\x1b[0m:" in terminal.text
    assert r"two\x1b[2K" in terminal.text
    assert pipe.text == "finished · 1 step · 0 tokens · $0.0000 · 0.0 s\n"


def test_a_block_that_failed_with_a_call_is_not_told_twice() -> None:
    fault = Faulted(error="Traceback\nRuntimeError: no")
    step = StepStarted(step=1, max_steps=2)
    assert "RuntimeError" not in Display().after(step, called(), returned(ok=False, text="no"), fault)
    assert "RuntimeError" in Display().after(step, called(), returned(ok=False, text="no"), step, fault)


def test_many_files_are_counted() -> None:
    line = format_footer(Outcome(status=Status.FINISHED, steps=1), [f"{n}.py" for n in range(7)])
    assert line.endswith("7 files changed: 0.py, 1.py, 2.py, 3.py, 4.py and 2 more")


def test_an_unknown_price_is_said() -> None:
    assert format_usage(Usage(requests=1, input_tokens=5, cost_usd=None)) == "5 tokens · price unknown"


def test_nothing_that_comes_from_the_model_moves_the_cursor_or_hides() -> None:
    hostile = "ls\x1b[2K\x1b[1A\x08\x9b1m \u202eevil\u200b"
    text = Display(terminal=True).after(Streamed(text=hostile))
    assert "\x1b[2K" not in text
    assert "\x9b" not in text
    assert r"ls\x1b[2K\x1b[1A\x08\x9b1m \u202eevil\u200b" in text
    shown = Display()
    shown.screen.show_call(a_call(f"$ {hostile}"))
    assert r"$ ls\x1b[2K" in shown.text


def test_ordinary_text_is_left_alone() -> None:
    text = "Grüße,\tWelt\n  → 日本 👩\u200d💻 \u00a0ok"
    assert escape_invisible(text) == text
    assert escape_invisible("a\r\nb") == "a\nb"


def a_waiting_call(tool: str, **args: Plain) -> PendingCall:
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
    assert read_answer(line) == meant


@pytest.mark.parametrize("line", ["", "yep", "y but only once", "a b", "ok", "approve", "ny", "pytest"])
def test_nothing_else_approves_anything(line: str) -> None:
    assert read_answer(line) is None


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
    assert read_word(line) is meant


def test_a_mistyped_command_is_not_sent_to_the_agent() -> None:
    with pytest.raises(SettingsError, match="There is no command /hlep"):
        read_word("/hlep")


def test_always_is_for_the_very_same_command() -> None:
    remembered = ApprovedCalls()
    remembered.add(a_waiting_call("execute", session_id="main", command="pytest -q", timeout=60))
    assert a_waiting_call("execute", session_id="main", command="pytest -q") in remembered
    assert a_waiting_call("execute", session_id="main", command="pytest -q; rm -rf build") not in remembered
    assert a_waiting_call("execute", session_id="main", command="pytest  -q") not in remembered
    assert a_waiting_call("send_input", session_id="main", text="pytest -q") not in remembered


def test_always_is_for_writes_to_the_very_same_file() -> None:
    remembered = ApprovedCalls()
    remembered.add(a_waiting_call("write_file", path="a.py", mode="w"))
    assert a_waiting_call("write_file", path="a.py", mode="edit", start_line=1, end_line=1) in remembered
    assert a_waiting_call("write_file", path="b.py") not in remembered


def test_a_patch_could_be_about_anything_and_is_never_remembered() -> None:
    patch = a_waiting_call("write_file", mode="patch")
    remembered = ApprovedCalls()
    remembered.add(patch)
    assert patch not in remembered
    assert scope_of(patch) is None


def test_always_says_what_it_means() -> None:
    assert scope_of(a_waiting_call("execute", command="make")) == "the command `make`"
    assert scope_of(a_waiting_call("write_file", path="a b.py")) == "every write to 'a b.py'"
    assert scope_of(a_waiting_call("deploy", where="live")) == 'deploy with {"where": "live"}'


DONE = Outcome(status=Status.FINISHED, summary="Done.")


def found(*, left: int = 0, now: Outcome = DONE, same_start: bool = True, difference: str | None = None) -> Replayed:
    return Replayed(
        requests=2, remaining=left, outcomes=(now,), recorded=(DONE,), same_start=same_start, difference=difference
    )


def test_a_replay_that_went_as_recorded_says_so() -> None:
    assert replay_report(found()) == "2 of 2 requests were made as recorded.\nEvery run ended as in the recording."


def test_a_replay_that_left_the_recording_shows_where() -> None:
    told = replay_report(found(left=3, same_start=False, difference="Request 3 of 5 differs:\n-a\n+b"))
    assert told.startswith("note: the directory has changed since")
    assert "2 of 5 requests" in told
    assert told.endswith("Request 3 of 5 differs:\n-a\n+b")


def test_a_run_that_ended_otherwise_is_told_beside_how_it_ended_then() -> None:
    told = replay_report(found(now=Outcome(status=Status.MAX_STEPS, reason="Too long.")))
    assert told.splitlines()[1:] == ["then: finished (Done.)", "now:  max_steps (Too long.)"]


def test_a_comparison_counts_and_shows_each_difference() -> None:
    told = comparison_report(Comparison(requests=4, summaries=1, differences=("-a\n+b",)))
    assert told == "4 requests compared; 1 for a summary were not. 1 difference.\n\n-a\n+b"
