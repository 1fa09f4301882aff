"""`codepilot run` and `codepilot chat` from beginning to end: what is printed where, and the exit code."""

from __future__ import annotations

import importlib
import io
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import IntEnum

from rich.console import Console

from agent_runtime import (
    AgentFile,
    AsyncRuntime,
    FileSession,
    Outcome,
    Recorder,
    Replied,
    SettingsError,
    Status,
    Summarised,
    Usage,
)
from bot.apps.chat.answers import ChatAnswer, Word, model_in, word
from bot.apps.chat.conversation import Chat, LeftError
from bot.apps.chat.models import ChatModels
from bot.apps.chat.screen import ChatScreen, spent
from bot.apps.chat.setup import ChatOptions, agent, agent_file
from bot.apps.chat.visible import visible

_HELP = """\
Write what the agent should do. These are for the program, and cost nothing:
  /cost    what this session has used
  /model   the model and those that are known; /model NAME or PROVIDER/NAME switches
  /reset   delete the conversation and start again
  /quit    leave; Ctrl+D does the same
The slash may be left out. Ctrl+C stops what the agent does."""


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    NOT_DONE = 1
    PAUSED = 3
    LEFT = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


def run(options: ChatOptions, task: str | None, said: ChatAnswer | None = None) -> Exit:
    """Have one task done, or with `said` answer the call at which the session's run waits.

    Raises:
        AgentError: settings that cannot work, or a session that cannot be used.
    """
    with _leaving(), _conversation(options, agent_file(options)) as (runtime, screen, conversation):
        outcome = None
        if said is not None:
            if runtime.pending is None:
                raise SettingsError(
                    "Nothing is waiting for an answer in this session. Leave out --approve, --deny and --answer, and "
                    'say what to do, e.g. codepilot run "fix the tests".'
                )
            outcome = conversation.answer(said)
        elif task is None or runtime.pending is not None:
            outcome = conversation.go_on()
        if task is not None:
            if outcome is not None and outcome.status is Status.PAUSED:
                screen.say("The new task was not started: an earlier run waits for an answer.", style="yellow")
            else:
                outcome = conversation.turn(task)
        if outcome is None:
            raise SettingsError(
                'Nothing is waiting in this session: say what to do, e.g. codepilot run "fix the tests".'
            )
        _print_answer(outcome)
        if outcome.status is Status.PAUSED:
            return _paused(outcome, options, screen)
        if outcome.status is Status.MODEL_UNAVAILABLE and options.session is not None:
            again = f"codepilot run --session {shlex.quote(options.session)}"
            said_why = "The run has not finished. When the model service is available again, resume with:"
            screen.say(f"{said_why} {again}", style="yellow")
        return Exit.DONE if outcome.status in {Status.FINISHED, Status.ANSWERED} else Exit.NOT_DONE


def chat(options: ChatOptions) -> Exit:
    """Talk until the person has had enough. Without a terminal, each line of the standard input is a task.

    Raises:
        AgentError: as for `run`.
    """
    settings = agent_file(options)
    models = ChatModels(settings.model)
    with _leaving(), _conversation(options, settings) as (runtime, screen, conversation):
        at, count = runtime.agent, len(runtime.messages)
        session = "" if options.session is None else f" · session {options.session}"
        session += f" ({count} messages)" if session and count else ""
        place = f"{at.provider.model} · {at.work_dir} · sandbox: {at.sandbox.level}"
        screen.say(f"{at.name} · {place}{session} · `/help` for help", style="dim")
        if isinstance(runtime.session, FileSession) and runtime.session.recovered:
            screen.say(runtime.session.recovered, style="yellow")
        outcome = conversation.go_on()
        while outcome is None or outcome.status is not Status.PAUSED:
            line = _line()
            if line is None:
                return Exit.DONE
            try:
                said = word(line)
            except SettingsError as error:
                screen.say(str(error), style="yellow")
                continue
            if said is Word.QUIT:
                return Exit.DONE
            if said is Word.MODEL:
                _choose_model(model_in(line), models, runtime, screen, conversation)
            elif said is not None:
                _obey(said, runtime, screen, conversation)
            elif line.strip():
                outcome = conversation.turn(line)
                _print_answer(outcome)
        return _paused(outcome, options, screen)


def _obey(said: Word, runtime: AsyncRuntime, screen: ChatScreen, conversation: Chat) -> None:
    """Carry out a command of the chat; leaving is the caller's."""
    match said:
        case Word.HELP:
            screen.say(_HELP)
        case Word.COST:
            used = (event.usage for event in runtime.session.events if isinstance(event, Replied | Summarised))
            screen.say(spent(sum(used, Usage())))
        case Word.RESET:
            conversation.reset()
            screen.say("Everything is forgotten.")
        case Word.MODEL | Word.QUIT:
            pass


def _choose_model(
    named: str, models: ChatModels, runtime: AsyncRuntime, screen: ChatScreen, conversation: Chat
) -> None:
    """Say which model is asked, or switch to the one that is named; the conversation stays."""
    try:
        if named:
            models.switch(named, conversation.use)
    except SettingsError as error:
        screen.say(str(error), style="yellow")
        return
    screen.say(f"The model is {runtime.agent.provider.model} ({models.service}).")
    if not named:
        screen.say(models.known)


def list_sessions() -> None:
    """Print the sessions that are kept in files, the newest first."""
    sessions = FileSession(session_id="_").list_sessions()
    for each in sessions:
        when = datetime.fromtimestamp(each["updated_at"], tz=UTC).astimezone()
        name = visible(each["session_id"]).replace("\n", "\\n").replace("\t", "\\t")
        sys.stdout.write(f"{name:30} {each['messages']:5} messages  {when:%Y-%m-%d %H:%M}\n")
    if not sessions:
        sys.stdout.write("No saved sessions.\n")


def read_task() -> str:
    """The task that the standard input holds.

    Raises:
        SettingsError: it is empty.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is no text in this encoding must not break the rest
    task = sys.stdin.read().strip()
    if not task:
        raise SettingsError("The standard input contains no task; e.g. echo 'fix the tests' | codepilot run -")
    return task


@contextmanager
def _leaving() -> Iterator[None]:
    """Leaving in the middle of a run leaves the program."""
    try:
        yield
    except LeftError as left:
        sys.exit(Exit(128 + left.by))


@contextmanager
def _conversation(options: ChatOptions, settings: AgentFile) -> Iterator[tuple[AsyncRuntime, ChatScreen, Chat]]:
    """Everything set up, and given back at the end."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no check marks must not end a run
    # Where the standard output is no terminal it is for the answer alone.
    screen = ChatScreen(Console(stderr=not sys.stdout.isatty()))
    worker = agent(options, settings)
    recorder = None if options.record is None else Recorder(worker, options.record)
    runtime = AsyncRuntime(
        worker if recorder is None else recorder.agent,
        session="memory" if options.session is None else "file",
        session_id=options.session,
        stream=True,
        listeners=(screen.on_event,),
    )
    if recorder is not None:
        recorder.follow(runtime)
    prompt = _prompt if _with_a_person() else None
    recorded = None if recorder is None else recorder.recorded
    with Chat(runtime, screen, prompt, permissions=options.permissions, recorded=recorded) as conversation:
        yield runtime, screen, conversation


def _print_answer(outcome: Outcome) -> None:
    """What was asked for, on a standard output that a program reads; on a terminal it has been streamed."""
    if outcome.summary and not sys.stdout.isatty():
        sys.stdout.write(visible(outcome.summary).rstrip() + "\n")
        sys.stdout.flush()


def _paused(outcome: Outcome, options: ChatOptions, screen: ChatScreen) -> Exit:
    if options.session is None:
        screen.say("The run was not stored. With --session NAME it would wait for an answer.", style="yellow")
    else:
        again = f"codepilot run --session {shlex.quote(options.session)}"
        asked = outcome.pending is not None and outcome.pending.kind == "question"
        fitting = "--answer TEXT" if asked else "--approve | --deny [--note WHY]"
        screen.say(f"The run is waiting. Resume with: {again} {fitting}", style="yellow")
    return Exit.PAUSED


def _with_a_person() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _prompt(text: str) -> str:
    with suppress(ImportError):  # line editing is a comfort that some builds of Python lack
        importlib.import_module("readline")
    return input(text)


def _line() -> str | None:
    """The next line for the agent; None when there is none, or the person has had enough."""
    try:
        if not _with_a_person():
            return sys.stdin.readline() or None
        sys.stdout.write("\n")
        return _prompt("> ")
    except (EOFError, KeyboardInterrupt):
        sys.stdout.write("\n")
        return None
