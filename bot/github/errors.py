"""Errors of GitHub's answers; every text names the fix."""

from __future__ import annotations

import re
from http import HTTPStatus

from bot.domain.errors import BotError

_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_ACCESS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})


class FileTooLargeError(BotError):
    """A file of a repository that has more bytes than GitHub gives out with its name.

    Attributes:
        size: how many it has.
    """

    def __init__(self, repo: str, path: str, size: int) -> None:
        super().__init__(f"{repo}: {path}: has {size:,} bytes, which is too large to be read.")
        self.size = size


class GitHubError(BotError):
    """GitHub did not do what it was asked.

    Attributes:
        what: what was asked, e.g. `comment on owner/name#12`.
        status: the HTTP status; 0 when no answer came.
        said: GitHub's own message.
        remedy: what a person can do about it.
        limited: whether it was a rate limit, which GitHub also answers with 403.
        retry_after: of a rate limit, for how many seconds GitHub is not to be asked.
    """

    def __init__(
        self, what: str, status: int, said: str, remedy: str, *, limited: bool = False, retry_after: float = 0.0
    ) -> None:
        answer = f"GitHub answered {status}: {said}" if status else f"no answer from GitHub: {said}"
        super().__init__(f"Could not {what}; {answer.rstrip('.')}. {remedy}")
        self.what = what
        self.status = status
        self.said = said
        self.remedy = remedy
        self.limited = limited
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether asking again later may help."""
        # Below 400 no answer came, or one that nobody can read: a proxy's page, half an answer.
        unanswered = self.status < HTTPStatus.BAD_REQUEST
        return self.limited or unanswered or self.status in _PASSING or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def unsettled(self) -> bool:
        """Whether GitHub may think better of it within minutes: it says 401, 403 or 404 for a hiccup of its own, too.

        Where it names what it lacks, e.g. a permission, it means it.
        """
        return self.status in _ACCESS and not any(words in self.said.lower() for words in _MEANT)

    @property
    def may_be_told_later(self) -> bool:
        """Whether what was refused may be taken one day: when GitHub is back, or the repository is."""
        return self.passing or self.status in _ACCESS | {HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS}

    @property
    def lacks_permission(self) -> bool:
        """Whether the App, or the token, may not do it at all."""
        return self.status == HTTPStatus.FORBIDDEN and _NO_PERMISSION in self.said.lower()

    @property
    def may_be_done(self) -> bool:
        """Whether GitHub may still have done it, and only its answer was lost; a rate limit stops it before."""
        return self.passing and not self.limited


def thread_is_gone(repo: str, number: int) -> GitHubError:
    """There is no such issue or pull request any more."""
    status, said = HTTPStatus.NOT_FOUND, "there is no such issue or pull request"
    return GitHubError(f"read {repo}#{number}", status, said, remedy_for(status, said))


class HeadMovedError(GitHubError):
    """The branch is not where it was expected; nothing was written."""


class CannotExpressError(BotError):
    """GitHub's commit API has no words for this change (modes, links, sizes); a git push has."""


def remedy_for(status: int, said: str, *, needs: str = "", in_workflow: bool = False) -> str:
    """What helps against an answer.

    Args:
        status: the HTTP status; 0 when no answer came.
        said: GitHub's message.
        needs: the permission that GitHub would have taken, from `X-Accepted-GitHub-Permissions`, e.g. `checks=write`:
            https://docs.github.com/rest/using-the-rest-api/troubleshooting-the-rest-api#resource-not-accessible
        in_workflow: whether the token is a workflow's, whose permissions are in its YAML.
    """
    text = said.lower()
    if in_workflow and _NO_PERMISSION in text:
        return _for_the_job(needs)
    if needs and _NO_PERMISSION in text:
        wanted = " or ".join(f"`{each.strip().replace(',', ' and ').replace('=', ': ')}`" for each in needs.split(";"))
        return f"Grant the App the permission {wanted} in its settings, then accept it in the installation."
    if status == HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS:
        return _BLOCKED
    for words, remedy in _REMEDIES:
        if re.search(rf"\b{words}\b", text):
            return remedy
    if in_workflow and status == HTTPStatus.FORBIDDEN:
        return _for_the_job(needs)
    server = status < HTTPStatus.BAD_REQUEST or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return _BY_STATUS.get(status, "Give the command again later." if server else _ASK)


def _for_the_job(needs: str) -> str:
    """The YAML that gives a workflow's token what it lacks; all that the bot needs where GitHub does not say what."""
    wanted = [
        f"`permissions: {{ {each.strip().replace('_', '-').replace('=', ': ').replace(',', ', ')} }}`"
        for each in (needs or _ALL_OF_A_JOB).split(";")
    ]
    return f"Add this permission to the workflow's job: {' or '.join(wanted)}."


def unreadable(what: str, status: int, why: str) -> GitHubError:
    """The error for an answer that is not what GitHub documents, from GitHub itself or from something in between.

    Args:
        what: what was asked.
        status: the HTTP status of the answer.
        why: what is wrong with it.
    """
    return GitHubError(what, status, why, _UNREADABLE)


_ALL_OF_A_JOB = "contents=write,issues=write,pull_requests=write"
_NO_PERMISSION = "resource not accessible"
_MEANT = (_NO_PERMISSION, "archived", "locked", "suspended", "not permitted", "protected", "rule violations", "blocked")
"""What says that asking again in a minute is of no use."""
_ASK = "Report this to the bot's operator."
_BLOCKED = "GitHub has blocked the repository; its owner can ask GitHub's support why."
_UNREADABLE = (
    "Give the command again later. If the error persists, check CODEPILOT_API_URL and the network between the "
    "bot and GitHub."
)
_REMEDIES = (
    (_NO_PERMISSION, "Grant the App this permission in its settings, then accept it in the installation."),
    ("not permitted to create or approve pull requests", "Allow it under Settings, Actions, General."),
    ("archived", "Unarchive the repository first."),
    ("locked", "Unlock the conversation first."),
    ("suspended", "Unsuspend the App's installation."),
    ("protected branch", "Exempt the App from the branch's protection rules, or ask for a pull request."),
    ("rule violations", "Exempt the App from the repository's rulesets."),
    ("rate limit", "Wait until the limit is reset, then give the command again."),
)
_BY_STATUS = {
    401: "Check that the token or the App's private key is still valid.",
    403: "Check which permission the App is missing in its settings.",
    404: "Check that it still exists, and that the App is installed on the repository.",
    408: "Give the command again later.",
    410: "It was deleted, or the feature is turned off for this repository.",
    429: "Wait until the limit is reset, then give the command again.",
}
