"""Errors of repositories and workspaces; each text ends with a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.errors import BotError

_MAX_NAMES = 10


class WorkspaceError(BotError):
    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} {remedy}")
        self.reason = reason
        self.remedy = remedy


class CloneError(WorkspaceError):
    pass


class RepositoryEmptyError(CloneError):
    pass


class BranchGoneError(CloneError):
    pass


class MissingDirectoryError(WorkspaceError):
    def __init__(self, directory: str, sha: str) -> None:
        super().__init__(
            f"The input `working-directory` is `{directory}`, but commit {sha[:10]} has no such directory with files.",
            "Name a directory of the repository, without a leading slash, or leave out the input.",
        )


class CommitGoneError(CloneError):
    pass


class FetchTooLargeError(CloneError):
    """A fetch exceeded its size limit; nothing was stored."""

    def __init__(self, repo: str, ref: str, limit: int, setting: str) -> None:
        super().__init__(
            f"A fetch of `{ref}` of `{repo}` exceeds the limit of {limit / 1024**2:,.0f} MiB.",
            f"Remove large files from it, or ask the bot's operator to raise `{setting}`.",
        )


class ChangeError(WorkspaceError):
    pass


class WorkspaceGoneError(WorkspaceError):
    pass


class PushRejectedError(WorkspaceError):
    """The branch moved, or the server refused; nothing was overwritten."""


class WorkflowsForbiddenError(WorkspaceError):
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
    def __init__(self) -> None:
        super().__init__(
            "`git` cannot be started on the machine that the bot runs on.",
            "The operator must install it (see `codepilot doctor`); then give the command again.",
        )


class ConflictError(WorkspaceError):
    def __init__(self, paths: tuple[str, ...], remedy: str) -> None:
        super().__init__(f"The change no longer applies to {_list_paths(paths)}.", remedy)
        self.paths = paths


class GitError(WorkspaceError):
    """A git command failed; the text contains no credential."""

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
