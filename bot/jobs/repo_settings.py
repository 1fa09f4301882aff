"""The settings of a repository, merged with its organisation's, and its recipes.

Use `fetch_repo_settings` for a job's commit, `cached_default_settings` for events. Strict defaults replace an invalid
file, which is reported.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from agent_runtime import SettingsError, require_output_schema
from bot.domain.commands import RECIPE_DIR, recipe_path
from bot.domain.errors import WrongInputError
from bot.git.errors import WorkspaceError
from bot.git.mirror import Source
from bot.git.workspace import Workspaces
from bot.github.client import GitHub
from bot.github.types import FileTooLargeError, GitHubError
from bot.jobs.access import PhaseReader
from bot.jobs.agent_files import read_agent_files
from bot.jobs.context import CONFIG_SECONDS, JobContext
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import own_prefixes
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
from bot.publishing import pull_template
from bot.publishing.pull_template import choose_template

log = logging.getLogger(__name__)
_MAX_TITLES, _MAX_TEMPLATES = 50, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedSettings:
    settings: RepoSettings
    warning: str = ""


async def fetch_repo_settings(  # noqa: PLR0917 - what is asked of two places
    reader: PhaseReader, workspaces: Workspaces, repo: str, repo_id: int, base: Source, path: str = PATH
) -> FetchedSettings:
    """Read the settings at a commit.

    Raises:
        GitHubError: a request failed.
        WorkspaceError: the commit could not be fetched.
    """
    organisation, problem = await _organisation(reader, repo)
    own = await read_settings_at(workspaces, repo_id, base, path)
    config = merge_configs(organisation, own.settings.config)
    warning = "\n\n".join(filter(None, (problem, own.warning)))
    return FetchedSettings(settings=replace(own.settings, config=config), warning=warning)


async def read_settings_at(workspaces: Workspaces, repo_id: int, base: Source, path: str = PATH) -> FetchedSettings:
    """Read the base branch's settings from the trusted git directory.

    Raises:
        WorkspaceError: the commit could not be fetched, or a path is not a file.
    """
    other = OTHER_SPELLING if path == PATH else ""
    files = await workspaces.read_each(repo_id, base, [*filter(None, (path, other))], limit=MAX_BYTES)
    file = files[path]
    if isinstance(file, WorkspaceError):
        raise file
    if file is None and (spelled := files.get(other)) is not None:
        if isinstance(spelled, WorkspaceError):
            raise spelled
        config, warning = fallback_config(), f"`{OTHER_SPELLING}` is not read; rename it to `{PATH}`."
    else:
        config, warning = await _parse(file.content if file else None, path)
    agent_files = await read_agent_files(workspaces, repo_id, base)
    # The built-in list has the names of the conventions, and of the usual configuration.
    protected = [*map(_escape_glob, agent_files.followed), *([path] if path != PATH else [])]
    if protected:
        config = config.model_copy(update={"path": path, "protected": (*config.protected, *protected)})
    settings = RepoSettings(
        config=config,
        base_sha=base.sha,
        instructions=agent_files.instructions,
        skills=agent_files.skills,
        personas=agent_files.personas,
        blobs={path: file.id if file else None, **agent_files.blobs},
        titles=await workspaces.read_titles(repo_id, base, most=_MAX_TITLES),
    )
    warning = "\n\n".join(filter(None, (warning, agent_files.warning)))
    return FetchedSettings(settings=settings, warning=warning)


def _escape_glob(path: str) -> str:
    return re.sub(r"[*?[]", r"[\g<0>]", path)


async def default_settings(reader: PhaseReader, repo: str, path: str = PATH) -> RepoConfig:
    """Return the default branch's settings, with defaults for invalid ones."""
    organisation, _ = await _organisation(reader, repo)
    return merge_configs(organisation, (await _fetch_config(reader, repo, path))[0].model_copy(update={"path": path}))


async def cached_default_settings(context: JobContext) -> RepoConfig:
    """Return the default branch's settings from a cache of one minute."""
    cache, repo = context.services.configs, context.job.repo
    async with cache.lock(repo.id):
        config = cache.get(repo.id) or decode_config(await context.ledger.config(repo.id))
        if config is None:
            path = context.services.conventions.repo_file
            config = await default_settings(PhaseReader(context.github), repo.full_name, path)
            recipes = await find_recipes(context.github, repo.full_name)
            config = config.with_recipes([recipe.head for recipe in recipes.recipes], recipes.problems)
            if context.services.schedules is not None and context.job.installation is not None:
                await context.services.schedules.save(repo, context.job.installation, schedules_by_name(config.recipes))
            cache.put(repo.id, config)
            # Unset values stay unset, so that the operator's apply.
            body = config.model_dump_json(exclude_unset=True)
            await context.ledger.save_config(repo.id, body, seconds=CONFIG_SECONDS)
    return config


async def read_own_prefixes(context: JobContext) -> tuple[str, ...]:
    """Return the prefixes of the bot's branches, as the default branch configures them."""
    configured = (await cached_default_settings(context)).branch_prefix
    return own_prefixes(configured or context.services.conventions.branch_prefix)


def decode_config(body: str | None) -> RepoConfig | None:
    """Return a stored configuration; None if there is none, or another version wrote it."""
    try:
        return None if body is None else RepoConfig.model_validate_json(body)
    except ValidationError:
        return None


async def _organisation(reader: PhaseReader, repo: str) -> tuple[RepoConfig, str]:
    owner = repo.partition("/")[0]
    return await _fetch_config(reader, f"{owner}/.github", ORGANISATION_PATH)


async def _fetch_config(reader: PhaseReader, repo: str, path: str) -> tuple[RepoConfig, str]:
    try:
        return await _parse(await reader.file_at(repo, path), f"{repo}: {path}")
    except FileTooLargeError as error:
        return fallback_config(), str(error)


async def _parse(content: bytes | None, source: str) -> tuple[RepoConfig, str]:
    if content is None:
        return RepoConfig(), ""
    try:
        return await asyncio.to_thread(partial(parse_config, content, source=source)), ""
    except RepoConfigError as error:
        log.warning("a configuration is not valid: %s", error)
        return fallback_config(), str(error)


async def find_pull_template(context: JobContext, base: Source) -> str:
    """Return the template for pull requests of the base branch, else of the owner's repository `.github`.

    Raises:
        WorkspaceError: the commit could not be fetched.
    """
    repo, workspaces = context.job.repo, context.services.workspaces
    files = await workspaces.read_many(repo.id, base, pull_template.PATTERNS, most=_MAX_TEMPLATES, limit=MAX_BYTES)
    if files:
        path = choose_template(files)
        return files[path].content.decode("utf-8", "replace") if path else ""
    shared, repos = f"{repo.full_name.partition('/')[0]}/.github", context.github.repos
    try:
        root = await repos.list_entries(shared, "")
        for folder in pull_template.FOLDERS:
            name = folder.rstrip("/")
            listing = root if not name else await repos.list_entries(shared, name) if name in root else {}
            path = choose_template(f"{folder}{name}" for name, file in listing.items() if file.size <= MAX_BYTES)
            if path and (repo.private or not (await repos.get(shared)).private):  # everybody could read it here
                return (await repos.read_file(shared, path) or b"").decode("utf-8", "replace")
    except GitHubError as error:  # the description needs no template
        log.warning("%s: the template for pull requests is not read: %s", shared, error)
    return ""


_MAX_BYTES = 256 * 1024


async def load_output_schema(context: JobContext, repo_id: int, base: Source) -> dict[str, Any] | None:
    """Return the JSON schema for results, from the input or the base branch's commit; None if unset.

    Raises:
        WrongInputError: the file is missing or no JSON schema.
        WorkspaceError: the path is not a file, or too large.
    """
    setting = context.services.conventions.output_schema
    if setting is None or isinstance(setting, Mapping):
        return None if setting is None else dict(setting)
    subject = f"The input `output-schema` names `{setting}`"
    file = await context.services.workspaces.read(repo_id, base, setting, limit=_MAX_BYTES)
    if file is None:
        raise WrongInputError(f"{subject}, which is not in commit {base.sha[:10]} of the base branch. Commit it there.")
    try:
        schema = json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise WrongInputError(f"{subject}, which is not JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise WrongInputError(f"{subject}, which is not a JSON object.")
    try:
        await require_output_schema(schema)
    except SettingsError as error:
        raise WrongInputError(f"{subject}. {error}") from error
    return schema


_SUFFIX = ".md"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeList:
    """The valid recipes, and problems of the others."""

    recipes: tuple[Recipe, ...] = ()
    problems: tuple[str, ...] = ()


async def find_recipes(github: GitHub, repo: str) -> RecipeList:
    recipes: list[Recipe] = []
    problems: list[str] = []
    files = {
        name: file
        for name, file in (await github.repos.list_files(repo, RECIPE_DIR)).items()
        if name.endswith(_SUFFIX) and name.casefold() != "readme.md"
    }
    names = sorted(files)[:MAX_RECIPES]
    small = [files[name].sha for name in names if files[name].size <= MAX_BYTES]
    contents = await github.repos.read_blobs(repo, small)
    for name in (other.removesuffix(_SUFFIX) for other in names):
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
        if label and (first := next((other.name for other in recipes if other.is_started_by(label)), "")):
            problems.append(f"{recipe_path(name)}: `on.label`: {label!r} starts the recipe {first!r} already.")
        else:
            recipes.append(recipe)
    if len(files) > MAX_RECIPES:
        problems.append(f"{RECIPE_DIR}: has {len(files)} recipes, and only the first {MAX_RECIPES} by name are read.")
    return RecipeList(recipes=tuple(recipes), problems=tuple(problems))


async def find_recipe(github: GitHub, repo: str, name: str) -> Recipe | None:
    """Read one recipe, if it exists; RecipeError if invalid."""
    try:
        content = await github.repos.read_file(repo, recipe_path(name))
    except FileTooLargeError as error:
        raise recipe_too_large(name, error.size) from error
    return None if content is None else await asyncio.to_thread(parse_recipe, content, name)


def schedules_by_name(recipes: Iterable[Recipe]) -> dict[str, str]:
    return {recipe.name: recipe.on.schedule for recipe in recipes if recipe.on.schedule}
