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


async def test_a_run_that_changes_nothing_ends_in_words_alone(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, ["```completion\nThe code is right; the issue is not.\n```\n"]) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE, end
        assert "The code is right; the issue is not." in end.status
        assert "Not published" not in end.status
        assert stage.nothing_published()
        assert stage.pulls() == []


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


async def test_two_jobs_of_one_thread_run_one_after_the_other(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX], ["```completion\nNothing left.\n```\n"]) as stage:
        issue = stage.issue()
        first, second = (stage.say(issue.number, f"/codepilot fix {each}") for each in ("one", "two"))
        jobs = [await stage.job_of(first), await stage.job_of(second)]
        await eventually(lambda: stage.events)
        states = [(await stage.queue.get(each)) for each in jobs]
        assert [each.state for each in states if each] == [JobState.RUNNING, JobState.QUEUED]
        # Whoever has to wait is told at once that the command was heard.
        await eventually(lambda: stage.reactions(second) == ["eyes"])
        await stage.let_go(jobs[0])
        assert (await stage.end_of(first)).state is JobState.DONE
        assert (await stage.end_of(second)).state is JobState.DONE
        assert len(stage.bot_comments(issue.number)) == 2
        assert len(stage.pulls()) == 1


async def test_jobs_of_two_threads_run_side_by_side(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX], [acting(WAIT_FOR_GO), FIX]) as stage:
        commands = [stage.say(stage.issue().number, "/codepilot fix") for _ in range(2)]
        jobs = [await stage.job_of(each) for each in commands]
        await eventually(lambda: all(stage.files_of(each).is_dir() for each in jobs))
        for job in jobs:
            await stage.let_go(job)
        assert [(await stage.end_of(each)).state for each in commands] == [JobState.DONE, JobState.DONE]
        assert len(stage.pulls()) == 2


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
    """What an agent may leave behind.

    Attributes:
        name: of the test.
        command: makes it.
        committed: what is committed of it, as git quotes names.
        shown: what the comment says.
    """

    name: str
    command: str
    committed: tuple[str, ...]
    shown: str


MESSES = (
    Mess(
        name="odd names",
        command="printf a > '@all `x`.md'; printf b > $'new\\nline'; printf c > -dash",
        committed=("-dash", "@all `x`.md", r'"new\nline"'),
        shown="``@all `x`.md`` added",
    ),
    Mess(
        name="a name that is no text",
        command="printf a > $'\\xff.txt'; printf '\\xff' > latin.txt",
        committed=(r'"\377.txt"', "latin.txt"),
        shown="`[0xFF].txt` added",
    ),
    Mess(
        name="git directories",
        command="mkdir -p .git/hooks sub/.git; printf x > .git/config; printf y > sub/.git/config; printf z > ok.txt",
        committed=("ok.txt",),
        shown="`ok.txt` added",
    ),
    Mess(name="a pipe", command="mkfifo pipe; printf z > ok.txt", committed=("ok.txt",), shown="`ok.txt` added"),
    Mess(
        name="files nobody may read",
        command="mkdir d; printf z > d/ok.txt; printf s > s; chmod 000 s d",
        committed=("d/ok.txt", "s"),
        shown="`d/ok.txt` added",
    ),
    Mess(
        name="a daemon that goes on writing",
        command="(while :; do printf %s $RANDOM > churn; done) & printf z > ok.txt; until [ -s churn ]; do :; done",
        committed=("churn", "ok.txt"),
        shown="`churn` added",
    ),
    Mess(
        name="a file become a directory",
        command="rm README.md; mkdir README.md; printf x > README.md/a",
        committed=("README.md", "README.md/a"),
        shown="`README.md` deleted",
    ),
    Mess(name="binary", command="printf 'a\\0b' > blob", committed=("blob",), shown="`blob` added, binary"),
)


@pytest.mark.parametrize("mess", MESSES, ids=lambda mess: mess.name)
async def test_whatever_an_agent_leaves_behind_its_files_are_published(
    hub: LocalHub, tmp_path: Path, mess: Mess
) -> None:
    script = [acting(f'execute("main", {mess.command!r}, check=True)', completion=COMPLETION)]
    async with staged(hub, tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE, end.status
        [sha] = stage.bot_branches().values()
        changed = stage.git("diff", "--name-only", "--no-renames", "main", sha).splitlines()
        assert set(changed) == set(mess.committed)
        assert mess.shown in end.status
        assert len(stage.pulls()) == 1
        assert stage.nothing_left()


async def test_a_completion_of_one_endless_word_holds_nothing_up(hub: LocalHub, tmp_path: Path) -> None:
    script = [acting('write_file("calc.py")', FIXED_CALC, completion="w" * 300_000)]
    async with staged(hub, tmp_path, script) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot fix")
        assert end.state is JobState.DONE
        [sha] = stage.bot_branches().values()
        assert len(stage.git("log", "-1", "--format=%s", sha)) <= 72
        assert len(end.status) <= 65_536
        [pull] = stage.pulls()
        assert len(pull.body or "") <= 65_536
