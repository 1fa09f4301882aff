"""Publishing what a run came to, and the reversal of a commit."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.domain.commands import Review, Undo
from bot.domain.difference import ChangedFile, parse_patch
from bot.domain.job import Actor, Job, Thread
from bot.git.change import Change
from bot.git.compare import Comparison
from bot.git.errors import ChangeError
from bot.git.mirror import Source
from bot.git.tree import Tree
from bot.github.types import GitHubError, ReviewCommentFacts, ReviewDraft, ReviewFacts
from bot.jobs.access import ThreadSnapshot
from bot.jobs.admission import Assignment
from bot.jobs.context import JobContext
from bot.jobs.record import Request, StoredRecord, WaitKind
from bot.jobs.results import (
    pending_view,
    publication_request,
    read_review,
    remove_blocked,
    resolve_undo_target,
    send_review,
)
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Grant, Refusal
from bot.permissions.repo_config import RepoConfig
from bot.publishing.markdown import Allowlist
from bot.publishing.outcome import CommitRef, Published
from bot.publishing.plan import Publication
from bot.publishing.screening import ChangePreview, Objection
from bot.queue.memory import InMemoryEngine
from tests.builders import a_comment, a_job, on_lines
from tests.changes import BASE, TREE, a_change, a_file
from tests.job_contexts import account, answering, context_of, snapshot

ISSUE = a_job("undo", command=Undo())
PULL = a_job("undo", kind="pull", number=8, command=Undo())


async def _with_commit(engine: InMemoryEngine, job: Job, sha: str, branch: str) -> None:
    await engine.accept(job)
    committed = CommitRef(sha=sha, branch=branch)
    record = StoredRecord(engine, job.id)
    await record.update(lambda stored: replace(stored, published=replace(stored.published, commit=committed)))


async def _aim(
    engine: InMemoryEngine, head: str | None, *, job: Job = ISSUE, thread: ThreadSnapshot | None = None
) -> ThreadSnapshot | Refusal:
    await engine.accept(job)
    github = SimpleNamespace(repos=SimpleNamespace(branch_head=answering(head)))
    return await resolve_undo_target(context_of(engine, job, github=github), thread or snapshot())


async def test_the_newest_commit_of_the_thread_is_aimed_at() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("a"), "1" * 40, "codepilot/issue-7-a")
    await _with_commit(engine, a_job("b"), "2" * 40, "codepilot/issue-7-b")
    await engine.accept(a_job("c"))
    await _with_commit(engine, a_job("elsewhere", number=9), "3" * 40, "codepilot/issue-9-elsewhere")
    place = await _aim(engine, "2" * 40)
    assert isinstance(place, ThreadSnapshot)
    thread = place.thread
    assert (thread.head_sha, thread.head_ref, thread.head_repo_id) == ("2" * 40, "codepilot/issue-7-b", 10)


@pytest.mark.parametrize(
    ("commits", "head", "cause"),
    [
        (0, "2" * 40, "nothing-to-undo"),
        (1, None, "undo-gone"),
        (1, "9" * 40, "undo-moved"),
    ],
)
async def test_without_a_last_commit_of_its_own_there_is_nothing_to_undo(
    commits: int,
    head: str | None,
    cause: str,
) -> None:
    engine = InMemoryEngine()
    for _ in range(commits):
        await _with_commit(engine, a_job("a"), "2" * 40, "codepilot/issue-7-a")
    refusal = await _aim(engine, head)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == cause


async def test_an_attempt_that_has_pushed_already_is_not_stopped_by_its_own_push() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("a"), "2" * 40, "codepilot/issue-7-a")
    first = await _aim(engine, "2" * 40)
    assert await _aim(engine, "5" * 40) == first


@pytest.mark.parametrize("prefix", ["codepilot/", "an-earlier-prefix-"])
async def test_in_its_own_pull_request_the_commit_of_the_job_that_opened_it_is_aimed_at(prefix: str) -> None:
    engine, branch = InMemoryEngine(), f"{prefix}issue-7-maker"
    await _with_commit(engine, a_job("maker"), "2" * 40, branch)
    place = await _aim(engine, "2" * 40, job=PULL, thread=snapshot(head_ref=branch))
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.head_sha == "2" * 40


async def test_in_its_own_pull_request_the_commit_of_a_later_fix_of_the_issue_is_aimed_at() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("maker"), "1" * 40, "codepilot/issue-7-maker")
    await _with_commit(engine, a_job("later"), "2" * 40, "codepilot/issue-7-maker")
    await _with_commit(engine, a_job("another"), "3" * 40, "codepilot/issue-7-another")
    place = await _aim(engine, "2" * 40, job=PULL, thread=snapshot(head_ref="codepilot/issue-7-maker"))
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.head_sha == "2" * 40


@pytest.mark.parametrize("branch", ["codepilot/fix-ci-501", "codepilot/fix-ci-501-2", "codepilot/branch-maker"])
async def test_in_its_own_pull_request_for_a_branch_the_commit_of_the_job_on_that_branch_is_aimed_at(
    branch: str,
) -> None:
    engine = InMemoryEngine()
    maker = replace(a_job("maker"), thread=Thread.of_branch("main"))
    await _with_commit(engine, maker, "2" * 40, branch)
    place = await _aim(engine, "2" * 40, job=PULL, thread=snapshot(head_ref=branch, base_ref="main"))
    assert isinstance(place, ThreadSnapshot)
    assert place.thread.head_sha == "2" * 40


async def test_a_forks_branch_of_the_same_name_is_not_taken_for_the_bots_own() -> None:
    engine = InMemoryEngine()
    await _with_commit(engine, a_job("maker"), "2" * 40, "codepilot/issue-7-maker")
    here = snapshot(head_ref="codepilot/issue-7-maker", head_repo_id=11)
    refusal = await _aim(engine, "2" * 40, job=PULL, thread=here)
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "nothing-to-undo"


async def test_a_job_of_another_repository_is_not_aimed_at_by_its_id_in_a_branch_name() -> None:
    engine = InMemoryEngine()
    job = a_job("maker")
    other = replace(job, repo=replace(job.repo, id=11, full_name="octo/other"))
    await _with_commit(engine, other, "2" * 40, "codepilot/issue-7-maker")
    refusal = await _aim(engine, "2" * 40, job=PULL, thread=snapshot(head_ref="codepilot/issue-7-maker"))
    assert isinstance(refusal, Refusal)
    assert refusal.cause == "nothing-to-undo"


def _section(path: str, line: str = "+x") -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -0,0 +1 @@\n{line}\n"


CHANGE = replace(
    a_change(a_file("a.py"), a_file("uv.lock"), a_file("ci.yml")),
    patch=_section("a.py") + _section("uv.lock") + _section("ci.yml"),
)
LOCK, BOTH = Objection(cause="protected", files=("uv.lock",)), Objection(cause="escapes", files=("uv.lock", "ci.yml"))


@dataclass(slots=True)
class _Tree:
    """Takes files out of a change, unless what is left could not stand alone."""

    inseparable: bool = False
    exclusions: list[set[str]] = field(default_factory=list)

    async def exclude(self, change: Change, paths: Collection[str]) -> Change:
        self.exclusions.append(set(paths))
        if self.inseparable:
            raise ChangeError("They belong together.", "Split it.")
        return replace(change, files=tuple(each for each in change.files if each.path not in paths))


def _tree(tree: _Tree) -> Tree:
    return cast("Tree", tree)


async def test_each_file_is_left_out_once_however_many_rules_name_it() -> None:
    tree = _Tree()
    part = await remove_blocked(_tree(tree), CHANGE, (LOCK, BOTH), str)
    assert tree.exclusions == [{"uv.lock", "ci.yml"}]
    assert part.rest is not None
    assert [each.path for each in part.rest.files] == ["a.py"]
    assert part.patch == _section("uv.lock") + _section("ci.yml")
    assert all(f"+++ b/{path}" in part.diff for path in ("uv.lock", "ci.yml"))
    assert "a.py" not in part.diff


async def test_nothing_is_published_where_nothing_is_left() -> None:
    change = replace(CHANGE, files=CHANGE.files[1:2], patch=_section("uv.lock"))
    assert (await remove_blocked(_tree(_Tree()), change, (LOCK,), str)).rest is None


async def test_the_whole_change_is_kept_where_the_rest_cannot_stand_alone() -> None:
    part = await remove_blocked(_tree(_Tree(inseparable=True)), CHANGE, (LOCK,), str)
    assert (part.rest, part.patch) == (None, CHANGE.patch)


@pytest.mark.parametrize("line", ["+hunter2", "+" + "x" * 600_000], ids=["secret", "long"])
async def test_what_cannot_be_shown_whole_is_kept_all_the_same(line: str) -> None:
    change = replace(CHANGE, patch=_section("a.py") + _section("uv.lock", line))
    part = await remove_blocked(_tree(_Tree()), change, (LOCK,), lambda text: text.replace("hunter2", "…"))
    assert part.diff == ""
    assert part.patch == _section("uv.lock", line)


WORKFLOW = ".github/workflows/ci.yml"
DAY_SECONDS = 86_400.0
TWICE = (Objection(cause="protected", files=("uv.lock",)), Objection(cause="escapes", files=("uv.lock",)))


def _context(*, may_write_workflows: bool | None = True) -> JobContext:
    github = SimpleNamespace(
        tokens=SimpleNamespace(can_write_workflows=answering(may_write_workflows)),
        redact_text=lambda text: text.replace("hunter2", "[redacted]"),
    )
    services = SimpleNamespace(bounds=SimpleNamespace(approval_seconds=DAY_SECONDS), is_long_running=True)
    return context_of(InMemoryEngine(), a_job(), github=github, services=services)


async def _request(
    change: Change, *blocked: Objection, context: JobContext | None = None, spells: bool = False
) -> Request:
    publication = Publication(commit=None, pull_request=None, blocked=blocked)
    shown = ChangePreview(diff="diff --git a/x b/x", has_escapes=spells)
    return await publication_request(context or _context(), publication, change, shown, bound_to=change.base_sha)


async def test_a_request_is_bound_to_the_commit_and_to_the_very_tree_that_is_shown() -> None:
    before = time.time()
    request = await _request(a_change(a_file("uv.lock")), *TWICE)
    assert (request.kind, request.bound_to, request.tree_sha, request.preview) == (
        "publication",
        BASE,
        TREE,
        "diff --git a/x b/x",
    )
    assert before + DAY_SECONDS <= request.until <= time.time() + DAY_SECONDS


async def test_two_requests_for_the_same_change_have_ids_of_their_own() -> None:
    change = a_change(a_file("uv.lock"))
    assert (await _request(change, *TWICE)).request_id != (await _request(change, *TWICE)).request_id


@pytest.mark.parametrize(("harmless_files", "is_counted"), [(0, False), (2, True)])
async def test_files_that_need_no_approval_are_counted_each_once(harmless_files: int, *, is_counted: bool) -> None:
    files = [a_file("uv.lock"), *(a_file(f"{number}.py") for number in range(harmless_files))]
    reason = (await _request(a_change(*files), *TWICE)).reason
    assert (f"require no approval: {harmless_files}" in reason) is is_counted


async def test_that_characters_are_escaped_is_said_only_where_they_are() -> None:
    change = a_change(a_file("uv.lock"))
    plain, spelled = await _request(change, *TWICE), await _request(change, *TWICE, spells=True)
    assert "U+202E" in spelled.reason
    assert "U+202E" not in plain.reason


@pytest.mark.parametrize(
    ("path", "may", "warned"),
    [(WORKFLOW, False, True), (WORKFLOW, True, False), (WORKFLOW, None, False), ("uv.lock", False, False)],
)
async def test_a_permission_that_is_known_to_be_missing_is_named_before_anybody_approves(
    path: str, *, may: bool | None, warned: bool
) -> None:
    objection = Objection(cause="protected", files=(path,))
    request = await _request(a_change(a_file(path)), objection, context=_context(may_write_workflows=may))
    assert ("Workflows: read and write" in request.reason) is warned


@pytest.mark.parametrize(
    ("kind", "preview", "language"),
    [
        ("permission", "npm view left-pad", "bash"),
        ("permission", "--- a/x\n+++ b/x\n", "diff"),
        ("permission", "diff --git a/x b/x\n", "diff"),
        ("publication", "", "diff"),
        ("question", "", ""),
        ("plan", "", ""),
    ],
)
def test_a_preview_is_coloured_as_what_it_is(kind: WaitKind, preview: str, language: str) -> None:
    request = Request(kind=kind, request_id="7f3a", reason="", preview=preview, bound_to=BASE, until=0.0)
    assert pending_view(_context(), request).language == language


def test_the_end_of_the_time_is_shown_and_a_secret_in_the_reason_is_not() -> None:
    until = datetime(2026, 11, 5, 4, 3, tzinfo=UTC).timestamp()
    request = Request(
        kind="question",
        request_id="7f3a",
        reason="Is it hunter2?",
        preview="",
        bound_to=BASE,
        until=until,
        like=("x *",),
    )
    shown = pending_view(_context(), request)
    assert (shown.expires, shown.reason, shown.like) == ("5 November 2026, 04:03 UTC", "Is it [redacted]?", ("x *",))


BOT, HEAD = 99, "a" * 40
DIFF = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
CHANGED = ChangedFile(path="a.py", status="modified", added=1, removed=1)
HERE = snapshot(base_ref="main", head_sha=HEAD)


@dataclass(slots=True)
class _GitHub:
    """A pull request with what was said on its lines, and the reviews that arrive; `lost` answers are not told."""

    comments: Sequence[ReviewCommentFacts] = ()
    lost: int = 0
    reviews: list[ReviewFacts] = field(default_factory=list)

    async def create(self, _: str, __: int, draft: ReviewDraft) -> ReviewFacts:
        made = ReviewFacts(
            id=len(self.reviews),
            author=Actor(id=BOT, login="codepilot[bot]"),
            body=draft.body,
            state="COMMENTED",
            created_at="",
            commit_sha=draft.commit_sha,
            html_url=f"https://github.com/octo/calc/pull/7#review-{len(self.reviews)}",
        )
        self.reviews.append(made)
        if self.lost:
            self.lost -= 1
            raise GitHubError("review it", 502, "Bad gateway", "Later.")
        return made

    async def list_for_pull(self, *_: object) -> tuple[ReviewFacts, ...]:
        return tuple(self.reviews)

    async def list_line_comments(self, *_: object) -> tuple[ReviewCommentFacts, ...]:
        return tuple(self.comments)


async def _review_context(github: _GitHub, diff_request: dict[str, Any] | None = None) -> JobContext:
    async def compare(_: int, base: Source, head: Source) -> Comparison:
        (diff_request if diff_request is not None else {}).update(base=base, head=head)
        return Comparison(fork=base.sha, head=head.sha, files=(CHANGED,))

    engine, job = InMemoryEngine(), a_job(kind="pull", command=Review())
    await engine.accept(job)
    services = SimpleNamespace(
        workspaces=SimpleNamespace(compare=compare, read_sections=answering(tuple(parse_patch(DIFF)))),
        allowed=lambda _job: Allowlist(login="mona", number=7, server="https://github.com", repo="octo/calc"),
    )
    client = SimpleNamespace(accounts=account(BOT), reviews=github)
    return replace(context_of(engine, job, github=client, services=services), marker="<!-- mark -->")


def _assignment(*, dry_run: bool = False) -> Assignment:
    return Assignment(
        command=Review(),
        snapshot=HERE,
        grant=Grant(policy=Policy(), publish="review", bound_to_sha=HEAD, dry_run=dry_run),
        settings=RepoSettings(config=RepoConfig(), base_sha="b" * 40),
        source=Source(url="/origin", token="", ref="refs/pull/7/head", sha=HEAD),
    )


def _completion(*bodies: str, line: int = 2) -> Outcome:
    notes = [{"path": "a.py", "line": line, "body": body} for body in bodies]
    return Outcome(status=Status.FINISHED, summary=f"Looks good.\n\n```json\n{json.dumps(notes)}\n```\n")


def _line_comment(author_id: int, body: str) -> ReviewCommentFacts:
    return on_lines(a_comment(1, body, author_id=author_id), line=1)


async def test_a_review_is_of_the_commit_that_was_looked_at_and_of_lines_in_its_diff() -> None:
    arguments: dict[str, Any] = {}
    review = await read_review(await _review_context(_GitHub(), arguments), _assignment(), _completion("Why 2?"))
    assert review.commit_sha == HEAD
    assert [(each.path, each.line, each.body) for each in review.notes] == [("a.py", 2, "Why 2?")]
    assert (arguments["base"].ref, arguments["base"].sha, arguments["head"].sha) == ("refs/heads/main", "b" * 40, HEAD)


async def test_what_the_bot_said_on_a_line_before_is_not_said_again_but_what_another_said_is() -> None:
    github = _GitHub(comments=[_line_comment(BOT, "Why   2?\r\n"), _line_comment(5, "Name it.")])
    review = await read_review(await _review_context(github), _assignment(), _completion("Why 2?", "Name it."))
    assert [each.body for each in review.notes] == ["Name it."]


@pytest.mark.parametrize("summary", [None, "", "```json\n[{]\n```", "Fine.\n\n```json\n[]\n```"])
async def test_a_run_that_said_little_makes_a_review_all_the_same(summary: str | None) -> None:
    outcome = Outcome(status=Status.FINISHED, summary=summary)
    review = await read_review(await _review_context(_GitHub()), _assignment(), outcome)
    assert review.notes == ()
    assert review.body


async def test_a_review_is_sent_once_however_often_the_job_is_started_again() -> None:
    github = _GitHub()
    context = await _review_context(github)
    review = await read_review(context, _assignment(), _completion("Why 2?"))
    first = await send_review(context, _assignment(), HERE, review)
    assert first == await send_review(context, _assignment(), HERE, review)
    assert first == Published(review_url=github.reviews[0].html_url)
    assert len(github.reviews) == 1


async def test_a_review_whose_answer_was_lost_is_found_and_not_sent_again() -> None:
    github = _GitHub(lost=1)
    context = await _review_context(github)
    review = await read_review(context, _assignment(), _completion("Why 2?"))
    assert (await send_review(context, _assignment(), HERE, review)).review_url == github.reviews[0].html_url
    assert len(github.reviews) == 1


async def test_a_dry_run_sends_nothing_and_says_how_much_it_would() -> None:
    github = _GitHub()
    context = await _review_context(github)
    review = await read_review(context, _assignment(), _completion("Why 2?", "Name it."))
    delivered = await send_review(context, _assignment(dry_run=True), HERE, review)
    assert github.reviews == []
    assert "2 comments" in delivered.dry_run_note
    assert delivered.review_url is None
