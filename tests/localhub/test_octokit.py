"""octokit, GitHub's own client, asked what a bot asks, cannot tell."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from localhub import EndedJob
from tests.localhub.conftest import World

ROOT = Path(__file__).parents[2]
CLIENT = Path(__file__).with_name("octokit_client.mjs")
SECRET = "correct horse"


@pytest.fixture(scope="session")
def octokit() -> Path:
    """The folder in which octokit is installed."""
    fetched = subprocess.run([ROOT / "scripts" / "octokit"], capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"octokit cannot be had: {fetched.stderr.strip()}")
    return ROOT / ".cache" / "octokit"


@pytest.mark.slow
async def test_octokit_works_in_a_pull_request(world: World, octokit: Path) -> None:
    hub = world.hub
    hub.set_webhook(world.app, "http://127.0.0.1:9/hook", SECRET)
    once = hub.add_repo("acme/once", owner="mona")
    hub.rename(once, "now", by="mona")
    sha = hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    hub.open_pull(world.repo, author="mona", head="topic", title="Two")
    job = EndedJob(name="test", conclusion="failure", steps=[("Run tests", "failure")], log="1 failed\n")
    hub.workflow_run(world.repo, head_sha=sha, head_branch="topic", conclusion="failure", actor="mona", jobs=[job])
    told = hub.deliveries[-1]
    hub.add_collaborator(world.repo, "eve", "read")
    task = {
        "baseUrl": hub.api_url,
        "appId": world.app.id,
        "privateKey": world.app.private_key_pem,
        "installation": world.installation,
        "secret": SECRET,
        "token": world.mona.token,
        "delivery": {"body": told.body.decode(), "signature": told.request_headers["X-Hub-Signature-256"]},
    }
    process = await asyncio.create_subprocess_exec(
        "node",
        "--input-type=module",
        "-",
        json.dumps(task),
        cwd=octokit,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate(CLIENT.read_bytes())
    assert process.returncode == 0, said.decode()
    seen = json.loads(out)
    assert seen.pop("diff").startswith("diff --git a/src/a.py b/src/a.py\n")
    assert seen == {
        "signature": True,
        "slug": "codepilot",
        "comments": ["Done"],
        "events": ["labeled bug", "labeled now", "unlabeled now"],
        "files": ["src/a.py"],
        "said": ["src/a.py:1 Why?", "src/a.py:1 Because."],
        "reviews": ["COMMENTED", "COMMENTED"],
        "refused": "422 Line could not be resolved",
        "annotations": ["Here"],
        "checks": ["failure", "success"],
        "moved": True,
        "ahead": 2,
        "runs": ["failure"],
        "steps": ["1 Run tests failure"],
        "log": "1 failed\n",
        "zip": "PK",
        "asked": ["eve"],
        "found": [1],
        "suites": ["failure", "success"],
        "former": "acme/now",
        "topics": ["tools"],
        "languages": ["Python"],
        "fork": "mona/widgets",
        "refs": True,
        "milestone": "First",
        "remarks": ["Hm"],
        "merged": 201,
    }
