"""Commits in GraphQL, with the checks and statuses on them."""

from __future__ import annotations

from typing import Any

from graphql import GraphQLResolveInfo

from localhub.api.routing import Call
from localhub.git import plumbing as git
from localhub.graphql.basics import connection, user
from localhub.state.model import CheckRun, CommitStatus, Repo
from localhub.state.site import Json, iso, iso_or_none, node_id
from localhub.views import git as git_views

_BAD = frozenset({"FAILURE", "ERROR", "TIMED_OUT", "CANCELLED", "ACTION_REQUIRED"})


def commit(call: Call, repo: Repo, value: git.Commit) -> Json:
    """`Commit`."""
    signature = {"isValid": True, "state": "VALID", "wasSignedByGitHub": True}
    return {
        "__typename": "Commit",
        "id": node_id("Commit", f"{repo.id}:{value.sha}"),
        "oid": value.sha,
        "url": git_views.commit_page(call.site, repo, value.sha),
        "message": value.message,
        "messageHeadline": value.message.partition("\n")[0],
        "messageBody": value.message.partition("\n")[2].strip("\n"),
        "authoredDate": iso(value.author.date),
        "authors": connection(lambda: [value.author], lambda each: _git_actor(call, each)),
        "author": _git_actor(call, value.author),
        "committer": _git_actor(call, value.committer),
        "parents": connection(lambda: value.parents, lambda sha: commit(call, repo, git.commit(repo.path, sha))),
        "tree": {"id": node_id("Tree", f"{repo.id}:{value.tree}"), "oid": value.tree},
        "committedDate": iso(value.committer.date),
        "signature": signature if value.sha in call.site.store.signed else None,
        "statusCheckRollup": lambda _info: _rollup(call, repo, value.sha),
    }


def _git_actor(call: Call, person: git.Person) -> Json:
    found = git_views.account_of(call.site, person)
    shown = None if found is None else user(call, found)
    return {"name": person.name, "email": person.email, "date": iso(person.date), "user": shown}


def _rollup(call: Call, repo: Repo, sha: str) -> Json | None:
    """The newest check run of each name and the newest status of each context; None when there is neither."""
    store = call.site.store
    runs = {(run.app_id, run.name): run for run in store.check_runs if (run.repo_id, run.head_sha) == (repo.id, sha)}
    statuses = {each.context: each for each in store.statuses if (each.repo_id, each.sha) == (repo.id, sha)}
    if not runs and not statuses:
        return None
    found: list[CheckRun | CommitStatus] = [*runs.values(), *statuses.values()]
    words = {_word(each) for each in found}
    bad = "FAILURE" if words & _BAD else None
    state = bad or ("PENDING" if words & {"PENDING", "QUEUED", "IN_PROGRESS"} else "SUCCESS")
    return {"state": state, "contexts": connection(lambda: found, _context)}


def _word(value: CheckRun | CommitStatus) -> str:
    return (value.state if isinstance(value, CommitStatus) else value.conclusion or value.status).upper()


def _context(value: CheckRun | CommitStatus) -> Json:
    if isinstance(value, CommitStatus):
        return {
            "__typename": "StatusContext",
            "context": value.context,
            "state": value.state.upper(),
            "description": value.description,
            "targetUrl": value.target_url,
            "createdAt": iso(value.created_at),
            "isRequired": _never,
        }

    return {
        "__typename": "CheckRun",
        "name": value.name,
        "status": value.status.upper(),
        "conclusion": value.conclusion.upper() if value.conclusion else None,
        "startedAt": iso(value.started_at),
        "completedAt": iso_or_none(value.completed_at),
        "detailsUrl": value.details_url,
        "checkSuite": lambda _info: {"workflowRun": None},
        "isRequired": _never,
    }


def _never(_info: GraphQLResolveInfo[Any], **_pull: object) -> bool:
    """The hub protects no branch, so nothing is required."""
    return False
