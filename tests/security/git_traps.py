"""Programs that leave a trace when git runs them, and the places in a workspace that name them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path


class Trap:
    """A program that leaves a trace when it runs.

    Attributes:
        program: its path, and a command line for settings that take one.
    """

    def __init__(self, folder: Path) -> None:
        self.trace = folder / "sprung"
        self.program = folder / "trap.sh"
        self.program.write_text(f"#!/bin/sh\necho x >> {self.trace}\ncat\n")
        self.program.chmod(0o755)

    @property
    def sprung(self) -> bool:
        return self.trace.exists()


def hostile_config(trap: Trap) -> str:
    return f"""
[core]
    fsmonitor = {trap.program}
    hooksPath = {trap.program.parent}
    sshCommand = {trap.program}
    gitProxy = {trap.program}
    pager = {trap.program}
    editor = {trap.program}
    attributesFile = {trap.program.parent}/attributes
[filter "evil"]
    clean = {trap.program}
    smudge = {trap.program}
    process = {trap.program}
    required = true
[filter "lfs"]
    clean = {trap.program}
    smudge = {trap.program}
    process = {trap.program}
[diff "evil"]
    command = {trap.program}
    textconv = {trap.program}
[merge "evil"]
    driver = {trap.program}
[diff]
    external = {trap.program}
[gpg]
    program = {trap.program}
[commit]
    gpgSign = true
[credential]
    helper = !{trap.program}
[url "ext::{trap.program} "]
    insteadOf = /
[uploadpack]
    packObjectsHook = {trap.program}
[alias]
    read-tree = !{trap.program}
[include]
    path = {trap.program.parent}/more
"""


def git_folder(at: Path, trap: Trap) -> None:
    subprocess.run(["git", "init", "--quiet", str(at)], check=True, env={"PATH": os.defpath, "HOME": "/dev/null"})
    with (at / ".git/config").open("a") as file:
        file.write(hostile_config(trap))
    hooks = at / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-checkout", "post-index-change", "pre-push", "reference-transaction", "commit-msg"):
        (hooks / name).write_text(trap.program.read_text())
        (hooks / name).chmod(0o755)


def attributes(at: Path, _: Trap) -> None:
    (at / ".gitattributes").write_text(
        "* filter=evil diff=evil merge=evil text eol=crlf ident working-tree-encoding=UTF-16\n*.txt filter=lfs\n"
    )


def nested_repository(at: Path, trap: Trap) -> None:
    (at / "deps/lib").mkdir(parents=True)
    git_folder(at / "deps/lib", trap)
    (at / "deps/lib/code.py").write_text("x = 1\n")


def git_file(at: Path, trap: Trap) -> None:
    git_folder(at / "elsewhere", trap)
    (at / ".git").write_text(f"gitdir: {at}/elsewhere/.git\n")


def git_link(at: Path, trap: Trap) -> None:
    git_folder(at / "elsewhere", trap)
    (at / ".git").symlink_to(at / "elsewhere/.git")


def bare_repository(at: Path, trap: Trap) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(at / "bare")], check=True, env={"PATH": os.defpath})
    (at / "bare/config").write_text(hostile_config(trap))


def config_files(at: Path, trap: Trap) -> None:
    for name in (".gitconfig", "config", ".git-config", ".lfsconfig", "commondir", "gitdir"):
        (at / name).write_text(hostile_config(trap))


def worktree_config(at: Path, trap: Trap) -> None:
    git_folder(at, trap)
    with (at / ".git/config").open("a") as file:
        file.write("[extensions]\n    worktreeConfig = true\n")
    (at / ".git/config.worktree").write_text(hostile_config(trap))


def other_spellings(at: Path, trap: Trap) -> None:
    for name in (".GIT", ".Git", "git~1", ".git.", ".g\u200cit"):
        (at / name).mkdir()
        (at / name / "config").write_text(hostile_config(trap))


PLANTS: list[Callable[[Path, Trap], None]] = [
    git_folder,
    attributes,
    nested_repository,
    git_file,
    git_link,
    bare_repository,
    config_files,
    worktree_config,
    other_spellings,
]
