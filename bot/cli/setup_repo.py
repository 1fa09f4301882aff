"""`codepilot setup-repo`: creates the bot's labels, and names the permissions that its App is missing."""

from __future__ import annotations

from dataclasses import dataclass

from bot.cli.app import AppEvent, AppPermission, find_missing
from bot.domain.errors import BotError
from bot.github.app import installation_of
from bot.github.client import GitHub
from bot.permissions.repo_config import ORGANISATION_PATH, PATH, RepoConfig, merged, parse_config
from bot.server.build import app_access, redactor_for
from bot.settings.models import Settings


class NotInstalledError(BotError):
    """The App is not installed on the repository, or there is no such repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSpec:
    """One label of the bot.

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
    """The result of the set-up.

    Attributes:
        labels: all of the bot's labels, in the order of the documentation.
        lacks: the permissions that the App was not given, or its owner has not accepted, for this repository.
    """

    labels: tuple[LabelSpec, ...]
    lacks: tuple[AppPermission | AppEvent, ...]


async def set_up(settings: Settings, repo: str) -> SetUp:
    """Create the bot's labels in a repository as its App, and list the permissions that the App is missing there.

    Raises:
        NotInstalledError: the App cannot act there.
        RepoConfigError: the repository's file, or its organisation's, does not fit.
        GitHubError: GitHub refused, or did not answer.
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
        labels = await _create_labels(github, repo, start_label=settings.agent.start_label)
    return SetUp(labels=labels, lacks=find_missing(found.permissions, found.events))


async def _create_labels(github: GitHub, repo: str, *, start_label: str) -> tuple[LabelSpec, ...]:
    """Create the labels that the repository's configuration names and that do not exist yet.

    Args:
        github: the client that acts on the repository.
        repo: `owner/name`.
        start_label: the label that starts work, where the configuration does not name one.

    Returns:
        All of them, in the order of the documentation.
    """
    organisation = f"{repo.partition('/')[0]}/.github"
    above = await github.repos.file_at(organisation, ORGANISATION_PATH)
    own = await github.repos.file_at(repo, PATH)
    config = merged(
        RepoConfig() if above is None else parse_config(above, source=f"{organisation}: {ORGANISATION_PATH}"),
        RepoConfig() if own is None else parse_config(own),
    )
    names = config.labels
    there = {name.casefold() for name in await github.repos.labels(repo)}
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
            await github.repos.create_label(repo, label.name, color=label.color, description=label.description)
    return found
