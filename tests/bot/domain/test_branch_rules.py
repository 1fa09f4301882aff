"""GitHub's refusals by the rules of a branch, in its own words, and their remedies."""

from __future__ import annotations

import pytest

from bot.domain.branch_rules import RULE_KINDS, find_rule
from bot.git.errors import push_refusal
from bot.github.types import remedy_for

PUSHES = {
    "required_signatures": "remote: error: GH013: Repository rule violations found for refs/heads/x.\n"
    "remote: Review all repository rules at https://github.com/o/r/rules?ref=refs%2Fheads%2Fx\nremote: \n"
    "remote: - Commits must have verified signatures.\nremote:   Found 1 violation:\nremote: \nremote:   5f5b5b5b\n"
    " ! [remote rejected] x -> x (push declined due to repository rule violations)\nerror: failed to push some refs",
    "required_linear_history": "remote: error: GH006: Protected branch update failed for refs/heads/x.\n"
    "remote: error: This branch must not contain merge commits.\n"
    " ! [remote rejected] x (protected branch hook declined)",
    "creation": "remote: error: GH013: Repository rule violations found for refs/heads/x.\n"
    "remote: - Cannot create ref due to creations being restricted.",
    "pull_request": "remote: error: GH013: Repository rule violations found for refs/heads/x.\n"
    'remote: - Changes must be made through a pull request.\nremote: - Required status check "check" is expected.',
    "commit_message_pattern": "remote: error: GH013: Repository rule violations found for refs/heads/x.\n"
    "remote: - Commit message must match a given regex pattern: ^PROJ-",
    "secret_scanning": "remote: error: GH013: Repository rule violations found for refs/heads/x.\nremote: \n"
    "remote: - GITHUB PUSH PROTECTION\nremote:     - Push cannot contain secrets",
    "file_path_restriction": "remote: error: GH013: Repository rule violations found for refs/heads/x.\n"
    "remote: - File path is restricted",
}


@pytest.mark.parametrize("name", PUSHES)
def test_a_refused_push_has_githubs_reason_and_the_remedy_of_the_rule(name: str) -> None:
    error = push_refusal("x", PUSHES[name])
    assert RULE_KINDS[name].words in error.reason or name == "commit_message_pattern"
    assert error.reason.startswith("The repository's rules refuse the push to `x`: ")
    assert "remote:" not in error.reason
    assert "GH0" not in error.reason
    assert error.remedy == RULE_KINDS[name].remedy


@pytest.mark.parametrize(
    "stderr", ["", " ! [rejected] x -> x (stale info)", "remote: file size, secrets and branch name must"]
)
def test_any_other_refusal_is_shown_as_it_is(stderr: str) -> None:
    assert find_rule(stderr) is None
    assert "Check whether someone pushed to it" in push_refusal("x", stderr).remedy


def test_the_api_names_the_same_remedies() -> None:
    message = "Repository rule violations found\n\nChanges must be made through a pull request.\n\n"
    assert remedy_for(422, message) == RULE_KINDS["pull_request"].remedy
    assert remedy_for(403, "Protected branch update failed for refs/heads/x.") == (
        "Exempt the App from the branch's protection rules, or ask for a pull request."
    )
