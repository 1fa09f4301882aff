"""Run git, or another program of the host, on strangers' bytes: bounded in time, processor time, memory and output.

`Git` is the one place that starts git: explicit arguments, an environment made from nothing, and settings that no file
can change. `patiently` asks a git server again when its trouble may pass. The last part chooses what connections trust
and how they leave: certificate authorities beside the system's, and git's proxies.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from urllib.request import getproxies_environment

import aiohttp

from agent_runtime import traced
from bot.domain.errors import BotError
from bot.git.errors import GitError, GitMissingError

log = logging.getLogger(__name__)
_MIB = 1024 * 1024
_MOST_SAID = 64 * 1024
_PIECE = 256 * 1024
NOWHERE = "/dev/null"
PAUSES = (1.0, 4.0, 15.0, 40.0)
"""Seconds before each further try."""
GIT_CA_FILE = "GIT_SSL_CAINFO"
FOREIGN_CERTIFICATE = (
    "If an authority of your own has signed the server's certificate, name its file in CODEPILOT_CA_FILE."
)
NO_AUTHORITIES = "the bot cannot read the file that CODEPILOT_CA_FILE names"
PUT_BACK = "The operator must put the file back; no restart is needed."

# The limits are there before the program is, so that whatever it starts has them, too. One that cannot be set, because
# the bot itself runs with a lower one, is in force already.
_LIMITED = 'for each in "-S -t $1" "-d $2" "-f $3" "-c 0"; do ulimit $each 2>/dev/null || :; done; shift 3; exec "$@"'
_NOT_STARTED = (126, 127)  # how a shell says so
_PASSING = re.compile(
    r"returned error: (?:429|5\d\d)|HTTP (?:429|5\d\d)|RPC failed|early EOF|unexpected disconnect|hung up unexpectedly"
    r"|Could not resolve|Couldn't resolve|Failed to connect|Couldn't connect|Connection (?:refused|reset|timed out)"
    r"|Operation (?:too slow|timed out)|Empty reply|Recv failure|Send failure|transfer closed|SSL_ERROR_SYSCALL"
    r"|GnuTLS recv error|Internal Server Error",
    re.IGNORECASE,
)

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
    # Names such as `a\b` are files like any other on Linux; `.git` in all its spellings is refused in filesystem.py.
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
class ProcessBounds:
    """What one command may take; each of its processes, where it starts several.

    Attributes:
        seconds: until it is killed.
        cpu_seconds: of processor time; None for as much as the machine has in `seconds`.
        memory_bytes: of data; files that it maps do not count.
        output_bytes: that it may write to its standard output.
        file_bytes: of one file that it writes; None for no bound.
    """

    seconds: float = 600.0
    cpu_seconds: int | None = None
    memory_bytes: int = 2048 * _MIB
    output_bytes: int = 128 * _MIB
    file_bytes: int | None = None

    def limits(self) -> tuple[str, str, str]:
        """Processor time, memory and file size in the words of the shell's `ulimit`."""
        cpu = self.cpu_seconds if self.cpu_seconds is not None else int(self.seconds + 1) * (os.cpu_count() or 1)
        file = "unlimited" if self.file_bytes is None else str(self.file_bytes // 512)
        return str(cpu), str(self.memory_bytes // 1024), file


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
        return ((f"http.{self.url}.extraHeader", f"Authorization: Basic {self.basic()}"),)

    def hide(self, text: str) -> str:
        """Give back `text` without the token in any form that git is given it."""
        for secret in filter(None, (self.basic(), self.token)):
            text = text.replace(secret, "[redacted]")
        return text

    def basic(self) -> str:
        """The credentials of HTTP's basic authentication; empty without a token."""
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

    async def text(
        self, *args: str | bytes | Path, stdin: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> str:
        """Run one git command and give back its standard output as text, without white space around it."""
        return (await self.run(*args, stdin=stdin, variables=variables)).decode(errors="replace").strip()

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
        """Make the variables of one command.

        Settings are in the environment (`GIT_CONFIG_COUNT` in git-config(1)), where they take precedence over every
        file, and where a credential appears neither on a command line nor on disk.
        """
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


async def patiently(ask: Callable[[], Awaitable[bytes]], pauses: Sequence[float]) -> bytes:
    """What `ask` gives, which is asked again after each pause as long as its failure may pass.

    Raises:
        GitError: the last failure.
    """
    for pause in pauses:
        try:
            return await ask()
        except GitError as error:
            if not may_pass(error):
                raise
            log.warning("trying the git server again in %.0f s: %s", pause, error.stderr.strip()[-300:])
        await asyncio.sleep(pause)
    return await ask()


def may_pass(error: GitError) -> bool:
    """Whether the same command may succeed in a while."""
    return error.exit_code is not None and _PASSING.search(error.stderr) is not None


async def run(
    argv: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    bounds: ProcessBounds,
    stdin: bytes | Path = b"",
    stdout: Path | None = None,
    cwd: Path = Path("/"),
) -> ProcessResult:
    """Run a program in a session of its own; nothing of it is left when this returns.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        bounds: what it may take.
        stdin: what it reads, or the file with it.
        stdout: the file that gets its output; None to be given it.
        cwd: where it starts.
    """
    with ExitStack() as files:
        given = files.enter_context(stdin.open("rb")) if isinstance(stdin, Path) else asyncio.subprocess.PIPE
        kept = files.enter_context(stdout.open("wb")) if stdout else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _LIMITED, "sh", *bounds.limits(), *argv),
            stdin=given,
            stdout=kept,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(bounds.seconds):
            output, said, _ = await asyncio.gather(
                _output(process, bounds.output_bytes), _end_of(process.stderr), _feed(process.stdin, stdin)
            )
            code: int | None = await process.wait()
    except TimeoutError:
        code, output, said = None, b"", f"it took more than {bounds.seconds:g} s"
    finally:
        # End the program and what it started if they still run (a time limit, a cancelled job).
        if process.returncode is None:
            _kill(process)
        # What is left in a pipe has to be read: as long as reading stands still, `process.wait` never returns.
        for pipe in (process.stdout, process.stderr):
            await _end_of(pipe)
        await process.wait()
    cut = len(output) > bounds.output_bytes
    return ProcessResult(code=code, output=output[: bounds.output_bytes], cut=cut, said=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a program ended.

    Attributes:
        code: its exit code, negative for a signal; None when it was killed after its time.
        output: what it wrote to its standard output, at most as much as was allowed.
        cut: whether there was more.
        said: the end of what it wrote to its standard error.
    """

    code: int | None
    output: bytes
    cut: bool
    said: str


async def _output(process: asyncio.subprocess.Process, limit: int) -> bytes:
    """At most one byte more than `limit`; a program that writes more is killed."""
    if process.stdout is None:
        return b""
    try:
        output = await process.stdout.readexactly(limit + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    _kill(process)
    await _end_of(process.stdout)  # as above
    return output


async def _end_of(stream: asyncio.StreamReader | None) -> str:
    said = b""
    while stream is not None and (piece := await stream.read(_PIECE)):
        said = (said + piece)[-_MOST_SAID:]
    return said.decode(errors="replace")


async def _feed(stream: asyncio.StreamWriter | None, data: bytes | Path) -> None:
    if stream is None or isinstance(data, Path):
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it read no more than it wanted
        stream.write(data)
        await stream.drain()
    stream.close()  # not waited for: where that is cancelled, asyncio logs an error of its own


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it ended in this very moment
        os.killpg(process.pid, signal.SIGKILL)


def git_variables(ca_file: Path | None) -> dict[str, str]:
    """The environment of git: the proxies that this process's environment names, and whom it trusts.

    Where there is a file of the operator's, it trusts the authorities in that alone. Git runs in another directory than
    the bot, to which the file's name may be relative.
    """
    proxies = getproxies_environment()
    variables = {f"{kind}_proxy": proxies[kind] for kind in ("http", "https", "all", "no") if kind in proxies}
    return variables if ca_file is None else variables | {GIT_CA_FILE: str(ca_file.absolute())}


def connector(ca_file: Path | None) -> aiohttp.TCPConnector:
    """Connections that trust the system's authorities, and those that the operator's file has now.

    Raises:
        AuthoritiesError: the file cannot be read.
    """
    if ca_file is None:
        return aiohttp.TCPConnector()
    try:
        now = ca_file.stat()
        context = _context(ca_file, (now.st_ino, now.st_mtime_ns, now.st_size))
    except OSError as error:
        refused = AuthoritiesError(error)
        log.error("%s: %s. %s", ca_file, refused, PUT_BACK)  # noqa: TRY400 - the traceback is that of the error below
        raise refused from error
    return aiohttp.TCPConnector(ssl=context)


class AuthoritiesError(BotError):
    """The operator's file of authorities cannot be read any more; the text has no path, as people are shown it."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"{NO_AUTHORITIES} ({error.strerror or type(error).__name__})")


@lru_cache(maxsize=4)
def _context(ca_file: Path, _state: tuple[int, int, int]) -> ssl.SSLContext:
    """Read once for each state of the file, as reading the system's takes some 30 ms of processor time."""
    context = ssl.create_default_context()
    context.load_verify_locations(ca_file)
    return context


def is_about_certificates(stderr: str) -> bool:
    """Whether git says that it does not trust the server; the server's own words come after `remote:`."""
    own = (line for line in stderr.lower().splitlines() if not line.startswith("remote:"))
    return any("certificate" in line for line in own)
