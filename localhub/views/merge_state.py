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
    if blocking_rules(site, repo, issue, pull):
        return "blocked"
    if is_behind(site, repo, pull):
        return "behind"
    checks = newest_checks(site, repo, pull.head_sha).values()
    return "clean" if all(map(_is_passed, checks)) else "unstable"


def blocking_rules(site: Site, repo: Repo, issue: Issue, pull: Pull) -> list[str]:
    """Return the unmet demands of the base branch's rules before a merge, in GitHub's words."""
    demands = rules.violations_of_merge(site, repo, pull)
    if needed := _missing_approvals(site, repo, issue, pull):
        demands.append(f"At least {needed} approving review is required by reviewers with write access.")
    passed = {key for key, each in newest_checks(site, repo, pull.head_sha).items() if _is_passed(each)}
    for name, app_id in required_checks(site, repo, pull).items():
        if not any(name == there and app_id in {None, app} for app, there in passed):
            demands.append(f'Required status check "{name}" is expected.')
    conversations = [each for each in site.store.review_comments_of(issue) if each.in_reply_to is None]
    if any(each.get("required_review_thread_resolution") for each in _parameters(site, repo, pull)) and any(
        each.id not in site.store.resolved for each in conversations
    ):
        demands.append("A conversation must be resolved before this pull request can be merged.")
    return demands


def is_behind(site: Site, repo: Repo, pull: Pull) -> bool:
    """Whether the base branch wants its newest commit in a head that lacks it."""
    is_strict = any(each.get("strict_required_status_checks_policy") for each in _parameters(site, repo, pull))
    return is_strict and git_diff.ahead_behind(repo.path, pull.base_sha, pull.head_sha)[1] > 0


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


def required_checks(site: Site, repo: Repo, pull: Pull) -> dict[str, int | None]:
    """The names of the checks that the base branch requires, with the App that must report each, if any must."""
    parameters = _parameters(site, repo, pull)
    checks = [check for each in parameters for check in each.get("required_status_checks", ())]
    return {check["context"]: check.get("integration_id") for check in checks}


def newest_checks(site: Site, repo: Repo, sha: str) -> dict[tuple[int | None, str], CheckRun | CommitStatus]:
    """The newest check run of each App and name, and the newest status of each context."""
    runs = [run for run in site.store.check_runs if (run.repo_id, run.head_sha) == (repo.id, sha)]
    statuses = [each for each in site.store.statuses if (each.repo_id, each.sha) == (repo.id, sha)]
    newest: dict[tuple[int | None, str], CheckRun | CommitStatus] = {(run.app_id, run.name): run for run in runs}
    return newest | {(None, each.context): each for each in statuses}


def newest_verdicts(site: Site, issue: Issue, *, of: str | None = None) -> list[str]:
    """The newest state of each reviewer's reviews, comments aside; `of` leaves out approvals of other commits."""
    reviews = site.store.reviews_of(issue)
    newest = {each.author_id: each for each in reviews if each.state != "COMMENTED"}.values()
    return [each.state for each in newest if each.state != "APPROVED" or of in {None, each.commit_sha}]


def _missing_approvals(site: Site, repo: Repo, issue: Issue, pull: Pull) -> int:
    """The number of approvals that are required, if they are not there; a request for changes outweighs them."""
    parameters = _parameters(site, repo, pull)
    needed = max((each.get("required_approving_review_count", 0) for each in parameters), default=0)
    of_head = any(each.get("dismiss_stale_reviews_on_push") for each in parameters)
    verdicts = newest_verdicts(site, issue, of=pull.head_sha if of_head else None)
    return needed if verdicts.count("APPROVED") < needed or (needed and "CHANGES_REQUESTED" in verdicts) else 0


def _parameters(site: Site, repo: Repo, pull: Pull) -> list[Json]:
    applied = rules.rulesets_of(site, repo, pull.base_ref)
    return [dict(rule.get("parameters", {})) for each in applied for rule in each.rules]


def _is_passed(value: CheckRun | CommitStatus) -> bool:
    return (value.state if isinstance(value, CommitStatus) else value.conclusion) in _PASSING
