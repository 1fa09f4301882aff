"""Jobs that carry out recipes of the repository: started by a command, a label, a schedule or a workflow run.

The recipe is read from the default branch once more when it starts. The job that starts it stores a second job, which
does the work within the recipe's limits.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from bot.domain.commands import RECIPE_DIR, ChecksFailed, Options, RecipeDue, StartRecipe, Work, recipe_path
from bot.domain.job import Actor, Job, JobState, Origin, OriginKind, Thread
from bot.events.delivery import job_id
from bot.jobs.access import ReplacedRepositoryError
from bot.jobs.context import Ending, JobContext
from bot.jobs.repo_settings import find_recipe, lately_on_default_branch
from bot.permissions.levels import Refusal
from bot.permissions.repo_config import Recipe, RecipeError, RepoConfig
from bot.publishing.markdown import code


async def start_recipe(context: JobContext, command: StartRecipe) -> Refusal | None:
    """Begin the job of a recipe that somebody named; or say why not.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    job, name = context.job, command.name
    try:
        recipe = await find_recipe(context.github, job.repo.full_name, name)
    except RecipeError as error:
        return _not_valid(name, str(error).splitlines())
    config = await lately_on_default_branch(context)
    if recipe is None:
        known = [each.name for each in config.recipes]
        hint = "".join(f" Did you mean {code(each)}?" for each in get_close_matches(name, known, n=1, cutoff=0.5))
        more = f"{code(f'{job.trigger} help')} lists all; for a task in your own words, use `fix`, `ask` or `test`."
        reason = f"There is no recipe {code(name)} in {code(RECIPE_DIR)} on the default branch.{hint} {more}"
        return Refusal(cause="recipe-unknown", variant=name, reason=reason)
    # Its own file is valid, but it is refused beside the repository's other files, as for its label.
    if problems := [each for each in config.recipe_problems if each.startswith(f"{recipe_path(name)}:")]:
        return _not_valid(name, problems)
    # Who wrote a workflow's file names the recipe there, and needs no event of the recipe's own.
    if job.origin.kind != "workflow" and not recipe.on.comment:
        remedy = "Write `comment: true` below its `on:` to allow that."
        reason = f"The recipe {code(name)} cannot be started by a comment. {remedy}"
        return Refusal(cause="recipe-comment", variant=name, reason=reason)
    made = recipe_job(job, recipe, words=command.words, options=command.options)
    await begin(context, await _where_it_reports(context, recipe, made))
    return None


def _not_valid(name: str, problems: list[str]) -> Refusal:
    reason = f"The recipe {code(name)} is not valid:\n\n{listed(problems)}"
    # By its text, so that a person who corrects one mistake after the other sees each.
    return Refusal(cause="recipe-invalid", variant=reason, reason=reason)


async def start_scheduled(context: JobContext, command: RecipeDue) -> Ending:
    """Begin the job of a recipe that is due, if its file still says so.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    config = await lately_on_default_branch(context)  # which keeps what the files say now
    head = next((each for each in config.recipes if each.name == command.name and each.on.schedule), None)
    if head is None:
        return Ending(state=JobState.DONE, reason=f"the recipe {command.name} has no schedule any more")
    await _begin_unasked(context, head)
    return Ending(state=JobState.DONE)


async def start_after_run(context: JobContext, run: ChecksFailed, config: RepoConfig) -> None:
    """Begin the job of each recipe that follows a workflow run that ended red on the default branch.

    At most once an hour, for a comment of ours may start that workflow again. A workflow's step is told its recipe.
    """
    if not run.run_id or run.pull or run.fork or not context.services.is_long_running:
        return
    for head in config.recipes:
        on = head.on.workflow_run
        follows = on is not None and run.name in on.workflows and run.conclusion in on.conclusions
        if follows:
            await _begin_unasked(context, head, run)


async def start_labelled(context: JobContext, label: str, asked: Job) -> None:
    """Begin the job of each recipe that a label starts.

    Args:
        context: of the event.
        label: its name.
        asked: the event's job, with the words of the thread that the label was set on.
    """
    for head in (await lately_on_default_branch(context)).recipes:
        if not head.is_started_by(label):
            continue
        try:
            recipe = await find_recipe(context.github, asked.repo.full_name, head.name)
        except RecipeError:  # it was changed just now; `help` tells what is wrong
            continue
        if recipe is not None and recipe.is_started_by(label):
            await begin(context, recipe_job(asked, recipe, kind="label"))


async def _begin_unasked(context: JobContext, head: Recipe, run: ChecksFailed | None = None) -> None:
    """Begin a job that the file on the default branch asks for, and nobody else.

    Raises:
        ReplacedRepositoryError: the name belongs to another repository now.
        GitHubError: GitHub failed in a way that may pass.
    """
    repo = context.job.repo
    now, me = await context.github.repos.get(repo.full_name), await context.github.accounts.me()
    if now.id != repo.id:
        raise ReplacedRepositoryError(f"{repo.full_name} is no longer the repository that has the recipe.")
    try:
        recipe = await find_recipe(context.github, now.full_name, head.name)
    except RecipeError:  # it was changed just now; `help` tells what is wrong
        return
    if recipe is None or now.archived or not (recipe.on.workflow_run if run else recipe.on.schedule):
        return
    asked = replace(
        context.job,
        repo=replace(repo, private=now.private),
        thread=Thread.of_branch(now.default_branch),
        actor=Actor(id=me.id, login=me.login),
        others=(),
        origin=Origin(kind="recipe", id=run.run_id if run else 0, name=recipe.name, vouched=True),
        head_sha="",
    )
    job = recipe_job(asked, recipe)
    if run is not None and not await context.ledger.may_tell(repo.id, 0, f"recipe {recipe.name}", by=context.job.id):
        return
    await begin(context, await _where_it_reports(context, recipe, job))


async def _where_it_reports(context: JobContext, recipe: Recipe, job: Job) -> Job:
    """The job in its thread; for a comment on a branch alone, in an issue of the recipe's own, opened where none is."""
    command = job.command
    if job.thread.has_comments or recipe.publish != "comment" or not isinstance(command, Work):
        return job
    repo, mark = context.job.repo.full_name, f"<!-- codepilot:recipe={recipe.name} -->"
    number = await context.github.threads.own_issue(repo, await context.github.accounts.me(), mark)
    if number is None:
        text = (
            f"The recipe {code(recipe.name)} ({code(recipe_path(recipe.name))}) reports here. Close this issue "
            f"to have the next report open a new one.\n\n{mark}"
        )
        number = await context.github.threads.open_issue(repo, title=f"Codepilot recipe: {recipe.name}", body=text)
    # The branch stays the one that it is about.
    there = replace(command, options=replace(command.options, base=job.thread.branch))
    return replace(job, thread=Thread.from_number("issue", number), command=there)


def recipe_job(
    asked: Job, recipe: Recipe, *, words: str = "", options: Options | None = None, kind: OriginKind | None = None
) -> Job:
    """The job that carries out a recipe; the same for every delivery of what asked for it.

    Args:
        asked: the command or event.
        recipe: the recipe.
        words: of the person who asked.
        options: of the command.
        kind: what the job comes from, where that is not what `asked` does.
    """
    return replace(
        asked,
        id=job_id("recipe", asked.repo.id, f"{asked.id}:{recipe.name}"),
        delivery_id=f"{asked.delivery_id}.{recipe.name}",
        command=recipe.command(words, options),
        origin=replace(asked.origin, kind=kind or asked.origin.kind),
        recipe=recipe.bounds,
    )


async def begin(context: JobContext, job: Job, *, held_seconds: float = 0.0) -> None:
    """Store a job that this one leads to."""
    await context.queue.accept(job, held_seconds=held_seconds)
    await context.record.update(lambda record: replace(record, leads_to=job.id))


async def recipes_text(context: JobContext) -> str:
    """The recipes of a repository as Markdown, for the help; empty where there is none."""
    config, trigger = await lately_on_default_branch(context), context.job.trigger
    lines = []
    for each in config.recipes:
        on = each.on
        starts = [
            f"`{trigger} run {each.name}`" if on.comment else "",
            f"label {code(on.label)}" if on.label else "",
            f"schedule {code(on.schedule)} (UTC)" if on.schedule else "",
            f"workflow {', '.join(map(code, on.workflow_run.workflows))}" if on.workflow_run else "",
        ]
        said = f" {each.description.rstrip('.')}." if each.description else ""
        lines.append(f"{code(each.name)}:{said} Started by {', '.join(filter(None, starts))}.")
    lines += [f"Not valid: {code(line)}" for problem in config.recipe_problems for line in problem.splitlines()]
    return f"**Recipes** in `{RECIPE_DIR}`\n\n{listed(lines)}" if lines else ""


def listed(lines: list[str]) -> str:
    """Lines as a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)
