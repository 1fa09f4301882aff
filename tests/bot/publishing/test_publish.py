"""Publications with the real client, a local hub and real git, across restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.git.errors import GitError, PushFailedError
from bot.git.merge import Merge
from bot.git.process import Git
from bot.github.client import GitHub
from bot.github.rate_limit import Limits
from bot.github.types import GitHubError
from bot.publishing.outcome import Omission, Published
from bot.publishing.plan import CommitPlan, Publication
from bot.publishing.publish import ForbiddenTargetError
from localhub import LocalHub
from tests.changes import a_change, a_file
from tests.origin import git
from tests.publishing_world import SECRET, Outlet, an_outlet, branch_of, cause_of, pull_of, reason_of, sha_of


@pytest.fixture
async def outlet(hub: LocalHub, tmp_path: Path) -> AsyncIterator[Outlet]:
    async with an_outlet(hub, tmp_path / "state") as opened:
        yield opened


async def test_a_change_becomes_a_branch_a_commit_and_a_pull_request(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    (outlet.tree.path / "b.txt").unlink()
    delivered = await outlet.send(await outlet.publication())
    assert branch_of(delivered) == "codepilot/issue-1-j1"
    assert sha_of(delivered) == outlet.hub.branches(outlet.repo)["codepilot/issue-1-j1"]
    assert git(outlet.repo.path, "ls-tree", "--name-only", sha_of(delivered)) == "a.txt\nlong.txt"
    assert git(outlet.repo.path, "show", f"{sha_of(delivered)}:a.txt") == "2"
    assert pull_of(delivered) == 2
    assert (delivered.pull and delivered.pull.html_url) == f"{outlet.hub.url}/mona/calc/pull/2"
    body = outlet.hub.issue(outlet.repo, 2).body or ""
    assert "Fixes #1" in body
    assert SECRET not in body
    assert outlet.hub.branches(outlet.repo)["main"] == outlet.base


@pytest.mark.parametrize("mode", [0o644, 0o755])
async def test_a_draft_is_reported_as_one_by_either_api(outlet: Outlet, mode: int) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    (outlet.tree.path / "a.txt").chmod(mode)
    publication = await outlet.publication()
    assert publication.pull_request is not None
    delivered = await outlet.send(replace(publication, pull_request=replace(publication.pull_request, draft=True)))
    assert (pull_of(delivered), delivered.pull and delivered.pull.draft) == (2, True)


async def test_a_change_the_commit_api_cannot_express_is_pushed(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").chmod(0o755)
    (outlet.tree.path / "link").symlink_to("a.txt")
    delivered = await outlet.send(await outlet.publication())
    assert sha_of(delivered)
    listing = git(outlet.repo.path, "ls-tree", sha_of(delivered))
    assert [line.split()[0] for line in listing.splitlines()] == ["100755", "100644", "120000", "100644"]
    assert "Co-authored-by: hubot-owner" in git(outlet.repo.path, "log", "-1", "--format=%b", sha_of(delivered))
    assert pull_of(delivered) == 2


@pytest.mark.parametrize("mode", [0o644, 0o755])
async def test_started_again_after_a_kill_nothing_is_sent_twice(outlet: Outlet, mode: int) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    (outlet.tree.path / "a.txt").chmod(mode)
    publication = await outlet.publication()
    outlet.record.deaf = True
    first = await outlet.send(publication)
    assert await outlet.send(publication) == first
    outlet.record.deaf = False
    assert await outlet.send(publication) == first
    assert await outlet.send(publication) == first
    assert [each.number for each in outlet.pulls()] == [2]
    assert git(outlet.repo.path, "rev-list", "--count", f"main..{sha_of(first)}") == "1"


@pytest.mark.parametrize("path", ["*/graphql", "*/git/refs", "*/pulls"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_lost_answer_changes_nothing(outlet: Outlet, path: str, *, at_once: bool) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    if not at_once:  # where GitHub does not do all of it in one request, it is done step by step
        repo = outlet.target.repo.model_copy(update={"node_id": "nobody's"})
        outlet = replace(outlet, target=replace(outlet.target, repo=repo))
    outlet.hub.faults.add("POST", path, "drop_answer")
    delivered = await outlet.send(await outlet.publication())
    assert pull_of(delivered) == 2
    assert [each.number for each in outlet.pulls()] == [2]
    assert git(outlet.repo.path, "rev-list", "--count", f"main..{sha_of(delivered)}") == "1"


async def test_a_pull_requests_own_branch_gets_the_commit(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    delivered = await outlet.send(await outlet.publication(branch="topic"))
    assert outlet.hub.branches(outlet.repo)["topic"] == sha_of(delivered)
    assert not pull_of(delivered)


async def test_nothing_planned_nothing_sent(outlet: Outlet) -> None:
    because = Omission(cause="read-only", reason="because")
    empty = Publication(commit=None, pull_request=None, withheld=because)
    assert await outlet.send(empty) == Published(withheld=because)
    assert set(outlet.hub.branches(outlet.repo)) == {"main", "topic"}


async def test_a_refused_pull_request_leaves_the_commit_and_says_why(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    publication = await outlet.publication()
    assert publication.pull_request is not None
    astray = Publication(
        commit=publication.commit,
        pull_request=type(publication.pull_request)(base="absent", title="T", body="B", draft=False),
    )
    delivered = await outlet.send(
        replace(astray, withheld=Omission(cause="left-out", reason="`uv.lock` is unchanged."))
    )
    assert sha_of(delivered)
    assert cause_of(delivered) == "no-pull-request"
    assert "`uv.lock` is unchanged." in reason_of(delivered)


async def test_an_outage_is_an_error_and_the_next_try_completes_it(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    publication = await outlet.publication()
    outlet.hub.faults.add("POST", "*/graphql", "secondary_rate_limited", retry_after=3600)
    with pytest.raises(GitHubError):
        await outlet.send(publication)
    outlet.github._connection.session.limits = Limits()  # the hour is over
    assert pull_of(await outlet.send(publication)) == 2


async def test_an_outage_of_the_git_server_is_no_branch_that_moved_and_the_next_try_completes_it(
    outlet: Outlet,
) -> None:
    (outlet.tree.path / "a.txt").chmod(0o755)
    publication = await outlet.publication()
    outlet.tree._pauses = ()
    outlet.hub.faults.add("GET", "*/info/refs", "503")
    with pytest.raises(PushFailedError, match="answered 503"):
        await outlet.send(publication)
    assert pull_of(await outlet.send(publication)) == 2


async def test_a_push_that_takes_too_long_is_looked_for_and_tried_again(
    outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outlet.tree.path / "a.txt").chmod(0o755)
    publication, run = await outlet.publication(), Git.run

    async def run_out_of_time(git: Git, *args: Any, **options: Any) -> bytes:  # noqa: ANN401 - as git takes them
        done = await run(git, *args, **options)
        if args[0] == "push":
            raise GitError("push", None, "it took more than 600 s")
        return done

    monkeypatch.setattr(Git, "run", run_out_of_time)
    with pytest.raises(PushFailedError, match="took too long"):
        await outlet.send(publication)
    monkeypatch.setattr(Git, "run", run)
    delivered = await outlet.send(publication)
    assert (pull_of(delivered), delivered.withheld) == (2, None)


async def test_a_push_that_the_server_refuses_is_not_called_a_branch_that_moved(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").chmod(0o755)
    hook = outlet.repo.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'Changes need a ticket.' >&2\nexit 1\n")
    hook.chmod(0o755)
    said = reason_of(await outlet.send(await outlet.publication()))
    assert said.startswith("The branch was not changed. The push to `codepilot/issue-1-j1` was refused: ")
    assert "Changes need a ticket." in said


async def test_a_secret_in_a_file_is_not_published(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text(f"token = {SECRET}\n")
    delivered = await outlet.send(await outlet.publication())
    assert cause_of(delivered) == "secret"
    assert "`a.txt`" in reason_of(delivered)
    assert set(outlet.hub.branches(outlet.repo)) == {"main", "topic"}


@pytest.mark.parametrize("branch", ["main", "MAIN", "refs/heads/main", "refs/tags/v1", "-x", "release"])
async def test_a_branch_that_is_not_ours_to_make_is_refused(outlet: Outlet, branch: str) -> None:
    commit = CommitPlan(
        branch=branch,
        expected_head=outlet.base,
        create_branch=True,
        title="T",
        body="",
        change=a_change(a_file()),
    )
    with pytest.raises(ForbiddenTargetError):
        await outlet.send(Publication(commit=commit, pull_request=None))


async def test_a_pull_request_from_the_default_branch_is_withheld(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    delivered = await outlet.send(await outlet.publication(branch="main"))
    assert cause_of(delivered) == "default-branch"
    assert outlet.hub.branches(outlet.repo)["main"] == outlet.base


async def test_unfinished_work_goes_to_a_branch_that_can_be_compared(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text("half\n")
    whole = await outlet.publication()
    unfinished = Omission(cause="unfinished", reason="The run reached its step limit.")
    delivered = await outlet.send(replace(whole, pull_request=None, withheld=unfinished))
    assert branch_of(delivered) == "codepilot/issue-1-j1"
    assert delivered.wip_url == f"{outlet.target.repo.html_url}/compare/{outlet.base}...codepilot/issue-1-j1"
    assert delivered.withheld == unfinished
    assert outlet.pulls() == []


@pytest.mark.parametrize("branch", [None, "topic"])
async def test_a_dry_run_describes_the_publication_and_sends_nothing(outlet: Outlet, branch: str | None) -> None:
    (outlet.tree.path / "a.txt").write_text("2\n")
    before = outlet.hub.branches(outlet.repo)
    delivered = await outlet.send(await outlet.publication(branch=branch), dry_run=True)
    assert (branch or "`codepilot/issue-1-j1`, and a pull request from it into `main`") in delivered.dry_run_note
    assert (sha_of(delivered), pull_of(delivered), branch_of(delivered)) == ("", 0, "")
    assert outlet.hub.branches(outlet.repo) == before
    assert outlet.pulls() == []


async def test_a_dry_run_withholds_like_a_publication(outlet: Outlet) -> None:
    (outlet.tree.path / "a.txt").write_text(f"token = {SECRET}\n")
    delivered = await outlet.send(await outlet.publication(), dry_run=True)
    assert cause_of(delivered) == "secret"
    assert not delivered.dry_run_note


async def _merge(outlet: Outlet) -> Publication:
    """Plan the publication of a merge into `topic`."""
    (outlet.tree.path / "a.txt").write_text("2\n")
    change = await outlet.tree.change()
    base = await outlet.tree.commit(change, message="Base")
    publication = await outlet.publication(branch="topic", change=change)
    assert publication.commit is not None
    merge = Merge(head=outlet.base, base=base, branch="main", commit=outlet.base, tree=change.tree_sha)
    return replace(publication, commit=replace(publication.commit, merge=merge))


async def test_a_merge_is_pushed_once_with_both_parents(outlet: Outlet) -> None:
    publication = await _merge(outlet)
    assert publication.commit is not None
    outlet.record.deaf = True
    first, second = await outlet.send(publication), await outlet.send(publication)
    assert first == second
    assert outlet.hub.branches(outlet.repo)["topic"] == sha_of(first)
    parents = git(outlet.repo.path, "show", "--no-patch", "--format=%P", sha_of(first))
    assert tuple(parents.split()) == publication.commit.parents


async def test_a_merge_overwrites_no_push_and_follows_none(outlet: Outlet) -> None:
    publication = await _merge(outlet)
    head = outlet.hub.commit(outlet.repo, {"b.txt": "x\n"}, message="Go on", author="mona", branch="topic")
    delivered = await outlet.send(publication, replay=True)
    assert cause_of(delivered) == "branch-moved"
    assert f"`topic` is at {head[:10]} now." in reason_of(delivered)
    assert outlet.hub.branches(outlet.repo)["topic"] == head


WORKFLOW = ".github/workflows/ci.yml"
NOT_WORKFLOWS = {"contents": "write", "issues": "write", "pull_requests": "write"}


def _write_workflow(outlet: Outlet, mode: int) -> None:
    file = outlet.tree.path / WORKFLOW
    file.parent.mkdir(parents=True)
    file.write_text("on: push\n")
    file.chmod(mode)


async def _plain(outlet: Outlet) -> GitHub:
    """A client with a token of unknown permissions, e.g. the workflow's own."""
    outlet.hub.permit(outlet.installation, NOT_WORKFLOWS)
    token = await outlet.github.tokens.for_push(outlet.repo.full_name)
    return GitHub.for_token(token, outlet.hub.api_url, redact=str, seconds_between_writes=0)


# An ordinary file goes by GitHub's commit API, an executable one by a push.
@pytest.mark.parametrize("mode", [0o644, 0o755], ids=["api", "push"])
@pytest.mark.parametrize("branch", [None, "topic"])
async def test_a_workflow_file_is_published_with_the_permission_for_it(
    outlet: Outlet, mode: int, branch: str | None
) -> None:
    _write_workflow(outlet, mode)
    delivered = await outlet.send(await outlet.publication(branch=branch))
    assert delivered.withheld is None
    assert git(outlet.repo.path, "show", f"{sha_of(delivered)}:{WORKFLOW}") == "on: push"


@pytest.mark.parametrize("mode", [0o644, 0o755], ids=["api", "push"])
@pytest.mark.parametrize("branch", [None, "topic"])
async def test_a_missing_workflow_permission_is_reported(outlet: Outlet, mode: int, branch: str | None) -> None:
    outlet.hub.permit(outlet.installation, NOT_WORKFLOWS)
    _write_workflow(outlet, mode)
    before = outlet.hub.branches(outlet.repo)
    for dry_run in (True, False):
        delivered = await outlet.send(await outlet.publication(branch=branch), dry_run=dry_run)
        assert cause_of(delivered) == "workflows"
        assert "*Workflows: read and write*" in reason_of(delivered)
        assert "accept it in the installation" in reason_of(delivered)
        assert delivered == Published(withheld=delivered.withheld)
    assert outlet.hub.branches(outlet.repo) == before


@pytest.mark.parametrize("branch", [None, "topic"])
async def test_a_plain_token_that_may_not_leaves_no_branch_behind_either(outlet: Outlet, branch: str | None) -> None:
    _write_workflow(outlet, 0o644)
    before = outlet.hub.branches(outlet.repo)
    async with await _plain(outlet) as github:
        delivered = await replace(outlet, github=github).send(await outlet.publication(branch=branch))
    assert cause_of(delivered) == "workflows"
    assert outlet.hub.branches(outlet.repo) == before


async def test_a_workflow_file_may_go_without_it(outlet: Outlet) -> None:
    outlet.hub.commit(outlet.repo, {WORKFLOW: "on: push\n"}, message="CI", author="mona", branch="topic")
    outlet.hub.permit(outlet.installation, NOT_WORKFLOWS)
    head = outlet.hub.branches(outlet.repo)["topic"]
    gone = a_change(a_file(WORKFLOW, None), base_sha=head)
    delivered = await outlet.send(await outlet.publication(branch="topic", change=gone))
    assert (delivered.withheld, sha_of(delivered)) == (None, outlet.hub.branches(outlet.repo)["topic"])


@pytest.mark.parametrize(("workflows", "wanted"), [(False, {"contents"}), (True, {"contents", "workflows"})])
async def test_a_push_token_may_write_workflow_files_only_when_there_are_some(
    outlet: Outlet, *, workflows: bool, wanted: set[str]
) -> None:
    token = await outlet.github.tokens.for_push(outlet.repo.full_name, workflows=workflows)
    granted = outlet.hub._site.store.tokens[token].permissions
    assert {name for name, level in granted.items() if level == "write"} == wanted
