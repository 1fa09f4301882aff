"""The three ways from nothing to a first pull request, as a newcomer goes them: `make walks`.

Each walk is a script: the commands that a person types, the pages that they open in a real browser, the waiting, and
the seconds that each takes. GitHub is the local hub; the model is a script; all else is real. `--clone` starts from an
empty clone and installs, as a newcomer has to; without it, the walk has the packages of this environment.

Not counted: reading, and what the local hub has no page for (the secret of a workflow).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from playwright.async_api import Page, async_playwright

from localhub import LocalHub, Repo
from tests.act import copy_of_this, filled_in, run_workflow, with_packages_of_tests
from tests.source_files import ROOT
from tests.stage import FILES, FIX
from tests.waiting import eventually

_LONGEST = 900.0
"""Seconds that one command may take: an empty clone installs everything."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a person does, or waits for.

    Attributes:
        kind: `command`, `page` or `wait`.
        label: the command as typed, the page, or what is waited for.
        seconds: how long it took.
    """

    kind: str
    label: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class Walk:
    """One way to a pull request, while somebody goes it.

    Attributes:
        directory: an empty one.
        clone: whether to start from an empty clone.
        pictures: where pages are kept as PNG files, if anywhere.
        steps: what was done.
        printed: what the commands printed, one after the other.
        pull: the address of the pull request; empty until it is there.
    """

    directory: Path
    clone: bool = False
    pictures: Path | None = None
    steps: list[Step] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    pull: str = ""

    @contextmanager
    def step(self, kind: str, label: str) -> Iterator[None]:
        """Time the body of the `with` as a step."""
        began = time.monotonic()
        yield
        self.steps.append(Step(kind, label, time.monotonic() - began))

    async def command(self, typed: str, *, at: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        """Type a command, and wait for its end.

        Raises:
            RuntimeError: it failed.
        """
        with self.step("command", typed):
            process = await asyncio.create_subprocess_exec(
                *("bash", "-euc", typed),
                cwd=at or self.directory,
                env={**_environment(self.directory), **(env or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            printed, _none = await asyncio.wait_for(process.communicate(), _LONGEST)
        self.printed.append(printed.decode(errors="replace"))
        if process.returncode:
            raise RuntimeError(f"`{typed}` failed:\n{self.printed[-1][-4000:]}")

    @asynccontextmanager
    async def running(self, typed: str, ready: str, *, env: Mapping[str, str]) -> AsyncIterator[Callable[[], str]]:
        """Type a command that goes on; entered when it has printed what `ready` matches. Gives what it has printed."""
        log = self.directory / f"log-{len(self.steps)}"
        with log.open("wb") as output, self.step("command", typed):
            process = await asyncio.create_subprocess_exec(
                *("bash", "-euc", f"exec {typed}"),
                cwd=self.directory,
                env={**_environment(self.directory), **env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

            def listening() -> bool:
                assert process.returncode is None, log.read_text(encoding="utf-8")
                return re.search(ready, log.read_text(encoding="utf-8")) is not None

            await eventually(listening, within=60)
        try:
            yield lambda: log.read_text(encoding="utf-8")
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def picture(self, page: Page, name: str) -> None:
        """Save a screenshot of a page, if wanted."""
        if self.pictures is not None:
            await page.screenshot(path=self.pictures / f"{name}.png", full_page=True)

    def report(self, name: str) -> str:
        """A table of the steps, and their sums."""
        counted = {kind: sum(each.kind == kind for each in self.steps) for kind in ("command", "page")}
        total = sum(each.seconds for each in self.steps)
        rows = [f"{each.seconds:7.1f} s  {each.kind:8} {each.label}" for each in self.steps]
        start = "from an empty clone" if self.clone else "with everything installed"
        sums = f"{counted['command']} commands, {counted['page']} pages, {total / 60:.1f} min"
        return "\n".join([f"{name}, {start}: {sums}", *rows, f"pull request: {self.pull}"])


async def demo(walk: Walk) -> None:
    """Try it: no GitHub, no key."""
    if walk.clone:
        await walk.command(f"git clone --quiet {ROOT} codepilot")
        await walk.command("make demo", at=walk.directory / "codepilot")
    else:
        await walk.command(f"{_program()} demo --fast")
    walk.pull = _only(r"pull request\s+(http://\S+/pull/\d+)", walk.printed[-1])


async def workflow(walk: Walk) -> None:
    """A workflow: one file to copy into a repository, then a comment. `act` is the runner."""
    action = walk.directory / "action"
    copy_of_this(action) if walk.clone else with_packages_of_tests(action)
    copied = ROOT / "docs" / "workflows" / "comments.yml"
    async with _site(walk) as site:
        # The hub reports events only where an App is installed.
        site.hub.install(site.hub.add_app("any"), site.repo, by="mona")
        own = walk.directory / "calc"
        await _git(walk.directory, "clone", "--quiet", site.clone_url, str(own))
        placed = own / ".github" / "workflows" / "codepilot.yml"
        await walk.command(f"mkdir -p .github/workflows && cp {copied} {placed.relative_to(own)}", at=own)
        with walk.step("command", f"$EDITOR {placed.relative_to(own)}  # the line `uses:`"):
            placed.write_text(filled_in(placed.read_text(encoding="utf-8"), {}), encoding="utf-8")
        await walk.command("git add .github && git commit --quiet -m 'Add Codepilot' && git push --quiet", at=own)
        await site.comment("/codepilot fix")
        with walk.step("wait", "the workflow's run"):
            sent = {key: value for key, value in site.deliveries["issue_comment"].items() if key != "installation"}
            bot = site.hub.add_user("github-actions[bot]", kind="Bot")
            site.hub.add_collaborator(site.repo, bot.login, "write")
            run = await asyncio.to_thread(
                run_workflow,
                walk.directory / "runner",
                copied,
                action=action,
                event="issue_comment",
                payload=sent,
                inputs={"provider": "scripted", "model": str(_script(walk.directory)), "allow-root": "yes"},
                token=bot.token,
                repository=site.repo.full_name,
                api_url=site.hub.api_url,
                server_url=site.hub.url,
                variables={"GITHUB_REPOSITORY_ID": str(site.repo.id), "GITHUB_ACTOR_ID": str(bot.id)},
                timeout=_LONGEST,
            )
            assert run.succeeded, run.log[-6000:]
        await site.pull_request()


async def app(walk: Walk) -> None:
    """An App: registered by its manifest, installed, served from this machine."""
    program = _program()
    if walk.clone:
        source = walk.directory / "codepilot-bot"
        copy_of_this(source)
        await walk.command(f"python3 -m venv venv && venv/bin/pip install --quiet '{source}[service]'")
        program = walk.directory / "venv" / "bin" / "codepilot"
    async with _site(walk) as site:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        create = (
            f"{program} app create --name 'Codepilot for Acme' --webhook http://127.0.0.1:{port}/webhook "
            f"--server {site.hub.url} --no-browser"
        )
        async with walk.running(create, r"http://127\.0\.0\.1:\d+/\S{20,}", env={}) as said:
            with walk.step("page", "Create the GitHub App"):
                await site.page.goto(_only(r"(http://127\.0\.0\.1:\d+/\S{20,})", said()))
                await site.page.get_by_role("button", name="Continue to GitHub").click()
                await walk.picture(site.page, "create")
                await site.page.get_by_role("button", name="Create GitHub App").click()
                await site.page.get_by_role("heading", name="is registered").wait_for()
            settings = await eventually(lambda: _first_group(r"export CODEPILOT_CONFIG=(\S+)", said()))
        with walk.step("page", "Install the App"):
            await site.page.goto(f"{site.hub.url}/apps/codepilot-for-acme/installations/new")
            await walk.picture(site.page, "install")
            await site.page.get_by_role("button", name="Install").click()
        scripted = {"CODEPILOT_PROVIDER": "scripted", "CODEPILOT_MODEL": str(_script(walk.directory))}
        env = {
            **scripted,
            "CODEPILOT_PORT": str(port),
            "CODEPILOT_LEVEL": "auto",
            "CODEPILOT_DATA_DIR": str(walk.directory / "data"),
            "CODEPILOT_ALLOW_ROOT": "yes",
        }
        told = f"env CODEPILOT_CONFIG={settings}"
        async with walk.running(f"{told} {program} serve", "listening on", env=env):
            await site.comment("/codepilot fix")
            await site.pull_request()
        await walk.command(f"{told} {program} app check", env=env)


WALKS: dict[str, Callable[[Walk], Coroutine[None, None, None]]] = {"demo": demo, "workflow": workflow, "app": app}
"""Each walk by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """A hub with a repository that has a bug and an issue, and a person's browser there."""

    walk: Walk
    hub: LocalHub
    repo: Repo
    page: Page
    issue: str
    clone_url: str
    deliveries: dict[str, Mapping[str, object]]

    async def comment(self, text: str) -> None:
        """Write a comment on the issue's page."""
        with self.walk.step("page", f"comment `{text}` on the issue"):
            await self.page.goto(self.issue)
            await self.page.get_by_label("Comment").fill(text)
            await self.page.get_by_role("button", name="Comment", exact=True).click()
            await self.page.get_by_text(text).first.wait_for()

    async def pull_request(self) -> None:
        """Wait until the bot's comment links to a pull request, and open that."""
        with self.walk.step("wait", "the pull request"):
            link = self.page.get_by_role("link", name="pull request #2").first
            await self.page.goto(self.issue)
            await link.wait_for(timeout=60_000)
            await self.walk.picture(self.page, "answer")
        with self.walk.step("page", "read the pull request"):
            await link.click()
            await self.page.get_by_role("link", name="Files changed").click()
            await self.page.get_by_text("calc.py").first.wait_for()
            await self.walk.picture(self.page, "pull-request")
        self.walk.pull = self.page.url.removesuffix("/files")


@asynccontextmanager
async def _site(walk: Walk) -> AsyncIterator[_Site]:
    async with LocalHub(walk.directory / "hub") as hub, async_playwright() as playwright:
        person = hub.add_user("mona")
        repo = hub.add_repo("mona/calc", owner="mona", files=FILES)
        issue = hub.open_issue(repo, author="mona", title="Adding is off by one", body="`add(1, 1)` gives 3.")
        sent: dict[str, Mapping[str, object]] = {}
        hub.observe(on_delivery=sent.__setitem__)
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        scheme, _, host = hub.url.partition("://")
        try:
            yield _Site(
                walk=walk,
                hub=hub,
                repo=repo,
                page=page,
                issue=f"{hub.url}/{repo.full_name}/issues/{issue.number}",
                clone_url=f"{scheme}://{person.login}:{person.token}@{host}/{repo.full_name}.git",
                deliveries=sent,
            )
        finally:
            await browser.close()


def chromium() -> str:
    """The browser of the system's packages.

    Raises:
        FileNotFoundError: there is none.
    """
    for name in ("chromium", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise FileNotFoundError("There is no Chromium here; install it with `apt-get install chromium`.")


def _script(directory: Path) -> Path:
    script = directory / "script.yaml"
    script.write_text(yaml.safe_dump([{"reply": FIX, "expect": "off by one"}]), encoding="utf-8")
    return script


def _program() -> Path:
    return Path(sys.executable).parent / "codepilot"


def _environment(directory: Path) -> dict[str, str]:
    """Return a newcomer's environment: no key of a model service, no settings of the bot."""
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
    kept = {name: value for name, value in os.environ.items() if name not in keys and not name.startswith("CODEPILOT_")}
    people = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _MONA.items()}
    return {**kept, **people, "NO_COLOR": "1", "COLUMNS": "120", "HOME": str(directory)}


_MONA = {"NAME": "Mona", "EMAIL": "mona@example.com"}


async def _git(directory: Path, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("git", *arguments, cwd=directory, env=_environment(directory))
    assert await process.wait() == 0, arguments


def _first_group(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _only(pattern: str, text: str) -> str:
    found = _first_group(pattern, text)
    assert found, f"{pattern} is not in:\n{text[-4000:]}"
    return found


def main() -> int:
    """Read the options, go the walks, and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", choices=[*WALKS], help="one of them")
    parser.add_argument("--clone", action="store_true", help="start from an empty clone, and install everything")
    parser.add_argument("--pictures", type=Path, help="a directory for PNG files of the pages")
    chosen = parser.parse_args()
    for name in [chosen.only] if chosen.only else WALKS:
        with tempfile.TemporaryDirectory(prefix="walk-") as place:
            walk = Walk(directory=Path(place), clone=chosen.clone, pictures=chosen.pictures)
            asyncio.run(WALKS[name](walk))
        print(walk.report(name), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
