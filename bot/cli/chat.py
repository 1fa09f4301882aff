"""`codepilot run` and `codepilot chat`, the agent at a terminal, and `codepilot import-session`.

`ChatOptions` holds the arguments, `make_agent` makes the agent, and a `Chat` runs one task at a time and asks for
approvals. A standard output that is no terminal gets the answer alone.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import math
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import click
from rich.console import Console

from agent_runtime import (
    CATALOG,
    Agent,
    AgentFile,
    AsyncRuntime,
    BaseSession,
    FileSession,
    ModelOptions,
    ModelSettings,
    Outcome,
    PendingCall,
    Provider,
    Recorder,
    Replied,
    ResumeError,
    Rule,
    SettingsError,
    Status,
    Summarised,
    TrustRecord,
    TrustRequest,
    Usage,
    create_session,
    describe_toolchains,
    import_session_file,
    import_session_table,
    known_models,
    read_instructions,
    read_skills,
    read_toolchains,
)
from bot.cli.screen import (
    HELP,
    PERMISSIONS,
    TOOLCHAINS,
    ApprovedCalls,
    ChatAnswer,
    ChatScreen,
    Permissions,
    Word,
    check_fit,
    escape_invisible,
    format_one_line,
    format_usage,
    list_sessions,
    model_in,
    read_answer,
    read_word,
)

F = TypeVar("F", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The options of the command line; None leaves a value to the agent file."""

    agent: Path | None = None
    directory: Path | None = None
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    script: Path | None = None
    max_steps: int | None = None
    budget: float | None = None
    permissions: Permissions = "auto"
    session: str | None = None
    record: Path | None = None
    trust: bool = False
    toolchains: str | None = None


def _require_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise click.BadParameter("a session needs a name; omit the option to store no session.")
    return name


def _require_finite(_context: click.Context, _option: click.Parameter, amount: float | None) -> float | None:
    """Refuse an amount without a bound: no number is greater than `nan`."""
    if amount is not None and not math.isfinite(amount):
        raise click.BadParameter(f"{amount} is not an amount of money.")
    return amount


_AGENT_OPTIONS = (
    click.option("--agent", type=_FILE, help="The agent file; default ./agent.yaml if it exists."),
    click.option(
        "--dir",
        "directory",
        type=_DIRECTORY,
        help="The agent's directory; default from the agent file, or the current one.",
    ),
    click.option("--provider", help="The model service; overrides the agent file."),
    click.option("--model", help="The model; overrides the agent file."),
    click.option(
        "--base-url",
        envvar="CODEPILOT_BASE_URL",
        show_envvar=True,
        help="The address of an OpenAI-compatible server, such as Ollama or vLLM, or of another --provider. The only "
        "key that is sent there is CODEPILOT_API_KEY. It needs a --model.",
    ),
    click.option("--script", type=_FILE, help="A script with replies, instead of a model."),
    click.option("--session", callback=_require_name, help="Store the conversation under this name, or continue it."),
    click.option("--max-steps", type=click.IntRange(min=1), help="The maximum number of steps in one run."),
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        callback=_require_finite,
        help="The cost limit of one run in US dollars.",
    ),
    click.option(
        "--permissions",
        type=click.Choice(PERMISSIONS),
        default="auto",
        show_default=True,
        help="auto: ask as the agent file says, and for commands without a sandbox. ask: also ask for every write "
        "and command. all: approve everything. none: deny everything that requires approval.",
    ),
    click.option("--record", type=_NEW_FILE, help="Record every request and reply in this new file."),
    click.option("--toolchains", help=f"{TOOLCHAINS} Overrides the agent file."),
    click.option("--trust", is_flag=True, help="Trust the agent file, whatever it contains, for this run."),
)


def _with_agent_options(command: F) -> F:
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("task", required=False)
@_with_agent_options
@click.option("--approve", is_flag=True, help="Approve the waiting call and resume.")
@click.option("--deny", is_flag=True, help="Deny the waiting call and resume.")
@click.option("--note", help="With --deny: the reason, for the agent.")
@click.option("--answer", help="Answer the waiting question and resume.")
def run(*, task: str | None, approve: bool, deny: bool, note: str | None, answer: str | None, **options: Any) -> None:  # noqa: ANN401 - the fields of ChatOptions
    """Do one TASK in a directory.

    `-` reads TASK from the standard input. Exit codes: 0 done, 1 not done, 2 invalid settings, 3 a call waits for an
    answer.
    """
    if approve + deny + (answer is not None) > 1:
        raise click.UsageError("Use only one of --approve, --deny and --answer.")
    if note is not None and not deny:
        raise click.UsageError("--note requires --deny.")
    reply = ChatAnswer(approved=approve, note=note or "") if approve or deny else None
    if answer is not None:
        reply = ChatAnswer(approved=True, note=answer, answers=True)
    if reply is not None and task is not None:
        raise click.UsageError("An answer resumes the waiting run; leave TASK out.")
    if task is not None and not task.strip():
        raise click.UsageError('TASK is empty. Say what to do, e.g. codepilot run "fix the tests".')
    if options["session"] is None and task is None:
        raise click.UsageError('Say what to do, e.g. codepilot run "fix the tests", or which --session to continue.')

    text = read_task_from_stdin() if task == "-" else task
    sys.exit(run_task(ChatOptions(**options), text, reply))


@click.command()
@_with_agent_options
@click.option("--list", "listed", is_flag=True, help="List the stored sessions and exit.")
def chat(*, listed: bool, **options: Any) -> None:  # noqa: ANN401 - the fields of ChatOptions
    """Work with the agent in a directory, interactively."""
    if listed:
        list_sessions()
    else:
        sys.exit(run_chat(ChatOptions(**options)))


@click.command("import-session")
@click.argument("files", nargs=-1, type=_FILE)
@click.option("--from-db", metavar="URL", help="Import all rows of a database instead of files.")
@click.option("--table", default="codepilot_sessions", show_default=True, help="The table to import with --from-db.")
@click.option("--to-db", metavar="URL", help="Store the sessions in this database; default ~/.codepilot/sessions.")
@click.option("--session-dir", type=click.Path(file_okay=False, path_type=Path), help="Store the sessions here.")
@click.option("--agent", "agent_name", default="agent", show_default=True, help="The agent's name, if none is stored.")
def import_session(
    *,
    files: tuple[Path, ...],
    from_db: str | None,
    table: str,
    to_db: str | None,
    session_dir: Path | None,
    agent_name: str,
) -> None:
    """Import sessions of CodePilot 0.9.

    They come from FILES, or from a database with --from-db. A session keeps its id and its messages. A session that
    already exists is not changed. Archived texts are imported as their summaries only.
    """
    if bool(files) is (from_db is not None):
        raise click.UsageError("Name session files, or a database with --from-db.")
    if to_db is not None and session_dir is not None:
        raise click.UsageError("--to-db and --session-dir exclude each other.")

    def session_for(session_id: str) -> BaseSession:
        backend = "file" if to_db is None else "db"
        return create_session(backend, session_id, agent_name, session_dir, to_db)

    imported: Iterable[str] = (import_session_file(path, session_for) for path in files)
    if from_db is not None:
        imported = import_session_table(from_db, session_for, table=table)
    for session_id in imported:
        click.echo(f"Imported the session {session_id!r}.")


class Exit(IntEnum):
    DONE = 0
    NOT_DONE = 1
    PAUSED = 3
    LEFT = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


def run_task(options: ChatOptions, task: str | None, reply: ChatAnswer | None = None) -> Exit:
    """Run one task, or answer the call at which the session's run waits.

    Raises:
        AgentError: the settings are invalid, or the session cannot be used.
    """
    with _open_chat(options, load_agent_file(options)) as (runtime, screen, conversation):
        outcome = None
        if reply is not None:
            if runtime.pending is None:
                raise SettingsError(
                    "Nothing is waiting for an answer in this session. Leave out --approve, --deny and --answer, and "
                    'say what to do, e.g. codepilot run "fix the tests".'
                )
            outcome = conversation.answer(reply)
        elif task is None or runtime.pending is not None:
            outcome = conversation.resume()
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
            again = _resume_command(options.session)
            said_why = "The run has not finished. When the model service is available again, resume with:"
            screen.say(f"{said_why} {again}", style="yellow")
        return Exit.DONE if outcome.status in {Status.FINISHED, Status.ANSWERED} else Exit.NOT_DONE


def run_chat(options: ChatOptions) -> Exit:
    """Converse until the user leaves. Without a terminal, each line of the standard input is a task."""
    settings = load_agent_file(options)
    models = ChatModels(settings.model)
    with _open_chat(options, settings) as (runtime, screen, conversation):
        at, count = runtime.agent, len(runtime.messages)
        session = f"session {options.session}{f' ({count} messages)' if count else ''}" if options.session else ""
        screen.show_facts(
            at.name, at.provider.model, str(at.work_dir), f"sandbox: {at.sandbox.level}", session, "/help for help"
        )
        if isinstance(runtime.session, FileSession) and runtime.session.recovered:
            screen.say(runtime.session.recovered, style="yellow")
        outcome = conversation.resume()
        while outcome is None or outcome.status is not Status.PAUSED:
            line = _read_line(screen)
            if line is None:
                return Exit.DONE
            try:
                said = read_word(line)
            except SettingsError as error:
                screen.say(str(error), style="yellow")
                continue
            if said is Word.QUIT:
                return Exit.DONE
            if said is not None:
                _execute_command(said, model_in(line), models, runtime, screen, conversation)
            elif line.strip():
                outcome = conversation.turn(line)
                _print_answer(outcome)
        return _paused(outcome, options, screen)


def _execute_command(  # noqa: PLR0917 - the parts of one conversation
    word: Word, model: str, models: ChatModels, runtime: AsyncRuntime, screen: ChatScreen, conversation: Chat
) -> None:
    match word:
        case Word.HELP:
            screen.say(HELP)
        case Word.COST:
            used = (event.usage for event in runtime.session.events if isinstance(event, Replied | Summarised))
            screen.say(format_usage(sum(used, Usage())))
        case Word.RESET:
            conversation.reset()
            screen.say("Everything is forgotten.")
        case Word.MODEL:
            try:
                if model:
                    models.switch(model, conversation.use)
            except SettingsError as error:
                screen.say(str(error), style="yellow")
                return
            screen.say(f"The model is {runtime.agent.provider.model} ({models.service}).")
            if not model:
                screen.say(models.known_models)
        case Word.QUIT:
            pass


def read_task_from_stdin() -> str:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is no text in this encoding must not break the rest
    task = sys.stdin.read().strip()
    if not task:
        raise SettingsError("The standard input contains no task; e.g. echo 'fix the tests' | codepilot run -")
    return task


@contextmanager
def _open_chat(options: ChatOptions, settings: AgentFile) -> Iterator[tuple[AsyncRuntime, ChatScreen, Chat]]:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no check marks must not end a run
    # Where the standard output is no terminal it is for the answer alone.
    screen = ChatScreen(Console(stderr=not sys.stdout.isatty()))
    worker = make_agent(options, settings)
    if line := describe_toolchains(worker.sandbox, worker.work_dir):
        screen.say(line, style="dim")
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
    prompt = _prompt if _has_person() else None
    recorded = None if recorder is None else recorder.recorded
    try:
        with Chat(runtime, screen, prompt, permissions=options.permissions, recorded=recorded) as conversation:
            yield runtime, screen, conversation
    except LeftError as left:
        sys.exit(Exit(128 + left.by))


def _print_answer(outcome: Outcome) -> None:
    if outcome.summary and not sys.stdout.isatty():
        sys.stdout.write(escape_invisible(outcome.summary).rstrip() + "\n")
        sys.stdout.flush()


def _resume_command(session: str) -> str:
    # Without --trust, because the agent may have changed the agent file.
    return f"codepilot run --session {shlex.quote(session)}"


def _paused(outcome: Outcome, options: ChatOptions, screen: ChatScreen) -> Exit:
    if options.session is None:
        screen.say("The run was not stored. With --session NAME it would wait for an answer.", style="yellow")
    else:
        again = _resume_command(options.session)
        asked = outcome.pending is not None and outcome.pending.kind == "question"
        fitting = "--answer TEXT" if asked else "--approve | --deny [--note WHY]"
        screen.say(f"The run is waiting. Resume with: {again} {fitting}", style="yellow")
    return Exit.PAUSED


def _has_person() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _prompt(text: str) -> str:
    with suppress(ImportError):  # line editing is a comfort that some builds of Python lack
        importlib.import_module("readline")
    return input(text)


def _read_line(screen: ChatScreen) -> str | None:
    """Return the next line; None at the end of the input, and on a second Ctrl+C in a row at an empty prompt."""
    is_warned = False
    while True:
        try:
            if not _has_person():
                return sys.stdin.readline() or None
            screen.say("")
            return _prompt("> ")
        except (EOFError, KeyboardInterrupt) as error:
            screen.say("")
            if isinstance(error, EOFError) or is_warned or not _has_person():
                return None
            readline = sys.modules.get("readline")
            is_warned = readline is None or not readline.get_line_buffer()
            if is_warned:
                screen.say("Press Ctrl+C again to leave.", style="yellow")


Prompt = Callable[[str], str]
"""Asks the user for a line; raises EOFError or KeyboardInterrupt when they leave."""


class LeftError(Exception):
    def __init__(self, by: signal.Signals) -> None:
        super().__init__(by.name)
        self.by = by


class Chat:
    """A conversation of the user at the terminal with an agent.

    Ctrl+C stops a run, and leaves a call open; pressed again it leaves.
    """

    def __init__(
        self,
        runtime: AsyncRuntime,
        screen: ChatScreen,
        prompt: Prompt | None,
        *,
        permissions: Permissions = "auto",
        recorded: Callable[[Provider], Provider] | None = None,
    ) -> None:
        """Take over `runtime`, which is closed on leaving.

        Args:
            prompt: None if there is no person; then calls go on waiting.
            recorded: wraps a provider to record its exchanges.
        """
        self._runtime = runtime
        self._screen = screen
        self._prompt = prompt
        self._permissions = permissions
        self._recorded = recorded
        self._remembered = ApprovedCalls()
        self._left_by = signal.SIGINT
        self._runner = asyncio.Runner()
        runtime.hooks.register("permission_request", self._known_answer, by_arguments=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._runtime.close())
        finally:
            self._runner.close()

    def turn(self, task: str) -> Outcome:
        """Run one task.

        Raises:
            LeftError: the user left.
        """
        return self._settle_calls(self._run(self._runtime.run(task)))

    def resume(self) -> Outcome | None:
        """Resume the session's newest run if it waits or was interrupted; else return None."""
        if not self._runtime.unfinished:
            return None
        call = self._runtime.pending
        if call is None:
            self._screen.say("The last run was interrupted; it resumes.", style="dim")
            return self._settle_calls(self._run(self._runtime.resume()))
        return self._settle_calls(Outcome(status=Status.PAUSED, pending=call))

    def answer(self, reply: ChatAnswer) -> Outcome:
        """Answer the pending call, and run to the end.

        Raises:
            SettingsError: the answer does not fit.
            ResumeError: no call is pending, or something was altered since it was shown.
            LeftError: the user left.
        """
        if (call := self._runtime.pending) is not None:
            check_fit(reply, call)
        return self._settle_calls(self._resumed(reply))

    def reset(self) -> None:
        self._runner.get_loop().run_until_complete(self._runtime.reset())

    def use(self, provider: Provider) -> None:
        """Use another model from the next task on.

        Raises:
            SettingsError: the model cannot continue this conversation.
        """
        self._runner.run(self._runtime.set_provider(self._recorded(provider) if self._recorded else provider))

    def _settle_calls(self, outcome: Outcome) -> Outcome:
        while outcome.status is Status.PAUSED and (call := outcome.pending) is not None:
            known = self._known_answer(call) if call.kind == "permission" else None
            said = self._ask_person(call) if known is None else ChatAnswer(approved=known)
            if said is None:
                break
            if said.always:
                self._remembered.add(call)
            try:
                outcome = self._resumed(said)
            except ResumeError as error:  # e.g. a file was changed meanwhile: the call still waits
                self._screen.say(str(error), style="yellow")
                if known is not None:
                    break
        if outcome.usage.requests or outcome.status is not Status.PAUSED:  # a call that waits has just been shown
            self._screen.show_end(outcome)
        return outcome

    def _resumed(self, reply: ChatAnswer) -> Outcome:
        return self._run(self._runtime.resume(approve=reply.approved, note=reply.note))

    def _ask_person(self, call: PendingCall) -> ChatAnswer | None:
        self._screen.show_call(call)
        if self._prompt is None:
            return None
        try:
            if call.kind == "question":
                return ChatAnswer(approved=True, note=self._prompt("Your answer: ").strip(), answers=True)
            while True:
                self._screen.show_choices(call)
                said = read_answer(self._prompt("Allow? "))
                if said is not None:
                    return said
        except (EOFError, KeyboardInterrupt):
            self._screen.say("")
            return None

    def _known_answer(self, pending: PendingCall, **_: object) -> bool | None:
        if self._permissions == "none":
            return False
        return True if self._permissions == "all" or pending in self._remembered else None

    def _run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        try:
            return self._runner.run(self._run_interruptibly(work))
        except asyncio.CancelledError as error:
            raise LeftError(self._left_by) from error

    async def _run_interruptibly(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        loop, task, pressed = asyncio.get_running_loop(), asyncio.current_task(), False

        def interrupt() -> None:
            nonlocal pressed
            if pressed and task is not None:
                task.cancel()
                return
            pressed = True
            self._screen.say("Stopping. Press Ctrl+C again to leave immediately.", style="yellow")
            self._runtime.abort()

        def leave() -> None:
            self._left_by = signal.SIGTERM
            if task is not None:
                task.cancel()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, leave)
        try:
            return await work
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)


class ChatModels:
    def __init__(self, current: ModelSettings) -> None:
        self.current = current

    def find_model(self, text: str) -> ModelSettings:
        """Return the model for `NAME`, `PROVIDER/NAME` or `PROVIDER`.

        A prefix can select another service, unless the current model is on one's own server or in a cloud, which may
        serve any model.

        Raises:
            SettingsError: the text names no model.
        """
        if not text.isprintable() or " " in text:
            raise SettingsError("A model's name has no spaces. Use /model NAME, or /model PROVIDER/NAME.")
        here = self.current
        before, slash, after = text.partition("/")
        if before in CATALOG and (not slash or after):
            provider, name = before, after or None
        else:
            known = (each for each, entry in CATALOG.items() if text.startswith(entry.families or ("/",)))
            stays = here.base_url or CATALOG[here.provider].cloud
            provider, name = here.provider if stays else next(known, here.provider), text
        if provider == "scripted":
            raise SettingsError("A script can only be named when the program is started: --script FILE.")
        if provider == here.provider:
            return replace(here, name=name)
        return ModelSettings.for_provider(provider, name=name).at_url(None)

    def switch(self, text: str, use: Callable[[Provider], None]) -> None:
        """Switch to a model by name.

        Raises:
            SettingsError: no such model, its key is not set, or `use` refuses it. The current one stays.
        """
        model = self.find_model(text)
        use(model.create_provider())
        self.current = model

    @property
    def service(self) -> str:
        return f"{self.current.provider} at {self.current.base_url}" if self.current.base_url else self.current.provider

    @property
    def known_models(self) -> str:
        lines = ["Known, for /model NAME:"]
        lines += [f"  {each}: {', '.join(known_models(each))}" for each, entry in CATALOG.items() if entry.families]
        return "\n".join([*lines, "Any other model of a service: /model PROVIDER/NAME."])


AGENT_FILE = Path("agent.yaml")
"""Read from the current directory by default."""

KEY_VARIABLE = "CODEPILOT_API_KEY"
"""The key for an address on the command line; no other key is sent there."""


def load_agent_file(options: ChatOptions) -> AgentFile:
    """Read the agent file, and apply the options.

    Raises:
        SettingsError: there is no model, or the agent file is invalid.
    """
    path = options.agent or (AGENT_FILE if AGENT_FILE.is_file() else None)
    if options.agent is None and path is not None and not path.resolve().is_relative_to(Path.cwd().resolve()):
        raise SettingsError(
            f"{path} is a link to {format_one_line(str(path.resolve()))}, outside this directory. To use it, name it: "
            f"--agent {path}"
        )
    if path is not None:
        settings = AgentFile.load(path, review=partial(_require_trust, options=options))
        model = _chosen_model(options) or settings.model
    else:
        model = _chosen_model(options) or (
            ModelSettings.for_provider("openai") if options.base_url else ModelSettings.from_environment()
        )
        settings = AgentFile.built_in(Path.cwd(), model=model)
    limits, name, service = settings.limits, options.model or model.name, CATALOG[model.provider]
    if options.base_url and name is None and service.hosts and not service.is_own(options.base_url):
        raise SettingsError(f"--base-url is another server than {model.provider}'s: name a model of it with --model.")
    url_setting = model.options.url_setting if model.base_url and not options.base_url else "--base-url"
    named = replace(model, name=name, options=replace(model.options, model_setting="--model", url_setting=url_setting))
    return replace(
        settings,
        model=named.at_url(options.base_url, key_variable=KEY_VARIABLE),
        fallback=() if model is not settings.model else settings.fallback,
        work_dir=settings.work_dir if options.directory is None else options.directory,
        toolchains=settings.toolchains if options.toolchains is None else read_toolchains(options.toolchains),
        limits=replace(
            limits,
            max_steps=options.max_steps or limits.max_steps,
            max_cost_usd=options.budget or limits.max_cost_usd,
        ),
    )


_MAX_SHOWN_CHARS = 8_000
"""Characters of keys that need trust; nobody reads more."""


def _require_trust(request: TrustRequest, *, options: ChatOptions) -> None:
    """Require the user's trust in an agent file; ask at a terminal."""
    places = (request.file.parent, Path.cwd(), *filter(None, [options.directory]))
    record = TrustRecord(reach=tuple(map(_repository, places)))
    if options.trust or record.has(request):
        return
    keys = "\n".join(f"  {each.line}" for each in request.keys)
    is_whole = len(keys) <= _MAX_SHOWN_CHARS
    reason = (
        f"{format_one_line(str(request.file))} is not trusted, or has changed since you trusted it. These of its keys "
        "can weaken the sandbox or the permissions, name an address, a variable or a file outside its directory, or "
        "start a program:\n"
        f"{keys if is_whole else f'{keys[:_MAX_SHOWN_CHARS]}… [+{len(keys) - _MAX_SHOWN_CHARS:,} characters]'}"
    )
    if not _has_person() or not is_whole:
        raise SettingsError(f"{reason}\nRead the file. To trust it for this run, add --trust.")
    sys.stdout.write(f"{reason}\n")
    _discard_typed_ahead()
    try:
        is_trusted = _prompt("Trust this file with this content? [y/N] ").strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        is_trusted = False
    if not is_trusted:
        raise SettingsError("The agent file is not trusted. Name one of your own with --agent FILE.")
    try:
        record.add(request)
    except SettingsError as error:
        sys.stdout.write(f"{error} It is trusted for this run only.\n")


def _repository(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def _discard_typed_ahead() -> None:
    """Discard input from before the question; it is no answer."""
    with suppress(ImportError, OSError, ValueError):
        termios = importlib.import_module("termios")
        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def make_agent(options: ChatOptions, settings: AgentFile | None = None) -> Agent:
    """Make the agent.

    Raises:
        SettingsError: as for `load_agent_file`; or a key is not set, or the session is within the agent's reach.
        SandboxError: this machine has no sandbox of that kind.
    """
    settings = settings or load_agent_file(options)
    if options.session is not None:
        try:
            home = Path.home()
        except RuntimeError as error:
            raise SettingsError(
                "The session cannot be stored: this user has no home directory. Set HOME, or leave out --session."
            ) from error
        if home.is_relative_to(settings.work_dir):
            raise SettingsError(
                f"The agent would work in {settings.work_dir}, where it could change its own session and the key that "
                "signs approvals (~/.codepilot). Choose a directory below it with --dir, or leave out --session."
            )
    own = Agent.from_file(settings)
    return replace(
        own,
        policy=replace(own.policy, floor=(*_floor_rules(settings, options.permissions),)),
        attended=_has_person() or options.session is not None,
        repository_instructions=read_instructions(settings.work_dir),
        skills={**own.skills, **read_skills(settings.work_dir)},
    )


def _chosen_model(options: ChatOptions) -> ModelSettings | None:
    if options.script is not None:
        return ModelSettings.for_provider("scripted", options=ModelOptions(script=options.script))
    return None if options.provider is None else ModelSettings.for_provider(options.provider)


def _floor_rules(settings: AgentFile, permissions: Permissions) -> Iterator[Rule]:
    """Yield the rules of the user and of this program, which the agent file cannot weaken."""
    if permissions == "ask":
        for tool in ("write_file", "execute"):
            yield Rule(decision="ask", tool=tool, reason="you chose to approve every one")
    if settings.sandbox == "local":
        yield Rule(decision="ask", tool="execute", reason="no sandbox isolates it from this machine")
