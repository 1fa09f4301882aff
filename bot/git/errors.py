"""Errors of repositories and workspaces; each text ends with a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.errors import BotError

_MAX_NAMES = 10


class WorkspaceError(BotError):
    """A workspace could not be created, read or published."""

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
    """The configured working directory is not in the commit."""

    def __init__(self, directory: str, sha: str) -> None:
        super().__init__(
            f"The input `working-directory` is `{directory}`, but commit {sha[:10]} has no such directory with files.",
            "Name a directory of the repository, without a leading slash, or leave out the input.",
        )


class CommitGoneError(CloneError):
    """The commit is no longer on the server."""


class FetchTooLargeError(CloneError):
    """A fetch exceeded its size limit; nothing was stored."""

    def __init__(self, repo: str, ref: str, limit: int, setting: str) -> None:
        super().__init__(
            f"A fetch of `{ref}` of `{repo}` exceeds the limit of {limit / 1024**2:,.0f} MiB.",
            f"Remove large files from it, or ask the bot's operator to raise `{setting}`.",
        )


class ChangeError(WorkspaceError):
    """The workspace cannot be read as a change."""


class WorkspaceGoneError(WorkspaceError):
    """The stored workspace of a waiting job is missing or altered."""


class PushRejectedError(WorkspaceError):
    """The branch moved, or the server refused the push; nothing was overwritten."""


class WorkflowsForbiddenError(WorkspaceError):
    """The token may not write workflow files, which requires a separate permission."""

    def __init__(self) -> None:
        super().__init__(
            "GitHub requires the App permission *Workflows: read and write* to add or change files in "
            "`.github/workflows`, and the bot does not have it.",
            "Grant it in the App's settings, under Permissions & events, accept it in the installation, and give the "
            "command again. A workflow's own token can never have it.",
        )


class LargeFileError(WorkspaceError):
    """Git LFS lacks objects that the commit's pointers need."""

    def __init__(self, paths: Sequence[str], why: str) -> None:
        super().__init__(
            f"Git LFS must store {_list_paths(paths)}, and the upload failed: {why}.",
            "Nothing was published; the patch contains only the pointer. Fix the cause, and give the command again.",
        )


class GitMissingError(WorkspaceError):
    """Git is not installed, or cannot be started."""

    def __init__(self) -> None:
        super().__init__(
            "`git` cannot be started on the machine that the bot runs on.",
            "The operator must install it (see `codepilot doctor`); then give the command again.",
        )


class ConflictError(WorkspaceError):
    """A change does not apply to another commit."""

    def __init__(self, paths: tuple[str, ...], remedy: str) -> None:
        super().__init__(f"The change no longer applies to {_list_paths(paths)}.", remedy)
        self.paths = paths


class GitError(WorkspaceError):
    """A git command failed; the text contains no credential.

    Attributes:
        exit_code: None if git was stopped because it exceeded a bound.
        stderr: git's message, or the exceeded bound.
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
    names = ", ".join(f"`{path}`" for path in paths[:_MAX_NAMES])
    return f"{names} and {len(paths) - _MAX_NAMES} more" if len(paths) > _MAX_NAMES else names
