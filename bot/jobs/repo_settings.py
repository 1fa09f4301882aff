"""The settings of a repository: its own file on the base branch over that of its organisation, and its recipes.

An invalid file is reported, and strict defaults replace it. `fetch_repo_settings` reads what a job on a commit goes by,
`lately_on_default_branch` what counts for events, at most a minute old.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent_runtime import INSTRUCTION_FILES, SettingsError, require_output_schema
from bot.domain.commands import RECIPE_DIR, recipe_path
from bot.domain.errors import WrongInputError
from bot.git.errors import WorkspaceError
from bot.git.mirror import Blob, Source
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.types import FileTooLargeError
from bot.jobs.access import PhaseReader
from bot.jobs.context import CONFIG_SECONDS, JobContext
from bot.jobs.setup import RepoSettings
from bot.permissions.repo_config import (
    MAX_BYTES,
    MAX_RECIPES,
    ORGANISATION_PATH,
    OTHER_SPELLING,
    PATH,
    Recipe,
    RecipeError,
    RepoConfig,
    RepoConfigError,
    fallback_config,
    merge_configs,
    parse_config,
    parse_recipe,
    recipe_too_large,
)

log = logging.getLogger(__name__)
SKILL_FOLDERS = (".claude/skills", ".github/skills", ".codepilot/skills")
"""Where the library looks for skills, too."""
_MOST_SKILLS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedSettings:
    """What is asked for, as far as it could be read.

    Attributes:
        asked: the configuration, and where it is from.
        warning: what is wrong with the files, for the comment; empty when nothing is.
    """

    asked: RepoSettings
    warning: str = ""


async def fetch_repo_settings(  # noqa: PLR0917 - what is asked of two places
    reader: PhaseReader, workspaces: Workspaces, repo: str, repo_id: int, base: Source, path: str = PATH
) -> FetchedSettings:
    """Read the files; an invalid one is reported, and strict defaults replace it.

    Args:
        reader: for the organisation's file.
        workspaces: where git's objects are, for the repository's own.
        repo: `owner/name`.
        repo_id: GitHub's numeric id.
        base: the base branch's commit.
        path: where the repository's own file is.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
        WorkspaceError: the commit could not be fetched.
    """
    organisation, problem = await _organisation(reader, repo)
    own = await asked_by(workspaces, repo_id, base, path)
    config = merge_configs(organisation, own.asked.config)
    warning = "\n\n".join(filter(None, (problem, own.warning)))
    return FetchedSettings(asked=replace(own.asked, config=config), warning=warning)


async def asked_by(workspaces: Workspaces, repo_id: int, base: Source, path: str = PATH) -> FetchedSettings:
    """What the base branch itself says, through the trusted git directory.

    Raises:
        WorkspaceError: the commit could not be fetched, or what is there is not a file.
    """
    other = OTHER_SPELLING if path == PATH else ""
    paths = tuple(filter(None, (path, other, *INSTRUCTION_FILES)))
    found = await workspaces.read_each(repo_id, base, paths, limit=MAX_BYTES)
    blobs: dict[str, Blob | None] = {}
    for name, read in found.items():
        if not isinstance(read, WorkspaceError):
            blobs[name] = read
        elif name == path or (name == other and found[path] is None):
            raise read
        elif name != other:  # often a link to the other one
            log.info("repository %d: %s is not read: %s", repo_id, name, read)
    file = blobs[path]
    if blobs.pop(other, None) is not None and file is None:
        config, wrong = fallback_config(), f"`{OTHER_SPELLING}` is not read; rename it to `{PATH}`."
    else:
        config, wrong = await _read(file.content if file else None, path)
    if path != PATH:  # what is built in protects the usual place alone
        config = config.model_copy(update={"path": path, "protected": (*config.protected, path)})
    texts = {name: blob.content.decode("utf-8", "replace") for name, blob in blobs.items() if blob and name != path}
    skills = await workspaces.read_many(
        repo_id,
        base,
        [f"{folder}/*/SKILL.md" for folder in SKILL_FOLDERS],
        most=_MOST_SKILLS,
        limit=MAX_BYTES,
    )
    ids = {name: blob.id if blob else None for name, blob in {**blobs, **skills}.items()}
    asked = RepoSettings(
        config=config,
        base_sha=base.sha,
        instructions=texts,
        skills={name: blob.content.decode("utf-8", "replace") for name, blob in skills.items()},
        blobs=ids,
    )
    return FetchedSettings(asked=asked, warning=wrong)


async def on_default_branch(reader: PhaseReader, repo: str, path: str = PATH) -> RepoConfig:
    """The configuration of the default branch, for what happens without a command; defaults for what does not fit."""
    organisation, _ = await _organisation(reader, repo)
    return merge_configs(organisation, (await _parsed(reader, repo, path))[0].model_copy(update={"path": path}))


async def lately_on_default_branch(context: JobContext) -> RepoConfig:
    """The same, at most a minute old: of a storm of events one asks GitHub."""
    known, repo = context.services.configs, context.job.repo
    async with known.reading(repo.id):
        config = known.of(repo.id) or await context.ledger.config(repo.id)
        if config is None:
            path = context.services.conventions.repo_file
            config = await on_default_branch(PhaseReader(context.github), repo.full_name, path)
            found = await find_recipes(context.github, repo.full_name)
            config = config.with_recipes([each.head for each in found.recipes], found.problems)
            if context.services.schedules is not None and context.job.installation is not None:
                await context.services.schedules.save(repo, context.job.installation, crons_of(config.recipes))
            known.learn(repo.id, config)
            await context.ledger.save_config(repo.id, config, seconds=CONFIG_SECONDS)
    return config


async def _organisation(reader: PhaseReader, repo: str) -> tuple[RepoConfig, str]:
    owner = repo.partition("/")[0]
    return await _parsed(reader, f"{owner}/.github", ORGANISATION_PATH)


async def _parsed(reader: PhaseReader, repo: str, path: str) -> tuple[RepoConfig, str]:
    try:
        return await _read(await reader.file_at(repo, path), f"{repo}: {path}")
    except FileTooLargeError as error:
        return fallback_config(), str(error)


async def _read(content: bytes | None, source: str) -> tuple[RepoConfig, str]:
    """What a file says, and what is wrong with it."""
    if content is None:
        return RepoConfig(), ""
    try:
        return await asyncio.to_thread(partial(parse_config, content, source=source)), ""
    except RepoConfigError as error:
        log.warning("a configuration is not valid: %s", error)
        return fallback_config(), str(error)


_MAX_BYTES = 256 * 1024


async def output_schema_of(context: JobContext, repo_id: int, base: Source) -> dict[str, Any] | None:
    """The schema that results must fit, from the input itself or from the base branch's commit; None for no schema.

    Raises:
        WrongInputError: the commit has no such file, or it is no JSON schema.
        WorkspaceError: what is there is not a file, or is too long.
    """
    wanted = context.services.conventions.output_schema
    if wanted is None or isinstance(wanted, Mapping):
        return None if wanted is None else dict(wanted)
    place = f"The input `output-schema` names `{wanted}`"
    file = await context.services.workspaces.read(repo_id, base, wanted, limit=_MAX_BYTES)
    if file is None:
        raise WrongInputError(f"{place}, which is not in commit {base.sha[:10]} of the base branch. Commit it there.")
    try:
        schema = json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise WrongInputError(f"{place}, which is not JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise WrongInputError(f"{place}, which is not a JSON object.")
    try:
        await require_output_schema(schema)
    except SettingsError as error:
        raise WrongInputError(f"{place}. {error}") from error
    return schema


_SUFFIX = ".md"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecipes:
    """What the folder of recipes holds.

    Attributes:
        recipes: those that can be used, by name.
        problems: what is wrong with the others, with file, line and key.
    """

    recipes: tuple[Recipe, ...] = ()
    problems: tuple[str, ...] = ()


async def find_recipes(github: GitHub, repo: str) -> FoundRecipes:
    """Read all recipes; an invalid one is reported, and the others count.

    Raises:
        GitHubError: GitHub failed in a way that may pass.
    """
    recipes: list[Recipe] = []
    problems: list[str] = []
    files = {
        name: file
        for name, file in (await github.repos.files_in(repo, RECIPE_DIR)).items()
        if name.endswith(_SUFFIX) and name.casefold() != "readme.md"
    }
    looked_at = sorted(files)[:MAX_RECIPES]
    small = [files[name].sha for name in looked_at if files[name].size <= MAX_BYTES]
    contents = await github.repos.contents_of(repo, small)
    for name in (each.removesuffix(_SUFFIX) for each in looked_at):
        file = files[f"{name}{_SUFFIX}"]
        try:
            if file.size > MAX_BYTES:
                raise recipe_too_large(name, file.size)
            if (content := contents.get(file.sha)) is None:  # no UTF-8, or removed meanwhile
                recipe = await find_recipe(github, repo, name)
            else:
                recipe = await asyncio.to_thread(parse_recipe, content, name)
        except RecipeError as error:
            problems.append(str(error))
            continue
        if recipe is None:  # removed meanwhile
            continue
        label = recipe.on.label
        if label and (first := next((each.name for each in recipes if each.is_started_by(label)), "")):
            problems.append(f"{recipe_path(name)}: `on.label`: {label!r} starts the recipe {first!r} already.")
        else:
            recipes.append(recipe)
    if len(files) > MAX_RECIPES:
        problems.append(f"{RECIPE_DIR}: has {len(files)} recipes, and only the first {MAX_RECIPES} by name are read.")
    return FoundRecipes(recipes=tuple(recipes), problems=tuple(problems))


async def find_recipe(github: GitHub, repo: str, name: str) -> Recipe | None:
    """Read one recipe; None where there is none of that name.

    Raises:
        RecipeError: it does not fit.
        GitHubError: GitHub failed in a way that may pass.
    """
    try:
        content = await github.repos.file_at(repo, recipe_path(name))
    except FileTooLargeError as error:
        raise recipe_too_large(name, error.size) from error
    return None if content is None else await asyncio.to_thread(parse_recipe, content, name)


def crons_of(recipes: Iterable[Recipe]) -> dict[str, str]:
    """The schedules of recipes, by name."""
    return {each.name: each.on.schedule for each in recipes if each.on.schedule}
