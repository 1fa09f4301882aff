"""Mirror, trusted git directory, checkout, change."""

from bot.git.errors import (
    BranchGoneError,
    ChangeError,
    CloneError,
    CommitGoneError,
    ConflictError,
    FetchTooLargeError,
    GitError,
    LargeFileError,
    MissingDirectoryError,
    PushRejectedError,
    RepositoryEmptyError,
    WorkflowsForbiddenError,
    WorkspaceError,
    WorkspaceGoneError,
)
from bot.git.mirror import Blob, MirrorLimits, Source
from bot.git.process import PAUSES as GIT_PAUSES
from bot.git.process import git_variables
from bot.git.setup_cache import SetupCache
from bot.git.tree import Identity, Tree
from bot.git.workspace import Left, Workspaces

__all__ = [
    "GIT_PAUSES",
    "Blob",
    "BranchGoneError",
    "ChangeError",
    "CloneError",
    "CommitGoneError",
    "ConflictError",
    "FetchTooLargeError",
    "GitError",
    "Identity",
    "LargeFileError",
    "Left",
    "MirrorLimits",
    "MissingDirectoryError",
    "PushRejectedError",
    "RepositoryEmptyError",
    "SetupCache",
    "Source",
    "Tree",
    "WorkflowsForbiddenError",
    "WorkspaceError",
    "WorkspaceGoneError",
    "Workspaces",
    "git_variables",
]
