"""`codepilot setup-repo`: creates the bot's labels, and names the permissions that its App lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bot.apps.app_access import app_access
from bot.apps.app_permissions import AppEvent, AppPermission, lacking
from bot.apps.services import redactor_for
from bot.domain.errors import BotError
from bot.gate.repo_config import ORGANISATION_PATH, PATH, RepoConfig, merged, parse_config
from bot.github import GitHub, installation_of
from bot.settings.model import Settings


class NotInstalledError(BotError):
    """The App is not installed on the repository, or there is no such repository."""


class LabelClient(Protocol):
    """What is needed of GitHub."""

    async def file_at(self, repo: str, path: str, ref: str | None = None) -> bytes | None:
        """A file's bytes, or None when there is none."""
        ...

    async def labels(self, repo: str) -> tuple[str, ...]:
        """Names of the repository's labels."""
        ...

    async def create_label(self, repo: str, name: str, *, color: str, description: str) -> None:
        """Make a label."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSpec:
    """One label.

    Attributes:
        name: at most 50 characters.
        color: six hexadecimal digits.
        description: at most 100 characters.
        made: whether it was not there before.
    """

    name: str
    color: str
    description: str
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """What came of it.

    Attributes:
        labels: all of them, in the order of the documentation.
        lacks: what the App was not given, or its owner has not accepted, for this repository.
    """

    labels: tuple[LabelSpec, ...]
    lacks: tuple[AppPermission | AppEvent, ...]


async def set_up(repos: LabelClient, repo: str, *, start_label: str) -> tuple[LabelSpec, ...]:
    """Make the labels that the repository's configuration names and that are not there yet.

    Args:
        repos: the client that acts on the repository.
        repo: `owner/name`.
        start_label: what the label that starts work is called where the configuration does not say.

    Returns:
        All of them, in the order of the documentation.

    Raises:
        RepoConfigError: the repository's file, or its organisation's, does not fit.
        GitHubError: GitHub refused, or did not answer.
    """
    organisation = f"{repo.partition('/')[0]}/.github"
    above = await repos.file_at(organisation, ORGANISATION_PATH)
    own = await repos.file_at(repo, PATH)
    config = merged(
        RepoConfig() if above is None else parse_config(above, source=f"{organisation}: {ORGANISATION_PATH}"),
        RepoConfig() if own is None else parse_config(own),
    )
    names = config.labels
    there = {name.casefold() for name in await repos.labels(repo)}
    wanted = (
        (names.start or start_label, "1d76db", "Codepilot: start a run"),
        (names.read_only, "c5def5", "Codepilot may only read"),
        (names.ask, "fbca04", "Codepilot asks before running commands that can reach more than the workspace"),
        (names.auto, "d93f0b", "Codepilot may run any command in its sandbox, for this commit"),
        (names.fix_ci, "0e8a16", "Codepilot fixes the failing checks of this pull request"),
    )
    found = tuple(
        LabelSpec(name=name, color=color, description=description, made=name.casefold() not in there)
        for name, color, description in wanted
    )
    for label in found:
        if label.made:
            await repos.create_label(repo, label.name, color=label.color, description=label.description)
    return found


async def set_up_with(settings: Settings, repo: str) -> SetUp:
    """The same as the App that the settings name, which is looked at, too.

    Raises:
        NotInstalledError: the App cannot act there.
        RepoConfigError: see `set_up`.
        GitHubError: see `set_up`.
    """
    found = await installation_of(repo, app_access(settings))
    if found is None:
        raise NotInstalledError(
            f"{repo}: the App {settings.app_id} is not installed there, or the repository does not exist. Install it "
            "from the App's page on GitHub, then run this again."
        )
    redactor = redactor_for(settings)
    async with GitHub.for_installation(
        settings.app_id,
        settings.private_key.get_secret_value(),
        found.id,
        settings.api_url,
        redact=redactor.redact,
        minted=redactor.learn,
        ca_file=settings.agent.ca_file,
    ) as github:
        labels = await set_up(github.repos, repo, start_label=settings.agent.start_label)
    return SetUp(labels=labels, lacks=lacking(found.permissions, found.events))
