"""Mirror, trusted git directory, checkout, change."""

from bot.workspace.cache import SetupCache
from bot.workspace.errors import (
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
from bot.workspace.mirror import Blob, MirrorLimits, Source
from bot.workspace.remote import PAUSES as GIT_PAUSES
from bot.workspace.storing import Left
from bot.workspace.tree import Identity, Tree
from bot.workspace.trust import git_variables
from bot.workspace.workspaces import Workspaces

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
