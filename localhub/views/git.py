"""References, commits, trees, files, differences and releases as GitHub's JSON."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from pathlib import PurePosixPath
from urllib.parse import quote

from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.state.model import Activity, CommitComment, Release, Repo, User
from localhub.state.store import Json, Site, iso, iso_or_none, node_id
from localhub.views import accounts as account_views

LINK = "120000"
"""The mode of a symbolic link."""
MAX_COMPARED_FILES = 300
"""Of a comparison: https://docs.github.com/rest/commits/commits#compare-two-commits"""


def ref(site: Site, repo: Repo, value: git.Ref) -> Json:
    """`git-ref`."""
    kind = git.kind_of_ref(repo.path, value)
    return {
        "ref": value.name,
        "node_id": node_id("Ref", f"{repo.id}:{value.name}"),
        "url": site.repo_api(repo, "git", value.name),
        "object": {
            "type": kind,
            "sha": value.sha,
            "url": site.repo_api(repo, "git", f"{kind}s", value.sha),
        },
    }


def _person(value: git.Person) -> Json:
    return {"name": value.name, "email": value.email, "date": iso(value.date)}


def verification(site: Site, sha: str) -> Json:
    """`verification`: the hub vouches for the commits that it made in an App's name, without a real signature."""
    verified = sha in site.store.signed
    return {
        "verified": verified,
        "reason": "valid" if verified else "unsigned",
        "signature": None,
        "payload": None,
        "verified_at": None,
    }


def git_commit(site: Site, repo: Repo, value: git.Commit) -> Json:
    """`git-commit`, the object itself."""
    return {
        "sha": value.sha,
        "node_id": node_id("Commit", f"{repo.id}:{value.sha}"),
        "url": site.repo_api(repo, "git", "commits", value.sha),
        "html_url": commit_page(site, repo, value.sha),
        "author": _person(value.author),
        "committer": _person(value.committer),
        "tree": {"sha": value.tree, "url": site.repo_api(repo, "git", "trees", value.tree)},
        "message": value.message,
        "parents": [
            {
                "sha": sha,
                "url": site.repo_api(repo, "git", "commits", sha),
                "html_url": commit_page(site, repo, sha),
            }
            for sha in value.parents
        ],
        "verification": verification(site, value.sha),
    }


def commit(site: Site, repo: Repo, value: git.Commit) -> Json:
    """`commit`, the object with the accounts behind it."""
    url = site.repo_api(repo, "commits", value.sha)
    return {
        "sha": value.sha,
        "node_id": node_id("Commit", f"{repo.id}:{value.sha}"),
        "commit": {
            "author": _person(value.author),
            "committer": _person(value.committer),
            "message": value.message,
            "tree": {"sha": value.tree, "url": site.repo_api(repo, "git", "trees", value.tree)},
            "url": site.repo_api(repo, "git", "commits", value.sha),
            "comment_count": 0,
            "verification": verification(site, value.sha),
        },
        "url": url,
        "html_url": commit_page(site, repo, value.sha),
        "comments_url": f"{url}/comments",
        "author": _account(site, value.author),
        "committer": _account(site, value.committer),
        "parents": [
            {"sha": sha, "url": site.repo_api(repo, "commits", sha), "html_url": commit_page(site, repo, sha)}
            for sha in value.parents
        ],
    }


def simple_commit(value: git.Commit) -> Json:
    """`simple-commit`."""
    return {
        "id": value.sha,
        "tree_id": value.tree,
        "message": value.message,
        "timestamp": iso(value.committer.date),
        "author": {"name": value.author.name, "email": value.author.email},
        "committer": {"name": value.committer.name, "email": value.committer.email},
    }


def commit_with_files(site: Site, repo: Repo, value: git.Commit) -> Json:
    """`commit` with `stats` and `files`, as the answer to asking for one."""
    changed = git_diff.files(repo.path, first_parent(value), value.sha)
    added, removed = sum(f.additions for f in changed), sum(f.deletions for f in changed)
    return commit(site, repo, value) | {
        "stats": {"total": added + removed, "additions": added, "deletions": removed},
        "files": [diff_entry(site, repo, file, value.sha) for file in changed],
    }


def first_parent(value: git.Commit) -> str:
    """The parent that a commit is compared with; the empty tree for a first commit."""
    return value.parents[0] if value.parents else git_diff.EMPTY_TREE


def account_of(site: Site, person: git.Person) -> User | None:
    """The account whose private address a commit carries."""
    return next((user for user in site.store.users if user.email == person.email), None)


def _account(site: Site, person: git.Person) -> Json:
    user = account_of(site, person)
    return {} if user is None else account_views.simple_user(site, user)


def commit_page(site: Site, repo: Repo, sha: str) -> str:
    """The address of a commit's page."""
    return site.repo_html(repo, "commit", sha)


def diff_entry(site: Site, repo: Repo, value: git_diff.FileDiff, sha: str) -> Json:
    """`diff-entry`."""
    where = quote(value.path)
    page = site.repo_html(repo)
    shown = {
        "sha": value.sha,
        "filename": value.path,
        "status": value.status,
        "additions": value.additions,
        "deletions": value.deletions,
        "changes": value.additions + value.deletions,
        "blob_url": f"{page}/blob/{sha}/{where}",
        "raw_url": f"{page}/raw/{sha}/{where}",
        "contents_url": f"{site.repo_api(repo, 'contents')}/{where}?ref={sha}",
    }
    if value.patch is not None:
        shown["patch"] = value.patch
    if value.previous_path is not None:
        shown["previous_filename"] = value.previous_path
    return shown


def tree(site: Site, repo: Repo, sha: str, entries: list[git.TreeEntry]) -> Json:
    """`git-tree`."""
    url = site.repo_api(repo, "git", "trees", sha)
    return {"sha": sha, "url": url, "tree": [_tree_entry(site, repo, e) for e in entries], "truncated": False}


def _tree_entry(site: Site, repo: Repo, value: git.TreeEntry) -> Json:
    shown: Json = {"path": value.path, "mode": value.mode, "type": value.type, "sha": value.sha}
    if value.size is not None:
        shown["size"] = value.size
    if value.type != "commit":
        shown["url"] = site.repo_api(repo, "git", f"{value.type}s", value.sha)
    return shown


def blob(site: Site, repo: Repo, sha: str, content: bytes) -> Json:
    """`blob`."""
    return {
        "sha": sha,
        "node_id": node_id("Blob", f"{repo.id}:{sha}"),
        "size": len(content),
        "url": site.repo_api(repo, "git", "blobs", sha),
        "content": base64.encodebytes(content).decode(),
        "encoding": "base64",
    }


_TAGGER = re.compile(r"(.*) <(.*)> (\d+) [+-]\d{4}")


def tag(site: Site, repo: Repo, sha: str) -> Json:
    """`git-tag`."""
    head, message = git.read_tag(repo.path, sha)
    found = _TAGGER.fullmatch(head.get("tagger", ""))
    name, email, when = found.groups() if found else ("", "", "0")
    return {
        "node_id": node_id("Tag", f"{repo.id}:{sha}"),
        "tag": head["tag"],
        "sha": sha,
        "url": site.repo_api(repo, "git", "tags", sha),
        "message": message,
        "tagger": {"name": name, "email": email, "date": iso(datetime.fromtimestamp(int(when), UTC))},
        "object": {
            "type": head["type"],
            "sha": head["object"],
            "url": site.repo_api(repo, "git", f"{head['type']}s", head["object"]),
        },
        "verification": {
            "verified": False,
            "reason": "unsigned",
            "signature": None,
            "payload": None,
            "verified_at": None,
        },
    }


def commit_comment(site: Site, repo: Repo, value: CommitComment) -> Json:
    """`commit-comment`."""
    return {
        "id": value.id,
        "node_id": node_id("CommitComment", value.id),
        "url": site.repo_api(repo, "comments", value.id),
        "html_url": f"{commit_page(site, repo, value.sha)}#commitcomment-{value.id}",
        "user": account_views.user_by_id(site, value.author_id),
        "body": value.body,
        "path": value.path,
        "position": value.position,
        "line": value.line,
        "commit_id": value.sha,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "author_association": account_views.association(site, repo, value.author_id),
    }


def content(site: Site, repo: Repo, value: git.TreeEntry, at: str) -> Json:
    """The common part of `content-file` and the entries of `content-directory`."""
    where = quote(value.path)
    page = site.repo_html(repo)
    kind = {"blob": "file", "tree": "dir", "commit": "submodule"}[value.type]
    url = f"{site.repo_api(repo, 'contents')}/{where}?ref={quote(at)}"
    git_url = site.repo_api(repo, "git", "trees" if value.type == "tree" else "blobs", value.sha)
    html = f"{page}/{'tree' if value.type == 'tree' else 'blob'}/{quote(at)}/{where}"
    return {
        "name": PurePosixPath(value.path).name,
        "path": value.path,
        "sha": value.sha,
        "size": value.size or 0,
        "url": url,
        "html_url": html,
        "git_url": git_url,
        "download_url": f"{page}/raw/{quote(at)}/{where}" if value.type == "blob" else None,
        "type": kind,
        "_links": {"self": url, "git": git_url, "html": html},
    }


def content_entry(site: Site, repo: Repo, value: git.TreeEntry, at: str) -> Json:
    """An entry of `content-directory`, where a submodule counts as a file."""
    shown = content(site, repo, value, at)
    if value.mode == LINK:
        return shown | {"type": "symlink"}
    return shown | {"type": "file"} if value.type == "commit" else shown


def content_file(site: Site, repo: Repo, value: git.TreeEntry, at: str, *, with_content: bool) -> Json:
    """`content-file`; its content is left out when it is too large."""
    encoded = base64.encodebytes(git.blob(repo.path, value.sha)).decode() if with_content else ""
    return content(site, repo, value, at) | {"content": encoded, "encoding": "base64" if with_content else "none"}


def content_link(site: Site, repo: Repo, value: git.TreeEntry, at: str, *, target: str) -> Json:
    """`content-symlink`."""
    return content(site, repo, value, at) | {"type": "symlink", "target": target}


def content_submodule(site: Site, repo: Repo, value: git.TreeEntry, at: str) -> Json:
    """`content-submodule`; its own repository is wherever `.gitmodules` says."""
    found = content(site, repo, value, at)
    return (
        found
        | {"submodule_git_url": submodule_url(repo, value.path, at), "git_url": None, "html_url": None}
        | {"_links": found["_links"] | {"git": None, "html": None}}
    )


def submodule_url(repo: Repo, path: str, at: str) -> str:
    """The address in `.gitmodules` of the submodule at a path; empty when there is none."""
    sha = git.resolve(repo.path, at)
    modules = None if sha is None else git.entry(repo.path, sha, ".gitmodules")
    if modules is None or modules.type != "blob":
        return ""
    listed = git.text(repo.path, "config", "--blob", modules.sha, "--null", "--list").split("\0")
    settings = dict(each.split("\n", 1) for each in listed if "\n" in each)
    names = [key.removesuffix(".path") for key, value in settings.items() if key.endswith(".path") and value == path]
    return settings.get(f"{names[0]}.url", "") if names else ""


def comparison(site: Site, repo: Repo, base: git.Commit, head: git.Commit) -> Json:
    """`commit-comparison`: from where the two parted to `head`."""
    ahead, behind = git_diff.ahead_behind(repo.path, base.sha, head.sha)
    parted = git_diff.merge_base(repo.path, base.sha, head.sha) or base.sha
    between = git.commits(repo.path, f"{base.sha}..{head.sha}")[::-1]
    changed = git_diff.files(repo.path, parted, head.sha)
    page = f"{site.repo_html(repo, 'compare')}/{base.sha}...{head.sha}"
    status = {(True, True): "diverged", (True, False): "ahead", (False, True): "behind", (False, False): "identical"}
    return {
        "url": f"{site.repo_api(repo, 'compare')}/{base.sha}...{head.sha}",
        "html_url": page,
        "permalink_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "base_commit": commit(site, repo, base),
        "merge_base_commit": commit(site, repo, git.commit(repo.path, parted)),
        "status": status[ahead > 0, behind > 0],
        "ahead_by": ahead,
        "behind_by": behind,
        "total_commits": len(between),
        "commits": [commit(site, repo, value) for value in between],
        "files": [diff_entry(site, repo, f, head.sha) for f in changed[:MAX_COMPARED_FILES]],
    }


def release(site: Site, repo: Repo, value: Release) -> Json:
    """`release`."""
    url = site.repo_api(repo, "releases", value.id)
    return {
        "id": value.id,
        "node_id": node_id("Release", value.id),
        "url": url,
        "html_url": site.repo_html(repo, "releases", "tag", value.tag),
        "assets_url": f"{url}/assets",
        "upload_url": f"{url}/assets{{?name,label}}",
        "tarball_url": site.repo_api(repo, "tarball", value.tag),
        "zipball_url": site.repo_api(repo, "zipball", value.tag),
        "tag_name": value.tag,
        "target_commitish": value.target,
        "name": value.name,
        "body": value.body,
        "draft": value.draft,
        "prerelease": value.prerelease,
        "immutable": False,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.updated_at),
        "published_at": iso_or_none(value.published_at),
        "author": account_views.user_by_id(site, value.author_id),
        "assets": [],
    }


def activity(site: Site, value: Activity) -> Json:
    """`activity`."""
    return {
        "id": value.id,
        "node_id": node_id("Push", value.id),
        "before": value.before,
        "after": value.after,
        "ref": value.ref,
        "timestamp": iso(value.at),
        "activity_type": value.kind,
        "actor": account_views.user_by_id(site, value.actor_id),
    }
