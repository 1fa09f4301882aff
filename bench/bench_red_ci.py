"""How long it takes from a red workflow run to a sign of the bot, and to the first request of its agent to the model.

The bot is `codepilot serve` as an operator starts it, on a hub of our own, with a mirror that is warm. Beside it what a
workflow of one's own begins with: a shallow checkout of the same repository, and an install of the bot's own packages.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.bench_action_install import installed_by_pip
from bench.bench_delivery import SECRET
from bench.measure import Figure
from bench.service import serving, variables
from localhub import CheckRun, EndedJob, LocalHub, Repo
from tests.model_server import ModelServer, Received
from tests.waiting import eventually

_ROUNDS = 5
_FILES = 1_000
_MOST_SECONDS = 60.0
_DIAGNOSIS = "I see.\n```completion\nThe workflow's runner lacks a program.\n```\n"
_LOG = "".join(f"2026-11-22T12:00:00.0000000Z line {number} of a log\n" for number in range(5_000)) + "1 failed\n"


def measure() -> list[Figure]:
    """The median of five pull requests whose checks fail, one after the other."""
    with tempfile.TemporaryDirectory() as directory:
        signs, agents, beside = asyncio.run(_red(Path(directory)))
    plain = f"a shallow checkout and an install by pip: {beside:.1f} s"
    return [
        Figure(label="red CI to the bot's first sign", value=median(signs), unit="s", bound=3, note=plain),
        Figure(label="red CI to a running agent", value=median(agents), unit="s", bound=5, note=plain),
    ]


async def _red(directory: Path) -> tuple[list[float], list[float], float]:
    asked: list[float] = []
    signs: list[float] = []
    agents: list[float] = []

    def reply(_received: Received) -> str:
        asked.append(time.perf_counter())
        return _DIAGNOSIS

    async with ModelServer(reply) as model, LocalHub(directory / "hub") as hub:
        hub.add_user("mona")
        repo = hub.add_repo("mona/calc", owner="mona", files=_files())
        app = hub.add_app("codepilot", webhook_secret=SECRET)
        hub.install(app, repo)
        told = variables(hub, app, directory, jobs=2, provider="openai", base_url=model.url_openai, model="bench")
        async with serving(directory, told | {"CODEPILOT_API_KEY": "sk-none"}) as url:
            hub.set_webhook(app, url, SECRET)
            for number in range(_ROUNDS + 1):
                begun, head = time.perf_counter(), _fails(hub, repo, number)
                await eventually(lambda head=head: _check_runs(hub, repo, head), within=_MOST_SECONDS)
                signs.append(time.perf_counter() - begun)
                await eventually(lambda count=number: len(asked) > count, within=_MOST_SECONDS)
                agents.append(asked[number] - begun)
                await eventually(
                    lambda head=head: _check_runs(hub, repo, head)[0].status == "completed", within=_MOST_SECONDS
                )
        beside = await asyncio.to_thread(_plain, f"{hub.url}/{repo.full_name}.git", directory)
    return signs[1:], agents[1:], beside  # the first one warms the mirror


def _check_runs(hub: LocalHub, repo: Repo, head: str) -> list[CheckRun]:
    return [run for run in hub.check_runs(repo) if run.head_sha == head]


def _files() -> dict[str, str]:
    workflow = "on: pull_request\njobs:\n  test:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: make test\n"
    return {
        ".github/codepilot.yml": "fix_ci: [pull-requests]\n",
        ".github/workflows/ci.yml": workflow,
        **{f"src/file{number}.py": f"x = {number}\n" * 200 for number in range(_FILES)},
    }


def _fails(hub: LocalHub, repo: Repo, number: int) -> str:
    """A pull request whose workflow fails; its head commit."""
    branch = f"topic-{number}"
    head = hub.commit(repo, {"calc.py": f"x = {number}\n"}, message="Change", author="mona", branch=branch)
    hub.open_pull(repo, author="mona", head=branch, title=f"Change {number}")
    job = EndedJob(name="test", conclusion="failure", steps=[("Run make test", "failure")], log=_LOG)
    hub.workflow_run(
        repo,
        head_sha=head,
        head_branch=branch,
        conclusion="failure",
        actor="mona",
        event="pull_request",
        jobs=[job],
    )
    return head


def _plain(url: str, directory: Path) -> float:
    """Seconds of a checkout and an install with pip's cache."""
    begun = time.perf_counter()
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", url, directory / "clone"], check=True)
    checkout = time.perf_counter() - begun
    return checkout + installed_by_pip(directory, Path(__file__).parent.parent)
