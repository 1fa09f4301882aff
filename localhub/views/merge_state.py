"""The merge state of a pull request: conflicts, the rules of its base branch, reviews, and the checks of its head."""

from __future__ import annotations

from localhub.api import rules
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.state.model import CheckRun, CommitStatus, Issue, Pull, Repo
from localhub.state.store import Json, Site

_PASSING = frozenset({"success", "neutral", "skipped"})


def read(site: Site, repo: Repo, issue: Issue, pull: Pull) -> str:
    """Return `mergeable_state`: `unknown`, `dirty`, `draft`, `blocked`, `behind`, `unstable` or `clean`.

    As on GitHub, the first answer after a side moved does not know, and `start` begins the computation:
    https://docs.github.com/rest/pulls/pulls#get-a-pull-request
    https://docs.github.com/graphql/reference/enums#mergestatestatus
    """
    sides = pull.base_sha, pull.head_sha
    if issue.state != "open" or site.merge_checks.get(issue.id) != sides:
        return "unknown"
    if git_diff.merge_tree(repo.path, *sides) is None:
        return "dirty"
    if pull.draft:
        return "draft"
    names = {name for _, name in newest_checks(site, repo, pull.head_sha)}
    failed = {name for (_, name), each in newest_checks(site, repo, pull.head_sha).items() if not _is_passed(each)}
    if (
        rules.forbids_merge(site, repo, pull)
        or _lacks_approval(site, repo, issue, pull)
        or not required_checks(site, repo, pull) <= names - failed
    ):
        return "blocked"
    is_behind = git_diff.ahead_behind(repo.path, *sides)[1] > 0
    if is_behind and any(each.get("strict_required_status_checks_policy") for each in _parameters(site, repo, pull)):
        return "behind"
    return "unstable" if failed else "clean"


def start(site: Site, issue: Issue, pull: Pull) -> None:
    """Let later answers have the merge state of the present sides, and keep the test merge as `refs/pull/N/merge`."""
    sides = pull.base_sha, pull.head_sha
    if issue.state != "open" or site.merge_checks.get(issue.id) == sides:
        return
    site.merge_checks[issue.id] = sides
    repo = site.store.repos[issue.repo_id]
    tree, name = git_diff.merge_tree(repo.path, *sides), f"refs/pull/{issue.number}/merge"
    if tree is not None:
        who = git.Person(name="GitHub", email="noreply@github.com", date=site.now())
        message = f"Merge {pull.head_sha} into {pull.base_sha}"
        sha = git.write_commit(repo.path, tree=tree, parents=sides, message=message, author=who, committer=who)
        git.update_ref(repo.path, name, sha)
    elif git.ref(repo.path, name) is not None:
        git.delete_ref(repo.path, name)


def test_merge(repo: Repo, issue: Issue, pull: Pull) -> str | None:
    """The commit that merged it, else the newest test merge."""
    found = git.ref(repo.path, f"refs/pull/{issue.number}/merge")
    return pull.merge_commit_sha or (found.sha if found else None)


def required_checks(site: Site, repo: Repo, pull: Pull) -> set[str]:
    """The names of the checks that the base branch requires."""
    parameters = _parameters(site, repo, pull)
    return {check["context"] for each in parameters for check in each.get("required_status_checks", ())}


def newest_checks(site: Site, repo: Repo, sha: str) -> dict[tuple[int | None, str], CheckRun | CommitStatus]:
    """The newest check run of each App and name, and the newest status of each context."""
    runs = [run for run in site.store.check_runs if (run.repo_id, run.head_sha) == (repo.id, sha)]
    statuses = [each for each in site.store.statuses if (each.repo_id, each.sha) == (repo.id, sha)]
    newest: dict[tuple[int | None, str], CheckRun | CommitStatus] = {(run.app_id, run.name): run for run in runs}
    return newest | {(None, each.context): each for each in statuses}


def newest_verdicts(site: Site, issue: Issue) -> list[str]:
    """The newest state of each reviewer's reviews, comments aside."""
    reviews = site.store.reviews_of(issue)
    return list({each.author_id: each.state for each in reviews if each.state != "COMMENTED"}.values())


def _lacks_approval(site: Site, repo: Repo, issue: Issue, pull: Pull) -> bool:
    needed = max((each.get("required_approving_review_count", 0) for each in _parameters(site, repo, pull)), default=0)
    verdicts = newest_verdicts(site, issue)
    return needed > 0 and (verdicts.count("APPROVED") < needed or "CHANGES_REQUESTED" in verdicts)


def _parameters(site: Site, repo: Repo, pull: Pull) -> list[Json]:
    applied = rules.rulesets_of(site, repo, pull.base_ref)
    return [dict(rule.get("parameters", {})) for each in applied for rule in each.rules]


def _is_passed(value: CheckRun | CommitStatus) -> bool:
    return (value.state if isinstance(value, CommitStatus) else value.conclusion) in _PASSING
