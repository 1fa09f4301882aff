"""A real repository that tests fetch from and push to, made with the git that is installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_ENVIRONMENT = {
    "PATH": os.defpath,
    "HOME": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Mona",
    "GIT_AUTHOR_EMAIL": "mona@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "Mona",
    "GIT_COMMITTER_EMAIL": "mona@example.com",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}


def git(folder: Path, *args: str, stdin: str = "") -> str:
    """Run the ordinary git in `folder`; give back what it prints."""
    command = ["git", "-C", str(folder), *args]
    done = subprocess.run(command, env=_ENVIRONMENT, input=stdin, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit_of(folder: Path, path: str, text: str) -> str:
    """Make a commit with one file, on no branch; give back its id."""
    node, tree = f"100644 blob {git(folder, 'hash-object', '-w', '--stdin', stdin=text)}", ""
    for name in reversed(path.split("/")):
        tree = git(folder, "mktree", stdin=f"{node}\t{name}\n")
        node = f"040000 tree {tree}"
    return git(folder, "commit-tree", "-m", "Add a file", tree)


class Origin:
    """A repository with a work tree to prepare commits in.

    Attributes:
        path: the work tree; plant links, modes and hidden files here before `commit`.
        url: what to clone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)
        path.mkdir(parents=True)
        git(path, "init", "--quiet", "--initial-branch=main")
        git(path, "config", "receive.denyCurrentBranch", "ignore")

    def commit(self, files: Mapping[str, str | bytes | None] | None = None, message: str = "Change") -> str:
        """Write the files (None removes one), commit everything, give back the commit's id."""
        for name, content in (files or {}).items():
            target = self.path / name
            if content is None:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.head()

    def head(self, ref: str = "HEAD") -> str:
        """The commit a ref stands at."""
        return self.git("rev-parse", ref)

    def git(self, *args: str, stdin: str = "") -> str:
        """Run git here."""
        return git(self.path, *args, stdin=stdin)
