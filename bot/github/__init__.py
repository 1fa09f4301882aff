"""The one REST and GraphQL client."""

from bot.github.client import GitHub, Reaction
from bot.github.errors import CannotExpressError, GitHubError, HeadMovedError
from bot.github.facts import BotIdentity, CommentFacts, CommitFacts, PullFacts, PullLink, RepoFacts, ThreadFacts

__all__ = [
    "BotIdentity",
    "CannotExpressError",
    "CommentFacts",
    "CommitFacts",
    "GitHub",
    "GitHubError",
    "HeadMovedError",
    "PullFacts",
    "PullLink",
    "Reaction",
    "RepoFacts",
    "ThreadFacts",
]
