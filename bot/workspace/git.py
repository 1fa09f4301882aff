"""The one place that starts git: explicit argv, an environment made from nothing, a configuration made here.

Settings travel in the environment (`GIT_CONFIG_COUNT`, see git-config(1), "ENVIRONMENT"), where they outrank every
file and where a credential shows up neither on a command line nor on disk.
"""

from __future__ import annotations

import os
import shutil
import signal
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_runtime import traced
from bot.workspace.errors import GitError, GitMissingError
from bot.workspace.process import ProcessBounds, run

NOWHERE = "/dev/null"

# What fsck reports of old histories and harms nobody here: see docs/decisions/0037.
_HARMLESS = (
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badName",
    "badTimezone",
    "duplicateEntries",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "multipleAuthors",
    "nulInCommit",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
)

_NOT_STARTED = (126, 127)  # how a shell says so

_SETTINGS: tuple[tuple[str, str], ...] = (
    ("core.hooksPath", NOWHERE),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", NOWHERE),
    ("core.excludesFile", NOWHERE),
    ("core.askPass", ""),
    ("core.sshCommand", "false"),
    ("core.pager", "cat"),
    ("core.autocrlf", "false"),
    ("core.fileMode", "true"),
    ("core.symlinks", "true"),
    ("core.quotePath", "false"),
    ("core.protectHFS", "true"),
    # Names such as `a\b` are files like any other on Linux; `.git` in all its spellings is refused in scan.py.
    ("core.protectNTFS", "false"),
    ("credential.helper", ""),
    ("http.followRedirects", "false"),
    # A connection that is silent for so long is given up; git's servers send a byte a second while they prepare.
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "60"),
    ("protocol.allow", "never"),
    ("protocol.https.allow", "always"),
    ("protocol.http.allow", "always"),
    ("protocol.file.allow", "always"),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("diff.renames", "false"),
    ("diff.noprefix", "false"),
    ("diff.mnemonicPrefix", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.followTags", "false"),
    ("commit.gpgSign", "false"),
    ("push.gpgSign", "false"),
    ("gc.auto", "0"),
    ("gc.autoDetach", "false"),
    ("maintenance.auto", "false"),
    ("checkout.workers", "0"),
    # Larger files are streamed and never compared line by line.
    ("core.bigFileThreshold", "16m"),
    ("pack.windowMemory", "128m"),
    ("transfer.fsckObjects", "true"),
    # Always a pack, which appears whole or not at all: a commit that is there has all its files, even after kill -9.
    ("transfer.unpackLimit", "1"),
    *((f"fetch.fsck.{fault}", "ignore") for fault in _HARMLESS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A token, valid for one remote address and nothing else.

    Attributes:
        url: the remote's address; git sends the token to addresses that begin with it.
        token: a GitHub token, never shown.
    """

    url: str
    token: str = field(repr=False)

    def settings(self) -> tuple[tuple[str, str], ...]:
        """Git's settings that send the token; empty when the address is a path of this machine."""
        if not self.url.startswith(("https://", "http://")) or not self.token:
            return ()
        return ((f"http.{self.url}.extraHeader", f"Authorization: Basic {self._basic()}"),)

    def hide(self, text: str) -> str:
        """Give back `text` without the token in any form that git is given it."""
        for secret in filter(None, (self._basic(), self.token)):
            text = text.replace(secret, "[redacted]")
        return text

    def _basic(self) -> str:
        # GitHub takes any installation token as the password of this user:
        # https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/authenticating-as-a-github-app-installation
        return b64encode(f"x-access-token:{self.token}".encode()).decode() if self.token else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Git on one git directory, deaf to everything but what it is told here.

    Attributes:
        git_dir: the git directory; None for commands that need none.
        work_tree: the files' directory; None for a bare one.
        index: the index file, which nothing else uses meanwhile; None for the git directory's own.
        environment: variables the operator grants every git, e.g. `HTTPS_PROXY` or `SSL_CERT_FILE`.
        bounds: what one command may take.
    """

    git_dir: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    bounds: ProcessBounds = field(default_factory=ProcessBounds)

    async def run(
        self,
        *args: str | bytes | Path,
        stdin: bytes | Path = b"",
        stdout: Path | None = None,
        credential: Credential | None = None,
        variables: Mapping[str, str] | None = None,
        expect: Sequence[int] = (0,),
    ) -> bytes:
        """Run one git command and give back its standard output.

        Args:
            args: the command and its arguments, none of which is ever seen by a shell.
            stdin: what the command reads, or the file with it.
            stdout: a file that gets the output in place of the caller.
            credential: what it may authenticate with; only fetch, ls-remote and push get one.
            variables: further environment, e.g. `GIT_AUTHOR_DATE`.
            expect: exit codes that are no failure.

        Raises:
            GitError: any other exit code, or it broke its bounds.
        """
        environment = self._environment(credential, variables or {})
        if self.index is not None:  # a git that was killed has left its lock
            self.index.with_name(f"{self.index.name}.lock").unlink(missing_ok=True)
        with traced(f"git {_command(args)}"):
            ended = await run(self._argv(args), env=environment, bounds=self.bounds, stdin=stdin, stdout=stdout)
        said = credential.hide(ended.said) if credential else ended.said
        if ended.cut:
            raise GitError(_command(args), None, f"it wrote more than {self.bounds.output_bytes:,} bytes")
        if ended.code == -signal.SIGXCPU:
            raise GitError(_command(args), None, f"it took more than {self.bounds.limits()[0]} s of a processor")
        if ended.code in _NOT_STARTED:
            raise GitMissingError
        if ended.code not in expect:
            raise GitError(_command(args), ended.code, said)
        return ended.output

    async def first(self, limit: int, *args: str | bytes | Path) -> bytes:
        """Run one git command for the first `limit` bytes of its standard output; what comes after is not waited for.

        Raises:
            GitError: a failure before there were as many, or the time limit.
        """
        bounds = replace(self.bounds, output_bytes=limit)
        with traced(f"git {_command(args)}"):
            ended = await run(self._argv(args), env=self._environment(None, {}), bounds=bounds)
        if ended.code != 0 and not ended.cut:
            raise GitError(_command(args), ended.code, ended.said)
        return ended.output

    @staticmethod
    def _argv(args: Sequence[str | bytes | Path]) -> list[bytes]:
        return [os.fsencode(each) for each in (_program(), *args)]

    def _environment(self, credential: Credential | None, variables: Mapping[str, str]) -> dict[str, str]:
        settings = (*_SETTINGS, *(credential.settings() if credential else ()))
        environment = {
            **self.environment,
            "PATH": f"{Path(_program()).parent}{os.pathsep}{os.defpath}",
            "HOME": NOWHERE,
            "XDG_CONFIG_HOME": NOWHERE,
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": NOWHERE,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **variables,
        }
        for number, (key, value) in enumerate(settings):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        places = {"GIT_DIR": self.git_dir, "GIT_WORK_TREE": self.work_tree, "GIT_INDEX_FILE": self.index}
        return environment | {name: str(path) for name, path in places.items() if path is not None}


def _command(args: Sequence[str | bytes | Path]) -> str:
    """The command's name, without arguments: some are names that strangers chose."""
    return next(name for name in map(os.fsdecode, args) if not name.startswith("-"))


def _program() -> str:
    return shutil.which("git") or "git"
