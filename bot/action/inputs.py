"""Convert the event or the inputs of a workflow run to a job.

The inputs `prompt`, `command` and `recipe` request a job on any event; else a command in the event does. The workflow
file's words are the goal; values of expressions that a stranger can set are quoted, never obeyed.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.action.verified_inputs import verify_inputs
from bot.domain.access import BotProfile
from bot.domain.commands import WORK_VERBS, Edit, StartRecipe, Work
from bot.domain.errors import InputProblem, InputsError, MalformedError
from bot.domain.job import Actor, InputValue, Job, Origin, Repo, Thread, UnverifiedInputs
from bot.events.delivery import (
    Delivery,
    EventPayload,
    Head,
    IgnoredDelivery,
    Issue,
    PayloadPart,
    PullRequest,
    Repository,
    Sender,
    Text,
    from_action,
    job_id,
    parse_payload,
    reject_sender,
)
from bot.events.triggers import job_from
from bot.github.client import GitHub
from bot.github.types import GitHubError
from bot.jobs.access import PhaseReader
from bot.jobs.repo_settings import default_settings
from bot.permissions.levels import BRANCH_PREFIX, own_prefixes
from bot.prompt.brief import MAX_GOAL_CHARS
from bot.publishing.markers import has_marker
from bot.settings.models import ActionSettings

# Its id is another one on each Enterprise Server: https://api.github.com/users/github-actions[bot]
_ACTIONS_LOGIN = "github-actions[bot]"
_MAX_EVENT_BYTES = 25 * 1024 * 1024
_FROM_RUNNER = (
    "GitHub's runner writes it: make sure that no earlier step changes that file or the variable, and run the job "
    "again."
)

WRITERS_ONLY = frozenset({"schedule", "workflow_dispatch", "repository_dispatch", "push", "merge_group"})
"""Events that only people with write access can cause."""
_EVENTS_WITH_HEAD_FILE = frozenset({"pull_request", "pull_request_review", "pull_request_review_comment"})
"""Events whose workflow file is the pull request's own, so a stranger's if it comes from a fork."""
_EVENTS_WITH_WORDS = frozenset({"issue_comment", "pull_request_review", "pull_request_review_comment"})
"""Events with words, by which bots could answer each other without end."""
_EVENTS_OF_OWN_WORK = frozenset({"push", "workflow_run", *_EVENTS_WITH_HEAD_FILE, "pull_request_target"})
"""Events that the bot's own work may cause."""

QUOTED_TASK = (
    "Answer the quoted input of the workflow for the maintainers, as far as reading this repository does. It may be a "
    "stranger's text."
)


log = logging.getLogger(__name__)


async def job_of_run(settings: ActionSettings, github_for: Callable[[], GitHub]) -> Job | IgnoredDelivery:
    """Return the job that the inputs ask for, else the job of a command in the event.

    Raises:
        MalformedError: the event file is invalid.
        ConfigError: the inputs contradict each other or the event.
    """
    delivery, inputs, profile = delivery_from(settings), settings.inputs, profile_from(settings)
    verified = await verify_inputs(settings, delivery, github_for)
    if (unverified := verified.unverified) is not None:
        log.warning("The job only reads, because %s. %s", unverified.because, unverified.remedy)
    if inputs.prompt or inputs.command or inputs.recipe:
        repo_id, login, number = settings.repository_id, settings.actor, settings.actor_id
        request = PromptRequest(
            prompt=verified.goal,
            values=verified.values,
            unverified=verified.unverified,
            command=inputs.command,
            recipe=inputs.recipe,
            base=inputs.base,
            workflow=settings.workflow or "",
            ref=settings.ref or "",
            # Whether it is private is asked of GitHub before anything is published.
            repo=Repo(id=repo_id, full_name=settings.repository, private=False) if repo_id else None,
            actor=Actor(id=number, login=login) if number and login else None,
            branch_prefix=settings.agent.branch_prefix,
            # Several steps of one run may each have a job.
            unique=f"{settings.run_id}:{settings.run_attempt}:{secrets.token_hex(8)}",
        )
        job = job_from_prompt(delivery, request, profile)
        is_change = isinstance(job, Job) and isinstance(job.command, Edit | StartRecipe)
        if is_change and delivery.event in _EVENTS_OF_OWN_WORK:
            try:
                async with github_for() as github:
                    config = await default_settings(PhaseReader(github), settings.repository, inputs.repo_config)
            except GitHubError as error:
                log.warning("the repository's branch prefix is not read: %s", error)
            else:
                prefix = config.branch_prefix or request.branch_prefix
                return job_from_prompt(delivery, replace(request, branch_prefix=prefix), profile)
        return job
    if delivery.event in WRITERS_ONLY:
        return IgnoredDelivery(
            reason=f"the event `{delivery.event}` contains no command, and the input `prompt` is not set. Write "
            "below `with:`: `prompt: What the agent is to do`"
        )
    job = job_from(delivery, profile)
    return replace(job, origin=replace(job.origin, unverified=unverified)) if isinstance(job, Job) else job


def delivery_from(settings: ActionSettings) -> Delivery:
    """Read the event file of the workflow run.

    Raises:
        MalformedError: the file cannot be read, is no JSON object, or is about another repository.
    """
    try:
        with settings.event_path.open("rb") as file:
            content = file.read(_MAX_EVENT_BYTES + 1)
    except OSError as error:
        raise _malformed(settings, f"cannot be read: {error.strerror}") from error
    if len(content) > _MAX_EVENT_BYTES:
        raise _malformed(settings, f"has more than {_MAX_EVENT_BYTES:,} bytes")
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _malformed(settings, f"is not JSON: {error}") from error
    delivery = from_action(
        event=settings.event_name,
        payload=payload,
        run_id=str(settings.run_id),
        run_attempt=str(settings.run_attempt),
    )
    if delivery.event == "schedule" and "repository" not in delivery.data:
        return delivery  # GitHub tells a schedule of its cron line alone
    # The token is good for the workflow's repository alone, so an event about another one is no job of this run.
    repository = delivery.data.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(name, str) or name.lower() != settings.repository.lower():
        raise MalformedError(
            f"The event in {settings.event_path} (GITHUB_EVENT_PATH) is about {name or 'no repository'}, "
            f"and this workflow runs in {settings.repository} (GITHUB_REPOSITORY). {_FROM_RUNNER}"
        )
    return delivery


def _malformed(settings: ActionSettings, fault: str) -> MalformedError:
    return MalformedError(f"The event file {settings.event_path} (GITHUB_EVENT_PATH) {fault}. {_FROM_RUNNER}")


def profile_from(settings: ActionSettings) -> BotProfile:
    return BotProfile(
        triggers=settings.agent.triggers,
        own_login=_ACTIONS_LOGIN,
        trusted_bots=settings.agent.trusted_bots,
        start_label=settings.agent.start_label,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """The request in a workflow's inputs, and the run's context.

    Attributes:
        unverified: set if the inputs may be a stranger's words.
        unique: a text that no other step has.
    """

    prompt: str | None
    command: str | None
    base: str | None
    workflow: str
    ref: str
    repo: Repo | None
    actor: Actor | None
    branch_prefix: str = BRANCH_PREFIX
    unique: str = ""
    recipe: str | None = None
    values: tuple[InputValue, ...] = ()
    unverified: UnverifiedInputs | None = None


def job_from_prompt(delivery: Delivery, request: PromptRequest, profile: BotProfile) -> Job | IgnoredDelivery:
    """Return the job of a prompt, a command or a recipe in the workflow's file.

    The sender's words are quoted, and without write access the run only reads.
    """
    if len(request.prompt or "") > MAX_GOAL_CHARS:
        raise _wrong(f"The input `prompt` must have at most {MAX_GOAL_CHARS:,} characters of its own.", name="prompt")
    place = _target_of_event(delivery, request)
    if isinstance(place, IgnoredDelivery):
        return place
    command = _command(delivery, request, place.thread)
    if (ignored := _reason_to_ignore(delivery, request, place, command, profile)) is not None:
        return ignored
    sender = _sender(delivery)
    actor = sender.actor if sender is not None else request.actor
    if actor is None:
        return IgnoredDelivery(reason="neither the event nor GITHUB_ACTOR names an account for this job")
    return Job(
        id=job_id("workflow", place.repo.id, request.unique or delivery.delivery_id),
        delivery_id=delivery.delivery_id,
        repo=place.repo,
        thread=place.thread,
        actor=actor,
        origin=Origin(
            kind="workflow",
            id=0,
            name=request.workflow,
            vouched=delivery.event in WRITERS_ONLY,
            values=request.values,
            unverified=request.unverified,
        ),
        command=command,
        installation=None,
        trigger=profile.triggers[0],
        head_sha=place.head_sha,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    repo: Repo
    thread: Thread
    head_sha: str = ""
    head: str = ""
    from_fork: bool = False


def _target_of_event(delivery: Delivery, request: PromptRequest) -> _Target | IgnoredDelivery:
    if "pull_request" in delivery.data:
        event = parse_payload(_OfPull, delivery)
        if isinstance(event, IgnoredDelivery):
            return event
        head = event.pull_request.head
        return _Target(
            repo=event.repository.repo,
            thread=event.pull_request.thread,
            head_sha=head.sha,
            head=head.ref,
            from_fork=head.repo is None or head.repo.id != event.repository.id,
        )
    if "issue" in delivery.data:
        found = parse_payload(_OfIssue, delivery)
        return (
            found
            if isinstance(found, IgnoredDelivery)
            else _Target(repo=found.repository.repo, thread=found.issue.thread)
        )
    repo: Repo | IgnoredDelivery
    if "repository" in delivery.data:
        known = parse_payload(_OfRepository, delivery)
        repo = known if isinstance(known, IgnoredDelivery) else known.repository.repo
    else:  # as for a schedule
        reason = "neither the event nor GITHUB_REPOSITORY_ID names the repository"
        repo = request.repo or IgnoredDelivery(reason=reason)
    if isinstance(repo, IgnoredDelivery):
        return repo
    return (_target_of_workflow_run if delivery.event == "workflow_run" else _target_of_ref)(delivery, request, repo)


def _target_of_ref(delivery: Delivery, request: PromptRequest, repo: Repo) -> _Target | IgnoredDelivery:
    if delivery.event == "push" and delivery.data.get("deleted") is True:
        return IgnoredDelivery(reason="the push deleted its branch")
    ref = request.ref.removeprefix("refs/heads/") if request.ref.startswith("refs/heads/") else ""
    branch = request.base or ref or _default_branch(delivery)
    if not branch:
        raise _wrong(
            f"The workflow runs on `{request.ref or 'no ref'}`, which is not a branch, and the input `base` is empty. "
            "Name the branch to work on.",
            name="base",
            line="base: main",
        )
    return _Target(repo=repo, thread=Thread.of_branch(branch), head=ref)


def _target_of_workflow_run(delivery: Delivery, request: PromptRequest, repo: Repo) -> _Target | IgnoredDelivery:
    """Return the branch of another workflow's run; its name proves nothing if the run was a fork's."""
    event = parse_payload(_OfRun, delivery)
    if isinstance(event, IgnoredDelivery):
        return event
    run = event.workflow_run
    if run.head_repository is None or run.head_repository.id != repo.id:
        return IgnoredDelivery(reason="the workflow ran for a fork, whose branches are not supported")
    branch = request.base or run.head_branch or _default_branch(delivery)
    if not branch:
        return IgnoredDelivery(reason="the workflow run names no branch")
    return _Target(repo=repo, thread=Thread.of_branch(branch), head=run.head_branch or "")


def _default_branch(delivery: Delivery) -> str:
    repository: Mapping[str, Any] = delivery.data.get("repository") or {}
    branch = repository.get("default_branch")
    about_a_ref = delivery.event in {"push", "workflow_dispatch", "create", "delete"}
    return branch if isinstance(branch, str) and not about_a_ref else ""


def _command(delivery: Delivery, request: PromptRequest, thread: Thread) -> Work | StartRecipe:
    verb, goal = request.command or "fix", request.prompt or ""
    if request.recipe and request.command:
        raise _wrong(
            "The inputs `recipe` and `command` exclude each other: the recipe itself says what becomes of its result. "
            "Remove one of them.",
            name="command",
        )
    if request.recipe:
        return StartRecipe(name=request.recipe, words=goal)
    if request.unverified is not None and (goal or request.values):
        verb = "ask" if verb in {"fix", "resolve", "test"} else verb
        goal = goal or ("" if verb in {"explain", "review", "describe"} else QUOTED_TASK)
    if not goal and (verb == "ask" or (thread.kind == "branch" and verb in {"fix", "plan"})):
        raise _wrong(
            f"The input `command` is `{verb}` and the input `prompt` is empty, and the event `{delivery.event}` does "
            f"not say what to {verb}.",
            name="prompt",
            line="prompt: Say what changed since the last release.",
        )
    if verb in {"review", "describe", "resolve"} and thread.kind != "pull":
        raise _wrong(
            f"The input `command` is `{verb}`, and the event `{delivery.event}` has no pull request. Run the "
            "workflow on `pull_request`, or choose another command.",
            name="command",
            line="command: explain",
        )
    return WORK_VERBS[verb](goal=goal)


def _reason_to_ignore(
    delivery: Delivery, request: PromptRequest, place: _Target, command: Work | StartRecipe, profile: BotProfile
) -> IgnoredDelivery | None:
    if place.from_fork and delivery.event in _EVENTS_WITH_HEAD_FILE:
        return IgnoredDelivery(
            reason=f"on `{delivery.event}` the workflow file is the pull request's own, and this one comes from a "
            "fork; to support forks, run the workflow on `pull_request_target`"
        )
    is_own = not place.from_fork and place.head.startswith(own_prefixes(request.branch_prefix))
    if is_own and isinstance(command, Edit | StartRecipe) and delivery.event in _EVENTS_OF_OWN_WORK:
        return IgnoredDelivery(reason=f"`{place.head}` is one of the bot's own branches, which a person decides about")
    sender = _sender(delivery)
    if delivery.event in WRITERS_ONLY or sender is None:
        return None
    said = delivery.data.get("comment") or delivery.data.get("review") or {}
    if delivery.event == "issues" and delivery.action == "opened":  # perhaps by an action, with a person's token
        said = delivery.data.get("issue") or {}
    if has_marker(str(said.get("body") if isinstance(said, dict) else "")):
        return IgnoredDelivery(reason="the text is the bot's own")
    if profile.is_own(sender.id, sender.login) or delivery.event in _EVENTS_WITH_WORDS:
        return reject_sender(sender, profile)
    return None


def _wrong(text: str, *, name: str, line: str = "") -> InputsError:
    return InputsError((InputProblem(text=text, input=name, line=line),))


def _sender(delivery: Delivery) -> Sender | None:
    if "sender" not in delivery.data:
        return None
    event = parse_payload(_OfSender, delivery)
    return None if isinstance(event, IgnoredDelivery) else event.sender


class _RepoId(PayloadPart):
    id: int


class _Head(Head):
    ref: Text = ""
    repo: _RepoId | None = None


class _Pull(PullRequest):
    head: _Head


class _OfPull(EventPayload):
    pull_request: _Pull


class _OfIssue(EventPayload):
    issue: Issue


class _OfRepository(PayloadPart):
    repository: Repository


class _OfSender(PayloadPart):
    sender: Sender


class _Run(PayloadPart):
    head_branch: Text | None = None
    head_repository: _RepoId | None = None


class _OfRun(PayloadPart):
    workflow_run: _Run
