"""Start recipes of the repository: by a command, a label, a schedule or a workflow run.

The recipe is read again from the default branch. A second job does the work within the recipe's limits.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from difflib import get_close_matches

from bot.domain.commands import RECIPE_DIR, WORK_VERBS, ChecksFailed, Options, RecipeDue, StartRecipe, Work, recipe_path
from bot.domain.job import Actor, Job, Origin, OriginKind, Thread
from bot.domain.spend import FORECAST_DAYS, count_starts, forecast, typical_cost
from bot.events.delivery import job_id
from bot.jobs.access import ReplacedRepositoryError
from bot.jobs.context import JobContext
from bot.jobs.repo_settings import cached_default_settings, find_recipe
from bot.permissions.levels import Refusal
from bot.permissions.repo_config import BUILT_IN_RECIPES, Recipe, RecipeError, RepoConfig, built_in_recipe
from bot.publishing.markdown import code
from bot.publishing.outcome import Finished, JobOutcome


async def start_recipe(context: JobContext, command: StartRecipe) -> Refusal | None:
    """Start the job of a recipe for a command, or refuse.

    Raises:
        GitHubError: a request failed.
    """
    job, name = context.job, command.name
    try:
        recipe = await find_recipe(context.github, job.repo.full_name, name) or built_in_recipe(name)
    except RecipeError as error:
        return _not_valid(name, str(error).splitlines())
    if recipe is not None and recipe is built_in_recipe("split") and job.thread.kind != "issue":
        return Refusal(cause="no-issue", reason="Only an issue has sub-issues. Use `split` on an issue.")
    config = await cached_default_settings(context)
    if recipe is None:
        known = [*(entry.name for entry in config.recipes), *BUILT_IN_RECIPES]
        hint = "".join(f" Did you mean {code(similar)}?" for similar in get_close_matches(name, known, n=1, cutoff=0.5))
        more = f"{code(f'{job.trigger} help')} lists all; for a task in your own words, use `fix`, `ask` or `test`."
        reason = f"There is no recipe {code(name)} in {code(RECIPE_DIR)} on the default branch.{hint} {more}"
        return Refusal(cause="recipe-unknown", variant=name, reason=reason)
    # Its own file is valid, but it is refused beside the repository's other files, as for its label.
    if problems := [problem for problem in config.recipe_problems if problem.startswith(f"{recipe_path(name)}:")]:
        return _not_valid(name, problems)
    # Who wrote a workflow's file names the recipe there, and needs no event of the recipe's own.
    if job.origin.kind != "workflow" and not recipe.on.comment:
        remedy = "Write `comment: true` below its `on:` to allow that."
        reason = f"The recipe {code(name)} cannot be started by a comment. {remedy}"
        return Refusal(cause="recipe-comment", variant=name, reason=reason)
    follow_up = recipe_job(job, recipe, words=command.words, options=command.options)
    await enqueue(context, await _assign_thread(context, recipe, follow_up))
    return None


def _not_valid(name: str, problems: list[str]) -> Refusal:
    reason = f"The recipe {code(name)} is not valid:\n\n{markdown_list(problems)}"
    # By its text, so that a person who corrects one mistake after the other sees each.
    return Refusal(cause="recipe-invalid", variant=reason, reason=reason)


async def start_scheduled(context: JobContext, command: RecipeDue) -> JobOutcome:
    """Start the job of a due recipe, if its schedule still exists.

    Raises:
        GitHubError: a request failed.
    """
    config = await cached_default_settings(context)  # which keeps what the files say now
    head = next((recipe for recipe in config.recipes if recipe.name == command.name and recipe.on.schedule), None)
    if head is None:
        return Finished(reason=f"the recipe {command.name} has no schedule any more", is_silent=True)
    await _start_automatic(context, head)
    return Finished(is_silent=True)


async def start_after_run(context: JobContext, run: ChecksFailed, config: RepoConfig) -> None:
    """Start the job of each recipe that follows a failed workflow run on the default branch.

    At most once an hour: the bot's comment may start that workflow again.
    """
    if not run.run_id or run.pull or run.fork or not context.services.is_long_running:
        return
    for head in config.recipes:
        trigger = head.on.workflow_run
        follows = trigger is not None and run.name in trigger.workflows and run.conclusion in trigger.conclusions
        if follows:
            await _start_automatic(context, head, run)


async def start_for_label(context: JobContext, label: str, event_job: Job) -> None:
    """Start the job of each recipe with a label; `event_job` has the thread's text."""
    for head in (await cached_default_settings(context)).recipes:
        if not head.is_started_by(label):
            continue
        try:
            recipe = await find_recipe(context.github, event_job.repo.full_name, head.name)
        except RecipeError:  # it was changed just now; `help` tells what is wrong
            continue
        if recipe is not None and recipe.is_started_by(label):
            await enqueue(context, recipe_job(event_job, recipe, kind="label"))


async def _start_automatic(context: JobContext, head: Recipe, run: ChecksFailed | None = None) -> None:
    """Start a job that only the file on the default branch requests."""
    repo = context.job.repo
    facts, me = await context.github.repos.get(repo.full_name), await context.github.accounts.me()
    if facts.id != repo.id:
        raise ReplacedRepositoryError(f"{repo.full_name} is no longer the repository that has the recipe.")
    try:
        recipe = await find_recipe(context.github, facts.full_name, head.name)
    except RecipeError:  # it was changed just now; `help` tells what is wrong
        return
    if recipe is None or facts.archived or not (recipe.on.workflow_run if run else recipe.on.schedule):
        return
    base = replace(
        context.job,
        repo=replace(repo, private=facts.private),
        thread=Thread.of_branch(facts.default_branch),
        actor=Actor(id=me.id, login=me.login),
        other_actors=(),
        origin=Origin(kind="recipe", id=run.run_id if run else 0, name=recipe.name, vouched=True),
        head_sha="",
    )
    job = recipe_job(base, recipe)
    if run is not None and not await context.ledger.claim_notice(
        repo.id, 0, f"recipe {recipe.name}", by=context.job.id
    ):
        return
    await enqueue(context, await _assign_thread(context, recipe, job))


async def _assign_thread(context: JobContext, recipe: Recipe, job: Job) -> Job:
    """Move a job whose comment has no thread to the recipe's own issue; open one if needed."""
    command = job.command
    if job.thread.has_comments or recipe.publish != "comment" or not isinstance(command, Work):
        return job
    repo, mark = context.job.repo.full_name, f"<!-- codepilot:recipe={recipe.name} -->"
    number = await context.github.threads.find_own_issue(repo, await context.github.accounts.me(), mark)
    if number is None:
        text = (
            f"The recipe {code(recipe.name)} ({code(recipe_path(recipe.name))}) reports here. Close this issue "
            f"to have the next report open a new one.\n\n{mark}"
        )
        number = await context.github.threads.open_issue(repo, title=f"Codepilot recipe: {recipe.name}", body=text)
    # The branch stays the one that it is about.
    moved = replace(command, options=replace(command.options, base=job.thread.branch))
    return replace(job, thread=Thread.from_number("issue", number), command=moved)


def recipe_job(
    source: Job, recipe: Recipe, *, words: str = "", options: Options | None = None, kind: OriginKind | None = None
) -> Job:
    """Return the job for a recipe; its id is the same for every delivery of an event."""
    return replace(
        source,
        id=job_id("recipe", source.repo.id, f"{source.id}:{recipe.name}"),
        delivery_id=f"{source.delivery_id}.{recipe.name}",
        command=recipe.command(words, options),
        origin=replace(source.origin, kind=kind or source.origin.kind),
        recipe=recipe.bounds,
    )


async def enqueue(context: JobContext, job: Job, *, held_seconds: float = 0.0) -> None:
    await context.queue.accept(job, held_seconds=held_seconds)
    await context.record.update(lambda record: replace(record, leads_to=job.id))


async def recipes_text(context: JobContext) -> str:
    config, trigger = await cached_default_settings(context), context.job.trigger
    lines = []
    for recipe in config.recipes:
        events = recipe.on
        starts = [
            f"`{trigger} run {recipe.name}`" if events.comment else "",
            f"label {code(events.label)}" if events.label else "",
            f"schedule {code(events.schedule)} (UTC)" if events.schedule else "",
            f"workflow {', '.join(map(code, events.workflow_run.workflows))}" if events.workflow_run else "",
        ]
        description = f" {recipe.description.rstrip('.')}." if recipe.description else ""
        cost = await recipe_cost_text(context, recipe.name, events.schedule)
        lines.append(f"{code(recipe.name)}:{description} Started by {', '.join(filter(None, starts))}.{cost}")
    lines += [f"Not valid: {code(line)}" for problem in config.recipe_problems for line in problem.splitlines()]
    return f"**Recipes** in `{RECIPE_DIR}`\n\n{markdown_list(lines)}" if lines else ""


async def typical_costs_text(context: JobContext) -> str:
    """Return the help text about usual costs of commands in this repository; empty without earlier runs."""
    spending, repo_id = context.services.spending, context.job.repo.id
    if spending is None:
        return ""
    texts = [(verb, typical_cost(await spending.recent_costs(repo_id, verb=verb))) for verb in WORK_VERBS]
    lines = [f"- {code(verb)}: {text}" for verb, text in texts if text]
    return "\n".join(["**Usual cost of a run here**, of the last 50\n", *lines]) if lines else ""


async def recipe_cost_text(context: JobContext, recipe: str, cron: str | None) -> str:
    """Return the usual cost of a recipe and, on a schedule, the expected cost; empty without earlier runs."""
    spending = context.services.spending
    costs = () if spending is None else await spending.recent_costs(context.job.repo.id, recipe=recipe)
    if cron is not None and costs:
        starts = await asyncio.to_thread(count_starts, cron, time.time())
        return f" About {text} in {FORECAST_DAYS} days." if (text := forecast(costs, starts)) else ""
    return f" Usual cost: {text}." if (text := typical_cost(costs)) else ""


def markdown_list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
