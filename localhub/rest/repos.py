"""Repositories, branches, collaborators and labels."""

from __future__ import annotations

import re
from dataclasses import replace

from localhub.api.auth import role_of
from localhub.api.errors import HubError, invalid, not_found
from localhub.api.routing import Call, Response, Routes, listed
from localhub.git import plumbing as git
from localhub.operations import threads
from localhub.state.model import Label, User
from localhub.state.site import Json, node_id
from localhub.views import accounts as account_views
from localhub.views import git as git_views

routes = Routes()
_COLOR = re.compile(r"[0-9A-Fa-f]{6}")


@routes.on("GET", "/repos/{owner}/{repo}", allow="metadata:read")
def one_repo(call: Call) -> Response:
    """One repository."""
    return Response(body=account_views.full_repository(call.site, call.repo, call.viewer.user))


@routes.on("GET", "/repos/{owner}/{repo}/branches", allow="contents:read")
def list_branches(call: Call) -> Response:
    """Branches by name."""
    repo = call.repo

    def show(ref: git.Ref) -> Json:
        commit = {"sha": ref.sha, "url": git_views.api(call.site, repo, "commits", ref.sha)}
        return {"name": ref.name.removeprefix("refs/heads/"), "commit": commit, "protected": False}

    return listed(call, git.refs(repo.path), show)


@routes.on("GET", "/repos/{owner}/{repo}/branches/{branch}", allow="contents:read")
def one_branch(call: Call) -> Response:
    """One branch with its commit."""
    repo, name = call.repo, call.params["branch"]
    ref = git.ref(repo.path, f"refs/heads/{name}")
    if ref is None:
        raise HubError(404, "Branch not found")
    url = git_views.api(call.site, repo, "branches", name)
    return Response(
        body={
            "name": name,
            "commit": git_views.commit(call.site, repo, git.commit(repo.path, ref.sha)),
            "_links": {"self": url, "html": call.site.html(repo.owner, repo.name, "tree", name)},
            "protected": False,
            "protection": {
                "enabled": False,
                "required_status_checks": {"enforcement_level": "off", "contexts": [], "checks": []},
            },
            "protection_url": f"{url}/protection",
        }
    )


def _collaborator(call: Call) -> User:
    user = call.site.store.user(call.params["username"])
    if user is None:
        raise not_found()
    return user


@routes.on("GET", "/repos/{owner}/{repo}/collaborators", allow="metadata:read", role="write")
def list_collaborators(call: Call) -> Response:
    """The owner and everybody with a role of their own."""
    repo, site = call.repo, call.site
    people = [u for u in site.store.users if u.login == repo.owner or (repo.id, u.id) in site.store.roles]

    def show(user: User) -> Json:
        role = role_of(site, repo, user)
        return account_views.simple_user(site, user) | {
            "permissions": account_views.role_flags(role),
            "role_name": role,
        }

    return listed(call, people, show)


@routes.on("GET", "/repos/{owner}/{repo}/collaborators/{username}", allow="metadata:read", role="write")
def is_collaborator(call: Call) -> Response:
    """204 for a collaborator, else 404."""
    user = _collaborator(call)
    if user.login != call.repo.owner and (call.repo.id, user.id) not in call.site.store.roles:
        raise not_found()
    return Response(status=204)


@routes.on("GET", "/repos/{owner}/{repo}/collaborators/{username}/permission", allow="metadata:read", role="write")
def permission(call: Call) -> Response:
    """What somebody may do here; `role_name` tells maintain and triage apart."""
    user = _collaborator(call)
    role = role_of(call.site, call.repo, user)
    person = account_views.simple_user(call.site, user) | {
        "permissions": account_views.role_flags(role),
        "role_name": role,
    }
    return Response(body={"permission": account_views.legacy_permission(role), "role_name": role, "user": person})


@routes.on("GET", "/repos/{owner}/{repo}/labels", allow="issues|pull_requests:read")
def list_labels(call: Call) -> Response:
    """The repository's labels."""
    repo = call.repo
    found = [label for (repo_id, _), label in call.site.store.labels.items() if repo_id == repo.id]
    return listed(call, found, lambda label: account_views.label(call.site, repo, label))


@routes.on("POST", "/repos/{owner}/{repo}/labels", allow="issues|pull_requests:write")
def create_label(call: Call) -> Response:
    """Add a label to the repository."""
    name = call.text("name", "Label")
    if (call.repo.id, name.lower()) in call.site.store.labels:
        raise invalid("Label", "name", "already_exists")
    color = _color(call, threads.DEFAULT_COLOR)
    label = threads.ensure_label(call.site, call.repo, name, color, call.text("description", "Label", ""))
    return Response(status=201, body=account_views.label(call.site, call.repo, label))


def _color(call: Call, default: str) -> str:
    color = call.text("color", "Label", default)
    if not _COLOR.fullmatch(color):
        raise invalid("Label", "color", "invalid")
    return color


def _label_of(call: Call) -> Label:
    found = call.site.store.labels.get((call.repo.id, call.params["name"].lower()))
    if found is None:
        raise not_found()
    return found


@routes.on("GET", "/repos/{owner}/{repo}/labels/{name}", allow="issues|pull_requests:read")
def one_label(call: Call) -> Response:
    """One label."""
    return Response(body=account_views.label(call.site, call.repo, _label_of(call)))


@routes.on("PATCH", "/repos/{owner}/{repo}/labels/{name}", allow="issues|pull_requests:write")
def edit_label(call: Call) -> Response:
    """Change a label, also on the threads that have it."""
    old = _label_of(call)
    new = replace(
        old,
        name=call.text("new_name", "Label", old.name),
        color=_color(call, old.color),
        description=call.text("description", "Label", old.description),
    )
    if new.name.lower() != old.name.lower() and (call.repo.id, new.name.lower()) in call.site.store.labels:
        raise invalid("Label", "name", "already_exists")
    threads.change_label(call.site, call.repo, old, new)
    return Response(body=account_views.label(call.site, call.repo, new))


@routes.on("DELETE", "/repos/{owner}/{repo}/labels/{name}", allow="issues|pull_requests:write")
def delete_label(call: Call) -> Response:
    """Remove a label from the repository and from the threads that have it."""
    threads.change_label(call.site, call.repo, _label_of(call), None)
    return Response(status=204)


@routes.on("GET", "/repos/{owner}/{repo}/tags", allow="contents:read")
def list_tags(call: Call) -> Response:
    """Tags by name, newest name first."""
    repo = call.repo

    def show(ref: git.Ref) -> Json:
        name = ref.name.removeprefix("refs/tags/")
        sha = git.resolve(repo.path, ref.sha) or ref.sha
        return {
            "name": name,
            "commit": {"sha": sha, "url": git_views.api(call.site, repo, "commits", sha)},
            "zipball_url": git_views.api(call.site, repo, "zipball", ref.name),
            "tarball_url": git_views.api(call.site, repo, "tarball", ref.name),
            "node_id": node_id("Ref", f"{repo.id}:{ref.name}"),
        }

    return listed(call, git.refs(repo.path, "refs/tags/")[::-1], show)
