"""The demo itself: hub, bot and worker in one process, an issue, a command, and the result."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web
from pydantic import SecretStr

from agent_runtime import Provider, SandboxSettings, pick_sandbox
from bot.apps.app_permissions import EVENTS, PERMISSIONS
from bot.apps.composition import BotService, service
from bot.apps.demo.own import DemoError
from bot.apps.demo.project import Scenario
from bot.apps.demo.screen import DemoScreen
from bot.apps.demo.tour import TourEntry, open_tour
from bot.domain.job import TRANSITIONS, JobState
from bot.settings.agent import AgentSettings
from bot.settings.model import Settings
from bot.workspace.git import Git
from localhub import LocalHub, Repo

_PERSON = "mona"
_PERMISSIONS = {each.name: each.level for each in PERMISSIONS if each.weight != "optional"}
_EVENTS = [each.name for each in EVENTS]
_ENDED = {state for state, then in TRANSITIONS.items() if not then} | {JobState.WAITING}
"""A job that waits for a person never ends here: nobody answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the demo is given.

    Attributes:
        scenario: the repository and what is wrong with it.
        agent: the model and the limits; `data_dir` is below `directory`.
        directory: where everything is kept.
        keep: whether hub and bot go on running afterwards, for the person to play with.
        port: where the hub listens; 0 takes a free one.
        provider: makes the model of a run, in place of the one that `agent` names.
        tour: what the person is offered to try afterwards.
    """

    scenario: Scenario
    agent: AgentSettings
    directory: Path
    keep: bool
    port: int
    provider: Callable[[], Provider] | None = None
    tour: tuple[TourEntry, ...] = ()


async def play(stage: Stage, screen: DemoScreen) -> JobState:
    """Show the bot at work, from an issue to a pull request.

    Returns:
        How the job ended; with `keep` once somebody ends the demo.

    Raises:
        DemoError: a part of the stage does not work.
        SandboxError: agents could not run safely here.
    """
    scenario = stage.scenario
    async with LocalHub(stage.directory / "hub", port=stage.port) as hub:
        hub.add_user(_PERSON, name="Mona")
        repo = hub.add_repo(scenario.full_name, owner=_PERSON, source=scenario.path)
        secret = secrets.token_hex(32)
        app = hub.add_app("codepilot", webhook_secret=secret, permissions=_PERMISSIONS, events=_EVENTS)
        hub.install(app, repo)
        settings = Settings(
            agent=replace(stage.agent, data_dir=stage.directory / "bot"),
            webhook_secret=SecretStr(secret),
            app_id=app.id,
            private_key=SecretStr(app.private_key_pem),
            api_url=hub.api_url,
            server_url=hub.url,
            jobs=2,
            host="127.0.0.1",
            port=0,
        )
        async with (
            service(
                settings,
                listeners=[screen.on_event],
                edit_seconds=2.0,
                provider=stage.provider,
                seconds_between_writes=0.0,
            ) as bot,
            _listening(bot) as address,
        ):
            hub.set_webhook(app, f"{address}/webhook", secret)
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
async def _listening(bot: BotService) -> AsyncIterator[str]:
    """Receive webhooks and run jobs while the body runs."""
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
    """Issue, command, work, and a look at what was published."""
    scenario = stage.scenario
    issue = hub.open_issue(repo, author=_PERSON, title=scenario.title, body=scenario.body)
    screen.heading(f"@{_PERSON} opens issue #{issue.number} and asks for a fix")
    screen.markdown(f"**{scenario.title}**\n\n{scenario.body}", title=f"issue #{issue.number}")
    screen.markdown(f"`{scenario.request}`", title=f"comment by @{_PERSON}")
    screen.heading("The bot starts working")
    hub.comment(repo, issue.number, author=_PERSON, body=scenario.request)
    job_id = await _accepted(hub)
    while True:
        stored = await bot.queue.get(job_id)
        if stored is not None and stored.state in _ENDED:
            break
        await asyncio.sleep(0.05)
    record = await bot.queue.record(job_id)
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


def _offer(stage: Stage, screen: DemoScreen, hub: LocalHub, repo: Repo) -> None:
    """Say what the person can do now that the demo is over."""
    pages = f"{hub.url}/{repo.full_name}/issues"
    if not stage.tour:
        screen.heading("Still running: comment as you like, stop with Ctrl+C")
        screen.say(pages)
        return
    known = {"pull" if each.pull else "issue": each.number for each in hub.issues(repo)}
    scripted = stage.provider is not None
    tour = open_tour(hub, repo, stage.scenario.path, stage.tour, author=_PERSON, known=known, scripted=scripted)
    screen.heading("Still running: try the tour, stop with Ctrl+C")
    screen.say(f"{pages}/{tour.number}", style="bold")
    for entry, number in tour.threads:
        screen.say(f"  {entry.title}", style="dim")
        screen.say(f"  #{number}  {entry.comment}")
    if not scripted:
        screen.say("A real model answers: comment as you like.")


async def _accepted(hub: LocalHub) -> str:
    """The job that the bot made of the command.

    Raises:
        DemoError: it refused the delivery.
    """
    while True:
        for delivery in hub.deliveries:
            if delivery.event == "issue_comment" and delivery.status_code:
                answer = json.loads(delivery.response_body or "{}")
                if "job" in answer:
                    return str(answer["job"])
                raise DemoError(f"the bot refused the delivery: {delivery.status_code} {delivery.response_body}")
        await asyncio.sleep(0.02)


async def _show_tests(stage: Stage, screen: DemoScreen, when: str, tree: Path) -> None:
    """Run the scenario's tests in the sandbox and show how they end."""
    command = stage.scenario.test_command
    if command is None:
        return
    settings = SandboxSettings(
        read_only=stage.agent.toolchains, path=tuple(path / "bin" for path in stage.agent.toolchains)
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
        screen.say(f"  {line}", style="green" if process.returncode == 0 else "red")
