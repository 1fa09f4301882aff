"""The one REST and GraphQL client."""

from bot.github.client import GitHub
from bot.github.connection import SECONDS_BETWEEN_WRITES
from bot.github.deliveries import AppDeliveries, Attempt, app_deliveries
from bot.github.drafts import Annotation, Button, CheckDraft, Conclusion, PullDraft, ReviewDraft, ReviewNote
from bot.github.errors import CannotExpressError, GitHubError, HeadMovedError
from bot.github.facts import (
    Account,
    ArtifactFacts,
    BotIdentity,
    CheckFacts,
    CommitFacts,
    JobFacts,
    PullFacts,
    PullLink,
    RedCheck,
    RepoFacts,
    RunFacts,
    Snapshot,
    StepFacts,
    ThreadFacts,
)
from bot.github.logs import LogError, LogGoneError, save_log
from bot.github.pace import Urgency
from bot.github.pictures import PictureError, TooLargeError, fetch
from bot.github.session import AppSession
from bot.github.talk import CommentFacts, ReviewCommentFacts, ReviewFacts, Spot
from bot.github.words import Reaction

__all__ = [
    "SECONDS_BETWEEN_WRITES",
    "Account",
    "Annotation",
    "AppDeliveries",
    "AppSession",
    "ArtifactFacts",
    "Attempt",
    "BotIdentity",
    "Button",
    "CannotExpressError",
    "CheckDraft",
    "CheckFacts",
    "CommentFacts",
    "CommitFacts",
    "Conclusion",
    "GitHub",
    "GitHubError",
    "HeadMovedError",
    "JobFacts",
    "LogError",
    "LogGoneError",
    "PictureError",
    "PullDraft",
    "PullFacts",
    "PullLink",
    "Reaction",
    "RedCheck",
    "RepoFacts",
    "ReviewCommentFacts",
    "ReviewDraft",
    "ReviewFacts",
    "ReviewNote",
    "RunFacts",
    "Snapshot",
    "Spot",
    "StepFacts",
    "ThreadFacts",
    "TooLargeError",
    "Urgency",
    "app_deliveries",
    "fetch",
    "save_log",
]
