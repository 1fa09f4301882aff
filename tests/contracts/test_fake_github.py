"""The one contract of `FakeGitHub`: each call of the client is made on it and on the hub, and the answers compared.

A scenario describes what people do and what the client is asked. It runs on both sides; ids, times and hosts differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.git.change import Change
from bot.github.client import GitHub
from bot.github.rate_limit import Urgency
from bot.github.types import (
    Annotation,
    Button,
    CheckDraft,
    CommentTarget,
    GitHubError,
    PullDraft,
    ReviewDraft,
    ReviewNote,
)
from localhub import EndedJob, LocalHub
from tests.changes import a_change, a_file
from tests.contracts.fake_worlds import FILES, FakeWorld, HubWorld, World, on_thread
from tests.fakes.github import (
    FakeFile,
    FakeGitHub,
    FakeSite,
    outage,
    tree_id,
)
from tests.fakes.routing import routes
from tests.github_world import SECRET

_MISSING = 999
_NO_SHA = "f" * 40
_MARK = "<!-- mark -->"

Scenario = Callable[[World], Awaitable[None]]
_SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    _SCENARIOS.append(function)
    return function


# Accounts


@scenario
async def accounts(w: World) -> None:
    repo = w.filled_repo()
    mona = w.people.add_user("mona")
    await w.ask(w.github.accounts.me())
    await w.ask(w.github.accounts.me())
    await w.ask(w.github.accounts.get(mona.id))
    await w.ask(w.github.accounts.get(_MISSING))
    for role in ("none", "read", "triage", "write", "maintain", "admin"):
        w.people.add_collaborator(repo, "hubot", role)
        await w.ask(w.github.accounts.get_role(w.name, w.people.add_user("hubot").id, "hubot"))
    await w.ask(w.github.accounts.get_role(w.name, w.people.add_user(w.owner).id, w.owner))


@scenario
async def roles_of_strangers(w: World) -> None:
    w.filled_repo()
    w.filled_repo("secret", private=True)
    stranger, mona = w.people.add_user("stranger"), w.people.add_user("mona")
    for name in (w.name, f"{w.owner}/secret"):
        await w.ask(w.github.accounts.get_role(name, stranger.id, "stranger"))
        await w.ask(w.github.accounts.get_role(name, mona.id, "a-former-login"))
        await w.ask(w.github.accounts.get_role(name, _MISSING, "nobody"))
        await w.ask(w.github.accounts.get_role(name, _MISSING, "mona"))
    await w.ask(w.github.accounts.get_role(f"{w.owner}/absent", mona.id, "mona"))


@scenario
async def a_client_with_a_workflows_token(w: World) -> None:
    repo = w.filled_repo()
    issue = w.people.open_issue(repo, author="mona", title="It breaks")
    async with w.workflow_client() as github:
        await w.ask(github.accounts.me())
        await w.ask(github.tokens.can_write_workflows())
        await w.ask(github.tokens.find_missing(w.name, ("contents", "pull_requests")))
        await w.ask(github.comments.create(w.name, on_thread(issue.number), "Hello"))
        w.note((await github.tokens.for_clone(w.name)) == (await github.tokens.for_push(w.name)))
        github.tokens.forget(w.name)
        w.people.lock(repo, issue.number)
        await w.ask(github.comments.create(w.name, on_thread(issue.number), "Hello"))


# Tokens


@scenario
async def tokens(w: World) -> None:
    w.filled_repo()
    clone = await w.github.tokens.for_clone(w.name)
    push = await w.github.tokens.for_push(w.name, workflows=True)
    w.note((clone[:4], clone == await w.github.tokens.for_clone(w.name), clone == push))
    w.github.tokens.forget(w.name)
    w.note(clone == await w.github.tokens.for_clone(w.name))
    await w.ask(w.github.tokens.can_write_workflows())
    await w.ask(w.github.tokens.find_missing(w.name, ("contents", "pull_requests")))
    w.permit(contents="read")
    await w.ask(w.github.tokens.find_missing(w.name, ("contents", "pull_requests")))
    await w.ask(w.github.tokens.for_clone(f"{w.owner}/absent"))
    w.permit(workflows="")
    await w.ask(w.github.tokens.can_write_workflows())
    w.github.tokens.forget(w.name)
    await w.ask(w.github.tokens.for_push(w.name, workflows=True))


# Repositories


@scenario
async def repositories(w: World) -> None:
    repo = w.filled_repo()
    w.filled_repo("secret", private=True)
    w.add_repo("empty")
    await w.ask(w.github.repos.get(w.name))
    await w.ask(w.github.repos.get(f"{w.owner}/secret"))
    await w.ask(w.github.repos.get(w.name.upper()))
    await w.ask(w.github.repos.get(f"{w.owner}/absent"))
    await w.ask(w.github.repos.list_installed())
    w.people.archive(repo)
    await w.ask(w.github.repos.get(w.name))


@scenario
async def a_renamed_repository(w: World) -> None:
    repo = w.filled_repo()
    issue = w.people.open_issue(repo, author="mona", title="It breaks")
    w.people.rename(repo, "renamed")
    await w.ask(w.github.repos.get(w.name))
    await w.ask(w.github.threads.snapshot(w.name, issue.number))
    await w.ask(w.github.comments.create(w.name, on_thread(issue.number), "Hello"))


@scenario
async def labels_and_pushes(w: World) -> None:
    repo, other = w.filled_repo(), w.people.add_app("other").bot.login
    issue, pull = w.people.open_issue(repo, author="mona", title="Begin", body="Text", labels=["bug"]), w.pull(repo)
    await w.ask(w.github.threads.label_history(w.name, issue.number))
    w.people.edit_thread(repo, issue.number, by="mona", title="Begin again", body="Other text")
    for thread in (issue, pull):
        for login in ("mona", other):
            w.people.label(repo, thread.number, "codepilot:auto", by=login)
            w.people.label(repo, thread.number, by="mona")
        await w.ask(w.github.threads.label_history(w.name, thread.number))
    await w.ask(w.github.threads.label_history(w.name, _MISSING))
    w.people.commit(repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")
    w.set_branch(repo, "gone", w_head(w, repo))
    w.set_branch(repo, "gone", None)
    for branch in ("main", "topic", "gone", "absent"):
        await w.ask(w.github.repos.list_pushes(w.name, branch))
    w.permit(contents="")
    await w.ask(w.github.repos.list_pushes(w.name, "main"))


@scenario
async def files(w: World) -> None:
    repo = w.filled_repo()
    w.people.commit(repo, {"a.txt": "other\n"}, message="Other", author="mona", branch="topic")
    for path in ("a.txt", "folder/inner/c.txt", "folder", "absent.txt", "folder/absent.txt"):
        await w.ask(w.github.repos.read_file(w.name, path))
    await w.ask(w.github.repos.read_file(w.name, "a.txt", "topic"))
    await w.ask(w.github.repos.read_file(w.name, "a.txt", "absent"))
    await w.ask(w.github.repos.read_file(f"{w.owner}/absent", "a.txt"))
    for path in ("folder", "folder/inner", "absent", "a.txt"):
        listed = await w.must(w.github.repos.list_files(w.name, path))
        w.note({name: file.sha[:9] for name, file in listed.items()})


@scenario
async def files_of_other_kinds(w: World) -> None:
    repo = w.filled_repo()
    blobs = {
        "large.bin": FakeFile("100644", b"x" * (1024**2 + 1)),
        "full.bin": FakeFile("100644", b"y" * 1024**2),
        "latin.txt": FakeFile("100644", "é".encode("latin-1")),
        "nul.bin": FakeFile("100644", b"a\0b"),
        "run.sh": FakeFile("100755", b"#!/bin/sh\n"),
    }
    links = {
        "folder/link": FakeFile("120000", b"../a.txt"),
        "dangling": FakeFile("120000", b"nowhere"),
        "outside": FakeFile("120000", b"../../etc/passwd"),
        "module": FakeFile("160000", b"1" * 40),
    }
    w.commit_files(repo, {**blobs, **links})
    for path in (*blobs, *links):
        await w.ask(w.github.repos.read_file(w.name, path))
    await w.ask(w.github.repos.list_files(w.name, "folder"))
    small = [file.sha for path, file in blobs.items() if path not in {"large.bin", "full.bin"}]
    head = await w.must(w.github.repos.branch_head(w.name, "main"))
    await w.ask(w.github.repos.read_blobs(w.name, [*small, head, _NO_SHA]))
    await w.ask(w.github.repos.read_blobs(w.name, []))
    await w.ask(w.github.repos.read_blobs(f"{w.owner}/absent", small))


@scenario
async def branches_and_commits(w: World) -> None:
    repo = w.filled_repo()
    for branch in ("topic", "codepilot/1", "codepilot/2"):
        w.people.commit(repo, {"a.txt": branch}, message=f"On {branch}\n\nWhy.", author="mona", branch=branch)
    head = await w.must(w.github.repos.branch_head(w.name, "topic"))
    await w.ask(w.github.repos.branch_head(w.name, "absent"))
    for prefix in ("codepilot/", "", "none"):
        await w.ask(w.github.repos.list_branches(w.name, prefix))
    commit = await w.must(w.github.repos.commit(w.name, head))
    w.note(commit.tree_sha[:9])
    await w.ask(w.github.repos.commit(w.name, commit.parents[0]))
    await w.ask(w.github.repos.commit(w.name, _NO_SHA))
    await w.ask(w.github.repos.commit(w.name, commit.tree_sha))


@scenario
async def rules_of_branches(w: World) -> None:
    repo = w.filled_repo()
    w.people.commit(repo, {"a.txt": "2"}, message="Two", author="mona", branch="topic")
    pattern = {"operator": "starts_with", "pattern": "PROJ-"}
    signed = w.people.add_rules(repo, "required_signatures", branches="topic")
    named = w.people.add_rules(
        repo,
        {"type": "branch_name_pattern", "parameters": pattern | {"pattern": "bots/"}},
        {"type": "commit_message_pattern", "parameters": pattern},
        branches="codepilot/*",
        bypass=["codepilot[bot]"],
    )
    w.people.add_rules(repo, "required_linear_history", branches="topic", classic=True)
    w.people.add_rules(repo, "creation", "pull_request", branches="closed/*")
    for branch in ("topic", "codepilot/issue-1-a", "main", "closed/1"):
        for is_new in (False, True):
            await w.ask(w.github.repos.read_rules(w.name, branch, is_new=is_new))
    await w.ask(w.github.repos.find_branches(w.name, ["main", "absent", "topic"]))
    for ruleset in (signed, named):
        await w.ask(w.github.repos.is_bound_by(w.name, ruleset.id))
    await w.ask(w.github.repos.is_bound_by(w.name, 1))
    await w.ask(w.github.repos.read_rules(f"{w.owner}/absent", "main", is_new=True))
    head = await w.must(w.github.repos.branch_head(w.name, "main"))
    await w.ask(w.github.commits.create_branch(w.name, "closed/1", head))
    await w.ask(w.github.commits.create_branch(w.name, "codepilot/1", head))


@scenario
async def an_empty_repository(w: World) -> None:
    repo = w.add_repo()
    issue = w.people.open_issue(repo, author="mona", title="Begin")
    await w.ask(w.github.repos.branch_head(w.name, "main"))
    await w.ask(w.github.repos.list_branches(w.name, ""))
    await w.ask(w.github.repos.commit(w.name, _NO_SHA))
    await w.ask(w.github.repos.read_file(w.name, "a.txt"))
    await w.ask(w.github.repos.list_files(w.name, "folder"))
    await w.ask(w.github.threads.snapshot(w.name, issue.number))
    await w.ask(w.github.threads.branch_snapshot(w.name, "main"))
    await w.ask(w.github.checks.create(w.name, _draft(_NO_SHA)))
    await w.ask(w.github.commits.create_branch(w.name, "topic", _NO_SHA))


@scenario
async def a_repository_without_the_app(w: World) -> None:
    w.filled_repo("other")
    for name, private in (("public", False), ("secret", True)):
        repo = w.filled_repo(name, private=private, installed=False)
        issue = w.people.open_issue(repo, author="mona", title="It breaks")
        full_name = f"{w.owner}/{name}"
        await w.ask(w.github.repos.get(full_name))
        await w.ask(w.github.threads.snapshot(full_name, issue.number))
        await w.ask(w.github.comments.list_for_thread(full_name, issue.number))
        await w.ask(w.github.comments.create(full_name, on_thread(issue.number), "Hello"))
        await w.ask(w.github.tokens.for_clone(full_name))
        await w.ask(w.github.repos.read_file(full_name, "a.txt"))


@scenario
async def missing_permissions(w: World) -> None:
    repo = w.filled_repo()
    issue, pull = w.people.open_issue(repo, author="mona", title="It breaks"), w.pull(repo)
    w.permit(checks="read", contents="read", statuses="", actions="", pull_requests="read")
    await w.ask(w.github.checks.create(w.name, _draft(w_head(w, repo))))
    await w.ask(w.github.checks.list_failing(w.name, w_head(w, repo)))
    await w.ask(w.github.runs.get(w.name, 1))
    await w.ask(w.github.commits.create_branch(w.name, "new", w_head(w, repo)))
    await w.ask(_commit(w, _change({"a.txt": b"2\n"}, base=w_head(w, repo))))
    await w.ask(w.github.pulls.create(w.name, _PULL, head="topic"))
    await w.ask(w.github.reviews.create(w.name, pull.number, ReviewDraft(commit_sha=_NO_SHA, body="Fine")))
    await w.ask(w.github.comments.create(w.name, on_thread(pull.number), "Hello"))
    w.permit(checks="read", contents="read", statuses="", actions="", pull_requests="read", issues="read")
    for number in (issue.number, pull.number):
        await w.ask(w.github.comments.create(w.name, on_thread(number), "Hello"))
    await w.ask(w.github.threads.open_issue(w.name, title="New", body="Text"))
    w.permit(issues="", pull_requests="")
    await w.ask(w.github.threads.get(w.name, issue.number))
    await w.ask(w.github.threads.snapshot(w.name, issue.number))


@scenario
async def an_archived_repository(w: World) -> None:
    repo = w.filled_repo()
    issue = w.people.open_issue(repo, author="mona", title="It breaks", labels=["bug"])
    head = w_head(w, repo)
    w.people.archive(repo)
    await w.ask(w.github.threads.snapshot(w.name, issue.number))
    await w.ask(w.github.comments.create(w.name, on_thread(issue.number), "Hello"))
    await w.ask(w.github.comments.react(w.name, on_thread(issue.number), 0, "eyes"))
    await w.ask(w.github.threads.remove_label(w.name, issue.number, "bug"))
    await w.ask(_commit(w, _change({"a.txt": b"2\n"}, base=head)))
    await w.ask(w.github.checks.create(w.name, _draft(head)))


# Threads


@scenario
async def issues(w: World) -> None:
    repo = w.filled_repo()
    first = w.people.open_issue(repo, author="mona", title="It breaks", body="Badly.", labels=["bug", "p 1"])
    second = w.people.open_issue(repo, author="hubot", title="No text")
    w.people.lock(repo, second.number)
    w.people.close(repo, second.number, by="mona")
    for number in (first.number, second.number, _MISSING):
        await w.ask(w.github.threads.get(w.name, number))
        await w.ask(w.github.threads.snapshot(w.name, number))
    await w.ask(w.github.threads.get(f"{w.owner}/absent", 1))
    await w.ask(w.github.threads.snapshot(f"{w.owner}/absent", 1))
    for name in ("P 1", "p 1", "absent"):
        await w.ask(w.github.threads.remove_label(w.name, first.number, name))
    await w.ask(w.github.threads.remove_label(w.name, _MISSING, "bug"))
    await w.ask(w.github.threads.get(w.name, first.number))


@scenario
async def issues_of_the_bots_own(w: World) -> None:
    repo = w.filled_repo()
    me = await w.must(w.github.accounts.me())
    await w.ask(w.github.threads.find_own_issue(w.name, me, _MARK))
    for title, body in (("One", "No mark"), ("Two", f"Text {_MARK}"), ("Three", _MARK)):
        await w.ask(w.github.threads.open_issue(w.name, title=title, body=body))
    w.people.open_issue(repo, author="mona", title="Copied", body=_MARK)
    await w.ask(w.github.threads.find_own_issue(w.name, me, _MARK))
    w.people.close(repo, 2, by="mona")
    await w.ask(w.github.threads.find_own_issue(w.name, me, _MARK))
    await w.ask(w.github.threads.find_own_issue(w.name, replace(me, id=1), _MARK))
    await w.ask(w.github.threads.snapshot(w.name, 1))
    for title, body in (("", "x"), ("  ", "x"), ("x" * 257, "x"), ("x", "y" * 65_537)):
        await w.ask(w.github.threads.open_issue(w.name, title=title, body=body))
    await w.ask(w.github.threads.open_issue(f"{w.owner}/absent", title="x", body="y"))


@scenario
async def snapshots_of_branches(w: World) -> None:
    repo = w.filled_repo()
    w.people.commit(repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="release/1")
    for branch in ("main", "release/1", "absent"):
        await w.ask(w.github.threads.branch_snapshot(w.name, branch))
    await w.ask(w.github.threads.branch_snapshot(f"{w.owner}/absent", "main"))


# Comments


@scenario
async def comments(w: World) -> None:
    repo = w.filled_repo()
    number = w.people.open_issue(repo, author="mona", title="It breaks").number
    me, target, calls = await w.must(w.github.accounts.me()), on_thread(number), w.github.comments
    w.people.comment(repo, number, author="mona", body=f"/codepilot fix {_MARK}")
    made = await w.must(calls.create(w.name, target, f"On it. {SECRET} {_MARK}"))
    await w.ask(calls.create(w.name, target, f"Again. {_MARK}"))
    w.people.edit_comment(w.people.comments(repo, number)[-1], by="mona", body="Changed by a person")
    listed = await w.must(calls.list_for_thread(w.name, number))
    for node_id in (listed[0].node_id, listed[-1].node_id, "absent"):
        await w.ask(calls.read_edit(w.name, node_id))
    await w.ask(calls.find(w.name, target, _MARK, me.id))
    await w.ask(calls.find(w.name, target, "absent", me.id))
    await w.ask(calls.edit(w.name, target, made.id, f"Done. {SECRET}"))
    await w.ask(calls.get(w.name, target, made.id))
    await w.ask(calls.render(w.name, number, "comment", made.id))
    w.people.delete_comment(w.people.comments(repo, number)[1], by="mona")
    await w.ask(calls.get(w.name, target, made.id))
    await w.ask(calls.edit(w.name, target, made.id, "Late"))
    await w.ask(calls.react(w.name, target, made.id, "eyes"))
    await w.ask(calls.list_for_thread(w.name, number))


@scenario
async def refused_comments(w: World) -> None:
    repo = w.filled_repo()
    w.filled_repo("other")
    number = w.people.open_issue(repo, author="mona", title="It breaks").number
    target, calls = on_thread(number), w.github.comments
    made = await w.must(calls.create(w.name, target, "x" * 65_536))
    for body in ("", "  \n", "x" * 65_537):
        await w.ask(calls.create(w.name, target, body))
        await w.ask(calls.edit(w.name, target, made.id, body))
    await w.ask(calls.create(w.name, on_thread(_MISSING), "Hello"))
    await w.ask(calls.list_for_thread(w.name, _MISSING))
    await w.ask(calls.find(w.name, on_thread(_MISSING), _MARK, 1))
    await w.ask(calls.get(f"{w.owner}/other", target, made.id))
    await w.ask(calls.edit(f"{w.owner}/other", target, made.id, "Elsewhere"))
    w.people.lock(repo, number)
    await w.ask(calls.create(w.name, target, "Locked"))
    await w.ask(calls.edit(w.name, target, made.id, "Edited all the same"))
    await w.ask(calls.react(w.name, target, made.id, "eyes"))
    w.people.unlock(repo, number)
    await w.ask(calls.create(w.name, target, "Unlocked"))


@scenario
async def a_hundred_comments(w: World) -> None:
    repo = w.filled_repo()
    number = w.people.open_issue(repo, author="mona", title="It breaks").number
    for index in range(101):
        w.people.comment(repo, number, author="mona", body=f"Number {index}")
    listed = await w.github.comments.list_for_thread(w.name, number)
    w.note([comment.body for comment in listed])


@scenario
async def reactions(w: World) -> None:
    repo = w.filled_repo()
    pull, comment = w.pull(repo), w.people.comment(repo, 1, author="mona", body="Hello")
    line = w.people.review_comment(repo, 1, author="mona", body="Why?", path="long.txt", line=20)
    lines = CommentTarget(kind="review_thread", number=1, root=line.id)
    for content in ("eyes", "+1", "eyes"):
        await w.ask(w.github.comments.react(w.name, on_thread(1), 0, content))
        await w.ask(w.github.comments.react(w.name, on_thread(1), comment.id, content))
        await w.ask(w.github.comments.react(w.name, lines, line.id, content))
    for subject in (w.people.issue(repo, pull.number), comment, line):
        w.note(w.reactions(subject))
    for number, comment_id in ((_MISSING, 0), (1, _MISSING), (1, line.id)):
        await w.ask(w.github.comments.react(w.name, on_thread(number), comment_id, "eyes"))


@scenario
async def comments_on_lines(w: World) -> None:
    repo = w.filled_repo()
    number = w.pull(repo).number
    w.people.review_comment(repo, number, author="mona", body="Elsewhere", path="long.txt", line=18)
    first = w.people.review_comment(repo, number, author="mona", body=f"Why? {_MARK}", path="long.txt", line=20)
    me, calls = await w.must(w.github.accounts.me()), w.github.comments
    target = CommentTarget(kind="review_thread", number=number, root=first.id)
    made = await w.must(calls.create(w.name, target, f"Because. {SECRET} {_MARK}"))
    w.people.review_comment(repo, number, author="mona", body="I see", in_reply_to=made.id)
    await w.ask(w.github.reviews.list_line_comments(w.name, number))
    await w.ask(w.github.reviews.list_for_pull(w.name, number))
    await w.ask(calls.find(w.name, target, _MARK, me.id))
    await w.ask(calls.edit(w.name, target, made.id, f"Because of *this*. {SECRET}"))
    await w.ask(calls.get(w.name, target, made.id))
    await w.ask(calls.render(w.name, number, "review_comment", made.id))
    await w.ask(calls.get(w.name, on_thread(number), made.id))
    await w.ask(calls.edit(w.name, target, made.id, " "))
    await w.ask(calls.edit(w.name, target, _MISSING, "Late"))
    await w.ask(calls.create(w.name, target, ""))
    await w.ask(calls.create(w.name, replace(target, root=_MISSING), "Hello"))
    await w.ask(calls.create(w.name, replace(target, number=_MISSING), "Hello"))
    await w.ask(calls.find(w.name, replace(target, number=_MISSING), _MARK, me.id))
    w.people.lock(repo, number)
    await w.ask(calls.create(w.name, target, "Locked"))


@scenario
async def rendered_texts(w: World) -> None:
    repo = w.filled_repo()
    body = "# Title\n\n<!-- hidden -->`code` & <b>bold</b>"
    issue = w.people.open_issue(repo, author="mona", title="It breaks", body=body)
    empty, pull = w.people.open_issue(repo, author="mona", title="No text"), w.pull(repo, body=body)
    review = w.people.review(repo, pull.number, author="hubot", body=body)
    for number in (issue.number, empty.number, pull.number, _MISSING):
        await w.ask(w.github.comments.render(w.name, number, "thread"))
    await w.ask(w.github.comments.render(w.name, pull.number, "review", review.id))
    for kind in ("comment", "review_comment", "review"):
        await w.ask(w.github.comments.render(w.name, pull.number, kind, _MISSING))


# Pull requests and reviews

_PULL = PullDraft(base="main", title=f"Twenty {SECRET}", body=f"Body {SECRET}", draft=False)


@scenario
async def pull_requests(w: World) -> None:
    repo = w.filled_repo()
    issue, pull = w.people.open_issue(repo, author="mona", title="It breaks"), w.pull(repo, body="Text", draft=True)
    for number in (pull.number, issue.number, _MISSING):
        await w.ask(w.github.pulls.get(w.name, number))
    await w.ask(w.github.threads.get(w.name, pull.number))
    await w.ask(w.github.threads.snapshot(w.name, pull.number))
    w.people.commit(repo, {"a.txt": "2\n"}, message="More", author="mona", branch="topic")
    w.people.commit(repo, {"a.txt": "0\n"}, message="Base", author="mona")
    await w.ask(w.github.pulls.get(w.name, pull.number))
    await w.ask(w.github.threads.snapshot(w.name, pull.number))
    w.set_branch(repo, "topic", None)
    await w.ask(w.github.pulls.get(w.name, pull.number))
    await w.ask(w.github.threads.snapshot(w.name, pull.number))


@scenario
async def a_described_pull_request(w: World) -> None:
    repo = w.filled_repo()
    issue, pull = w.people.open_issue(repo, author="mona", title="It breaks"), w.pull(repo, body="Text")
    await w.ask(w.github.pulls.describe(w.name, pull.number, title="Twenty", body=f"Lines, {SECRET}"))
    await w.ask(w.github.pulls.get(w.name, pull.number))
    for number in (issue.number, _MISSING):
        await w.ask(w.github.pulls.describe(w.name, number, title="Twenty", body=""))
    await w.ask(w.github.pulls.describe(w.name, pull.number, title="Twenty", body="x" * 70_000))
    await w.ask(w.github.pulls.describe(w.name, pull.number, title=None, body=None, closes=True))
    await w.ask(w.github.pulls.get(w.name, pull.number))
    w.permit(pull_requests="")
    await w.ask(w.github.pulls.describe(w.name, pull.number, title="Twenty", body=""))


@scenario
async def a_merged_pull_request(w: World) -> None:
    repo = w.filled_repo()
    pull = w.pull(repo)
    w.people.merge(repo, pull.number, by="mona")
    await w.ask(w.github.pulls.get(w.name, pull.number))
    await w.ask(w.github.threads.snapshot(w.name, pull.number))
    await w.ask(w.github.pulls.list_from(w.name, "topic"))
    await w.ask(w.github.repos.read_file(w.name, "long.txt"))
    merged = await w.must(w.github.repos.branch_head(w.name, "main"))
    by_hand = w.pull(repo, branch="by-hand", line="twentieth line\n")
    w.set_branch(repo, "main", w_head(w, repo, "by-hand"))
    await w.ask(w.github.pulls.get(w.name, by_hand.number))
    w.note((await w.github.repos.commit(w.name, merged)).parents)


@scenario
async def a_pull_request_into_a_deleted_branch(w: World) -> None:
    repo = w.filled_repo()
    w.people.commit(repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="release")
    pull = w.pull(repo, base="release")
    w.set_branch(repo, "release", None)
    await w.ask(w.github.threads.snapshot(w.name, pull.number))
    await w.ask(w.github.pulls.get(w.name, pull.number))


@scenario
async def a_pull_request_from_a_fork(w: World) -> None:
    repo = w.filled_repo()
    fork_name = f"forker-{w.owner}/calc"
    w.people.add_user(f"forker-{w.owner}")
    fork = w.people.add_repo(fork_name, fork_of=repo)
    w.people.commit(fork, {"a.txt": "fork\n"}, message="Forked", author="mona", branch="topic")
    pull = w.people.open_pull(repo, author="mona", head=f"forker-{w.owner}:topic", title="From a fork")
    await w.ask(w.github.threads.snapshot(w.name, pull.number))
    facts = await w.must(w.github.pulls.get(w.name, pull.number))
    await w.ask(w.github.repos.commit(w.name, facts.head_sha))
    for branch, fork_id, sha in (
        ("topic", fork.id, facts.head_sha),
        ("main", fork.id, facts.head_sha),
        ("topic", repo.id, facts.head_sha),
        ("topic", fork.id, _NO_SHA),
    ):
        await w.ask(w.github.pulls.find_for_fork(w.name, fork=fork_name, fork_id=fork_id, branch=branch, sha=sha))
    await w.ask(w.github.pulls.list_from(w.name, "topic"))
    await w.ask(w.github.pulls.list_own_into(w.name, "main", ("topic",), author_id=w.people.add_user("mona").id))
    w.people.commit(fork, {"a.txt": "again\n"}, message="More", author="mona", branch="topic")
    await w.ask(w.github.pulls.get(w.name, pull.number))


@scenario
async def the_merge_state_of_a_pull_request(w: World) -> None:
    repo = w.filled_repo()
    w.people.commit(repo, {"a.txt": "topic\n"}, message="One", author="mona", branch="topic")
    number = w.people.open_pull(repo, author="mona", head="topic", title="Topic").number
    for _ in range(2):
        await w.ask(w.github.pulls.get(w.name, number))
    w.people.commit(repo, {"a.txt": "main\n"}, message="Two", author="mona", branch="main")
    for _ in range(2):
        await w.ask(w.github.pulls.get(w.name, number))
    w.people.close(repo, number, by="mona")
    await w.ask(w.github.pulls.get(w.name, number))


@scenario
async def searches_for_pull_requests(w: World) -> None:
    repo = w.filled_repo()
    me = await w.must(w.github.accounts.me())
    w.people.commit(repo, {"b.txt": "2\n"}, message="Two", author="mona", branch="release")
    for branch in ("codepilot/1", "topic"):
        w.people.commit(repo, {"a.txt": branch}, message="One", author="mona", branch=branch)
    await w.ask(w.github.pulls.list_own_into(w.name, "main", ("codepilot/",), author_id=me.id))
    w.people.open_pull(repo, author="mona", head="topic", title="Topic")
    w.people.open_pull(repo, author="mona", head="topic", title="Topic", base="release")
    await w.ask(w.github.pulls.create(w.name, _PULL, head="codepilot/1"))
    for branch in ("topic", "codepilot/1", "absent"):
        await w.ask(w.github.pulls.list_from(w.name, branch))
    number = w.people.open_pull(repo, author="mona", head="codepilot/1", title="Topic", base="release").number
    w.people.close(repo, number, by="mona")
    await w.ask(w.github.pulls.list_from(w.name, "codepilot/1", state="all"))
    await w.ask(w.github.pulls.list_from(w.name, "topic", base="release"))
    for base, prefix, author in (
        ("main", "codepilot/", me.id),
        ("release", "codepilot/", me.id),
        ("main", "topic", me.id),
        ("main", "codepilot/", 1),
    ):
        await w.ask(w.github.pulls.list_own_into(w.name, base, (prefix,), author_id=author))


@scenario
async def opened_pull_requests(w: World) -> None:
    repo = w.filled_repo()
    for branch in ("one", "two"):
        w.people.commit(repo, {"a.txt": branch}, message="One", author="mona", branch=branch)
    w.set_branch(repo, "same", w_head(w, repo))
    create = w.github.pulls.create
    await w.ask(create(w.name, _PULL, head="one"))
    await w.ask(create(w.name, replace(_PULL, title="Another title"), head="one"))
    await w.ask(create(w.name, replace(_PULL, draft=True), head="two"))
    await w.ask(w.github.pulls.get(w.name, 1))
    await w.ask(w.github.pulls.get(w.name, 2))
    await w.ask(create(w.name, _PULL, head="same"))
    await w.ask(create(w.name, _PULL, head="absent"))
    await w.ask(create(w.name, replace(_PULL, base="absent"), head="one"))
    await w.ask(create(w.name, replace(_PULL, title=""), head="two"))
    await w.ask(create(w.name, replace(_PULL, title="x" * 300, base="two"), head="one"))
    w.people.close(repo, 1, by="mona")
    await w.ask(create(w.name, _PULL, head="one"))


@scenario
async def reviews(w: World) -> None:
    repo = w.filled_repo()
    number = w.pull(repo, body="Text").number
    w.people.review(repo, number, author="hubot", body="Good", state="APPROVED")
    head = (await w.must(w.github.pulls.get(w.name, number))).head_sha
    notes = (
        ReviewNote(path="long.txt", line=20, body=f"Here {SECRET}"),
        ReviewNote(path="long.txt", line=22, start_line=19, body="These"),
        ReviewNote(path="long.txt", line=20, side="LEFT", body="Before"),
    )
    draft = ReviewDraft(commit_sha=head, body=f"Looks good {SECRET}", notes=notes)
    await w.ask(w.github.reviews.create(w.name, number, draft))
    await w.ask(w.github.reviews.create(w.name, number, replace(draft, body="")))
    await w.ask(w.github.reviews.list_for_pull(w.name, number))
    await w.ask(w.github.reviews.list_line_comments(w.name, number))


@scenario
async def refused_reviews(w: World) -> None:
    repo = w.filled_repo()
    issue, number = w.people.open_issue(repo, author="mona", title="It breaks"), w.pull(repo).number
    head = (await w.must(w.github.pulls.get(w.name, number))).head_sha
    draft = ReviewDraft(commit_sha=head, body="Looks good")
    for note in (
        ReviewNote(path="long.txt", line=1, body="Outside the hunk"),
        ReviewNote(path="absent.txt", line=1, body="No such file"),
        ReviewNote(path="long.txt", line=20, start_line=3, body="Begins outside"),
        ReviewNote(path="long.txt", line=20, body=""),
    ):
        await w.ask(w.github.reviews.create(w.name, number, replace(draft, notes=(note,))))
    mixed = (ReviewNote(path="long.txt", line=1, body="Outside"), ReviewNote(path="long.txt", line=20, body="Inside"))
    await w.ask(w.github.reviews.create(w.name, number, replace(draft, notes=mixed)))
    await w.ask(w.github.reviews.list_line_comments(w.name, number))
    await w.ask(w.github.reviews.create(w.name, number, replace(draft, body=" ")))
    await w.ask(w.github.reviews.create(w.name, number, replace(draft, commit_sha=_NO_SHA)))
    for missing in (issue.number, _MISSING):
        await w.ask(w.github.reviews.create(w.name, missing, draft))
        await w.ask(w.github.reviews.list_for_pull(w.name, missing))
        await w.ask(w.github.reviews.list_line_comments(w.name, missing))
    w.people.lock(repo, number)
    await w.ask(w.github.reviews.create(w.name, number, draft))
    await w.ask(w.github.reviews.list_line_comments(w.name, number))


@scenario
async def hunks(w: World) -> None:
    repo = w.filled_repo()
    code = "import os\n\n\ndef f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    return a\n"
    w.people.commit(repo, {"code.py": code, "gone.txt": "x\n"}, message="Code", author="mona")
    changed = {"code.py": code.replace("d = 4", "d = 5"), "new.txt": "1\n2", "gone.txt": None, "a.txt": "1"}
    w.people.commit(repo, changed, message="Change", author="mona", branch="topic")
    number = w.people.open_pull(repo, author="mona", head="topic", title="Change").number
    head = (await w.must(w.github.pulls.get(w.name, number))).head_sha
    notes = (
        ReviewNote(path="code.py", line=8, body="Changed"),
        ReviewNote(path="new.txt", line=2, body="Added"),
        ReviewNote(path="gone.txt", line=1, side="LEFT", body="Deleted"),
        ReviewNote(path="a.txt", line=1, body="Without an end"),
    )
    await w.ask(w.github.reviews.create(w.name, number, ReviewDraft(commit_sha=head, body="", notes=notes)))
    await w.ask(w.github.reviews.list_line_comments(w.name, number))


# Checks


def _draft(sha: str, **changes: Any) -> CheckDraft:  # noqa: ANN401 - of a CheckDraft
    usual: dict[str, Any] = {
        "name": "codepilot",
        "head_sha": sha,
        "external_id": "job:pull:1:-",
        "status": "in_progress",
        "title": f"Working {SECRET}",
        "summary": f"On it {SECRET}",
    }
    return CheckDraft(**{**usual, **changes})


def _checks(w: World, repo: Any) -> None:  # noqa: ANN401 - of either side
    fields = ("name", "status", "conclusion", "external_id", "title", "summary", "text", "annotations", "actions")
    for check in w.people.check_runs(repo):
        w.note({name: getattr(check, name) for name in fields})


@scenario
async def check_runs(w: World) -> None:
    repo = w.filled_repo()
    head, calls = w_head(w, repo), w.github.checks
    await w.ask(calls.find(w.name, _draft(head)))
    made = await w.must(calls.create(w.name, _draft(head, status="queued")))
    _checks(w, repo)
    await w.ask(calls.update(w.name, made.id, _draft(head, text="More")))
    notes = tuple(
        Annotation(path="a.txt", start_line=line, end_line=line, level="warning", message=f"{line} {SECRET}")
        for line in range(1, 61)
    )
    done = _draft(
        head,
        status="completed",
        conclusion="failure",
        annotations=notes,
        buttons=(Button(label="Again", description="Run it again", identifier="again"),),
    )
    await w.ask(calls.update(w.name, made.id, done))
    more = replace(done, annotations=(*notes, replace_note(notes[0])), conclusion="neutral")
    await w.ask(calls.update(w.name, made.id, more))
    _checks(w, repo)
    await w.ask(calls.create(w.name, _draft(head, external_id="job:pull:1:again")))
    await w.ask(calls.create(w.name, _draft(head, external_id="other:pull:1:-")))
    await w.ask(calls.create(w.name, _draft(head, name="another")))
    await w.ask(calls.find(w.name, _draft(head)))
    await w.ask(calls.annotations(w.name, made.id, 3))
    await w.ask(calls.annotations(w.name, _MISSING, 3))
    await w.ask(calls.list_failing(w.name, head))


@scenario
async def refused_check_runs(w: World) -> None:
    repo = w.filled_repo()
    head, calls = w_head(w, repo), w.github.checks
    await w.ask(calls.create(w.name, _draft(_NO_SHA)))
    await w.ask(calls.find(w.name, _draft(_NO_SHA)))
    await w.ask(calls.update(w.name, _MISSING, _draft(head)))
    other = w.people.check(repo, w.people.add_app("another"), head_sha=head, name="build", conclusion="failure")
    await w.ask(calls.update(w.name, other.id, _draft(head)))
    await w.ask(calls.find(w.name, _draft(head, name="build", external_id="")))
    bad = Annotation(path="a.txt", start_line=1, end_line=1, level="failure", message="x" * 20_000, title="y" * 300)
    await w.ask(calls.create(w.name, _draft(head, title="z" * 300, annotations=(bad,))))
    _checks(w, repo)


@scenario
async def failing_checks(w: World) -> None:
    repo = w.filled_repo()
    head, ci = w_head(w, repo), w.people.add_app("ci")
    for name, conclusion in (("build", "failure"), ("lint", "success"), ("slow", "timed_out"), ("off", "cancelled")):
        w.people.check(repo, ci, head_sha=head, name=name, conclusion=conclusion, summary=f"{name} ended")
    w.people.check(repo, ci, head_sha=head, name="twice", conclusion="failure")
    w.people.check(repo, ci, head_sha=head, name="twice", conclusion="success")
    await w.ask(w.github.checks.create(w.name, _draft(head, status="completed", conclusion="failure")))
    for state, context in (("error", "e"), ("failure", "f"), ("pending", "p"), ("success", "s"), ("failure", "fixed")):
        w.add_status(repo, head, state, context, f"{context} {state}")
    w.add_status(repo, head, "success", "fixed")
    await w.ask(w.github.checks.list_failing(w.name, head))
    await w.ask(w.github.checks.list_failing(w.name, _NO_SHA))
    w.permit(statuses="")
    await w.ask(w.github.checks.list_failing(w.name, head))


# Workflow runs


@scenario
async def workflow_runs(w: World) -> None:
    repo = w.filled_repo()
    w.permit(actions="write")
    head, calls = w_head(w, repo), w.github.runs
    jobs = [
        EndedJob(name="test", conclusion="failure", steps=[("set up", "success"), ("run", "failure")], log="red"),
        EndedJob(name="gone", conclusion="success", log=None, annotations=[("a.txt", 3, "It fails")]),
    ]
    run = w.people.workflow_run(
        repo, head_sha=head, head_branch="main", conclusion="failure", actor="mona", event="pull_request", jobs=jobs
    )
    await w.ask(calls.get(w.name, run.id))
    listed = await w.must(calls.jobs(w.name, run.id))
    for job in listed:
        await w.ask(calls.job_log_url(w.name, job.id))
        await w.ask(w.github.checks.annotations(w.name, job.check_id, 10))
    await w.ask(w.github.checks.list_failing(w.name, head))
    await w.ask(calls.logs_url(w.name, run.id, 1))
    await w.ask(calls.rerun_failed_jobs(w.name, run.id))
    await w.ask(calls.rerun_failed_jobs(w.name, run.id))
    await w.ask(calls.get(w.name, run.id))
    w.people.end_attempt(run, conclusion="success", jobs=[EndedJob(name="test", conclusion="success", log=None)])
    await w.ask(calls.get(w.name, run.id))
    await w.ask(calls.jobs(w.name, run.id))
    for attempt in (1, 2, 3):
        await w.ask(calls.jobs(w.name, run.id, attempt))
        await w.ask(calls.logs_url(w.name, run.id, attempt))
    await w.ask(calls.get(w.name, _MISSING))
    await w.ask(calls.jobs(w.name, _MISSING))
    await w.ask(calls.job_log_url(w.name, _MISSING))
    await w.ask(calls.logs_url(w.name, _MISSING, 1))
    await w.ask(calls.rerun_failed_jobs(w.name, _MISSING))
    await w.ask(calls.rerun_failed_jobs(w.name, run.id))
    for _ in range(2):  # the second one finds it cancelled
        await w.ask(calls.cancel(w.name, run.id))
        await w.ask(calls.get(w.name, run.id))


@scenario
async def runs_before_and_beside(w: World) -> None:
    repo = w.filled_repo()
    fork = w.people.add_repo(f"forker-{w.owner}/calc", fork_of=repo)
    head = w_head(w, repo)
    topic = w.people.commit(repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")

    def end(conclusion: str, branch: str = "main", sha: str = head, **options: Any) -> Any:  # noqa: ANN401 - of either side
        return w.people.workflow_run(
            repo, head_sha=sha, head_branch=branch, conclusion=conclusion, actor="mona", **options
        )

    runs = [
        end("success"),
        end("success", "topic", head_repository=fork),
        end("success", "topic"),
        end("failure", "topic", topic),
        end("success", path=".github/workflows/other.yml", workflow="Other"),
        end("failure"),
        end("cancelled"),
        end("success", "topic", topic, event="pull_request"),
        end("failure", "topic", topic, event="pull_request"),
    ]
    for run in runs:
        facts = await w.must(w.github.runs.get(w.name, run.id))
        await w.ask(w.github.runs.find_last_success(w.name, facts))
        await w.ask(w.github.runs.find_failure_on_base(w.name, facts, "main", repo.id))
        await w.ask(w.github.runs.has_passed_before(w.name, facts))
    w.people.run_again(runs[5], by="mona")
    last = await w.must(w.github.runs.get(w.name, runs[3].id))
    await w.ask(w.github.runs.find_failure_on_base(w.name, last, "main", repo.id))
    w.people.end_attempt(runs[5], conclusion="success")
    await w.ask(w.github.runs.find_failure_on_base(w.name, last, "main", repo.id))
    w.people.run_again(runs[4], by="mona")
    await w.ask(w.github.runs.has_passed_before(w.name, await w.must(w.github.runs.get(w.name, runs[4].id))))
    await w.ask(w.github.runs.find_last_success(w.name, last.model_copy(update={"workflow_id": _MISSING})))


@scenario
async def artifacts(w: World) -> None:
    repo = w.filled_repo()
    fork = w.people.add_repo(f"forker-{w.owner}/calc", fork_of=repo)
    kept = w.people.keep_artifact(repo, "report", {"a": b"1" * 50}, run_id=7)
    w.people.keep_artifact(repo, "other", {"a": b"1"}, run_id=7)
    old = w.people.keep_artifact(repo, "report", {"a": b"2"}, run_id=8, days=-1, fork=fork)
    for name, limit in (("report", 10), ("report", 1), ("absent", 10)):
        await w.ask(w.github.runs.artifacts(w.name, name, limit))
    for artifact_id in (kept.id, old.id, _MISSING):
        await w.ask(w.github.runs.artifact_url(w.name, artifact_id))


# Commits


def w_head(w: World, repo: Any, branch: str = "main") -> str:  # noqa: ANN401 - of either side
    heads = w.people.branches(repo) if isinstance(w, HubWorld) else repo.branches
    return str(heads[branch])


def _change(changed: dict[str, bytes | None], *, base: str) -> Change:
    """Return a change of `FILES`."""
    tree = {path: text.encode() if isinstance(text, str) else text for path, text in FILES.items()}
    files = []
    for path, content in changed.items():
        old = "100644" if path in tree else ""
        files.append(a_file(path, content, old_mode=old))
        tree = {name: kept for name, kept in tree.items() if name != path}
        if content is not None:
            tree[path] = content
    tree_sha = tree_id({path: FakeFile("100644", content) for path, content in tree.items()})
    return replace(a_change(*files, base_sha=base), tree_sha=tree_sha)


def _commit(w: World, change: Change, *, branch: str = "main") -> Any:  # noqa: ANN401 - an awaitable
    return w.github.commits.create(
        w.name, branch=branch, expected_head=change.base_sha, title=f"Two {SECRET}", body="Why.", change=change
    )


@scenario
async def commits(w: World) -> None:
    repo = w.filled_repo()
    base = w_head(w, repo)
    change = _change({"a.txt": b"2\n", "new/x.bin": b"\0\xff", "folder/b.txt": None}, base=base)
    made = await w.must(_commit(w, change))
    w.note((made.tree_sha == change.tree_sha, made.tree_sha[:9]))
    await w.ask(_commit(w, change))
    await w.ask(w.github.repos.commit(w.name, made.sha))
    for path in ("a.txt", "new/x.bin", "folder/b.txt"):
        await w.ask(w.github.repos.read_file(w.name, path))
    await w.ask(_commit(w, _change({"a.txt": b"3\n"}, base=base)))
    await w.ask(_commit(w, change, branch="absent"))
    await w.ask(_commit(w, replace(change, base_sha=made.sha, files=(a_file("folder/b.txt", None),))))
    await w.ask(_commit(w, replace(change, base_sha=made.sha, files=(a_file(".git/config", b"x", old_mode=""),))))
    await w.ask(_commit(w, replace(change, files=(a_file("run.sh", b"x", new_mode="100755"),))))
    await w.ask(w.github.repos.branch_head(w.name, "main"))


@scenario
async def commits_of_workflow_files(w: World) -> None:
    repo = w.filled_repo()
    base, path = w_head(w, repo), ".github/workflows/ci.yml"
    w.permit(workflows="")
    change = _change({path: b"on: push\n"}, base=base)
    await w.ask(_commit(w, change))
    await w.ask(w.github.repos.branch_head(w.name, "main"))
    w.people.commit(repo, {path: "on: push\n"}, message="By a person", author="mona", branch="person")
    await w.ask(_commit(w, change))
    await w.ask(w.github.repos.read_file(w.name, path))


@scenario
async def a_commit_to_a_pull_request(w: World) -> None:
    repo = w.filled_repo()
    pull = w.pull(repo)
    head = w_head(w, repo, "topic")
    made = await w.must(_commit(w, replace(_change({"a.txt": b"2\n"}, base=head)), branch="topic"))
    facts = await w.must(w.github.pulls.get(w.name, pull.number))
    w.note(facts.head_sha == made.sha)


@scenario
async def new_branches(w: World) -> None:
    repo = w.filled_repo()
    base = w_head(w, repo)
    topic = w.people.commit(repo, {"a.txt": "2\n"}, message="Two", author="mona", branch="topic")
    create = w.github.commits.create_branch
    for name, sha in (
        ("new", base),
        ("new", base),
        ("new", topic),
        ("new/below", base),
        ("bad..name", base),
        ("bad name", base),
        ("other", _NO_SHA),
        ("a/b/c", topic),
    ):
        await w.ask(create(w.name, name, sha))
    await w.ask(w.github.repos.list_branches(w.name, ""))


@scenario
async def commits_with_a_new_branch(w: World) -> None:
    repo = w.filled_repo()
    facts, base = await w.must(w.github.repos.get(w.name)), w_head(w, repo)

    async def create(branch: str, change: Change, pull: PullDraft | None = _PULL, node_id: str = facts.node_id) -> None:
        made = await w.ask(
            w.github.commits.create_with_branch(
                w.name,
                node_id=node_id,
                branch=branch,
                expected_head=base,
                title=f"Two on {branch}",
                body=f"Why. {SECRET}",
                change=change,
                pull=pull,
            )
        )
        if made is not None:
            w.note(w_head(w, repo, branch) == made[0].sha)

    change = _change({"a.txt": b"2\n"}, base=base)
    await create("codepilot/1", change)
    await create("codepilot/1", change)
    await create("codepilot/2", change, None)
    await create("codepilot/3", change, replace(_PULL, draft=True))
    await create("codepilot/4", change, replace(_PULL, base="absent"))
    await create("codepilot/5", change, replace(_PULL, title=""))
    await create("codepilot/1", _change({"a.txt": b"other\n"}, base=base))
    await create("codepilot/6", replace(change, files=(a_file("absent.txt", None),)))
    await create("codepilot/7", change, node_id="absent")
    await create("bad..name", change)
    await w.ask(w.github.repos.list_branches(w.name, ""))
    await w.ask(w.github.pulls.get(w.name, 1))
    await w.ask(w.github.threads.snapshot(w.name, 1))


# Declared actions

_NIGHTLY = "name: Nightly\non:\n  workflow_dispatch:\n    inputs:\n      suite: {required: true}\njobs: {}\n"


@scenario
async def changed_issues(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    issue, pull = w.people.open_issue(repo, author="mona", title="It breaks", labels=["Bug"]), w.pull(repo)
    for name in ("area/api", "later"):
        w.people.create_label(repo, name)
    w.people.add_milestone(repo, "v1", author="mona")
    w.people.add_issue_type(w.owner, "Task")
    for number in (issue.number, pull.number, _MISSING):
        await w.ask(actions.add_labels(w.name, number, ["AREA/API", "bug"]))
        await w.ask(actions.set_assignees(w.name, number, ["mona"]))
        await w.ask(actions.set_milestone(w.name, number, "v1"))
        await w.ask(actions.update_body(w.name, number, f"A {SECRET}"))
        await w.ask(actions.set_type(w.name, number, "Task"))
    await w.ask(actions.set_assignees(w.name, issue.number, ["hubot", "mona"]))
    await w.ask(actions.set_assignees(w.name, issue.number, ["nobody-at-all"]))
    await w.ask(actions.set_milestone(w.name, issue.number, "v2"))
    await w.ask(actions.set_type(w.name, issue.number, "Absent"))
    await w.ask(actions.update_body(w.name, issue.number, "x" * 65_537))
    await _note_thread(w, repo, issue.number)
    await w.ask(actions.close(w.name, issue.number, "not_planned"))
    await _note_thread(w, repo, issue.number)
    await w.ask(actions.close(w.name, issue.number, "completed"))
    await w.ask(actions.reopen(w.name, issue.number))
    await w.ask(actions.reopen(w.name, issue.number))
    other = w.people.open_issue(repo, author="mona", title="Again")
    await w.ask(actions.close(w.name, other.number, "duplicate", duplicate_of=issue.number))
    await w.ask(actions.close(w.name, other.number, "duplicate", duplicate_of=_MISSING))
    w.note(w.people.issue(repo, other.number).duplicate_of == issue.id)
    await w.ask(actions.close(w.name, pull.number, None))
    await _note_thread(w, repo, pull.number)
    w.permit(issues="read", pull_requests="")
    await w.ask(actions.add_labels(w.name, issue.number, ["later"]))
    await w.ask(actions.close(w.name, issue.number, "completed"))


async def _note_thread(w: World, repo: Any, number: int) -> None:  # noqa: ANN401 - of either side
    thread = w.people.issue(repo, number)
    w.note((thread.state, thread.state_reason, thread.body, list(thread.labels), len(thread.assignees)))
    await w.ask(w.github.actions.read_state(w.name, numbers=[number]))


@scenario
async def lists_of_labels_and_open_issues(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    await w.ask(actions.list_labels(w.name))
    await w.ask(actions.list_open_issues(w.name))
    w.people.open_issue(repo, author="mona", title="It breaks", labels=["bug"])
    other = w.people.open_issue(repo, author="mona", title="Again")
    w.pull(repo)
    await w.ask(actions.list_labels(w.name))
    await w.ask(actions.list_open_issues(w.name))
    w.people.close(repo, other.number, by="mona")
    await w.ask(actions.list_open_issues(w.name))
    w.permit(issues="", pull_requests="")
    await w.ask(actions.list_labels(w.name))


@scenario
async def created_issues(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    me = await w.github.accounts.me()
    w.people.open_issue(repo, author="mona", title="All", body=_MARK)
    await w.ask(actions.find_issue(w.name, me, _MARK))
    await w.ask(actions.create_issue(w.name, title=f"Part {SECRET}", body=f"{_MARK} {SECRET}", labels=["task"]))
    await w.ask(actions.create_issue(w.name, title=" ", body="x"))
    await w.ask(actions.find_issue(w.name, me, _MARK))
    w.people.close(repo, 2, by="mona")
    await w.ask(actions.find_issue(w.name, me, _MARK))
    w.pull(repo)
    for parent, child in ((1, 2), (1, 2), (2, 1), (1, 1), (1, 3), (3, 2), (1, _MISSING), (_MISSING, 2)):
        await w.ask(actions.add_sub_issue(w.name, parent, child))
    w.note([child.number for child in w.people.sub_issues(repo, 1)])
    w.permit(issues="read")
    await w.ask(actions.create_issue(w.name, title="No", body="x"))
    await w.ask(actions.add_sub_issue(w.name, 2, 1))


@scenario
async def fields_of_issues(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    w.permit(issue_fields="read")
    w.people.open_issue(repo, author="mona", title="It breaks")
    w.people.add_issue_field(w.owner, "Level", "single_select", options=["High", "Low"])
    w.people.add_issue_field(w.owner, "Areas", "multi_select", options=["API", "Docs"])
    w.people.add_issue_field(w.owner, "Size", "number")
    await w.ask(actions.read_state(w.name, lists=["fields", "types"]))
    for values in ({"Size": "3", "Level": "High", "Areas": "API"}, {"Size": "1.5"}, {"Size": "big"}, {"Level": "No"}):
        await w.ask(actions.set_fields(w.name, 1, values))
    await w.ask(actions.set_fields(w.name, 1, {"Absent": "x"}))
    await w.ask(actions.set_fields(w.name, w.pull(repo).number, {"Size": "3"}))
    w.permit(issue_fields="")
    await w.ask(actions.set_fields(w.name, 1, {"Size": "3"}))
    await w.ask(actions.read_state(w.name, lists=["fields"]))


@scenario
async def changed_pulls(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    issue, pull = w.people.open_issue(repo, author="mona", title="It breaks"), w.pull(repo)
    await w.ask(actions.request_reviewers(w.name, pull.number, ["hubot"]))
    w.people.add_collaborator(repo, "hubot", "read")
    for logins in (["hubot"], ["hubot"], ["mona"], ["nobody-at-all"]):
        await w.ask(actions.request_reviewers(w.name, pull.number, logins))
    await w.ask(actions.request_reviewers(w.name, issue.number, ["hubot"]))
    w.note(len(w.people.issue(repo, pull.number).pull.reviewers))
    for number, draft in ((2, True), (2, True), (2, False), (1, True), (_MISSING, True)):
        await w.ask(actions.set_draft(w.name, number, draft=draft))
        w.note(w.people.issue(repo, pull.number).pull.draft)
    w.permit(contents="read")
    await w.ask(actions.set_draft(w.name, pull.number, draft=True))
    w.permit(pull_requests="read")
    await w.ask(actions.request_reviewers(w.name, pull.number, ["hubot"]))


@scenario
async def started_workflows(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    w.permit(actions="write")
    me, past = await w.github.accounts.me(), datetime(2020, 1, 1, tzinfo=UTC)
    files = {".github/workflows/nightly.yml": _NIGHTLY, ".github/workflows/push.yml": "on: push\njobs: {}\n"}
    w.people.commit(repo, files, message="Nightly", author="mona")
    for name, branch, inputs in (
        ("nightly.yml", "main", {"suite": f"all {SECRET}"}),
        ("nightly.yml", "main", {}),
        ("nightly.yml", "main", {"suite": "all", "more": "1"}),
        ("nightly.yml", "absent", {}),
        ("push.yml", "main", {}),
        ("absent.yml", "main", {}),
    ):
        await w.ask(actions.start_workflow(w.name, name, branch=branch, inputs=inputs))
    for author, since in ((me, past), (me, datetime(2100, 1, 1, tzinfo=UTC)), (replace(me, login="mona"), past)):
        await w.ask(actions.find_dispatched_run(w.name, "nightly.yml", branch="main", author=author, since=since))
    w.permit(actions="read")
    await w.ask(actions.start_workflow(w.name, "nightly.yml", branch="main", inputs={"suite": "all"}))


@scenario
async def discussions(w: World) -> None:
    w.permit(discussions="write")
    repo, actions = w.filled_repo(), w.github.actions
    me = await w.github.accounts.me()
    w.people.open_discussion(repo, "General", author="mona", title="How?", body=_MARK)
    await w.ask(actions.read_state(w.name, discussions=[1, 2], lists=["categories"]))
    await w.ask(actions.find_discussion(w.name, me.id, _MARK))
    for category, body in (("general", f"{_MARK} {SECRET}"), ("Absent", "So"), ("General", " ")):
        await w.ask(actions.create_discussion(w.name, category=category, title="Why", body=body))
    await w.ask(actions.find_discussion(w.name, me.id, _MARK))
    w.people.comment_discussion(repo, 1, author="mona", body=_MARK)
    await w.ask(actions.find_discussion_comment(w.name, 1, me.id, _MARK))
    for number, body in ((1, f"{_MARK} {SECRET}"), (_MISSING, "So"), (1, " ")):
        await w.ask(actions.comment_discussion(w.name, number, body))
    await w.ask(actions.find_discussion_comment(w.name, 1, me.id, _MARK))
    w.people.lock_discussion(repo, 1, by="mona")
    await w.ask(actions.comment_discussion(w.name, 1, "Late"))
    await w.ask(actions.read_state(w.name, discussions=[1]))
    w.note(w.people.open_issue(repo, author="mona", title="It breaks").number)
    w.permit(discussions="")
    await w.ask(actions.create_discussion(w.name, category="General", title="Why", body="So"))
    await w.ask(actions.read_state(w.name, discussions=[1], lists=["categories"]))


@scenario
async def states(w: World) -> None:
    repo, actions = w.filled_repo(), w.github.actions
    issue, pull = w.people.open_issue(repo, author="mona", title="It breaks", labels=["Bug"]), w.pull(repo, draft=True)
    w.people.lock(repo, issue.number)
    w.people.add_milestone(repo, "v1", author="mona")
    w.people.add_issue_type(w.owner, "Task")
    w.people.add_rules(repo, "pull_request", branches="main")
    w.people.add_rules(repo, {"type": "branch_name_pattern", "parameters": {"operator": "contains", "pattern": "o"}})
    w.set_branch(repo, "old", w_head(w, repo))
    w.people.add_rules(repo, "required_signatures", branches="old", classic=True)
    await w.ask(
        actions.read_state(
            w.name,
            numbers=[issue.number, pull.number, pull.number, _MISSING],
            labels=["bug", "absent"],
            logins=["Mona", "hubot", "absent", w.owner],
            branches=["main", "topic", "old", "absent"],
            lists=["milestones", "types"],
        )
    )
    await w.ask(actions.read_state(f"{w.owner}/absent", numbers=[1]))
    w.permit(issues="", pull_requests="")
    await w.ask(actions.read_state(w.name, numbers=[issue.number]))


# Faults


@scenario
async def failed_requests(w: World) -> None:
    repo = w.filled_repo()
    number = w.people.open_issue(repo, author="mona", title="It breaks").number
    target, route = on_thread(number), f"POST */issues/{number}/comments"
    for trouble in ("502", "404", "403", "drop_answer"):
        w.fail("comments.create", route, trouble)
        await w.ask(w.github.comments.create(w.name, target, f"Met by {trouble}"))
    await w.ask(w.github.comments.list_for_thread(w.name, number))
    w.fail("comments.get", "GET */issues/comments/*", "404")
    await w.ask(w.github.comments.get(w.name, target, w.people.comments(repo, number)[0].id))
    w.fail("comments.create", route, "secondary_rate_limited")
    await w.ask(w.github.comments.create(w.name, target, "Too many"))


@scenario
async def the_lost_answer_of_a_commit(w: World) -> None:
    repo = w.filled_repo()
    change = _change({"a.txt": b"2\n"}, base=w_head(w, repo))
    w.fail("commits.create", "POST /api/graphql", "drop_answer")
    made = await w.must(_commit(w, change))
    w.note(made.sha == w_head(w, repo))


def replace_note(note: Annotation) -> Annotation:
    return note.model_copy(update={"message": "The last one", "title": "Title"})


# The contract


async def test_the_fake_answers_as_the_hub_does(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with LocalHub(tmp_path) as hub:
        app = hub.add_app("codepilot")
        for index, run in enumerate(_SCENARIOS):
            with subtests.test(run.__name__):
                fake, real = FakeWorld(f"owner{index}"), HubWorld(f"owner{index}", hub, app)
                async with fake.github, real.github:
                    await run(fake)
                    await run(real)
                for expected, answer in zip(real.answers, fake.answers, strict=True):
                    assert answer == expected


async def test_the_contract_is_of_every_call_and_every_route() -> None:
    calls, requests = set[str](), set[str]()
    for index, run in enumerate(_SCENARIOS):
        world = FakeWorld(f"owner{index}")
        await run(world)
        calls.update(world.site.calls)
        requests.update(world.site.requests)

    parts = {
        name: part for name, part in vars(FakeGitHub(FakeSite())).items() if name in GitHub.__init__.__code__.co_names
    }
    methods = {
        f"{name}.{method}"
        for name, part in parts.items()
        if not name.startswith("_")
        for method, _ in inspect.getmembers(part, inspect.ismethod)
        if not method.startswith("_")
    }
    assert len(methods) > 40
    assert methods - calls == set()
    assert routes() == requests


async def test_a_test_acts_between_calls_and_stops_writes() -> None:
    site, tokens, lease_errors = FakeSite(), list[str](), [outage()]
    repo = site.add_repo("mona/calc", owner="mona", files={"a.txt": "1\n"})
    site.open_issue(repo, author="mona", title="It breaks")
    site.on_call = lambda call: site.close(repo, 1, by="mona") if call == "threads.get" else None

    async def demand_lease() -> None:
        for error in lease_errors:
            raise error

    async with FakeGitHub(site, on_mint=tokens.append, before_write=demand_lease) as github:
        states = [
            (await github.threads.snapshot("mona/calc", 1)).thread,
            await github.threads.get("mona/calc", 1),
        ]
        assert [thread.state for thread in states if thread] == ["open", "closed"]
        with pytest.raises(GitHubError):
            await github.comments.create("mona/calc", on_thread(1), "Lost")
        lease_errors.clear()
        github.raise_priority(Urgency.RESULT)
        await github.comments.create("mona/calc", on_thread(1), "Kept")
        await github.wait_until_idle()
        assert tokens == [await github.tokens.for_clone("mona/calc")]
    assert (github.waiting_writes, github.poll_backoff) == (0, 1.0)
    assert [comment.body for comment in site.comments(repo, 1)] == ["Kept"]
    assert site.calls == [
        "threads.snapshot",
        "threads.get",
        "comments.create",
        "comments.create",
        "tokens.for_clone",
    ]
    assert site.requests.count("POST issues/{}/comments") == 1


async def test_an_unknown_request_is_an_error() -> None:
    github = FakeGitHub(FakeSite())
    with pytest.raises(AssertionError, match="FakeGitHub has no route GET user/teams/1"):
        await github._connection.request("list", "GET", "/user/teams/1")
