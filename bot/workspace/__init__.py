"""Mirror, trusted git directory, checkout, change."""

from bot.workspace.cache import SetupCache
from bot.workspace.errors import (
    BranchGoneError,
    ChangeError,
    CloneError,
    CommitGoneError,
    ConflictError,
    GitError,
    PushRejectedError,
    RepositoryEmptyError,
    WorkspaceError,
    WorkspaceGoneError,
)
from bot.workspace.mirror import Source
from bot.workspace.tree import Identity, Tree
from bot.workspace.workspaces import Workspaces

__all__ = [
    "BranchGoneError",
    "ChangeError",
    "CloneError",
    "CommitGoneError",
    "ConflictError",
    "GitError",
    "Identity",
    "PushRejectedError",
    "RepositoryEmptyError",
    "SetupCache",
    "Source",
    "Tree",
    "WorkspaceError",
    "WorkspaceGoneError",
    "Workspaces",
]
