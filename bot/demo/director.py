"""`codepilot demo`: hub, bot and worker in one process, an issue, a command, and the pull request."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

from aiohttp import web
from pydantic import SecretStr
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from agent_runtime import (
    CompletionWithdrawn,
    Event,
    ModelAwaited,
    Network,
    Provider,
    SandboxSettings,
    StepStarted,
    Streamed,
    StreamReset,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
    pick_sandbox,
)
from bot.cli.app import EVENTS, PERMISSIONS
from bot.demo.project import DemoError, Scenario, prepare_boltons, prepare_local
from bot.demo.tour import KEYS, TourEntry, make_models, open_tour, read_tour
from bot.domain.job import TRANSITIONS, JobState
from bot.git.filesystem import discard
from bot.git.process import Git
from bot.jobs.record import StoredRecord
from bot.server.serve import BotService, build_service
from bot.settings.load import bypass_proxies, load_demo
from bot.settings.models import AgentSettings, Settings
from localhub import LocalHub, Repo

PERSON = "mona"
_PERMISSIONS = {each.name: each.level for each in PERMISSIONS if each.weight != "optional"}
_EVENTS = [each.name for each in EVENTS]
_ENDED = {state for state, then in TRANSITIONS.items() if not then} | {JobState.WAITING}
"""A job that waits for a person never ends here: nobody answers."""

_READING = (4, 0.012)
"""Characters of a chunk of a scripted reply, and seconds between chunks, so that a person can read along."""
_FAST = (16, 0.0)
_RESULT_LINES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    repo: Path | None
    issue: str | None
    script: Path | None
    base_url: str
    model: str
    keep: bool
    port: int
    fast: bool


async def direct(options: DemoOptions) -> JobState:
    """Prepare the demo, play it, and clean up; return the job's last state.

    Raises:
        DemoError: something is missing; the text has the remedy.
        SandboxError: agents could not run safely here.
        ConfigError: the environment's settings are wrong.
    """
    screen = DemoScreen(Console())
    bypass_proxies("127.0.0.1")  # where the hub is
    directory = Path(tempfile.mkdtemp(prefix="codepilot-demo-"))
    try:
        with as_file(files("bot.demo").joinpath("script.yaml")) as own_script:
            script = options.script or (own_script if options.repo is None else None)
            agent = load_demo(
                script,
                data_dir=directory / "bot",
                toolchains=own_toolchains(),
                base_url=options.base_url,
                model=options.model,
            )
            is_scripted = agent.provider == "scripted"
            if is_scripted:
                notice = (
                    "The model is scripted: its replies are prepared, everything else is real. "
                    f"Set {KEYS} to use a real model."
                )
            elif address := agent.endpoint.base_url:
                notice = f"Using the model {agent.model} at {address}."
            else:
                bound = f"at most ${agent.limits.max_cost_usd:.2f}" if agent.limits.max_cost_usd else "without a bound"
                notice = f"Using the real model {agent.model}, which costs real money ({bound})."
            screen.say(notice, style="bold yellow")
            if os.geteuid() == 0:
                screen.say("You are root. The server would refuse to run; the demo allows it for its own project.")
            chunk_chars, delay = _FAST if options.fast else _READING
            tour = read_tour() if options.keep and options.repo is None and options.script is None else ()
            if tour and is_scripted and pick_sandbox(agent.sandbox, SandboxSettings()).level == "bubblewrap":
                # Without a network no command needs an approval; other sandboxes could not limit it to these hosts.
                agent = replace(agent, network=agent.network or Network.of("registries"))
            tour = tuple(each for each in tour if agent.network or not each.needs_network)
            replies = [each for entry in tour for each in entry.conversations]
            stage = Stage(
                scenario=await _scenario(options, directory, screen),
                agent=agent,
                directory=directory,
                keep=options.keep,
                port=options.port,
                provider=make_models(agent.model, replies, chunk_chars=chunk_chars, delay=delay)
                if is_scripted
                else None,
                tour=tour,
            )
            return await play(stage, screen)
    finally:
        discard(directory)


def own_toolchains() -> tuple[Path, ...]:
    """Return the Python that runs this, for the agent's tests; the system's own is there anyway."""
    prefixes = dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix)))
    return tuple(path for path in prefixes if path not in {Path("/usr"), Path("/")})


async def _scenario(options: DemoOptions, directory: Path, screen: DemoScreen) -> Scenario:
    if options.repo is not None:
        scenario, note = await prepare_local(options.repo, options.issue or "", directory)
        if note:
            screen.say(note, style="yellow")
        return scenario
    screen.say("Fetching a small open-source project, boltons 26.2.0, and restoring one of its old bugs.")
    return await prepare_boltons(directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The project, the model and the options of a demo.

    Attributes:
        keep: whether hub and bot run on afterwards.
        provider: makes the models, in place of `agent`.
    """

    scenario: Scenario
    agent: AgentSettings
    directory: Path
    keep: bool
    port: int
    provider: Callable[[], Provider] | None = None
    tour: tuple[TourEntry, ...] = ()


async def play(stage: Stage, screen: DemoScreen) -> JobState:
    """Show the bot at work, from an issue to a pull request; return the job's last state.

    Raises:
        DemoError: the bot refused or did not comment.
        SandboxError: agents could not run safely here.
    """
    scenario = stage.scenario
    async with (
        open_hub(stage.directory, scenario.full_name, scenario.path, stage.agent, port=stage.port) as (
            hub,
            repo,
            settings,
        ),
        build_service(
            settings,
            listeners=[screen.on_event],
            edit_seconds=2.0,
            provider=stage.provider,
            seconds_between_writes=0.0,
        ) as bot,
        _listening(bot) as address,
    ):
        hub.set_webhook(hub.app(settings.app_id), f"{address}/webhook", settings.webhook_secret.get_secret_value())
        screen.say(f"hub   {hub.url}/{repo.full_name}", style="dim")
        screen.say(f"bot   {address}/webhook", style="dim")
        await _show_tests(stage, screen, "before", scenario.path)
        state = await _fix(stage, screen, hub, repo, bot)
        if stage.keep:
            _offer(stage, screen, hub, repo)
            with suppress(asyncio.CancelledError):  # Ctrl+C ends what the person has seen to its end
                await asyncio.Event().wait()
        return state


@asynccontextmanager
async def open_hub(
    directory: Path, full_name: str, source: Path, agent: AgentSettings, *, port: int = 0
) -> AsyncIterator[tuple[LocalHub, Repo, Settings]]:
    """Open a hub with a copy of a repository, an App that is installed there, and the App's settings."""
    async with LocalHub(directory / "hub", port=port) as hub:
        hub.add_user(PERSON, name="Mona")
        repo = hub.add_repo(full_name, owner=PERSON, source=source)
        secret = secrets.token_hex(32)
        app = hub.add_app("codepilot", webhook_secret=secret, permissions=_PERMISSIONS, events=_EVENTS)
        hub.install(app, repo)
        settings = Settings(
            agent=replace(agent, data_dir=directory / "bot"),
            webhook_secret=SecretStr(secret),
            app_id=app.id,
            private_key=SecretStr(app.private_key_pem),
            api_url=hub.api_url,
            server_url=hub.url,
            jobs=2,
            host="127.0.0.1",
            port=0,
        )
        yield hub, repo, settings


@asynccontextmanager
async def _listening(bot: BotService) -> AsyncIterator[str]:
    await bot.runner.setup()
    await web.TCPSite(bot.runner, "127.0.0.1", 0).start()
    worker = asyncio.create_task(bot.worker.run())
    try:
        yield f"http://127.0.0.1:{bot.runner.addresses[0][1]}"
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await bot.runner.cleanup()


async def _fix(stage: Stage, screen: DemoScreen, hub: LocalHub, repo: Repo, bot: BotService) -> JobState:
    """Open the issue, give the command, wait for the job, and show the change."""
    scenario = stage.scenario
    issue = hub.open_issue(repo, author=PERSON, title=scenario.title, body=scenario.body)
    screen.heading(f"@{PERSON} opens issue #{issue.number} and asks for a fix")
    screen.markdown(f"**{scenario.title}**\n\n{scenario.body}", title=f"issue #{issue.number}")
    screen.markdown(f"`{scenario.request}`", title=f"comment by @{PERSON}")
    screen.heading("The bot starts working")
    hub.comment(repo, issue.number, author=PERSON, body=scenario.request)
    job_id = await _job_of_comment(hub)
    while True:
        stored = await bot.queue.get(job_id)
        if stored is not None and stored.state in _ENDED:
            break
        await asyncio.sleep(0.05)
    record = await StoredRecord(bot.queue, job_id).read()
    if (posted := record.comment.posted) is None:
        raise DemoError(f"The bot has not commented on {repo.full_name}#{issue.number}; see its log.")
    comment = next(each for each in hub.comments(repo, issue.number) if each.id == posted.id)
    screen.heading("The bot's answer")
    screen.markdown(comment.body.partition("<!--")[0], title="comment by @codepilot[bot]")
    published = record.published
    if published.commit is not None:
        sha = published.commit.sha
        screen.heading(f"The change, commit {sha[:10]}")
        git = Git(git_dir=repo.path)
        screen.diff((await git.run("show", "--format=", sha)).decode(errors="replace"))
        tree = stage.directory / "after"
        tree.mkdir()
        checkout = Git(git_dir=git.git_dir, work_tree=tree, index=stage.directory / "after.index")
        await checkout.run("read-tree", sha)
        await checkout.run("checkout-index", "--all")
        await _show_tests(stage, screen, "after", tree)
    screen.heading("Look at it")
    screen.say(f"issue         {hub.url}/{repo.full_name}/issues/{issue.number}")
    if published.pull is not None:
        screen.say(f"pull request  {published.pull.html_url}")
    if not stage.keep:
        screen.say("The pages disappear when this command ends; `make demo ARGS=--keep` keeps them.", style="dim")
    return stored.state


async def _job_of_comment(hub: LocalHub) -> str:
    while True:
        for delivery in hub.deliveries:
            if delivery.event == "issue_comment" and delivery.status_code:
                answer = json.loads(delivery.response_body or "{}")
                if "job" in answer:
                    return str(answer["job"])
                raise DemoError(f"the bot refused the delivery: {delivery.status_code} {delivery.response_body}")
        await asyncio.sleep(0.02)


async def _show_tests(stage: Stage, screen: DemoScreen, when: str, tree: Path) -> None:
    command = stage.scenario.test_command
    if command is None:
        return
    settings = SandboxSettings(
        read_only=stage.agent.toolchains,
        path=tuple(path / "bin" for path in stage.agent.toolchains),
        toolchains="none",
    )
    launch = pick_sandbox(stage.agent.sandbox, settings).launch(["bash", "-c", command], workspace=tree)
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        env=dict(launch.env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    screen.heading(f"The tests {when}: {command}")
    for line in output.decode(errors="replace").strip().splitlines()[-3:]:
        screen.say(line, style="green" if process.returncode == 0 else "red")


def _offer(stage: Stage, screen: DemoScreen, hub: LocalHub, repo: Repo) -> None:
    pages = f"{hub.url}/{repo.full_name}/issues"
    if not stage.tour:
        screen.heading("Still running: comment as you like, stop with Ctrl+C")
        screen.say(pages)
        return
    threads = {"pull" if each.pull else "issue": each.number for each in hub.issues(repo)}
    scripted = stage.provider is not None
    tour = open_tour(hub, repo, stage.scenario.path, stage.tour, author=PERSON, existing=threads, scripted=scripted)
    screen.heading("Still running: try the tour, stop with Ctrl+C")
    screen.say(f"{pages}/{tour.number}", style="bold")
    for entry, number in tour.threads:
        screen.say(f"  {entry.title}", style="dim")
        screen.say(f"  #{number}  {entry.comment}")
    if not scripted:
        screen.say("A real model answers: comment as you like.")


class DemoScreen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._text, self._style = "", ""

    def heading(self, text: str) -> None:
        self._end_text()
        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left", style="dim"))

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line of the demo itself."""
        self._end_text()
        self._console.print(Text(text, style=style), highlight=False)

    def markdown(self, text: str, *, title: str) -> None:
        self._end_text()
        # Terminals differ in the width of a sign with this selector, which would break the frame.
        text = text.replace("\ufe0f", "")
        self._console.print(Panel(Markdown(text), title=Text(title), title_align="left", border_style="dim"))

    def diff(self, patch: str) -> None:
        self._end_text()
        self._console.print(Syntax(patch.rstrip(), "diff", background_color="default", word_wrap=True))

    def on_event(self, event: Event) -> None:
        match event:
            case StepStarted(step=step, max_steps=max_steps):
                self._end_text()
                self._console.print(f"\n[bold cyan]step {step}[/] [dim]of at most {max_steps}[/]")
            case Streamed(text=text, completion=completion):
                style = "green" if completion else "none"
                if style != self._style:
                    self._end_text()
                self._text, self._style = self._text + text, style
            case StreamReset() if self._text:
                self._text = ""
                self.say("(the reply broke off; trying again)", style="yellow")
            case ModelAwaited(reason=reason, seconds=seconds):
                self.say(f"(no reply: {reason}; trying again in {seconds:.0f} s)", style="yellow")
            case ToolCalled(label=label):
                self.say(f"  ▸ {label}", style="cyan")
            case ToolProgressed(text=text):
                self.say(f"    {text}", style="dim")
            case ToolReturned(text=text, ok=ok) if text.strip():
                lines = [line for line in text.splitlines() if line.strip()]
                lines = lines if len(lines) <= _RESULT_LINES else ["…", *lines[-_RESULT_LINES:]]
                shown = [f"    {line[: max(20, self._console.width - 6)]}" for line in lines]
                self.say("\n".join(shown), style="dim" if ok else "red")
            case CompletionWithdrawn():
                self.say(
                    "  ✗ the step failed, so its completion does not count; the run continues", style="bold yellow"
                )
            case _:
                pass

    def _end_text(self) -> None:
        """Print the model's text, which is collected so that its lines fit the terminal."""
        text, self._text = self._text.strip(), ""
        if text:
            self._console.print(Markdown(text, style=self._style))
