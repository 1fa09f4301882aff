"""Accounts, rate limit and meta."""

from __future__ import annotations

from collections.abc import Mapping

from localhub.api.auth import can_read
from localhub.api.errors import HubError, not_accessible, not_found
from localhub.api.routing import Call, Response, Routes, listed, wrapped
from localhub.state.model import Installation, Repo
from localhub.views import accounts as account_views

routes = Routes()


@routes.on("GET", "/user")
def myself(call: Call) -> Response:
    """Who the token belongs to; an installation is nobody here."""
    if call.viewer.installation is not None:
        raise not_accessible()
    return Response(body=account_views.private_user(call.site, call.user))


@routes.on("GET", "/users/{username}")
def one_user(call: Call) -> Response:
    """What everybody sees of an account."""
    user = call.site.store.user(call.params["username"])
    if user is None:
        raise not_found()
    return Response(body=account_views.public_user(call.site, user))


@routes.on("GET", "/user/repos")
def my_repos(call: Call) -> Response:
    """Repositories that the user owns or collaborates in."""
    user = call.user

    def mine(repo: Repo) -> bool:
        return repo.owner == user.login or (repo.id, user.id) in call.site.store.roles

    found = [repo for repo in call.site.store.repos if mine(repo) and can_read(call.site, call.viewer, repo)]
    return listed(call, found, lambda repo: account_views.repository(call.site, repo, user))


@routes.on("GET", "/user/installations")
def my_installations(call: Call) -> Response:
    """The installations of the App that a person has signed in to, on repositories that they have a role in."""
    found = [each for each in call.site.store.installations if _is_mine(call, each)]
    return wrapped(call, "installations", found, lambda each: account_views.installation(call.site, each))


@routes.on("GET", "/user/installations/{installation_id}/repositories")
def my_repositories_of(call: Call) -> Response:
    """The repositories of an installation that a person has a role in."""
    installation = call.site.store.installations.get(call.number("installation_id"))
    if installation is None or not _is_mine(call, installation):
        raise not_found()
    found = _in_common(call, installation)
    return wrapped(call, "repositories", found, lambda repo: account_views.repository(call.site, repo, call.user))


def _is_mine(call: Call, installation: Installation) -> bool:
    app = call.viewer.through
    if app is None:
        raise HubError(403, "You must authenticate with an access token authorized to a GitHub App")
    return installation.app_id == app.id and bool(_in_common(call, installation))


def _in_common(call: Call, installation: Installation) -> list[Repo]:
    user, store = call.user, call.site.store
    repos = [each for each in store.repos if each.id in installation.repo_ids]
    return [each for each in repos if each.owner == user.login or (each.id, user.id) in store.roles]


@routes.on("GET", "/user/{account_id}")
def user_by_id(call: Call) -> Response:
    """The same by number, which stays when somebody takes another login."""
    user = call.site.store.users.get(call.number("account_id"))
    if user is None:
        raise not_found()
    return Response(body=account_views.public_user(call.site, user))


@routes.on("GET", "/rate_limit")
def rate_limit(call: Call) -> Response:
    """What is left in this hour: the hub counts, but never refuses on its own."""
    left = {
        name: call.site.rates.left(call.viewer.key, call.site.now(), name) for name in ("core", "search", "graphql")
    }
    return Response(body={"resources": left, "rate": left["core"]})


# What GitHub names at its root; the hub answers some of these.
_ROOT: Mapping[str, str] = {
    "current_user_url": "user",
    "current_user_authorizations_html_url": "settings/connections/applications{/client_id}",
    "authorizations_url": "authorizations",
    "code_search_url": "search/code?q={query}{&page,per_page,sort,order}",
    "commit_search_url": "search/commits?q={query}{&page,per_page,sort,order}",
    "emails_url": "user/emails",
    "emojis_url": "emojis",
    "events_url": "events",
    "feeds_url": "feeds",
    "followers_url": "user/followers",
    "following_url": "user/following{/target}",
    "gists_url": "gists{/gist_id}",
    "issue_search_url": "search/issues?q={query}{&page,per_page,sort,order}",
    "issues_url": "issues",
    "keys_url": "user/keys",
    "label_search_url": "search/labels?q={query}&repository_id={repository_id}{&page,per_page}",
    "notifications_url": "notifications",
    "organization_url": "orgs/{org}",
    "organization_repositories_url": "orgs/{org}/repos{?type,page,per_page,sort}",
    "organization_teams_url": "orgs/{org}/teams",
    "public_gists_url": "gists/public",
    "rate_limit_url": "rate_limit",
    "repository_url": "repos/{owner}/{repo}",
    "repository_search_url": "search/repositories?q={query}{&page,per_page,sort,order}",
    "current_user_repositories_url": "user/repos{?type,page,per_page,sort}",
    "starred_url": "user/starred{/owner}{/repo}",
    "starred_gists_url": "gists/starred",
    "user_url": "users/{user}",
    "user_organizations_url": "user/orgs",
    "user_repositories_url": "users/{user}/repos{?type,page,per_page,sort}",
    "user_search_url": "search/users?q={query}{&page,per_page,sort,order}",
}


@routes.on("GET", "/")
def root(call: Call) -> Response:
    """Where things are; clients ask it to see whether their token is good."""
    return Response(body={name: f"{call.site.api_url}/{path}" for name, path in _ROOT.items()})


@routes.on("GET", "/meta")
def meta(_call: Call) -> Response:
    """Facts about the installation of GitHub."""
    return Response(body={"verifiable_password_authentication": False})
