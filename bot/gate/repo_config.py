"""Read the maintainers' file on the base branch. Reads text; opens nothing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal

from pydantic import Field

from agent_runtime import SettingsError, read_settings
from bot.domain.commands import ReviewEvent
from bot.domain.errors import BotError
from bot.domain.recipe import path_of
from bot.gate.recipes import Recipe
from bot.gate.repo_keys import VERBS, FileKeys, Overrides, VerbsKeys

PATH = ".github/codepilot.yml"
OTHER_SPELLING = ".github/codepilot.yaml"
ORGANISATION_PATH = "codepilot.yml"
"""Where the defaults of an organisation stand, in its repository `.github`."""
MAX_BYTES = 64 * 1024


class RepoConfigError(BotError):
    """The repository's file does not fit.

    Attributes:
        reason: all that is wrong, each with file, line and key.
        remedy: what to do about it.
    """

    def __init__(self, problems: str, *, source: str = PATH) -> None:
        listed = "\n".join(f"- {problem}" for problem in problems.splitlines())
        branch = "default" if ":" in source else "base"
        self.reason = f"This repository's configuration is not valid:\n\n{listed}"
        self.remedy = f"Fix `{source}` on the {branch} branch, then give the command again."
        super().__init__(f"{self.reason}\n\n{self.remedy}")


class RepoConfig(FileKeys):
    """The file's keys, with their defaults where it has none, and what is known beside them."""

    highest: Literal["ask", "auto"] = "auto"
    """The most that a label may raise the level to."""
    path: str = PATH
    """Where the file is."""
    recipes: Annotated[tuple[Recipe, ...], Field(strict=False)] = ()
    """The heads of the recipes; empty where nobody looked."""
    recipe_problems: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What is wrong with the files of other recipes."""

    def hears_label(self, name: str) -> bool:
        """Whether a label starts work, or says how much work may do."""
        return self.labels.means_something(name) or any(each.is_started_by(name) for each in self.recipes)

    def with_recipes(self, recipes: Sequence[Recipe], problems: Sequence[str]) -> RepoConfig:
        """The same with the recipes of the repository, but for those whose label says how much work may do.

        Such a label would start the recipe, and allow nothing.

        Args:
            recipes: their heads.
            problems: what is wrong with others.
        """
        kept, found = list[Recipe](), list(problems)
        for each in recipes:
            key = self.labels.key_of(each.on.label) if each.on.label else None
            if key is None:
                kept.append(each)
                continue
            unset = "" if key in self.labels.model_fields_set else ", by default"
            found.append(
                f"{path_of(each.name)}: `on.label`: {each.on.label!r} is `labels.{key}` of {self.path} already{unset}; "
                "choose another label in one of the two files."
            )
        return self.model_copy(update={"recipes": tuple(kept), "recipe_problems": tuple(found)})

    @property
    def follows_runs(self) -> bool:
        """Whether workflow runs start recipes."""
        return any(each.on.workflow_run for each in self.recipes)

    def reviews(self, on: ReviewEvent, usual: frozenset[ReviewEvent] = frozenset()) -> bool:
        """Whether a pull request is reviewed when this happens; `usual` is the operator's, for a file without the key.

        A draft is new to its reviewers when it becomes ready.
        """
        events = self.review_on if "review_on" in self.model_fields_set else usual
        return on in events or (on == "ready" and "opened" in events)

    def overrides(self, verb: str) -> Overrides:
        """What a run of a verb is to use."""
        own: Overrides = getattr(self.verbs, verb) if verb in VERBS else Overrides()
        return _over(own, Overrides(model=self.model, budget_usd=self.budget_usd, max_steps=self.max_steps))


def parse_config(data: bytes, *, source: str = PATH) -> RepoConfig:
    """Read the file.

    Args:
        data: its content, as the base branch's commit has it.
        source: its name, for error texts.

    Raises:
        RepoConfigError: it is too large, no UTF-8, no YAML, or has keys or values that do not fit.
    """
    if len(data) > MAX_BYTES:
        raise RepoConfigError(f"{source}: has {len(data):,} bytes; the limit is {MAX_BYTES:,}.", source=source)
    try:
        file = read_settings(data.decode("utf-8-sig"), FileKeys, source=source)
    except UnicodeDecodeError as error:
        raise RepoConfigError(
            f"{source}: is not UTF-8 (byte {error.start}); save it as UTF-8.", source=source
        ) from error
    except SettingsError as error:
        raise RepoConfigError(str(error), source=source) from error
    return RepoConfig.model_construct(set(file.model_fields_set), **dict(file))


def defaults_when_broken() -> RepoConfig:
    """What holds in place of a file that does not fit: nothing is set up, nothing reached, little done unasked.

    Its author may have meant to forbid something. Merge it over the organisation's as the file would be.
    """
    strict = {"setup", "cache", "network", "mcp", "allow", "review_on", "fix_ci", "rerun_failed_jobs"}
    return RepoConfig.model_construct(strict, network=("off",), mcp=(), highest="ask")


def merged(organisation: RepoConfig, repository: RepoConfig) -> RepoConfig:
    """The organisation's defaults with the repository's own words over them, key by key; `protected` adds up."""
    own = repository.model_fields_set | ({"cache"} if "setup" in repository.model_fields_set else set())
    inherited = {name: getattr(organisation, name) for name in organisation.model_fields_set - own}
    labels = {name: getattr(repository.labels, name) for name in repository.labels.model_fields_set}
    verbs = {verb: _over(getattr(repository.verbs, verb), getattr(organisation.verbs, verb)) for verb in VERBS}
    return repository.model_copy(
        update=inherited
        | {
            "protected": tuple(dict.fromkeys((*organisation.protected, *repository.protected))),
            "verbs": VerbsKeys(**verbs),
            "labels": organisation.labels.model_copy(update=labels),
            "highest": "auto" if organisation.highest == repository.highest == "auto" else "ask",
        }
    )


def in_the_way(cache: Sequence[str], committed: Collection[str], *, path: str = PATH) -> str | None:
    """Why what is to be kept cannot be told from the repository's own files, or None when it can.

    Args:
        cache: see `RepoConfig`.
        committed: paths of all files in the commit that is worked on.
        path: where the file is that asks for it.
    """
    parts = {each: each.split("/") for each in cache}
    # Each path with all that leads to it.
    above = {each: {"/".join(own[:count]) for count in range(1, len(own) + 1)} for each, own in parts.items()}
    meant, below = set[str]().union(*above.values()), tuple(f"{each}/" for each in cache)
    found = min((file for file in committed if file in meant or file.startswith(below)), default=None)
    if found is None:
        return None
    kept = next(each for each in cache if found in above[each] or found.startswith(f"{each}/"))
    return (
        f"{path}: `cache`: `{kept}` cannot be cached, because `{found}` is committed there; name a path that only "
        "`setup` writes to."
    )


def _over(first: Overrides, second: Overrides) -> Overrides:
    """The first, and the second where that says nothing."""
    return second.model_copy(update={name: value for name, value in first if value is not None})
