"""Errors between a repository and a workspace; every text ends with the fix."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.errors import BotError

_MOST_NAMED = 10


class WorkspaceError(BotError):
    """A workspace could not be made, read or published.

    Attributes:
        reason: what happened, for the person who asked.
        remedy: what they, or the operator, can do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


class CloneError(WorkspaceError):
    """The repository could not be fetched."""


class RepositoryEmptyError(CloneError):
    """The repository has no commit yet."""


class BranchGoneError(CloneError):
    """The branch, or the pull request's head, no longer exists."""


class MissingDirectoryError(WorkspaceError):
    """The directory in which commands are to start is not in the commit."""

    def __init__(self, directory: str, sha: str) -> None:
        super().__init__(
            f"The input `working-directory` is `{directory}`, but commit {sha[:10]} has no such directory with files.",
            "Name a directory of the repository, without a leading slash, or leave out the input.",
        )


class CommitGoneError(CloneError):
    """The commit is on the server no more."""


class FetchTooLargeError(CloneError):
    """More came from the server than one fetch may bring; nothing of it was kept."""

    def __init__(self, repo: str, ref: str, limit: int, setting: str) -> None:
        super().__init__(
            f"A fetch of `{ref}` of `{repo}` exceeds the limit of {limit / 1024**2:,.0f} MiB.",
            f"Remove large files from it, or ask the bot's operator to raise `{setting}`.",
        )


class ChangeError(WorkspaceError):
    """What the agent left behind cannot be read as a change."""


class WorkspaceGoneError(WorkspaceError):
    """A workspace that was kept is not there any more, or not as it was left."""


class PushRejectedError(WorkspaceError):
    """The branch moved meanwhile, or the server refused the push; nothing was overwritten."""


class WorkflowsForbiddenError(WorkspaceError):
    """The pushing account may not write workflow files, for which GitHub wants a permission of its own."""

    def __init__(self) -> None:
        super().__init__(
            "GitHub requires the App permission *Workflows: read and write* to add or change files in "
            "`.github/workflows`, and the bot does not have it.",
            "Grant it in the App's settings, under Permissions & events, accept it in the installation, and give the "
            "command again. A workflow's own token can never have it.",
        )


class LargeFileError(WorkspaceError):
    """Files belong in Git LFS, and are not there; a commit with their pointers would be broken."""

    def __init__(self, paths: Sequence[str], why: str) -> None:
        super().__init__(
            f"Git LFS must store {_list_paths(paths)}, and the upload failed: {why}.",
            "Nothing was published; the patch contains only the pointer. Fix the cause, and give the command again.",
        )


class GitMissingError(WorkspaceError):
    """There is no git on this machine, or it cannot be started."""

    def __init__(self) -> None:
        super().__init__(
            "`git` cannot be started on the machine that the bot runs on.",
            "The operator must install it (see `codepilot doctor`); then give the command again.",
        )


class ConflictError(WorkspaceError):
    """A change does not fit onto another commit.

    Attributes:
        paths: the files where it does not, in order.
    """

    def __init__(self, paths: tuple[str, ...], remedy: str) -> None:
        super().__init__(f"The change no longer applies to {_list_paths(paths)}.", remedy)
        self.paths = paths


class GitError(WorkspaceError):
    """A git command failed in a way that has no better name; no credential is in the text.

    Attributes:
        exit_code: git's exit code; None when it was stopped because it broke one of its bounds.
        stderr: what git said, credentials removed; or which bound it broke.
    """

    def __init__(self, command: str, exit_code: int | None, stderr: str) -> None:
        ended = "was stopped" if exit_code is None else f"ended with exit code {exit_code}"
        remedy = "Report this to the bot's operator."
        if exit_code is None:
            remedy = (
                "A repository with fewer or smaller files requires less. If this one is not unusual, report this to "
                "the bot's operator."
            )
        super().__init__(f"git {command} {ended}: {stderr.strip() or 'it printed nothing'}.", remedy)
        self.exit_code = exit_code
        self.stderr = stderr


def _list_paths(paths: Sequence[str]) -> str:
    names = ", ".join(f"`{path}`" for path in paths[:_MOST_NAMED])
    return f"{names} and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else names
