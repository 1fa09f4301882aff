"""The corridor: one job from permission to publication. Reads top to bottom as the job walks."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import assert_never

from agent_runtime import Event, NetworkUsed, Outcome, Status
from bot.errors import BotError
from bot.gate.brief import task_for
from bot.gate.network import narrowed, reach
from bot.gate.permissions import Grant, Refusal, Role, ThreadFacts, grant_for, may_command
from bot.gate.repo_config import PATH
from bot.github import GitHub, GitHubError, Reaction, RepoFacts
from bot.intake.commands import Fix, Help, Unknown, help_text
from bot.jobs.house import House
from bot.jobs.job import Job, JobState
from bot.jobs.memory import JobMemory
from bot.jobs.progress import Progress
from bot.jobs.setup import Asked, asked_by
from bot.jobs.status import StatusComment
from bot.jobs.work import Work
from bot.publishing.defuse import Allowed
from bot.publishing.plan import Publication, plan
from bot.publishing.publish import Delivered, Target, publish
from bot.publishing.render import Activity, StatusView
from bot.publishing.wording import REMEDIES
from bot.workspace import BranchGoneError, Source, Tree
from bot.workspace.change import Change

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended, and what the status comment says of it; no comment for who may not even get an answer."""

    state: JobState
    reason: str
    view: StatusView | None


class ReplacedRepositoryError(BotError):
    """The repository was renamed, moved or deleted, and its name given to another, which is nobody's to answer in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Here:
    """The place a job is about, as GitHub has it now."""

    repo: RepoFacts
    thread: ThreadFacts
    role: Role


class Corridor:
    """Walks one job."""

    def __init__(
        self, house: House, job: Job, *, github: GitHub, memory: JobMemory, comment: StatusComment, marker: str
    ) -> None:
        self._house = house
        self._job = job
        self._github = github
        self._memory = memory
        self._comment = comment
        self._begun = time.monotonic()
        self._progress = Progress()
        self._may_be_answered = False
        self._view = StatusView(
            state="working",
            asked=f"{house.trigger} {_word(job)}",
            allowed=Allowed(
                login=job.actor.login, number=job.thread.number, server=house.server_url, repo=job.repo.full_name
            ),
            job_id=job.id,
            marker=marker,
            seconds=0.0,
            model=house.model,
        )

    async def walk(self) -> Ending:
        """Take the job from permission to publication.

        Raises:
            GitHubError: GitHub failed in a way that may pass; the job can be walked again.
        """
        here = await self._look()
        decision = grant_for(self._job, role=here.role, facts=here.thread, limits=self._house.limits)
        if isinstance(decision, Refusal):
            return await self._refuse(decision)
        match self._job.command:
            case Help() | Unknown():
                return self._ending(JobState.DONE, replace(self._now(), state="done", completion=self._answer()))
            case Fix():
                return await self._fix(decision, here)
            case other:
                assert_never(other)

    def failed(self, reason: str, remedy: str = "", *, told: bool = False) -> Ending:
        """The ending of a job that something went wrong with; not a word of it to who may not even command.

        Args:
            reason: what went wrong.
            remedy: what to do about it.
            told: whether an earlier attempt has answered already.
        """
        if not (told or self._may_be_answered):
            return Ending(state=JobState.FAILED, reason=reason, view=None)
        return self._ending(JobState.FAILED, replace(self._now(), state="failed", reason=reason, remedy=remedy))

    async def _look(self) -> _Here:
        """Everything that permissions are decided by, asked of GitHub now.

        Raises:
            ReplacedRepositoryError: the name belongs to another repository now.
        """
        name, number = self._job.repo.full_name, self._job.thread.number
        repo = await self._github.repo_facts(name)
        if repo.id != self._job.repo.id:
            self._may_be_answered = False
            raise ReplacedRepositoryError(f"{name} is another repository now than when the command was given.")
        role = await self._github.role(name, self._job.actor.login)
        self._may_be_answered = may_command(role)
        thread = await self._github.thread_facts(name, number)
        if self._job.thread.kind == "pull":
            pull = await self._github.pull_facts(name, number)
            head = (pull.head_sha, pull.head_ref, pull.head_repo_id, pull.base_ref)
        else:
            sha = await self._github.branch_head(name, repo.default_branch) or ""
            head = (sha, repo.default_branch, repo.id, repo.default_branch)
        return _Here(
            repo=repo,
            role=role,
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
            ),
        )

    async def _refuse(self, refusal: Refusal) -> Ending:
        if refusal.silent:
            await self._react("confused")
            return Ending(state=JobState.REFUSED, reason=refusal.reason, view=None)
        return self._ending(JobState.REFUSED, replace(self._now(), state="refused", reason=refusal.reason))

    async def _react(self, content: Reaction) -> None:
        """Answer the command with a reaction. It may be deleted by now; no job fails, and nobody is told, for that."""
        try:
            await self._github.react(self._job.repo.full_name, self._job.comment_id, content)
        except GitHubError as error:
            log.warning("job %s: no reaction: %s", self._job.id, error)

    async def _fix(self, grant: Grant, here: _Here) -> Ending:
        await self._react("eyes")
        await self._comment.show(self._now())
        before = await self._house.work.find(self._job.id, self._memory)
        if before is not None:
            # The agent has done its part; where the work belongs was decided when it did.
            grant = replace(grant, bound_to_sha=before[0].base_sha)
        pull = self._job.thread.kind == "pull"
        source = Source(
            url=here.repo.clone_url,
            token=await self._github.clone_token(here.repo.full_name),
            ref=f"refs/pull/{self._job.thread.number}/head" if pull else f"refs/heads/{here.thread.head_ref}",
            sha=grant.bound_to_sha,
        )
        async with self._comment.kept_fresh(self._now, seconds=self._house.edit_seconds):
            if before is not None:
                return await self._publish_again(grant, here, source, *before)
            asked = await asked_by(self._house.workspaces, here.repo.id, await self._base(here, source))
            async with self._house.workspaces.open(self._job.id, here.repo.id, source) as tree:
                outcome = await self._run(grant, here, tree, asked)
                change = await tree.change()
                work = Work(
                    outcome=outcome, progress=self._progress, base_sha=change.base_sha, tree_sha=change.tree_sha
                )
                await self._house.work.keep(self._job.id, self._memory, work, change)
                return await self._publish(grant, tree, outcome, change)

    async def _publish_again(self, grant: Grant, here: _Here, source: Source, work: Work, patch: bytes) -> Ending:
        """Publish what an earlier attempt kept."""
        log.info("job %s: its work is done already; publishing it", self._job.id)
        self._progress = work.progress
        async with self._house.workspaces.open(self._job.id, here.repo.id, source) as tree:
            return await self._publish(grant, tree, work.outcome, await tree.restore(patch, expect=work.tree_sha))

    async def _base(self, here: _Here, source: Source) -> Source:
        """The base branch's commit as it is now; an issue's work begins at that very commit."""
        if self._job.thread.kind == "issue":
            return source
        branch = here.thread.base_ref
        sha = await self._github.branch_head(here.repo.full_name, branch)
        if sha is None:
            raise BranchGoneError(
                f"`{branch}`, the base of this pull request, is gone.", "Choose another and ask again."
            )
        return replace(source, ref=f"refs/heads/{branch}", sha=sha)

    async def _run(self, grant: Grant, here: _Here, tree: Tree, asked: Asked) -> Outcome:
        def listen(event: Event) -> None:
            self._progress = self._progress.after(event)
            if isinstance(event, NetworkUsed):
                log.info("job %s: network: %s", self._job.id, event.connection)

        def tell(activity: Activity) -> None:
            self._progress = self._progress.told(activity)

        house, network = self._house, narrowed(self._house.network, asked.config.network).network
        ready = await house.setup.run(tree, asked, job_id=self._job.id, repo_id=here.repo.id, tell=tell)
        self._progress = replace(self._progress, reach=reach(network), warning=ready.warning)
        head = f"HEAD: {grant.bound_to_sha[:10]} on {here.thread.head_ref}, nothing uncommitted (git is not needed)"
        task = task_for(self._job)
        instructions = {PATH: asked.config.instructions} if asked.config.instructions else {}
        async with house.agent(
            tree.path, grant.policy, (listen, *house.listeners), network=network, instructions=instructions
        ) as runtime:
            return await runtime.run(replace(task, quotes=(*task.quotes, *ready.quotes)), facts=(head, *ready.facts))

    async def _publish(self, grant: Grant, tree: Tree, outcome: Outcome, change: Change) -> Ending:
        # A run takes long enough for people to close the thread, to move the repository or to lose their role.
        here = await self._look()
        decision = grant_for(self._job, role=here.role, facts=here.thread, limits=self._house.limits)
        if isinstance(decision, Refusal):
            withheld = f"{decision.reason} The patch is kept." if change else decision.reason
            publication = Publication(commit=None, pull_request=None, withheld=withheld)
        else:
            publication = self._planned(grant, here, outcome, change)
        target = Target(
            repo=here.repo.full_name, default_branch=here.repo.default_branch, clone_url=here.repo.clone_url
        )
        delivered = await publish(
            self._github, self._memory, publication, target=target, pusher=tree, redactor=self._house.redactor
        )
        if delivered.commit_sha is not None or not change:
            self._house.work.forget(self._job.id)
        return self._told(outcome, change, delivered)

    def _planned(self, grant: Grant, here: _Here, outcome: Outcome, change: Change) -> Publication:
        return plan(
            self._job,
            grant,
            outcome,
            change,
            base_branch=here.thread.base_ref,
            head_branch=here.thread.head_ref if self._job.thread.kind == "pull" else None,
            server=self._house.server_url,
        )

    def _told(self, outcome: Outcome, change: Change, delivered: Delivered) -> Ending:
        finished = outcome.status is Status.FINISHED
        view = replace(
            self._now(),
            state="done" if finished else "stopped" if outcome.status is Status.STOPPED else "failed",
            completion=outcome.summary,
            reason=outcome.reason or "",
            remedy=REMEDIES.get(outcome.status, ""),
            withheld=delivered.withheld,
            files=change.files,
            commit_sha=delivered.commit_sha,
            commit_url=delivered.commit_url,
            pull_number=delivered.pull_number,
            pull_url=delivered.pull_url,
            steps=outcome.steps,
            usage=outcome.usage,
        )
        return self._ending(JobState.DONE if finished else JobState.FAILED, view)

    def _now(self) -> StatusView:
        progress = self._progress
        return replace(
            self._view,
            seconds=time.monotonic() - self._begun,
            activities=progress.activities,
            checks=progress.checks,
            steps=progress.steps,
            usage=progress.usage,
            warning=progress.warning,
            sandbox=f"{self._house.sandbox}, {progress.reach or reach(self._house.network)}"
            + (f", which went away: {progress.network_lost}" if progress.network_lost else ""),
        )

    def _answer(self) -> str:
        """What the bot says to a command that needs no agent."""
        verbs = help_text(trigger=self._house.trigger)
        match self._job.command:
            case Unknown(word=word, nearest=nearest):
                hint = f" Did you mean `{nearest}`?" if nearest else ""
                return f"I know no command `{word}`.{hint}\n\n{verbs}"
            case _:
                return verbs

    def _ending(self, state: JobState, view: StatusView) -> Ending:
        return Ending(state=state, reason=view.reason, view=view)


def _word(job: Job) -> str:
    """The verb as it was written."""
    return job.command.word if isinstance(job.command, Unknown) else job.command.verb
