"""Repositories: branches, tags, collaborators, labels, and releases without their files."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlencode

from localhub.api import rules
from localhub.api.auth import HubError, can_write, invalid, not_found, or_404, role_of, unprocessable
from localhub.api.routing import Call, Response, Routes, listed, page_size
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.operations import accounts, branches, threads
from localhub.state.model import Label, Release, Repo, User
from localhub.state.store import Json, node_id
from localhub.views import accounts as account_views
from localhub.views import git as git_views

routes = Routes()
REPO = "/repos/{owner}/{repo}"
LABEL = REPO + "/labels/{name}"
RELEASES = REPO + "/releases"
RELEASE = RELEASES + "/{release_id}"

RESOURCE = "Release"
_COLOR = re.compile(r"[0-9A-Fa-f]{6}")
_TOPIC = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")


@routes.on("GET", REPO, allow="metadata:read")
def one_repo(call: Call) -> Response:
    """One repository."""
    return Response(body=account_views.full_repository(call.site, call.repo, call.viewer.user))


@routes.on(
    "PATCH",
    REPO,
    allow="administration:write",
    role="admin",
    takes="archived default_branch description homepage name private visibility",
)
def edit_repo(call: Call) -> Response:
    """Change a repository's name, words, default branch or visibility, or make it read-only."""
    site, old, body = call.site, call.repo, call.body
    branch = call.text("default_branch", "Repository", old.default_branch)
    if git.ref(old.path, f"refs/heads/{branch}") is None and branch != old.default_branch:
        raise HubError(422, f"The branch {branch} was not found. Please push that ref first or create it via the API.")
    visibility = call.text("visibility", "Repository", "private" if old.private else "public")
    changed = replace(
        old,
        default_branch=branch,
        description=call.text("description", "Repository", old.description),
        homepage=call.text("homepage", "Repository", old.homepage),
        private=bool(body["private"]) if body.get("private") is not None else visibility == "private",
    )
    changed = accounts.edit(site, old, changed, call.user)
    if branch != old.default_branch:
        (old.path / "HEAD").write_text(f"ref: refs/heads/{branch}\n", encoding="utf-8")
    try:
        name = call.text("name", "Repository", old.name)
        changed = accounts.rename(site, changed, name, call.user) if name != old.name else changed
    except ValueError as error:
        raise invalid("Repository", "name", "custom", "name already exists on this account") from error
    if body.get("archived") not in {None, changed.archived}:
        changed = accounts.archive(site, changed, call.user, archived=body["archived"])
    return Response(body=account_views.full_repository(site, changed, call.viewer.user))


@routes.on("GET", REPO + "/topics", allow="metadata:read")
def list_topics(call: Call) -> Response:
    """The repository's topics."""
    return Response(body={"names": list(call.repo.topics)})


@routes.on("PUT", REPO + "/topics", allow="administration:write", role="admin", takes="names")
def set_topics(call: Call) -> Response:
    """Replace the repository's topics."""
    names = call.texts("names", "Repository")
    if not all(_TOPIC.fullmatch(name.lower()) for name in names):
        raise HubError(422, "Validation Failed", errors=("Topics must start with a lowercase letter or number.",))
    topics = tuple(dict.fromkeys(name.lower() for name in names))
    call.site.store.repos.put(replace(call.repo, topics=topics))
    return Response(body={"names": list(topics)})


@routes.on("GET", REPO + "/languages", allow="metadata:read")
def list_languages(call: Call) -> Response:
    """The bytes of each language."""
    return Response(body=git.languages(call.repo.path, call.repo.default_branch))


@routes.on("POST", REPO + "/forks", allow="contents:read", takes="name organization")
def create_fork(call: Call) -> Response:
    """Fork the repository into the viewer's account or an organisation."""
    login = call.text("organization", "Repository", call.user.login)
    try:
        name = call.text("name", "Repository", "")
        made = accounts.fork(call.site, call.repo, threads.require_user(call.site, login), call.user, name=name)
    except ValueError as error:
        raise HubError(422, "Validation Failed", errors=(str(error),)) from error
    return Response(status=202, body=account_views.full_repository(call.site, made, call.user))


@routes.on("GET", REPO + "/forks", allow="metadata:read")
def list_forks(call: Call) -> Response:
    """The repository's forks, newest first."""
    found = [repo for repo in call.site.store.repos if repo.fork_of == call.repo.id][::-1]
    return listed(call, found, lambda repo: account_views.repository(call.site, repo))


@routes.on("POST", REPO + "/merges", allow="contents:write", takes="base commit_message head")
def merge_branches(call: Call) -> Response:
    """Merge a branch or commit into a branch."""
    path, base, head = call.repo.path, call.text("base", "Merge"), call.text("head", "Merge")
    into, sha = git.ref(path, f"refs/heads/{base}"), git.resolve(path, head)
    if into is None or sha is None:
        raise HubError(404, f"{'Base' if into is None else 'Head'} does not exist")
    if git.is_ancestor(path, sha, into.sha):
        return Response(status=204)
    tree = git_diff.merge_tree(path, into.sha, sha)
    if tree is None:
        raise HubError(409, "Merge conflict")
    message = call.text("commit_message", "Merge", f"Merge {head} into {base}")
    parents = [into.sha, sha]
    made = threads.write_commit(call.site, call.repo, tree=tree, parents=parents, message=message, author=call.user)
    branches.move_ref(call, call.repo, into.name, made, into.sha)
    return Response(status=201, body=git_views.commit(call.site, call.repo, git.commit(path, made)))


@routes.on("GET", REPO + "/actions/secrets", allow="secrets:read", role="write")
def list_secrets(_call: Call) -> Response:
    """An empty list: the hub keeps no secrets."""
    return Response(body={"total_count": 0, "secrets": []})


@routes.on("GET", REPO + "/branches", allow="contents:read")
def list_branches(call: Call) -> Response:
    """Branches by name."""
    repo = call.repo

    def show(ref: git.Ref) -> Json:
        commit = {"sha": ref.sha, "url": call.site.repo_api(repo, "commits", ref.sha)}
        return {"name": ref.name.removeprefix("refs/heads/"), "commit": commit, "protected": False}

    return listed(call, git.refs(repo.path), show)


@routes.on("GET", REPO + "/branches/{branch}", allow="contents:read")
def one_branch(call: Call) -> Response:
    """One branch with its commit."""
    repo, name = call.repo, call.params["branch"]
    ref = git.ref(repo.path, f"refs/heads/{name}")
    if ref is None:
        raise HubError(404, "Branch not found")
    url = call.site.repo_api(repo, "branches", name)
    return Response(
        body={
            "name": name,
            "commit": git_views.commit(call.site, repo, git.commit(repo.path, ref.sha)),
            "_links": {"self": url, "html": call.site.repo_html(repo, "tree", name)},
            "protected": False,
            "protection": {
                "enabled": False,
                "required_status_checks": {"enforcement_level": "off", "contexts": [], "checks": []},
            },
            "protection_url": f"{url}/protection",
        }
    )


@routes.on("GET", REPO + "/activity", allow="contents:read", takes="activity_type after before direction ref")
def activity(call: Call) -> Response:
    """Changes of branches, newest first unless asked otherwise; pages have cursors and no numbers."""
    ref, kind = call.query.get("ref", ""), call.query.get("activity_type")
    found = [
        each
        for each in call.site.store.activities
        if each.repo_id == call.repo.id
        and ref in {"", each.ref, each.ref.removeprefix("refs/heads/")}
        and kind in {None, each.kind}
    ]
    found = found if call.query.get("direction") == "asc" else found[::-1]
    ids, size = [str(each.id) for each in found], page_size(call)
    start = ids.index(call.query["after"]) + 1 if call.query.get("after") in ids else 0
    end = ids.index(call.query["before"]) if call.query.get("before") in ids else len(found)
    shown = found[start:end][-size:] if "before" in call.query else found[start:end][:size]
    rest = shown and found.index(shown[-1]) + 1 < len(found)
    query = urlencode({**call.query, "after": shown[-1].id}) if rest else ""
    headers = {"Link": f'<{call.site.api_url}{call.path}?{query}>; rel="next"'} if rest else {}
    return Response(body=[git_views.activity(call.site, each) for each in shown], headers=headers)


@routes.on("GET", REPO + "/rules/branches/{branch}", allow="metadata:read")
def rules_of_branch(call: Call) -> Response:
    """The rules of all rulesets for a branch, which need not exist."""
    found = [
        rules.rule_of_branch(ruleset, rule)
        for ruleset in rules.rulesets_of(call.site, call.repo, call.params["branch"])
        if not ruleset.classic
        for rule in ruleset.rules
    ]
    return listed(call, found, lambda rule: rule)


@routes.on("GET", REPO + "/rulesets/{ruleset_id}", allow="metadata:read")
def one_ruleset(call: Call) -> Response:
    """One ruleset, and whether it binds the viewer."""
    found = call.site.store.rulesets.get(call.number("ruleset_id"))
    if found is None or found.repo_id != call.repo.id or found.classic:
        raise not_found()
    return Response(
        body={
            "id": found.id,
            "name": found.branches,
            "target": "branch",
            "source_type": "Repository",
            "source": found.source,
            "enforcement": "active",
            "conditions": {"ref_name": {"include": [f"refs/heads/{found.branches}"], "exclude": []}},
            "rules": list(found.rules),
            "current_user_can_bypass": "always" if call.user.login in found.bypass else "never",
        }
    )


@routes.on("GET", REPO + "/collaborators", allow="metadata:read", role="write")
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


@routes.on("GET", REPO + "/collaborators/{username}", allow="metadata:read", role="write")
def is_collaborator(call: Call) -> Response:
    """204 for a collaborator, else 404."""
    user = _collaborator(call)
    if user.login != call.repo.owner and (call.repo.id, user.id) not in call.site.store.roles:
        raise not_found()
    return Response(status=204)


@routes.on("GET", REPO + "/collaborators/{username}/permission", allow="metadata:read", role="write")
def permission(call: Call) -> Response:
    """A user's permission; `role_name` tells maintain and triage apart."""
    user = _collaborator(call)
    role = role_of(call.site, call.repo, user)
    person = account_views.simple_user(call.site, user) | {
        "permissions": account_views.role_flags(role),
        "role_name": role,
    }
    return Response(body={"permission": account_views.legacy_permission(role), "role_name": role, "user": person})


def _collaborator(call: Call) -> User:
    return or_404(call.site.store.user(call.params["username"]))


@routes.on("GET", REPO + "/labels", allow="issues|pull_requests:read")
def list_labels(call: Call) -> Response:
    """The repository's labels."""
    repo = call.repo
    found = [label for (repo_id, _), label in call.site.store.labels.items() if repo_id == repo.id]
    return listed(call, found, lambda label: account_views.label(call.site, repo, label))


@routes.on("POST", REPO + "/labels", allow="issues|pull_requests:write", takes="color description name")
def create_label(call: Call) -> Response:
    """Add a label to the repository."""
    name = call.text("name", "Label")
    if (call.repo.id, name.lower()) in call.site.store.labels:
        raise invalid("Label", "name", "already_exists")
    color = _color(call, threads.DEFAULT_COLOR)
    label = threads.ensure_label(call.site, call.repo, name, color, call.text("description", "Label", ""))
    return Response(status=201, body=account_views.label(call.site, call.repo, label))


@routes.on("GET", LABEL, allow="issues|pull_requests:read")
def one_label(call: Call) -> Response:
    """One label."""
    return Response(body=account_views.label(call.site, call.repo, _label_of(call)))


@routes.on("PATCH", LABEL, allow="issues|pull_requests:write", takes="color description new_name")
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


@routes.on("DELETE", LABEL, allow="issues|pull_requests:write")
def delete_label(call: Call) -> Response:
    """Remove a label from the repository and from the threads that have it."""
    threads.change_label(call.site, call.repo, _label_of(call), None)
    return Response(status=204)


def _color(call: Call, default: str) -> str:
    color = call.text("color", "Label", default)
    if not _COLOR.fullmatch(color):
        raise invalid("Label", "color", "invalid")
    return color


def _label_of(call: Call) -> Label:
    return or_404(call.site.store.labels.get((call.repo.id, call.params["name"].lower())))


@routes.on("GET", REPO + "/tags", allow="contents:read")
def list_tags(call: Call) -> Response:
    """Tags by name, newest name first."""
    repo = call.repo

    def show(ref: git.Ref) -> Json:
        name = ref.name.removeprefix("refs/tags/")
        sha = git.resolve(repo.path, ref.sha) or ref.sha
        return {
            "name": name,
            "commit": {"sha": sha, "url": call.site.repo_api(repo, "commits", sha)},
            "zipball_url": call.site.repo_api(repo, "zipball", ref.name),
            "tarball_url": call.site.repo_api(repo, "tarball", ref.name),
            "node_id": node_id("Ref", f"{repo.id}:{ref.name}"),
        }

    return listed(call, git.refs(repo.path, "refs/tags/")[::-1], show)


@routes.on("GET", RELEASES, allow="contents:read")
def list_releases(call: Call) -> Response:
    """Releases, newest first; drafts for those who may write."""
    return listed(call, _visible_releases(call), lambda value: git_views.release(call.site, call.repo, value))


@routes.on("GET", RELEASES + "/latest", allow="contents:read")
def latest_release(call: Call) -> Response:
    """The newest release that is neither a draft nor a prerelease."""
    return _release_response(call, branches.latest_release(call.site, call.repo))


@routes.on("GET", RELEASES + "/tags/{tag}", allow="contents:read")
def release_of_tag(call: Call) -> Response:
    """The release of a tag."""
    found = (
        each for each in branches.releases_of(call.site, call.repo, drafts=False) if each.tag == call.params["tag"]
    )
    return _release_response(call, next(found, None))


@routes.on("GET", RELEASE, allow="contents:read")
def one_release(call: Call) -> Response:
    """One release."""
    return _release_response(call, _release_of(call))


@routes.on("POST", RELEASES, allow="contents:write", takes="body draft name prerelease tag_name target_commitish")
def create_release(call: Call) -> Response:
    """Make a release, and its tag unless that is there or the release is a draft."""
    tag, site = call.text("tag_name", RESOURCE), call.site
    if any(each.tag == tag for each in _visible_releases(call) if not each.draft):
        raise HubError(
            422, "Validation Failed", errors=({"resource": RESOURCE, "code": "already_exists", "field": "tag_name"},)
        )
    made = Release(
        id=site.store.new_id(),
        repo_id=call.repo.id,
        author_id=call.user.id,
        tag=tag,
        target=call.text("target_commitish", RESOURCE, call.repo.default_branch),
        name=call.text("name", RESOURCE, ""),
        body=call.text("body", RESOURCE, ""),
        draft=bool(call.body.get("draft", False)),
        prerelease=bool(call.body.get("prerelease", False)),
        created_at=site.now(),
        updated_at=site.now(),
        published_at=None,
    )
    return _release_response(call, _save_release(call, made, was_draft=True), 201)


@routes.on("PATCH", RELEASE, allow="contents:write", takes="body draft name prerelease tag_name target_commitish")
def edit_release(call: Call) -> Response:
    """Change a release; a draft that no longer is one is published."""
    old = _release_of(call)
    new = replace(
        old,
        tag=call.text("tag_name", RESOURCE, old.tag),
        target=call.text("target_commitish", RESOURCE, old.target),
        name=call.text("name", RESOURCE, old.name),
        body=call.text("body", RESOURCE, old.body),
        draft=bool(call.body.get("draft", old.draft)),
        prerelease=bool(call.body.get("prerelease", old.prerelease)),
    )
    return _release_response(call, _save_release(call, new, was_draft=old.draft))


@routes.on("DELETE", RELEASE, allow="contents:write")
def delete_release(call: Call) -> Response:
    """Remove a release; its tag stays."""
    old = _release_of(call)
    call.site.store.releases.remove(old.id)
    branches.announce_release(call.site, old, call.user, "deleted")
    return Response(status=204)


def _release_of(call: Call) -> Release:
    return or_404(next((each for each in _visible_releases(call) if each.id == call.number("release_id")), None))


def _visible_releases(call: Call) -> list[Release]:
    return branches.releases_of(call.site, call.repo, drafts=can_write(call.site, call.viewer, call.repo))


def _save_release(call: Call, value: Release, *, was_draft: bool) -> Release:
    published = was_draft and not value.draft
    if not value.draft:
        _ensure_tag(call, call.repo, value)
    now = call.site.now()
    kept = replace(value, updated_at=now, published_at=now if published else value.published_at)
    call.site.store.releases.put(kept)
    branches.announce_release(
        call.site, kept, call.user, *(("created", "published", "released") if published else ("edited",))
    )
    return kept


def _ensure_tag(call: Call, repo: Repo, value: Release) -> None:
    if git.ref(repo.path, f"refs/tags/{value.tag}") is not None:
        return
    sha = git.resolve(repo.path, value.target)
    if sha is None:
        raise unprocessable("Release.target_commitish is invalid")
    branches.create_ref(call, repo, f"refs/tags/{value.tag}", sha)


def _release_response(call: Call, value: Release | None, status: int = 200) -> Response:
    if value is None:
        raise not_found()
    shown = git_views.release(call.site, call.repo, value)
    return Response(status=status, body=shown, headers={"Location": shown["url"]} if status == 201 else {})  # noqa: PLR2004 - Created
