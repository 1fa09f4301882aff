"""The recipes of a repository, read from its default branch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from bot.domain.recipe import FOLDER, path_of
from bot.gate.recipes import MAX_BYTES, MAX_RECIPES, Recipe, RecipeError, parse_recipe, too_large
from bot.github import FileTooLargeError, GitHub

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
        for name, file in (await github.repos.files_in(repo, FOLDER)).items()
        if name.endswith(_SUFFIX) and name.casefold() != "readme.md"
    }
    looked_at = sorted(files)[:MAX_RECIPES]
    small = [files[name].sha for name in looked_at if files[name].size <= MAX_BYTES]
    contents = await github.repos.contents_of(repo, small)
    for name in (each.removesuffix(_SUFFIX) for each in looked_at):
        file = files[f"{name}{_SUFFIX}"]
        try:
            if file.size > MAX_BYTES:
                raise too_large(name, file.size)
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
            problems.append(f"{path_of(name)}: `on.label`: {label!r} starts the recipe {first!r} already.")
        else:
            recipes.append(recipe)
    if len(files) > MAX_RECIPES:
        problems.append(f"{FOLDER}: has {len(files)} recipes, and only the first {MAX_RECIPES} by name are read.")
    return FoundRecipes(recipes=tuple(recipes), problems=tuple(problems))


def crons_of(recipes: Iterable[Recipe]) -> dict[str, str]:
    """The schedules of recipes, by name."""
    return {each.name: each.on.schedule for each in recipes if each.on.schedule}


async def find_recipe(github: GitHub, repo: str, name: str) -> Recipe | None:
    """Read one recipe; None where there is none of that name.

    Raises:
        RecipeError: it does not fit.
        GitHubError: GitHub failed in a way that may pass.
    """
    try:
        content = await github.repos.file_at(repo, path_of(name))
    except FileTooLargeError as error:
        raise too_large(name, error.size) from error
    return None if content is None else await asyncio.to_thread(parse_recipe, content, name)
