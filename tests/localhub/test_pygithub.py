"""PyGithub, asked everything that a bot asks, cannot tell."""

from __future__ import annotations

import asyncio

import pytest
from github import Auth, Github, GithubException, GithubIntegration, InputGitTreeElement
from github.PullRequest import ReviewComment

from tests.localhub.conftest import World


def app_of(world: World) -> GithubIntegration:
    auth = Auth.AppAuth(world.app.id, world.app.private_key_pem)
    return GithubIntegration(
        auth=auth, base_url=world.hub.api_url, seconds_between_requests=0, seconds_between_writes=0
    )


def bot_of(world: World) -> Github:
    return app_of(world).get_repo_installation("acme", "widgets").get_github_for_installation()


async def test_an_app_reads_its_description_and_installations(world: World) -> None:
    def work() -> None:
        with app_of(world) as integration:
            app = integration.get_app()
            assert (app.id, app.slug, app.permissions) == (world.app.id, world.app.slug, world.app.permissions)
            [installation] = integration.get_installations()
            assert (installation.account.login, installation.permissions) == ("acme", app.permissions)
            assert [repo.full_name for repo in installation.get_repos()] == ["acme/widgets"]

    await asyncio.to_thread(work)


async def test_merged_pull_requests_are_read_with_their_commits(world: World) -> None:
    hub = world.hub
    for branch in ("kept", "merged"):
        head = hub.commit(world.repo, {f"src/{branch}.py": "x = 2\n"}, message=branch, author="mona", branch=branch)
        hub.open_pull(world.repo, author="mona", head=branch, title=branch)
    merge = hub.merge(world.repo, 2, by="mona")

    def work() -> None:
        with bot_of(world) as github:
            repo = github.get_repo("acme/widgets")
            [pull] = [each for each in repo.get_pulls(state="closed") if each.merged]
            assert (pull.number, pull.head.sha, pull.merge_commit_sha, pull.merged_by.login) == (2, head, merge, "mona")
            assert [file.filename for file in pull.get_files()] == ["src/merged.py"]
            assert [commit.sha for commit in pull.get_commits()] == [head]
            assert head in {parent.sha for parent in repo.get_commit(merge).parents}

    await asyncio.to_thread(work)


async def test_an_app_signs_in_and_works_in_a_thread(world: World) -> None:
    world.hub.open_issue(world.repo, author="mona", title="It breaks", body="Really")

    def work() -> None:
        with bot_of(world) as github:
            repo = github.get_repo("acme/widgets")
            assert github.get_repo(repo.id).full_name == "acme/widgets"
            issue = repo.get_issue(1)
            assert (issue.title, issue.user.login) == ("It breaks", "mona")
            comment = issue.create_comment("On it")
            comment.edit("Done")
            assert comment.create_reaction("rocket").content == "rocket"
            assert issue.create_reaction("eyes").user.login == "codepilot[bot]"
            assert [c.body for c in issue.get_comments()] == ["Done"]
            issue.add_to_labels("bug")
            assert [label.name for label in issue.get_labels()] == ["bug"]
            issue.remove_from_labels("bug")
            assert repo.get_collaborator_permission("mona") == "admin"
            assert repo.get_collaborator_role_name("mona") == "admin"
            comment.delete()

    await asyncio.to_thread(work)
    assert world.hub.comments(world.repo, 1) == []


async def test_a_change_becomes_a_pull_request_with_a_check(world: World) -> None:
    def work() -> None:
        with bot_of(world) as github:
            repo = github.get_repo("acme/widgets")
            head = repo.get_branch("main").commit
            ref = repo.create_git_ref("refs/heads/codepilot/fix", head.sha)
            element = InputGitTreeElement("src/a.py", "100644", "blob", content="x = 2\n")
            tree = repo.create_git_tree([element], base_tree=head.commit.tree)
            commit = repo.create_git_commit("Fix it", tree, [repo.get_git_commit(head.sha)])
            ref.edit(commit.sha)
            pull = repo.create_pull(base="main", head="codepilot/fix", title="Fix it", body="Closes #1")
            assert (pull.head.sha, pull.additions, pull.changed_files) == (commit.sha, 1, 1)
            assert [file.filename for file in pull.get_files()] == ["src/a.py"]
            assert [c.sha for c in pull.get_commits()] == [commit.sha]
            assert repo.get_contents("src/a.py", ref="codepilot/fix").decoded_content == b"x = 2\n"  # type: ignore[union-attr]
            run = repo.create_check_run(name="codepilot", head_sha=commit.sha, status="in_progress")
            run.edit(conclusion="success", output={"title": "Done", "summary": "All well"})
            assert [check.conclusion for check in repo.get_commit(commit.sha).get_check_runs()] == ["success"]
            assert repo.compare("main", "codepilot/fix").ahead_by == 1
            with pytest.raises(GithubException) as refused:
                repo.create_git_ref("refs/heads/codepilot/fix", head.sha)
            assert refused.value.message == "Reference already exists"

    await asyncio.to_thread(work)


async def test_a_pull_request_is_reviewed_and_its_history_read(world: World) -> None:
    hub = world.hub
    sha = hub.commit(world.repo, {"src/a.py": "x = 2\n"}, message="Two", author="mona", branch="topic")
    hub.open_pull(world.repo, author="mona", head="topic", title="Two", draft=True)
    hub.add_label(world.repo, 1, "codepilot:auto", by="mona")
    run = hub.workflow_run(world.repo, head_sha=sha, head_branch="topic", conclusion="failure", actor="mona")

    def work() -> None:
        with bot_of(world) as github:
            assert github.get_user_by_id(world.mona.id).login == "mona"
            repo = github.get_repo("acme/widgets")
            pull = repo.get_pull(1)
            assert pull.draft
            remark: ReviewComment = {"path": "src/a.py", "line": 1, "side": "RIGHT", "body": "Why?"}
            review = pull.create_review(body="A remark", event="COMMENT", comments=[remark])
            assert (review.state, pull.get_review(review.id).body) == ("COMMENTED", "A remark")
            first = next(iter(pull.get_review_comments()))
            reply = pull.create_review_comment_reply(first.id, "Because.")
            assert (reply.in_reply_to_id, reply.path, reply.diff_hunk) == (first.id, "src/a.py", first.diff_hunk)
            reply.edit("Because of you.")
            assert reply.create_reaction("heart").content == "heart"
            pull.create_review_comment("And this?", repo.get_commit(sha), "src/a.py", line=1, side="LEFT")
            assert [each.body for each in pull.get_review_comments()] == ["Why?", "Because of you.", "And this?"]
            assert [each.state for each in pull.get_reviews()] == ["COMMENTED"] * 3
            reply.delete()
            issue = repo.get_issue(1)
            labeled = next(iter(issue.get_events()))
            assert (labeled.event, labeled.actor.login) == ("labeled", "mona")
            assert labeled.label is not None
            assert labeled.label.name == "codepilot:auto"
            assert {each.event for each in issue.get_timeline()} == {"labeled", "reviewed"}
            assert [each.id for each in repo.get_workflow_runs(branch=repo.get_branch("topic"))] == [run.id]
            assert repo.get_workflow_run(run.id).conclusion == "failure"

    await asyncio.to_thread(work)


async def test_a_check_run_has_buttons_and_annotations(world: World) -> None:
    head = world.hub.branches(world.repo)["main"]
    note: dict[str, str | int] = {"path": "src/a.py", "start_line": 1, "end_line": 1, "annotation_level": "notice"}
    output: dict[str, str | list[dict[str, str | int]]] = {
        "title": "Done",
        "summary": "All well",
        "annotations": [note | {"message": "Here"}],
    }
    button = {"label": "Retry", "description": "Do it again", "identifier": "retry"}

    def work() -> None:
        with bot_of(world) as github:
            repo = github.get_repo("acme/widgets")
            run = repo.create_check_run("codepilot", head, conclusion="success", output=output, actions=[button])
            assert [each.message for each in run.get_annotations()] == ["Here"]
            with pytest.raises(GithubException) as refused:
                run.edit(actions=[button] * 4)
            assert refused.value.status == 422

    await asyncio.to_thread(work)
    world.hub.press(world.hub.check_runs(world.repo)[0], "retry", by="mona")


async def test_a_former_name_leads_to_the_repository(world: World) -> None:
    world.hub.rename(world.repo, "gadgets", by="mona")

    def work() -> None:
        with Github(base_url=world.hub.api_url) as github:
            assert github.get_repo("acme/widgets").full_name == "acme/gadgets"

    await asyncio.to_thread(work)


async def test_long_lists_are_walked_page_by_page(world: World) -> None:
    for number in range(70):
        world.hub.open_issue(world.repo, author="mona", title=f"Issue {number}")

    def work() -> None:
        with bot_of(world) as github:
            issues = github.get_repo("acme/widgets").get_issues()
            assert issues.totalCount == 70
            assert [issue.number for issue in issues] == list(range(70, 0, -1))

    await asyncio.to_thread(work)
