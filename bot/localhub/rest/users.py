"""Accounts, rate limit and meta."""

from __future__ import annotations

from bot.localhub import views
from bot.localhub.auth import can_read
from bot.localhub.errors import not_found
from bot.localhub.model import Repo
from bot.localhub.routing import Answer, Call, Routes, listed

routes = Routes()


@routes.on("GET", "/user")
def myself(call: Call) -> Answer:
    """Who the token belongs to; an installation is nobody here."""
    if call.viewer.installation is not None:
        raise not_found()
    return Answer(body=views.private_user(call.site, call.user))


@routes.on("GET", "/users/{username}")
def one_user(call: Call) -> Answer:
    """What everybody sees of an account."""
    user = call.site.store.user(call.params["username"])
    if user is None:
        raise not_found()
    return Answer(body=views.public_user(call.site, user))


@routes.on("GET", "/user/repos")
def my_repos(call: Call) -> Answer:
    """Repositories that the user owns or collaborates in."""
    user = call.user

    def mine(repo: Repo) -> bool:
        return repo.owner == user.login or (repo.id, user.id) in call.site.store.roles

    found = [repo for repo in call.site.store.repos if mine(repo) and can_read(call.site, call.viewer, repo)]
    return listed(call, found, lambda repo: views.repository(call.site, repo, user))


@routes.on("GET", "/user/{account_id}")
def user_by_id(call: Call) -> Answer:
    """The same by number, which stays when somebody takes another login."""
    user = call.site.store.users.get(call.number("account_id"))
    if user is None:
        raise not_found()
    return Answer(body=views.public_user(call.site, user))


@routes.on("GET", "/rate_limit")
def rate_limit(call: Call) -> Answer:
    """What is left in this hour: the hub counts, but never refuses on its own."""
    left = {
        name: call.site.rates.left(call.viewer.key, call.site.now(), name) for name in ("core", "search", "graphql")
    }
    return Answer(body={"resources": left, "rate": left["core"]})


@routes.on("GET", "/meta")
def meta(_call: Call) -> Answer:
    """Facts about the installation of GitHub."""
    return Answer(body={"verifiable_password_authentication": False})
