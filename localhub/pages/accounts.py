"""The list of repositories, and who there is."""

from __future__ import annotations

import colorsys
import html
from dataclasses import replace

from localhub.api.errors import not_found
from localhub.pages.view import Page, PageVisit, render
from localhub.state.model import User


def repositories(visit: PageVisit) -> Page:
    """The front page."""
    repos = sorted(visit.site.store.repos, key=lambda repo: repo.pushed_at, reverse=True)
    return render(visit, "repositories.html", {"title": "Repositories", "repos": repos, "user": None})


def account(visit: PageVisit) -> Page:
    """One account and its repositories."""
    user = visit.site.store.user(visit.params["owner"])
    if user is None:
        raise not_found()
    return _of(visit, user)


def app(visit: PageVisit) -> Page:
    """An App's account."""
    return account(replace(visit, params={"owner": f"{visit.params['slug']}[bot]"}))


def _of(visit: PageVisit, user: User) -> Page:
    repos = [repo for repo in visit.site.store.repos if repo.owner == user.login]
    return render(visit, "repositories.html", {"title": user.login, "repos": repos, "user": user})


def avatar(visit: PageVisit) -> Page:
    """A letter on the account's own colour."""
    user = visit.site.store.users.get(visit.number)
    if user is None:
        raise not_found()
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(user.id * 0.381966 % 1, 0.45, 0.45))
    radius = 12 if user.type == "Bot" else 20
    letter = html.escape(user.login[:1].upper())
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40" width="40" height="40">'
        f'<rect width="40" height="40" rx="{radius}" fill="rgb({red},{green},{blue})"/>'
        '<text x="20" y="27" text-anchor="middle" font-family="sans-serif" font-size="20" fill="#fff">'
        f"{letter}</text></svg>"
    )
    return Page(body=svg.encode(), media_type="image/svg+xml")
