"""The client of GitHub's REST and GraphQL APIs."""

from bot.github.app import (
    AppDeliveries,
    AppDescription,
    Attempt,
    Installation,
    app_deliveries,
    describe_app,
    installation_of,
)
from bot.github.client import GitHub
from bot.github.comments import Reaction
from bot.github.commits import is_made
from bot.github.connection import SECONDS_BETWEEN_WRITES, AppSession
from bot.github.downloads import LogError, LogGoneError, PictureError, TooLargeError, fetch_picture, save_log
from bot.github.drafts import Annotation, Button, CheckDraft, Conclusion, PullDraft, ReviewDraft, ReviewNote
from bot.github.errors import CannotExpressError, GitHubError, HeadMovedError, thread_is_gone
from bot.github.graphql import check_expressible
from bot.github.models import (
    Account,
    ArtifactFacts,
    BotIdentity,
    CheckFacts,
    CommentFacts,
    CommitFacts,
    JobFacts,
    PullFacts,
    PullLink,
    RedCheck,
    RepoFacts,
    ReviewCommentFacts,
    ReviewFacts,
    RunFacts,
    Snapshot,
    Spot,
    StepFacts,
    ThreadFacts,
)
from bot.github.pace import Urgency

__all__ = [
    "SECONDS_BETWEEN_WRITES",
    "Account",
    "Annotation",
    "AppDeliveries",
    "AppDescription",
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
    "Installation",
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
    "check_expressible",
    "describe_app",
    "fetch_picture",
    "installation_of",
    "is_made",
    "save_log",
    "thread_is_gone",
]
