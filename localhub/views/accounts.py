"""Accounts, Apps, repositories and labels as GitHub's JSON."""

from __future__ import annotations

from urllib.parse import quote

from localhub.api.auth import client_id, may, role_of
from localhub.state.model import ACTIONS_ID, ROLES, App, Installation, Issue, Label, Milestone, Repo, Role, User
from localhub.state.store import Json, Site, iso, iso_or_none, node_id


def simple_user(site: Site, user: User) -> Json:
    """`simple-user`."""
    api = site.api("users", user.login)
    page = site.html("apps", user.login.removesuffix("[bot]")) if user.type == "Bot" else site.html(user.login)
    return {
        "login": user.login,
        "id": user.id,
        "node_id": node_id(user.type, user.id),
        "avatar_url": f"{site.html('avatars', user.id)}.svg",
        "gravatar_id": "",
        "url": api,
        "html_url": page,
        "followers_url": f"{api}/followers",
        "following_url": f"{api}/following{{/other_user}}",
        "gists_url": f"{api}/gists{{/gist_id}}",
        "starred_url": f"{api}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{api}/subscriptions",
        "organizations_url": f"{api}/orgs",
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events{{/privacy}}",
        "received_events_url": f"{api}/received_events",
        "type": user.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def public_user(site: Site, user: User) -> Json:
    """`public-user`: an account's public fields."""
    owned = [repo for repo in site.store.repos if repo.owner == user.login and not repo.private]
    return simple_user(site, user) | {
        "name": user.name or None,
        "company": None,
        "blog": "",
        "location": None,
        "email": None,
        "hireable": None,
        "bio": None,
        "twitter_username": None,
        "public_repos": len(owned),
        "public_gists": 0,
        "followers": 0,
        "following": 0,
        "created_at": iso(user.created_at),
        "updated_at": iso(user.created_at),
    }


def private_user(site: Site, user: User) -> Json:
    """`private-user`: an account's own view."""
    hidden = [repo for repo in site.store.repos if repo.owner == user.login and repo.private]
    return public_user(site, user) | {
        "user_view_type": "private",
        "private_gists": 0,
        "total_private_repos": len(hidden),
        "owned_private_repos": len(hidden),
        "disk_usage": 0,
        "collaborators": 0,
        "two_factor_authentication": True,
    }


def organization(site: Site, user: User) -> Json:
    """`organization-simple`."""
    api = site.api("orgs", user.login)
    return {
        "login": user.login,
        "id": user.id,
        "node_id": node_id(user.type, user.id),
        "url": api,
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events",
        "hooks_url": f"{api}/hooks",
        "issues_url": f"{api}/issues",
        "members_url": f"{api}/members{{/member}}",
        "public_members_url": f"{api}/public_members{{/member}}",
        "avatar_url": f"{site.html('avatars', user.id)}.svg",
        "description": None,
    }


def user_by_id(site: Site, number: int | None) -> Json | None:
    """`nullable-simple-user`."""
    user = None if number is None else site.store.users.get(number)
    return None if user is None else simple_user(site, user)


def owner_of(site: Site, repo: Repo) -> User:
    """The account that owns a repository."""
    owner = site.store.user(repo.owner)
    assert owner is not None, f"{repo.full_name} has no owner"  # noqa: S101 - add_repo makes the owner first
    return owner


_PLAIN = (
    "contributors deployments downloads events forks hooks "
    "languages merges stargazers subscribers subscription tags teams"
)
_TEMPLATES = {
    "archive_url": "{archive_format}{/ref}",
    "assignees_url": "assignees{/user}",
    "blobs_url": "git/blobs{/sha}",
    "branches_url": "branches{/branch}",
    "collaborators_url": "collaborators{/collaborator}",
    "comments_url": "comments{/number}",
    "commits_url": "commits{/sha}",
    "compare_url": "compare/{base}...{head}",
    "contents_url": "contents/{+path}",
    "git_commits_url": "git/commits{/sha}",
    "git_refs_url": "git/refs{/sha}",
    "git_tags_url": "git/tags{/sha}",
    "issue_comment_url": "issues/comments{/number}",
    "issue_events_url": "issues/events{/number}",
    "issues_url": "issues{/number}",
    "keys_url": "keys{/key_id}",
    "labels_url": "labels{/name}",
    "milestones_url": "milestones{/number}",
    "notifications_url": "notifications{?since,all,participating}",
    "pulls_url": "pulls{/number}",
    "releases_url": "releases{/id}",
    "statuses_url": "statuses/{sha}",
    "trees_url": "git/trees{/sha}",
}


def simple_repository(site: Site, repo: Repo) -> Json:
    """`simple-repository`, the part that all forms of a repository share."""
    api = site.repo_api(repo)
    plain = {f"{name}_url": f"{api}/{name}" for name in _PLAIN.split()}
    return {
        "id": repo.id,
        "node_id": node_id("Repository", repo.id),
        "name": repo.name,
        "full_name": repo.full_name,
        "owner": simple_user(site, owner_of(site, repo)),
        "private": repo.private,
        "html_url": site.repo_html(repo),
        "description": repo.description or None,
        "fork": repo.fork_of is not None,
        "url": api,
        **plain,
        **{name: f"{api}/{rest}" for name, rest in _TEMPLATES.items()},
    }


def repository(site: Site, repo: Repo, viewer: User | None = None) -> Json:
    """`repository`; with the viewer's `permissions` when there is one."""
    page = site.repo_html(repo)
    opened = sum(issue.state == "open" for issue in site.store.issues_of(repo))
    forks = sum(other.fork_of == repo.id for other in site.store.repos)
    shown = simple_repository(site, repo) | {
        "git_url": f"{page.replace('http://', 'git://', 1)}.git",
        "ssh_url": f"ssh://git@{page.partition('://')[2]}.git",
        "clone_url": f"{page}.git",
        "svn_url": page,
        "mirror_url": None,
        "homepage": repo.homepage or None,
        "language": None,
        "forks_count": forks,
        "stargazers_count": 0,
        "watchers_count": 0,
        "size": 0,
        "default_branch": repo.default_branch,
        "open_issues_count": opened,
        "is_template": False,
        "topics": list(repo.topics),
        "has_issues": repo.has_issues,
        "has_projects": False,
        "has_wiki": False,
        "has_pages": False,
        "has_downloads": True,
        "has_discussions": bool(site.store.categories_of(repo)),
        "archived": repo.archived,
        "disabled": False,
        "visibility": "private" if repo.private else "public",
        "pushed_at": iso(repo.pushed_at),
        "created_at": iso(repo.created_at),
        "updated_at": iso(repo.pushed_at),
        "allow_forking": True,
        "web_commit_signoff_required": False,
        "license": None,
        "forks": forks,
        "open_issues": opened,
        "watchers": 0,
    }
    return shown if viewer is None else shown | {"permissions": role_flags(role_of(site, repo, viewer))}


def full_repository(site: Site, repo: Repo, viewer: User | None) -> Json:
    """`full-repository`: the answer to asking for one."""
    shown = repository(site, repo, viewer) | {"subscribers_count": 0, "network_count": 0}
    if repo.fork_of is not None:
        parent = repository(site, site.store.repos[repo.fork_of])
        shown |= {"parent": parent, "source": parent}
    return shown


def role_flags(role: Role) -> dict[str, bool]:
    """A role as the five booleans of `permissions`."""
    names: dict[str, Role] = {
        "admin": "admin",
        "maintain": "maintain",
        "push": "write",
        "triage": "triage",
        "pull": "read",
    }
    return {name: may(role, wanted) for name, wanted in names.items()}


def legacy_permission(role: Role) -> str:
    """The old `permission` word, which knows neither maintain nor triage."""
    assert role in ROLES  # noqa: S101 - the type says so
    return {"maintain": "write", "triage": "read"}.get(role, role)


def integration(site: Site, app: App) -> Json:
    """`integration`: an App as others see it."""
    owner = site.store.user(app.owner)
    return {
        "id": app.id,
        "slug": app.slug,
        "node_id": node_id("App", app.id),
        "client_id": client_id(app),
        "owner": simple_user(site, owner or app.bot),
        "name": app.slug,
        "description": None,
        "external_url": site.url,
        "html_url": site.html("apps", app.slug),
        "created_at": iso(app.created_at),
        "updated_at": iso(app.created_at),
        "permissions": dict(app.permissions),
        "events": list(app.events),
    }


def app_by_id(site: Site, number: int | None) -> Json | None:
    """`nullable-integration`."""
    if number == ACTIONS_ID:
        return actions_app(site)
    return None if number is None else integration(site, site.store.apps[number])


ACTIONS = "github-actions"
"""The App that GitHub's own workflow runs are check suites of."""


def actions_app(site: Site) -> Json:
    """GitHub Actions, as an App."""
    now = site.now()
    github = User(id=9919, login="github", type="Organization", name="GitHub", token="", created_at=now)
    return {
        "id": ACTIONS_ID,
        "slug": ACTIONS,
        "node_id": node_id("App", ACTIONS_ID),
        "client_id": "Iv1.05c79e9ad1f6bdfa",
        "owner": simple_user(site, github),
        "name": "GitHub Actions",
        "description": "Automate your workflow from idea to production",
        "external_url": "https://help.github.com/en/actions",
        "html_url": site.html("apps", ACTIONS),
        "created_at": "2018-07-30T09:30:17Z",
        "updated_at": "2019-12-10T19:04:12Z",
        "permissions": {"actions": "write", "checks": "write", "contents": "write", "metadata": "read"},
        "events": ["workflow_dispatch"],
    }


def installation(site: Site, value: Installation) -> Json:
    """`installation`."""
    app = site.store.apps[value.app_id]
    account = site.store.user(value.account) or app.bot
    return {
        "id": value.id,
        "account": simple_user(site, account),
        "repository_selection": "selected",
        "access_tokens_url": site.api("app", "installations", value.id, "access_tokens"),
        "repositories_url": site.api("installation", "repositories"),
        "html_url": site.html("settings", "installations", value.id),
        "app_id": app.id,
        "client_id": client_id(app),
        "app_slug": app.slug,
        "target_id": account.id,
        "target_type": account.type,
        "permissions": dict(value.permissions),
        "events": list(app.events),
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
        "single_file_name": None,
        "suspended_by": user_by_id(site, value.suspended_by),
        "suspended_at": iso_or_none(value.suspended_at),
    }


def milestone(site: Site, repo: Repo, value: Milestone) -> Json:
    """`milestone`."""
    url = site.repo_api(repo, "milestones", value.number)
    states = [issue.state for issue in site.store.issues if issue.milestone_id == value.id]
    return {
        "id": value.id,
        "node_id": node_id("Milestone", value.id),
        "url": url,
        "html_url": site.repo_html(repo, "milestone", value.number),
        "labels_url": f"{url}/labels",
        "number": value.number,
        "title": value.title,
        "description": value.description,
        "creator": user_by_id(site, value.creator_id),
        "state": value.state,
        "open_issues": states.count("open"),
        "closed_issues": states.count("closed"),
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "closed_at": iso_or_none(value.closed_at),
        "due_on": iso_or_none(value.due_on),
    }


def milestone_of(site: Site, repo: Repo, issue: Issue) -> Json | None:
    """`nullable-milestone`."""
    return None if issue.milestone_id is None else milestone(site, repo, site.store.milestones[issue.milestone_id])


def label(site: Site, repo: Repo, value: Label) -> Json:
    """`label`."""
    return {
        "id": value.id,
        "node_id": node_id("Label", value.id),
        "url": f"{site.api('repos', repo.owner, repo.name, 'labels')}/{quote(value.name, safe='')}",
        "name": value.name,
        "description": value.description,
        "color": value.color,
        "default": False,
    }


def labels_of(site: Site, repo: Repo, issue: Issue) -> list[Json]:
    """The labels of an issue or pull request."""
    return [label(site, repo, site.store.labels[repo.id, name.lower()]) for name in issue.labels]


def association(site: Site, repo: Repo, user_id: int) -> str:
    """`author-association`; on GitHub, too, it says less than the collaborator-permission answer."""
    user = site.store.users[user_id]
    if user.login == repo.owner:
        return "OWNER"
    return "COLLABORATOR" if (repo.id, user.id) in site.store.roles else "NONE"
