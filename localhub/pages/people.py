"""Sign in as one of the hub's people, and decide what they may do. There are no passwords."""

from __future__ import annotations

from localhub.api.auth import may, role_of
from localhub.api.errors import HubError
from localhub.pages.sessions import new_session
from localhub.pages.view import Page, PageVisit, render
from localhub.state.model import Role, User


def choose(visit: PageVisit) -> Page:
    """Show the people one can sign in as."""
    people = [user for user in visit.site.store.users if user.type == "User"]
    return render(visit, "login.html", {"title": "Sign in", "people": people, "back": _back(visit.query.get("to", ""))})


def sign_in(visit: PageVisit) -> Page:
    """Take the choice."""
    user = visit.site.store.user(visit.form.get("login", ""))
    if user is None or user.type != "User":
        raise HubError(422, "There is nobody of this name. Choose one of the people.")
    return Page(location=_back(visit.form.get("to", "")), session=new_session(visit.site, user))


def sign_out(visit: PageVisit) -> Page:
    """Be nobody again."""
    return Page(location="/login", session=new_session(visit.site, None))


def _back(path: str) -> str:
    """Where to go afterwards: a page of the hub."""
    local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if local else "/"


def actor(visit: PageVisit, role: Role = "read") -> User:
    """Who sends a form about a repository.

    Raises:
        HubError: 403, nobody is signed in, or their role in the repository is weaker than `role`.
    """
    user = visit.session.user
    if user is None:
        raise HubError(403, "Sign in first.")
    if not may(role_of(visit.site, visit.repo, user), role):
        raise HubError(403, f"{user.login} may not do this: it needs the role `{role}` in {visit.repo.full_name}.")
    return user
