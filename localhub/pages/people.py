"""Choose the account that a form acts as: nobody signs in."""

from __future__ import annotations

from localhub.api.auth import may, role_of
from localhub.api.errors import HubError
from localhub.pages.view import PageVisit
from localhub.state.model import Repo, User


def people(visit: PageVisit, repo: Repo) -> list[User]:
    """Whom one may act as: those with the strongest role first."""
    users = [user for user in visit.site.store.users if user.type == "User"]
    users = [user for user in users if role_of(visit.site, repo, user) != "none"]
    return sorted(users, key=lambda user: not may(role_of(visit.site, repo, user), "write"))


def actor(visit: PageVisit) -> User:
    """Whom the form names.

    Raises:
        HubError: 422, nobody who sees the repository.
    """
    user = visit.site.store.user(visit.form.get("as", ""))
    if user is None or role_of(visit.site, visit.repo, user) == "none":
        raise HubError(422, "Choose somebody to act as.")
    return user
