"""A repository's pages: its files and folders at a revision, its history, and one commit."""

from __future__ import annotations

from dataclasses import replace

from localhub.api.auth import HubError, not_found, or_404
from localhub.git import diff as git_diff
from localhub.git import plumbing as git
from localhub.git.diff import rows
from localhub.pages.view import Page, PageVisit, plain, render
from localhub.state.model import Repo
from localhub.views import git as git_views

HISTORY = 50


def repository(visit: PageVisit) -> Page:
    """The front page of a repository: files, newest commits, README."""
    name = visit.params["repo"].removesuffix(".git")  # as people paste it
    repo = replace(visit, params={**visit.params, "repo": name}).repo
    sha = git.resolve(repo.path, repo.default_branch)
    if sha is None:
        return render(visit, "empty.html", {"title": repo.full_name, "repo": repo})
    return _folder(visit, repo, repo.default_branch, "")


def folder(visit: PageVisit) -> Page:
    """A folder at a revision."""
    return _folder(visit, *_place(visit))


def _folder(visit: PageVisit, repo: Repo, ref: str, path: str) -> Page:
    try:
        entries = git.tree(repo.path, f"{git.resolve(repo.path, ref)}:{path}")
    except git.HubGitError as error:
        raise not_found() from error
    entries.sort(key=lambda entry: (entry.type != "tree", entry.path.lower()))
    readme = git.readme_in(entries)
    text = None if readme is None else git.blob(repo.path, readme.sha).decode(errors="replace")
    return render(
        visit,
        "repository.html",
        {
            "title": repo.full_name,
            "repo": repo,
            "ref": ref,
            "folder": path,
            "entries": entries,
            "branches": git.refs(repo.path),
            "commits": git.commits(repo.path, str(git.resolve(repo.path, ref)), limit=5),
            "readme": readme,
            "readme_text": text,
        },
    )


def file(visit: PageVisit) -> Page:
    """A file at a revision."""
    repo, ref, path, content = _content(visit)
    text = None if b"\0" in content[:8000] else content.decode(errors="replace")
    return render(
        visit, "file.html", {"title": path, "repo": repo, "ref": ref, "file": path, "text": text, "size": len(content)}
    )


def raw(visit: PageVisit) -> Page:
    """A file's bytes, always as plain text."""
    return plain(_content(visit)[3])


def _place(visit: PageVisit) -> tuple[Repo, str, str]:
    """Split `branch/path`: a branch's name may have slashes too, so the shortest prefix that names something wins."""
    repo, parts = visit.repo, visit.params["place"].strip("/").split("/")
    for length in range(1, len(parts) + 1):
        ref = "/".join(parts[:length])
        if git.resolve(repo.path, ref) is not None:
            return repo, ref, "/".join(parts[length:])
    raise not_found()


def _content(visit: PageVisit) -> tuple[Repo, str, str, bytes]:
    repo, ref, path = _place(visit)
    try:
        return repo, ref, path, git.run(repo.path, "cat-file", "blob", f"{git.resolve(repo.path, ref)}:{path}")
    except git.HubGitError as error:
        raise not_found() from error


def history(visit: PageVisit) -> Page:
    """Newest commits first."""
    repo = visit.repo
    sha = or_404(git.resolve(repo.path, visit.params["ref"]))
    commits = git.commits(repo.path, sha, limit=HISTORY)
    return render(
        visit, "commits.html", {"title": "Commits", "repo": repo, "ref": visit.params["ref"], "commits": commits}
    )


def commit(visit: PageVisit) -> Page:
    """One commit with its difference and checks."""
    repo, store = visit.repo, visit.site.store
    sha = git.resolve(repo.path, visit.params["sha"])
    if sha is None:
        raise HubError(404, "There is no such commit here.")
    value = git.commit(repo.path, sha)
    files = git_diff.files(repo.path, git_views.first_parent(value), sha)
    runs = [run for run in store.check_runs if (run.repo_id, run.head_sha) == (repo.id, sha)]
    return render(
        visit,
        "commit.html",
        {
            "title": value.message.partition("\n")[0],
            "repo": repo,
            "commit": value,
            "files": [(file, rows(file.patch or "")) for file in files],
            "runs": runs,
            "verified": sha in store.signed,
        },
    )
