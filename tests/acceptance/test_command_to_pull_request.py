"""The way from a command to a pull request, over real sockets, real git and a real sandbox."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from bot.domain.job import JobState
from localhub import LocalHub, sign
from tests.stage import COMPLETION, FIX, FIXED_CALC, WAIT_FOR_GO, WEBHOOK_SECRET, acting, staged
from tests.waiting import eventually


async def test_a_fix_on_an_issue_becomes_one_comment_one_commit_and_one_pull_request(
    hub: LocalHub, tmp_path: Path
) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        before = stage.git("rev-parse", "main")
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        end = await stage.end_of(command)

        assert end.state is JobState.DONE, end
        assert stage.reactions(command) == ["eyes"]
        [status] = stage.bot_comments(issue.number)
        [(branch, sha)] = stage.bot_branches().items()
        assert branch.startswith(f"codepilot/issue-{issue.number}-")
        assert stage.file(sha, "calc.py") == FIXED_CALC.strip()
        assert stage.git("diff", "--name-only", "main", sha) == "calc.py"
        assert stage.git("log", "-1", "--format=%P %an %cn", sha) == f"{before} codepilot[bot] GitHub"
        assert "Co-authored-by: mona" in stage.git("log", "-1", "--format=%B", sha)
        assert sum(call == "POST /api/graphql" for call in stage.calls) == 1
        [pull] = stage.pulls()
        assert pull.pull is not None
        assert (pull.pull.head_ref, pull.pull.base_ref, pull.pull.draft) == (branch, "main", False)
        assert f"Fixes #{issue.number}" in (pull.body or "")
        assert stage.git("rev-parse", "main") == before
        for said in (
            "Done",
            "@mona",
            COMPLETION,
            "`calc.py` +1\u00a0\u22121",
            "`sh check.sh` | passed",
            f"pull request #{pull.number}",
            sha[:7],
            "1 step · ",
            " tokens",
            "bubblewrap, no network",
            end.job_id,
        ):
            assert said in status, said
        assert stage.nothing_left()


async def test_a_fix_on_a_pull_request_lands_on_its_branch(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        pull = stage.pull()
        before = stage.git("rev-parse", "topic")
        end = await stage.ask(pull.number, "/codepilot fix the addition")

        assert end.state is JobState.DONE, end
        assert stage.git("rev-parse", "topic^") == before
        assert stage.file("topic", "calc.py") == FIXED_CALC.strip()
        assert stage.file("topic", "topic.txt") == "A topic."
        assert [each.number for each in stage.pulls()] == [pull.number]
        assert stage.bot_branches() == {}
        [status] = stage.bot_comments(pull.number)
        assert COMPLETION in status
        assert stage.git("rev-parse", "--short=7", "topic") in status


async def test_what_the_commit_api_cannot_say_is_pushed_from_the_trusted_directory(
    hub: LocalHub, tmp_path: Path
) -> None:
    control = 'write_file("calc.py")\nexecute("main", "chmod +x check.sh && ln -s calc.py link.py", check=True)'
    async with staged(hub, tmp_path, [acting(control, FIXED_CALC, completion=COMPLETION)]) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        [sha] = stage.bot_branches().values()
        listing = stage.git("ls-tree", sha, "check.sh", "link.py")
        assert "100755 blob" in listing
        assert "120000 blob" in listing
        assert stage.git("log", "-1", "--format=%an %cn", sha) == "codepilot[bot] codepilot[bot]"
        assert "POST /api/graphql" not in stage.calls
        assert "made executable" in end.status
        assert "symbolic link" in end.status
        assert len(stage.pulls()) == 1


async def test_the_status_comment_is_edited_while_the_agent_works(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX], edit_seconds=0.02) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)

        def shown() -> str:
            said = stage.bot_comments(issue.number)
            return said[0] if said and "until [ -e go ]" in said[0] else ""

        live = await eventually(shown)
        assert "Working on it" in live
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        [final] = stage.bot_comments(issue.number)
        assert "Working on it" not in final
        assert COMPLETION in final


async def test_a_command_delivered_again_is_one_job(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [FIX]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        end = await stage.end_of(command)
        guid = (await stage.answer(command))["guid"]
        again = hub.redeliver(guid)
        await eventually(lambda: [each for each in hub.deliveries if each.id == again.id and each.status_code])
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "issue_comment",
            "X-GitHub-Delivery": "00000000-0000-0000-0000-000000000001",
            "X-Hub-Signature-256": sign(WEBHOOK_SECRET, again.body),
        }
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{stage.address}/webhook", data=again.body, headers=headers) as answer,
        ):
            assert (answer.status, await answer.json()) == (200, {"status": "duplicate", "job": end.job_id})
        [redelivered] = [each for each in hub.deliveries if each.id == again.id]
        assert json.loads(redelivered.response_body) == {"status": "duplicate", "job": end.job_id}
        assert len(stage.bot_comments(issue.number)) == 1
        assert len(stage.pulls()) == 1
        assert sum((await stage.queue.counts()).values()) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mess:
    """Files that an agent may leave behind.

    Attributes:
        command: makes them.
        committed: the committed paths, as git quotes names.
        texts: of the comment.
    """

    command: str
    committed: tuple[str, ...]
    texts: tuple[str, ...]


MESSES = {
    "for the API": Mess(
        command="mkdir -p .git/hooks sub/.git; printf x > .git/config; printf y > sub/.git/config; "
        "mkfifo pipe; "
        "mkdir d; printf z > d/ok.txt; printf s > s; chmod 000 s d; "
        "rm README.md; mkdir README.md; printf x > README.md/a; "
        "printf 'a\\0b' > blob",
        committed=("README.md", "README.md/a", "blob", "d/ok.txt", "s"),
        texts=("`d/ok.txt` added", "`README.md` deleted", "`blob` added, binary"),
    ),
    "for a push": Mess(
        command="printf a > '@all `x`.md'; printf b > $'new\\nline'; printf c > -dash; "
        "printf a > $'\\xff.txt'; printf '\\xff' > latin.txt; "
        "(while :; do printf %s $RANDOM > churn; done) & until [ -s churn ]; do :; done",
        committed=("-dash", "@all `x`.md", r'"new\nline"', r'"\377.txt"', "latin.txt", "churn"),
        texts=("``@all `x`.md`` added", "`[0xFF].txt` added", "`churn` added"),
    ),
}


@pytest.mark.parametrize("name", MESSES)
async def test_an_agents_odd_files_are_published(hub: LocalHub, tmp_path: Path, name: str) -> None:
    mess = MESSES[name]
    script = [acting(f'execute("main", {mess.command!r}, check=True)', completion=COMPLETION)]
    async with staged(hub, tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end.status
        [sha] = stage.bot_branches().values()
        changed = stage.git("diff", "--name-only", "--no-renames", "main", sha).splitlines()
        assert set(changed) == set(mess.committed)
        for text in mess.texts:
            assert text in end.status, text
        assert ("POST /api/graphql" in stage.calls) == (name == "for the API")
        assert len(stage.pulls()) == 1
        assert stage.nothing_left()
