"""GitHub's rules for branches: the words of its refusals, and the remedies. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleKind:
    """A kind of rule.

    Attributes:
        words: GitHub's, in a refusal.
        remedy: for the user.
        pattern: finds the refusal, if its words vary.
    """

    words: str
    remedy: str
    pattern: str = ""


_EXEMPT = "exempt the bot from this rule under Settings, Rules"
_FILES = f"Leave such files out of the task, or {_EXEMPT}."
_SIGN = (
    "GitHub signs only what is committed through its API: no merges, no links, no submodules and no file modes. Apply "
    f"the change yourself with a signed commit, or {_EXEMPT}."
)

RULE_KINDS: Mapping[str, RuleKind] = {
    "required_signatures": RuleKind("Commits must have verified signatures", _SIGN),
    "required_linear_history": RuleKind(
        "This branch must not contain merge commits", f"Rebase the branch yourself, or {_EXEMPT}."
    ),
    "creation": RuleKind(
        "Cannot create ref due to creations being restricted",
        f"Set a `branch_prefix` that the rule does not cover, or {_EXEMPT}.",
    ),
    "branch_name_pattern": RuleKind(
        "Branch name", f"Set a matching `branch_prefix`, or {_EXEMPT}.", r"Branch name must (?:not )?\w+"
    ),
    "pull_request": RuleKind(
        "Changes must be made through a pull request",
        f"Work from a branch that the rule does not cover, or {_EXEMPT}.",
    ),
    "update": RuleKind("Cannot update this protected ref", f"Work from another branch, or {_EXEMPT}."),
    "commit_message_pattern": RuleKind(
        "Commit message",
        f"Set `commit` in `.github/codepilot.yml` so that messages match, or {_EXEMPT}.",
        r"Commit message must (?:not )?\w+",
    ),
    "commit_author_email_pattern": RuleKind(
        "Commit author email",
        f"The bot's commits have an address of GitHub's, so {_EXEMPT}.",
        r"(?:author |committer )?email must (?:not )?\w+",
    ),
    "file_path_restriction": RuleKind("File path is restricted", _FILES, r"file paths? (?:is|are) restricted"),
    "file_extension_restriction": RuleKind(
        "File extension is restricted", _FILES, r"file extensions? (?:is|are) restricted"
    ),
    "max_file_path_length": RuleKind("File path is too long", _FILES, r"file path .*(?:too long|length)"),
    "max_file_size": RuleKind("File is too large", _FILES, r"file .*(?:too large|size)"),
    "required_status_checks": RuleKind(
        "Required status check", f"Work from a branch that the rule does not cover, or {_EXEMPT}."
    ),
    "secret_scanning": RuleKind(
        "Push cannot contain secrets",
        "GitHub found a secret in the change. Remove it, or allow it on the page that GitHub names.",
    ),
}
"""Kinds by GitHub's type: https://docs.github.com/rest/repos/rules#get-rules-for-a-branch"""


_REFUSAL = re.compile(r"rule violation|\bGH0(?:06|09|13)\b|protected branch", re.IGNORECASE)


def find_rule(text: str) -> RuleKind | None:
    """Return the kind of the first violated rule in GitHub's refusal."""
    if not _REFUSAL.search(text):
        return None
    for kind in RULE_KINDS.values():
        if re.search(kind.pattern or re.escape(kind.words), text, re.IGNORECASE):
            return kind
    return None
