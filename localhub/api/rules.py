"""Rulesets and classic protection of branches: which rules a branch has, and what a push or a commit violates.

A push by git passes the `pre-receive` hook (`localhub.operations.workflow_files`), which runs this module with the
repository's rules in an environment variable; writes through the API call `demand`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from localhub.api.auth import HubError
from localhub.git import plumbing as git
from localhub.state.model import Pull, Repo, Ruleset
from localhub.state.store import Json, Site

RULES = "HUB_RULES"
"""The variable with the rulesets of a push, as JSON: a list of `[branches, rules]`."""
_UNPUBLISHED = ("--not", "--branches")
_VERBS = {"starts_with": "start with", "ends_with": "end with", "contains": "contain"}

Rule = Mapping[str, Any]
"""As in the REST API."""
_Read = Callable[..., str]


def rulesets_of(site: Site, repo: Repo, branch: str) -> list[Ruleset]:
    """The rulesets and protections that apply to a branch, which need not exist."""
    return [each for each in site.store.rulesets if each.repo_id == repo.id and fnmatchcase(branch, each.branches)]


def hook_environment(site: Site, repo: Repo, *, login: str) -> dict[str, str]:
    """The variables that switch the hook on for a push."""
    listed = [
        (each.branches, each.rules)
        for each in site.store.rulesets
        if each.repo_id == repo.id and login not in each.bypass
    ]
    return {RULES: json.dumps(listed)} if listed else {}


def demand(site: Site, repo: Repo, ref: str, old: str, new: str, *, login: str) -> None:
    """Refuse an update of a branch through the API that a rule forbids.

    Raises:
        HubError: 422, with GitHub's words.
    """
    branch = ref.removeprefix("refs/heads/")
    applied = [each for each in rulesets_of(site, repo, branch) if login not in each.bypass]
    if branch == ref or not applied:
        return
    commits = _new_commits(partial(git.text, repo.path), new, *_UNPUBLISHED)
    refuse([rule for each in applied for rule in each.rules], branch, commits, is_new=old == git.NULL_SHA)


def violations_of_merge(site: Site, repo: Repo, pull: Pull) -> list[str]:
    """Return the violations of the base branch's rules by a pull request's commits; its merge may be linear."""
    listed = [rule for each in rulesets_of(site, repo, pull.base_ref) for rule in each.rules]
    applied = [rule for rule in listed if rule["type"] not in {"pull_request", "required_linear_history"}]
    commits = _new_commits(partial(git.text, repo.path), f"{pull.base_sha}..{pull.head_sha}") if applied else []
    return _violations(applied, pull.base_ref, commits, is_new=False)


def refuse(rules: Iterable[Rule], branch: str, commits: Sequence[NewCommit], *, is_new: bool) -> None:
    """Raise 422 with the violated rules of an update through the API, if there are any."""
    if violations := _violations(rules, branch, commits, is_new=is_new):
        listed = "".join(f"{line}\n\n" for line in violations)
        raise HubError(422, f"Repository rule violations found\n\n{listed}")


def refusal_of_push(rules: Iterable[Rule], branch: str, commits: Sequence[NewCommit], *, is_new: bool) -> str:
    """The text that git prints for a push that violates rules; empty for another one."""
    violations = _violations(rules, branch, commits, is_new=is_new)
    lines = [f"error: GH013: Repository rule violations found for refs/heads/{branch}.", ""]
    return "\n".join([*lines, *(f"- {line}\n" for line in violations)]) if violations else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """The parts of a commit that rules are about."""

    is_signed: bool
    parents: int
    message: str
    email: str
    paths: tuple[str, ...]


def _new_commits(read: _Read, *selection: str) -> list[NewCommit]:
    shas = read("rev-list", *selection).split()
    records = [read("show", "-s", "--format=%ce%n%P%n%ae%n%B", sha).split("\n", 3) for sha in shas]
    return [
        NewCommit(
            is_signed=committer == "noreply@github.com",
            parents=len(parents.split()),
            message=message.strip(),
            email=email,
            paths=tuple(read("show", "--format=", "--name-only", sha).splitlines()),
        )
        for sha, (committer, parents, email, message) in zip(shas, records, strict=True)
    ]


def _violations(rules: Iterable[Rule], branch: str, commits: Sequence[NewCommit], *, is_new: bool) -> list[str]:
    lines = (line for rule in rules for line in _violations_of(rule, branch, commits, is_new=is_new))
    return list(dict.fromkeys(lines))


def _violations_of(  # noqa: C901 - one case a rule
    rule: Rule, branch: str, commits: Sequence[NewCommit], *, is_new: bool
) -> Iterator[str]:
    parameters = rule.get("parameters", {})
    match rule["type"]:
        case "creation" if is_new:
            yield "Cannot create ref due to creations being restricted."
        case "update" if not is_new:
            yield "Cannot update this protected ref."
        case "pull_request" if not is_new or commits:
            yield "Changes must be made through a pull request."
        case "branch_name_pattern" if is_new and _refuses(parameters, branch):
            yield f"Branch name {_requirement(parameters)}."
        case "required_signatures" if not all(commit.is_signed for commit in commits):
            yield "Commits must have verified signatures."
        case "required_linear_history" if any(commit.parents > 1 for commit in commits):
            yield "This branch must not contain merge commits."
        case "commit_message_pattern" if any(_refuses(parameters, commit.message) for commit in commits):
            yield f"Commit message {_requirement(parameters)}."
        case "commit_author_email_pattern" if any(_refuses(parameters, commit.email) for commit in commits):
            yield f"Commit author email {_requirement(parameters)}."
        case "file_path_restriction":
            patterns = parameters["restricted_file_paths"]
            if any(fnmatchcase(path, each) for commit in commits for path in commit.paths for each in patterns):
                yield "File path is restricted."
        case _:
            pass


def _refuses(parameters: Json, text: str) -> bool:
    pattern = parameters["pattern"]
    matches = {
        "starts_with": text.startswith(pattern),
        "ends_with": text.endswith(pattern),
        "contains": pattern in text,
        "regex": parameters["operator"] == "regex" and re.search(pattern, text) is not None,
    }[parameters["operator"]]
    return bool(matches) is bool(parameters.get("negate", False))


def _requirement(parameters: Json) -> str:
    negated = "not " if parameters.get("negate") else ""
    verb = _VERBS.get(parameters["operator"], "match a given regex pattern:")
    return f"must {negated}{verb} {parameters['pattern']}"


def rule_of_branch(ruleset: Ruleset, rule: Rule) -> Json:
    """A rule as `GET rules/branches/{branch}` lists it."""
    return {
        **rule,
        "ruleset_source_type": "Repository",
        "ruleset_source": ruleset.source,
        "ruleset_id": ruleset.id,
    }


def _main() -> int:
    """Check the updates of a push, from the standard input of a `pre-receive` hook."""
    rulesets: list[tuple[str, list[dict[str, Any]]]] = json.loads(sys.argv[1])

    def read(*args: str) -> str:
        return subprocess.run([git.program(), *args], capture_output=True, check=True, text=True).stdout

    for line in sys.stdin:
        old, new, ref = line.split()
        branch = ref.removeprefix("refs/heads/")
        if new == git.NULL_SHA or branch == ref:
            continue
        rules = [rule for branches, listed in rulesets if fnmatchcase(branch, branches) for rule in listed]
        refusal = refusal_of_push(rules, branch, _new_commits(read, new, *_UNPUBLISHED), is_new=old == git.NULL_SHA)
        if refusal:
            sys.stderr.write(f"{refusal}\n")
            return 1
    return 0


COMMAND = f'PYTHONPATH="{Path(__file__).parents[2]}" "{sys.executable}" -m localhub.api.rules "${RULES}"'
"""What a `pre-receive` hook runs, which passes the updates on."""

if __name__ == "__main__":
    sys.exit(_main())
