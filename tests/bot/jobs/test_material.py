"""What there is to read about a job, as far as GitHub shows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime import Policy
from bot.domain.commands import Ask, Fix, Work
from bot.domain.job import Job, Origin, Thread
from bot.git.errors import WorkspaceError
from bot.git.mirror import Blob, Source
from bot.github.types import CommentFacts, GitHubError, RedCheck, ReviewFacts, RunFacts
from bot.jobs.access import PhaseReader
from bot.jobs.admission import Assignment
from bot.jobs.material import gather, linked
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Grant
from bot.permissions.repo_config import RepoConfig
from bot.prompt.brief import LinkedFile, Material
from bot.queue.memory import InMemoryEngine
from tests.builders import a_job
from tests.job_contexts import RED_RUN, account, answering, context_of, on_a_line, snapshot

TEXT = "one\ntwo\x0c\u2028still two\nthree\n"
BOT, HEAD = 99, "a" * 40
SERVER = "https://github.com"
HERE = f"{SERVER}/octo/calc/blob/main"
DENIED = GitHubError("read it", 403, "Resource not accessible by integration", "Grant it.")
DOWN = GitHubError("read it", 502, "Bad gateway", "Later.")
RED = RedCheck(
    name="test",
    conclusion="failure",
    summary="1 failed",
    annotations=(),
    html_url=f"{SERVER}/octo/calc/actions/runs/501/job/1",
)
BY_CI = Origin(kind="ci", id=501, name="CI", conclusion="failure")


@pytest.mark.parametrize(
    ("fragment", "place", "text"),
    [
        ("L3", "a.py lines 3-3", "three"),
        ("L2-L3", "a.py lines 2-3", "two\x0c\u2028still two\nthree"),
        ("L2-L99", "a.py lines 2-3", "two\x0c\u2028still two\nthree"),
        ("L4-L9", "a.py", TEXT),
        ("L3-L2", "a.py", TEXT),
        ("", "a.py", TEXT),
    ],
)
def test_lines_of_a_linked_file_are_those_that_read_file_numbers(fragment: str, place: str, text: str) -> None:
    assert linked("a.py", fragment, TEXT) == LinkedFile(place=place, text=text)


def _failing(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_: object, **__: object) -> Any:  # noqa: ANN401 - never given back
        raise error

    return fail


def _said(comment_id: int, author_id: int) -> CommentFacts:
    return CommentFacts(
        id=comment_id, author="x", author_id=author_id, body="Words.", created_at="1", updated_at="1", html_url=""
    )


async def _read(path: str) -> Blob | None:
    """The files of the commit, of which one is too large to be read."""
    if path == "big.bin":
        raise WorkspaceError("It is too long.", "Make it shorter.")
    content = {"a.py": TEXT.encode(), "d/b c.py": TEXT.encode(), "bytes": b"\xffx"}.get(path)
    return None if content is None else Blob(id="1", content=content)


async def _gathered(job: Job, command: Work | None = None, *, continues: int = 0, **github: Any) -> Material:  # noqa: ANN401 - calls of GitHub's
    """The material of a job; what it asks of GitHub beside `github` has nothing to say."""

    async def read(_: int, __: Source, path: str, *, limit: int) -> Blob | None:
        assert limit > 0
        return await _read(path)

    usual: dict[str, Any] = {
        "of_thread": answering(()),
        "line_comments": answering(()),
        "of_pull": answering(()),
        "failing": answering(()),
        "get": answering(RED_RUN),
        "jobs": answering(()),
        "last_green": answering(None),
    }
    every = SimpleNamespace(**{**usual, **github})
    client = SimpleNamespace(
        accounts=account(BOT), comments=every, reviews=every, checks=every, runs=every, redacted=str
    )
    workspaces = SimpleNamespace(read=read, diff=answering("the diff"))
    services = SimpleNamespace(workspaces=workspaces, server_url=SERVER, is_long_running=True, ca_file=None)
    context = context_of(InMemoryEngine(), job, github=client, services=services)
    begun = Assignment(
        command=command or Fix(),
        here=snapshot(reader=PhaseReader(context.github), continues=continues),
        grant=Grant(policy=Policy(), publish="pull_branch", bound_to_sha=HEAD),
        asked=RepoSettings(config=RepoConfig(), base_sha="b" * 40),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=HEAD),
    )
    return await gather(context, begun)


async def test_what_the_bot_said_itself_is_told_apart() -> None:
    comments = answering((_said(1, 5), _said(2, BOT)))
    on_lines = on_a_line(_said(3, BOT), HEAD)
    review = ReviewFacts(
        id=4, author="x", author_id=5, body="No.", state="COMMENTED", submitted_at="1", commit_sha=HEAD, html_url=""
    )
    found = await _gathered(
        a_job(kind="pull"),
        of_thread=comments,
        line_comments=answering((on_lines,)),
        of_pull=answering((review,)),
    )
    assert [each.ours for each in found.comments] == [False, True]
    assert [each.comment.ours for each in found.line_comments] == [True]
    assert [each.comment.ours for each in found.verdicts] == [False]
    assert found.diff == "the diff"


async def test_an_issue_has_a_diff_and_checks_only_where_it_continues_in_a_pull_request() -> None:
    red = answering((replace(RED, html_url=""),))
    alone = await _gathered(a_job(), failing=red)
    assert (alone.continues, alone.diff, alone.checks) == (False, "", ())
    further = await _gathered(a_job(), failing=red, continues=8)
    assert (further.continues, further.diff, len(further.checks)) == (True, "the diff", 1)


@pytest.mark.parametrize("origin", [BY_CI, Origin(kind="button", id=1)], ids=["by CI", "done again by a person"])
async def test_a_branch_has_no_thread_to_be_read_but_failing_checks(origin: Origin) -> None:
    job = replace(a_job(thread=Thread.of_branch("main")), origin=origin)
    found = await _gathered(job, of_thread=_failing(AssertionError()), failing=answering((RED,)))
    assert len(found.checks) == 1


@pytest.mark.parametrize(
    ("links", "places"),
    [
        (f"See {HERE}/a.py#L2-L3, please.", ["a.py lines 2-3"]),
        (f"[it]({HERE}/d/b%20c.py) and <{HERE}/a.py>", ["d/b c.py", "a.py"]),
        (f"{HERE}/a.py {HERE}/a.py?plain=1 {HERE}/a.py#L1 {HERE}/a.py#readme", ["a.py", "a.py lines 1-1"]),
        (f"{HERE}/gone.py {HERE}/big.bin {HERE}/a.py", ["a.py"]),
        (f"{SERVER}/octo/other/blob/main/a.py https://evil.example/octo/calc/blob/main/a.py", []),
        (" ".join([*(f"{HERE}/gone{number}" for number in range(5)), f"{HERE}/a.py"]), []),
        (f"{HERE}/ {HERE}", []),
    ],
    ids=["lines", "spelling", "once", "gone or too large", "elsewhere", "too many", "no file"],
)
async def test_files_that_the_description_links_to_are_read(links: str, places: list[str]) -> None:
    assert [each.place for each in (await _gathered(a_job(body=links))).files] == places


async def test_bytes_that_are_no_text_are_shown_as_far_as_they_are() -> None:
    [file] = (await _gathered(a_job(body=f"{HERE}/bytes"))).files
    assert file.text == "\ufffdx"


@pytest.mark.parametrize(("origin", "told"), [(BY_CI, True), (a_job().origin, False)])
async def test_checks_that_may_not_be_read_are_said_only_where_they_began_the_job(
    origin: Origin, *, told: bool
) -> None:
    found = await _gathered(replace(a_job(kind="pull"), origin=origin), failing=_failing(DENIED))
    assert ("*Checks: read-only*" in found.unread) is told
    assert found.checks == ()


@pytest.mark.parametrize("asked", ["failing", "get", "jobs", "of_thread", "last_green"])
async def test_what_github_cannot_tell_for_a_moment_is_asked_again_later(asked: str) -> None:
    with pytest.raises(GitHubError):
        await _gathered(replace(a_job(kind="pull"), origin=BY_CI), None, continues=0, **{asked: _failing(DOWN)})


@pytest.mark.parametrize(
    ("command", "run", "found"),
    [
        (Fix(), RED_RUN, True),
        (Fix(), replace(RED_RUN, head_sha="c" * 40), False),
        (Ask(goal="Why?"), RED_RUN, False),
    ],
    ids=["to be fixed", "of another commit", "asked about"],
)
async def test_a_fix_is_given_the_run_behind_a_failing_check_if_it_is_of_the_same_commit(
    command: Work, run: RunFacts, *, found: bool
) -> None:
    material = await _gathered(a_job(kind="pull"), command, failing=answering((RED,)), get=answering(run))
    assert (material.failed is not None) is found
    assert material.workflow == ("CI" if found else "")


async def test_a_run_that_is_gone_leaves_what_the_checks_say() -> None:
    gone = GitHubError("read it", 404, "Not Found", "Check it.")
    material = await _gathered(a_job(kind="pull"), failing=answering((RED,)), get=_failing(gone))
    assert (material.failed, len(material.checks)) == (None, 1)


async def test_a_plan_that_was_approved_goes_with_the_fix() -> None:
    assert (await _gathered(a_job(), Fix(plan="1. Do it."))).approved_plan == "1. Do it."
