"""Everything that permissions are decided by, asked of GitHub now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bot.errors import BotError
from bot.gate.decision import ThreadFacts
from bot.gate.standing import Role, may_command
from bot.github import GitHub, RepoFacts
from bot.jobs.job import Actor, Job


class ReplacedRepositoryError(BotError):
    """The repository was deleted, and its name given to another, which is nobody's to answer in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The first look at a job: enough to turn away who may not command.

    Attributes:
        repo: the repository.
        roles: of the job's actor, and of the others that count.
    """

    repo: RepoFacts
    roles: tuple[Role, ...]

    @property
    def may_command(self) -> bool:
        """Whether everybody who asked may command the bot at all."""
        return all(map(may_command, self.roles))


@dataclass(frozen=True, slots=True, kw_only=True)
class Here(Visit):
    """The place a job is about, as GitHub has it now.

    Attributes:
        thread: the issue or pull request.
        labels: the names of its labels.
    """

    thread: ThreadFacts
    labels: tuple[str, ...]


async def arrive(github: GitHub, job: Job, *, trusted_bot_ids: Collection[int] = ()) -> Visit:
    """See where a job is about, and who asks. Two requests: strangers can make the bot come as often as they comment.

    Args:
        github: acts for the job.
        job: the job.
        trusted_bot_ids: numeric user ids of bots that may command; other bots have no rights here.

    Raises:
        ReplacedRepositoryError: the name belongs to another repository now.
        GitHubError: something could not be found out, which nobody may take for a yes.
    """
    name = job.repo.full_name
    repo = await github.repo_facts(name)
    if repo.id != job.repo.id:
        raise ReplacedRepositoryError(f"{name} is another repository now than when the command was given.")
    people = (job.actor, *job.others)
    roles = tuple([await _role(github, repo.full_name, job, each, trusted_bot_ids) for each in people])
    return Visit(repo=repo, roles=roles)


async def look(github: GitHub, job: Job, visit: Visit) -> Here:
    """Look at the thread, too.

    Raises:
        GitHubError: something could not be found out.
    """
    repo, roles, number = visit.repo, visit.roles, job.thread.number
    thread = await github.thread_facts(repo.full_name, number)
    if job.thread.kind == "pull":
        pull = await github.pull_facts(repo.full_name, number)
        head = (pull.head_sha, pull.head_ref, pull.head_repo_id, pull.base_ref)
    else:
        sha = await github.branch_head(repo.full_name, repo.default_branch) or ""
        head = (sha, repo.default_branch, repo.id, repo.default_branch)
    return Here(
        repo=repo,
        labels=thread.labels,
        roles=roles,
        thread=ThreadFacts(
            default_branch=repo.default_branch,
            head_sha=head[0],
            head_ref=head[1],
            head_repo_id=head[2],
            base_ref=head[3],
            is_open=thread.state == "open",
            locked=thread.locked,
            archived=repo.archived,
            private=repo.private,
            author_id=thread.author_id,
        ),
    )


async def _role(github: GitHub, repo: str, job: Job, who: Actor, trusted_bot_ids: Collection[int]) -> Role:
    """What somebody may do, as far as the bot listens to them.

    CI that runs on the bot's own push has the bot for its actor; that push was somebody's wish.
    """
    if who.login.endswith("[bot]") and who.id not in trusted_bot_ids:
        return "write" if job.origin.kind == "ci" and who.id == (await github.me()).id else "none"
    return await github.role_of(repo, who.id, who.login)
