"""Users, and Apps with their installations, tokens and webhook deliveries; also the rate limit and the API's root.

A user's token answers under `/user`, an App's JWT under `/app`, and an installation's token under `/installation`.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlencode

from localhub.api.auth import HubError, can_read, not_accessible, not_found, or_404, unprocessable
from localhub.api.routing import API_VERSIONS, Call, Response, Routes, listed, page_size, wrapped
from localhub.operations import webhooks
from localhub.state.model import App, Installation, InstallationToken, Repo, WebhookDelivery
from localhub.state.store import Json, Table, iso
from localhub.views import accounts as account_views
from localhub.views import checks as checks_views

routes = Routes()

_CURSOR = re.compile(r"(v1_[0-9]{1,18})?")
TOKEN_LIFE = timedelta(hours=1)

R = TypeVar("R", Installation, WebhookDelivery)


@routes.on("GET", "/user")
def authenticated_user(call: Call) -> Response:
    """The token's user; an installation has none."""
    if call.viewer.installation is not None:
        raise not_accessible()
    return Response(body=account_views.private_user(call.site, call.user))


@routes.on("GET", "/users/{username}")
def one_user(call: Call) -> Response:
    """The public part of an account."""
    user = or_404(call.site.store.user(call.params["username"]))
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
    return wrapped(call, "installations", found, lambda value: account_views.installation(call.site, value))


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
    """An account by its number, which stays when somebody takes another login."""
    user = or_404(call.site.store.users.get(call.number("account_id")))
    return Response(body=account_views.public_user(call.site, user))


@routes.on("GET", "/notifications", takes="all participating since")
def list_notifications(call: Call) -> Response:
    """An empty list: the hub sends no notifications."""
    if call.viewer.user is None:
        raise HubError(401, "Requires authentication")
    return Response(body=[])


@routes.on("GET", "/users/{username}/received_events")
def list_received_events(call: Call) -> Response:
    """An empty list: the hub has no feeds."""
    or_404(call.site.store.user(call.params["username"]))
    return Response(body=[])


@routes.on("GET", "/rate_limit")
def rate_limit(call: Call) -> Response:
    """The requests left in this hour: the hub counts them, but refuses only those without a token."""
    left = {
        name: call.site.rates.remaining(call.viewer.key, call.site.now(), name)
        for name in ("core", "search", "graphql")
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
    """The addresses of the API; clients request them to check their token."""
    return Response(body={name: f"{call.site.api_url}/{path}" for name, path in _ROOT.items()})


@routes.on("GET", "/versions")
def versions(_call: Call) -> Response:
    """The versions of the API that the hub knows."""
    return Response(body=list(API_VERSIONS))


@routes.on("GET", "/meta")
def meta(_call: Call) -> Response:
    """Facts about the installation of GitHub."""
    return Response(body={"verifiable_password_authentication": False})


@routes.on("GET", "/app")
def authenticated_app(call: Call) -> Response:
    """The App itself."""
    app = _app_of_jwt(call)
    count = sum(i.app_id == app.id for i in call.site.store.installations)
    return Response(body=account_views.integration(call.site, app) | {"installations_count": count})


@routes.on("GET", "/apps/{app_slug}")
def one_app(call: Call) -> Response:
    """An App as everybody sees it."""
    app = or_404(next((app for app in call.site.store.apps if app.slug == call.params["app_slug"]), None))
    return Response(body=account_views.integration(call.site, app))


@routes.on("POST", "/app-manifests/{code}/conversions")
def convert(call: Call) -> Response:
    """The App that was made of a manifest, with its secrets; a code works once, and nobody has to sign in.

    https://docs.github.com/rest/apps/apps#create-a-github-app-from-a-manifest
    """
    made = or_404(call.site.store.conversions.pop(call.params["code"], None))
    app = call.site.store.apps[made]
    credentials = {"client_secret": call.site.store.client_secret(app), "webhook_secret": app.webhook_secret or None}
    return Response(
        status=201, body=account_views.integration(call.site, app) | credentials | {"pem": app.private_key_pem}
    )


@routes.on("GET", "/app/installations")
def installations(call: Call) -> Response:
    """The App's installations."""
    app = _app_of_jwt(call)
    found = [i for i in call.site.store.installations if i.app_id == app.id]
    return listed(call, found, lambda value: account_views.installation(call.site, value))


@routes.on("GET", "/app/installations/{installation_id}")
def one_installation(call: Call) -> Response:
    """One installation."""
    return Response(body=account_views.installation(call.site, _installation_of(call)))


@routes.on(
    "POST", "/app/installations/{installation_id}/access_tokens", takes="permissions repositories repository_ids"
)
def create_token(call: Call) -> Response:
    """A token for an hour, narrowed to repositories and permissions if asked."""
    installation, site = _installation_of(call), call.site
    if installation.suspended_at is not None:
        raise HubError(403, "This installation has been suspended")
    chosen = _chosen_repos(call, installation)
    permissions = dict(call.body.get("permissions") or installation.permissions)
    for name, level in permissions.items():
        held = installation.permissions.get(name)
        if held is None or (level == "write" and held != "write"):
            raise unprocessable("The permissions requested are not granted to this installation.")
    token = InstallationToken(
        value=_token_value(installation.app_id, number=len(site.store.tokens)),
        installation_id=installation.id,
        repo_ids=tuple(repo.id for repo in chosen),
        permissions={"metadata": "read", **permissions},
        expires_at=site.now() + TOKEN_LIFE,
    )
    site.store.tokens[token.value] = token
    body: Json = {
        "token": token.value,
        "expires_at": iso(token.expires_at),
        "permissions": dict(token.permissions),
        "repository_selection": "selected",
    }
    if "repository_ids" in call.body or "repositories" in call.body:
        body["repositories"] = [account_views.repository(site, repo) for repo in chosen]
    return Response(status=201, body=body)


def _token_value(app_id: int, *, number: int) -> str:
    """Every other token has the new form, which carries a JWT: GitHub gives out both until the change is complete.

    https://docs.github.com/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
    """
    if number % 2 == 0:
        return f"ghs_{''.join(secrets.choice(string.ascii_letters + string.digits) for _ in range(36))}"
    parts = ({"alg": "RS256", "typ": "JWT"}, {"iss": str(app_id), "jti": secrets.token_hex(16), "exp": 4_102_444_800})
    spelled = [json.dumps(part, separators=(",", ":")).encode() for part in parts]
    words = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*spelled, secrets.token_bytes(256)))
    return f"ghs_{app_id}_{'.'.join(words)}"


def _chosen_repos(call: Call, installation: Installation) -> list[Repo]:
    mine = [call.site.store.repos[number] for number in installation.repo_ids]
    numbers, names = call.body.get("repository_ids"), call.body.get("repositories")
    if numbers is None and names is None:
        return mine
    chosen = [repo for repo in mine if repo.id in (numbers or []) or repo.name in (names or [])]
    if len(chosen) != len(numbers or []) + len(names or []):
        raise unprocessable(
            "There is at least one repository that does not exist or is not accessible to the parent installation."
        )
    return chosen


@routes.on("GET", "/repos/{owner}/{repo}/installation")
def installation_of_repo(call: Call) -> Response:
    """The App's installation on a repository."""
    found = or_404(call.site.store.installation_for(_app_of_jwt(call), call.repo))
    return Response(body=account_views.installation(call.site, found))


@routes.on("GET", "/users/{username}/installation")
def installation_of_user(call: Call) -> Response:
    """The App's installation on an account."""
    app, login = _app_of_jwt(call), call.params["username"].lower()
    for value in call.site.store.installations:
        if value.app_id == app.id and value.account.lower() == login:
            return Response(body=account_views.installation(call.site, value))
    raise not_found()


@routes.on("GET", "/installation/repositories")
def installation_repos(call: Call) -> Response:
    """Repositories that an installation's token may use."""
    if call.viewer.installation is None:
        raise HubError(403, "You must authenticate with an installation access token to list its repositories.")
    found = [call.site.store.repos[number] for number in call.viewer.repo_ids]
    return wrapped(call, "repositories", found, lambda repo: account_views.repository(call.site, repo))


@routes.on("DELETE", "/installation/token")
def revoke_token(call: Call) -> Response:
    """Make the token that asks useless."""
    if call.viewer.installation is None:
        raise HubError(403, "You must authenticate with an installation access token in order to revoke it.")
    token = call.authorization.partition(" ")[2].strip()
    call.site.store.tokens.pop(token, None)
    return Response(status=204)


@routes.on("GET", "/app/hook/config")
def hook_config(call: Call) -> Response:
    """The App's webhook address."""
    app = _app_of_jwt(call)
    secret = {"secret": "********"} if app.webhook_secret else {}
    return Response(body={"content_type": "json", "insecure_ssl": "0", "url": app.webhook_url, **secret})


@routes.on("GET", "/app/hook/deliveries", takes="cursor status")
def deliveries(call: Call) -> Response:
    """Deliveries that were attempted, newest first, a page at a time by the cursor of the `Link` header."""
    app, status, cursor = _app_of_jwt(call), call.query.get("status"), call.query.get("cursor", "")
    if status not in {None, "success", "failure"} or not _CURSOR.fullmatch(cursor):
        raise unprocessable("Invalid request.")
    wanted = {None: range(1000), "success": range(200, 400), "failure": range(400, 600)}[status]
    below = int(cursor.removeprefix("v1_")) if cursor else None
    found = [
        each
        for each in call.site.store.deliveries
        if each.app_id == app.id
        and each.status != "pending"
        and each.status_code in wanted
        and (below is None or each.id <= below)
    ][::-1]
    size = page_size(call)
    answer = Response(body=[checks_views.delivery_item(each) for each in found[:size]])
    if len(found) <= size:
        return answer
    query = urlencode({**call.query, "per_page": size, "cursor": f"v1_{found[size].id}"})
    return replace(answer, headers={"Link": f'<{call.site.api_url}{call.path}?{query}>; rel="next"'})


@routes.on("GET", "/app/hook/deliveries/{delivery_id}")
def one_delivery(call: Call) -> Response:
    """One delivery with its request and response."""
    return Response(body=checks_views.delivery(_delivery_of(call)))


@routes.on("POST", "/app/hook/deliveries/{delivery_id}/attempts")
def redeliver(call: Call) -> Response:
    """Deliver again."""
    webhooks.redeliver(call.site, _delivery_of(call))
    return Response(status=202, body={})


def _app_of_jwt(call: Call) -> App:
    """The App that a JWT speaks for; nothing else may come here."""
    if call.viewer.app is None or call.viewer.installation is not None:
        raise HubError(401, "A JSON web token could not be decoded")
    return call.viewer.app


def _installation_of(call: Call) -> Installation:
    return _row_of_app(call, call.site.store.installations, "installation_id")


def _delivery_of(call: Call) -> WebhookDelivery:
    return _row_of_app(call, call.site.store.deliveries, "delivery_id")


def _row_of_app(call: Call, table: Table[R], name: str) -> R:
    app, row = _app_of_jwt(call), or_404(table.get(call.number(name)))
    if row.app_id != app.id:
        raise not_found()
    return row
