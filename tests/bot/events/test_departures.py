"""The App was taken away: `installation`, `installation_repositories`, `repository`."""

from __future__ import annotations

import pytest

from bot.domain.commands import AccessLost
from bot.events.delivery import IgnoredDelivery
from tests.payloads import a_payload, job, read, reason


@pytest.mark.parametrize("action", ["deleted", "suspend"])
def test_all_of_an_installation_goes_with_it(action: str) -> None:
    found = job("installation", action=action)
    assert (found.command, found.lane, found.installation) == (AccessLost(), "event", 30)


def test_the_repositories_that_the_app_was_taken_off_go() -> None:
    assert job("installation_repositories").command == AccessLost(repo_ids=(10, 11))


def test_a_deleted_repository_goes() -> None:
    assert job("repository").command == AccessLost(repo_ids=(10,))


def test_no_repository_is_not_all_of_them() -> None:
    assert "no repository" in reason("installation_repositories", repositories_removed=[])


@pytest.mark.parametrize("action", ["created", "unsuspend", "new_permissions_accepted"])
def test_an_arrival_asks_for_nothing(action: str) -> None:
    assert action in reason("installation", action=action)
    assert "added" in reason("installation_repositories", action="added")


@pytest.mark.parametrize("action", ["renamed", "transferred", "archived"])
def test_a_changed_repository_is_looked_at_anew_later(action: str) -> None:
    assert f"was {action} " in reason("repository", action=action)


@pytest.mark.parametrize("event", ["installation", "installation_repositories", "repository"])
def test_a_delivery_without_an_installation_ends_nothing(event: str) -> None:
    found = read(event, a_payload(event), installation=None)
    assert isinstance(found, IgnoredDelivery)
    assert "names no installation" in found.reason
