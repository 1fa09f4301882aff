"""Run git and other host programs on untrusted data, bounded in time, processor time, memory and output.

`Git` is the only place that starts git, with settings that no file can override.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from agent_runtime import traced
from bot.domain.errors import BotError
from bot.git.errors import GitError, GitMissingError

log = logging.getLogger(__name__)
_MIB = 1024 * 1024
_MAX_STDERR = 64 * 1024
_CHUNK = 256 * 1024
DEV_NULL = "/dev/null"
PAUSES = (1.0, 4.0, 15.0, 40.0)
"""Seconds before each further attempt."""
GIT_CA_FILE = "GIT_SSL_CAINFO"
UNKNOWN_AUTHORITY = (
    "If an authority of your own has signed the server's certificate, name its file in CODEPILOT_CA_FILE."
)
CA_FILE_UNREADABLE = "the bot cannot read the file that CODEPILOT_CA_FILE names"
RESTORE_CA_FILE = "The operator must put the file back; no restart is needed."

# Set before the program starts, so that its children inherit the limits. A limit that cannot be set is already lower.
_ULIMIT = 'for each in "-S -t $1" "-d $2" "-f $3" "-c 0"; do ulimit $each 2>/dev/null || :; done; shift 3; exec "$@"'
_NOT_STARTED = (126, 127)  # how a shell says so

# Harmless faults that fsck reports in old histories: see docs/decisions/0037.
_IGNORED_FAULTS = (
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
    ("core.hooksPath", DEV_NULL),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", DEV_NULL),
    ("core.excludesFile", DEV_NULL),
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
    # Abort silent connections; git's servers send a byte a second while they prepare.
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
    # Always a pack, which appears atomically: a present commit is complete, even after kill -9.
    ("transfer.unpackLimit", "1"),
    *((f"fetch.fsck.{fault}", "ignore") for fault in _IGNORED_FAULTS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBounds:
    """Limits of each process of a command.

    Attributes:
        cpu_seconds: None for all processors during `seconds`.
        memory_bytes: of data, without mapped files.
        file_bytes: of each file written; None for no limit.
    """

    seconds: float = 600.0
    cpu_seconds: int | None = None
    memory_bytes: int = 2048 * _MIB
    output_bytes: int = 128 * _MIB
    file_bytes: int | None = None

    def limits(self) -> tuple[str, str, str]:
        cpu = self.cpu_seconds if self.cpu_seconds is not None else int(self.seconds + 1) * (os.cpu_count() or 1)
        file = "unlimited" if self.file_bytes is None else str(self.file_bytes // 512)
        return str(cpu), str(self.memory_bytes // 1024), file


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A token that is valid for one remote.

    Attributes:
        url: git sends the token to addresses with this prefix.
    """

    url: str
    token: str = field(repr=False)

    def settings(self) -> tuple[tuple[str, str], ...]:
        if not self.url.startswith(("https://", "http://")) or not self.token:
            return ()
        return ((f"http.{self.url}.extraHeader", f"Authorization: Basic {self.basic_auth()}"),)

    def redact(self, text: str) -> str:
        for secret in filter(None, (self.basic_auth(), self.token)):
            text = text.replace(secret, "[redacted]")
        return text

    def basic_auth(self) -> str:
        # GitHub takes any installation token as the password of this user:
        # https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/authenticating-as-a-github-app-installation
        return b64encode(f"x-access-token:{self.token}".encode()).decode() if self.token else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Git on one git directory, isolated from user and system configuration.

    Attributes:
        index: used by nothing else meanwhile; None for the git directory's own.
        environment: variables from the operator, e.g. `HTTPS_PROXY` or `SSL_CERT_FILE`.
        settings: further settings, which override the general ones.
        is_background: whether it runs at the lowest priority.
    """

    git_dir: Path | None = None
    work_tree: Path | None = None
    index: Path | None = None
    settings: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    bounds: ProcessBounds = field(default_factory=ProcessBounds)
    is_background: bool = False

    async def run(
        self,
        *args: str | bytes | Path,
        stdin: bytes | Path = b"",
        stdout: Path | None = None,
        credential: Credential | None = None,
        variables: Mapping[str, str] | None = None,
        expect: Sequence[int] = (0,),
    ) -> bytes:
        """Run a git command and return its standard output, unless a file `stdout` gets it.

        Raises:
            GitError: an exit code other than those expected, or an exceeded bound.
        """
        environment = self._environment(credential, variables or {})
        if self.index is not None:  # a killed git leaves its lock
            self.index.with_name(f"{self.index.name}.lock").unlink(missing_ok=True)
        with traced(f"git {_subcommand(args)}"):
            result = await run(self._argv(args), env=environment, bounds=self.bounds, stdin=stdin, stdout=stdout)
        stderr = credential.redact(result.stderr) if credential else result.stderr
        if result.truncated:
            raise GitError(_subcommand(args), None, f"it wrote more than {self.bounds.output_bytes:,} bytes")
        if result.code == -signal.SIGXCPU:
            raise GitError(_subcommand(args), None, f"it took more than {self.bounds.limits()[0]} s of a processor")
        if result.code in _NOT_STARTED:
            raise GitMissingError
        if result.code not in expect:
            raise GitError(_subcommand(args), result.code, stderr)
        return result.output

    async def text(
        self, *args: str | bytes | Path, stdin: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> str:
        return (await self.run(*args, stdin=stdin, variables=variables)).decode(errors="replace").strip()

    async def read_head(self, limit: int, *args: str | bytes | Path) -> bytes:
        """Run a git command for the first `limit` bytes of its output; it is stopped then.

        Raises:
            GitError: an earlier failure, or the time limit.
        """
        bounds = replace(self.bounds, output_bytes=limit)
        with traced(f"git {_subcommand(args)}"):
            result = await run(self._argv(args), env=self._environment(None, {}), bounds=bounds)
        if result.code != 0 and not result.truncated:
            raise GitError(_subcommand(args), result.code, result.stderr)
        return result.output

    def _argv(self, args: Sequence[str | bytes | Path]) -> list[bytes]:
        priority = ("nice", "-n", "19") if self.is_background else ()
        return [os.fsencode(arg) for arg in (*priority, _program(), *args)]

    def _environment(self, credential: Credential | None, variables: Mapping[str, str]) -> dict[str, str]:
        """Build a command's environment.

        Settings go into the environment (`GIT_CONFIG_COUNT` in git-config(1)), where they override every file, and
        where a credential is neither on a command line nor on disk.
        """
        settings = (*_SETTINGS, *self.settings, *(credential.settings() if credential else ()))
        environment = {
            **self.environment,
            "PATH": f"{Path(_program()).parent}{os.pathsep}{os.defpath}",
            "HOME": DEV_NULL,
            "XDG_CONFIG_HOME": DEV_NULL,
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": DEV_NULL,
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


def _subcommand(args: Sequence[str | bytes | Path]) -> str:
    """Return the subcommand; arguments may be untrusted names."""
    return next(name for name in map(os.fsdecode, args) if not name.startswith("-"))


def _program() -> str:
    return shutil.which("git") or "git"


async def retry(call: Callable[[], Awaitable[bytes]], pauses: Sequence[float]) -> bytes:
    """Await `call`, and repeat it after each pause while the failure is transient.

    Raises:
        GitError: the last failure.
    """
    for pause in pauses:
        try:
            return await call()
        except GitError as error:
            if error.certainty != "passing":
                raise
            log.warning("trying the git server again in %.0f s: %s", pause, error.stderr.strip()[-300:])
        await asyncio.sleep(pause)
    return await call()


async def run(
    argv: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    bounds: ProcessBounds,
    stdin: bytes | Path = b"",
    stdout: Path | None = None,
    cwd: Path = Path("/"),
) -> ProcessResult:
    """Run a program in its own session, with `env` as its complete environment, and end the session with it."""
    with ExitStack() as files:
        source = files.enter_context(stdin.open("rb")) if isinstance(stdin, Path) else asyncio.subprocess.PIPE
        sink = files.enter_context(stdout.open("wb")) if stdout else asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _ULIMIT, "sh", *bounds.limits(), *argv),
            stdin=source,
            stdout=sink,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(bounds.seconds):
            output, stderr, _ = await asyncio.gather(
                _read_output(process, bounds.output_bytes), _read_tail(process.stderr), _feed(process.stdin, stdin)
            )
            code: int | None = await process.wait()
    except TimeoutError:
        code, output, stderr = None, b"", f"it took more than {bounds.seconds:g} s"
    finally:
        # End the session if it still runs (a time limit, a cancelled job).
        if process.returncode is None:
            _kill(process)
        # Drain the pipes: `process.wait` does not return before.
        for pipe in (process.stdout, process.stderr):
            await _read_tail(pipe)
        await process.wait()
    truncated = len(output) > bounds.output_bytes
    return ProcessResult(code=code, output=output[: bounds.output_bytes], truncated=truncated, stderr=stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """Result of a program; the code is negative for a signal, None after a timeout."""

    code: int | None
    output: bytes
    truncated: bool
    stderr: str


async def _read_output(process: asyncio.subprocess.Process, limit: int) -> bytes:
    if process.stdout is None:
        return b""
    try:
        output = await process.stdout.readexactly(limit + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    _kill(process)
    await _read_tail(process.stdout)  # as above
    return output


async def _read_tail(stream: asyncio.StreamReader | None) -> str:
    tail = b""
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        tail = (tail + chunk)[-_MAX_STDERR:]
    return tail.decode(errors="replace")


async def _feed(stream: asyncio.StreamWriter | None, data: bytes | Path) -> None:
    if stream is None or isinstance(data, Path):
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # the program stopped reading
        stream.write(data)
        await stream.drain()
    stream.close()  # not awaited: if that is cancelled, asyncio logs an error


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGKILL)


def git_variables(ca_file: Path | None) -> dict[str, str]:
    """Return git's environment: the process's proxies and the operator's certificate authorities.

    With a file of authorities, git trusts these alone. The path is absolute, since git runs in another directory.
    """
    proxies = getproxies_environment()
    variables = {f"{kind}_proxy": proxies[kind] for kind in ("http", "https", "all", "no") if kind in proxies}
    return variables if ca_file is None else variables | {GIT_CA_FILE: str(ca_file.absolute())}


class ProxyOptions(TypedDict):
    """The proxy of an aiohttp request. Its password is separate, since the texts of errors contain the address."""

    proxy: URL | None
    proxy_headers: Mapping[str, str] | None


def proxy_options(address: str) -> ProxyOptions:
    """Return the proxy that the environment names for an address.

    Raises:
        aiohttp.ClientError: its address is not valid.
    """
    parts, proxies = urlsplit(address), getproxies()
    host = parts.netloc.rpartition("@")[2]
    proxy = None if proxy_bypass(host) else proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return {"proxy": None, "proxy_headers": None}
    try:
        url = URL(proxy if "://" in proxy else f"http://{proxy}")
        # aiohttp renames this header of the proxy's to `Proxy-Authorization`.
        auth = {"Authorization": aiohttp.encode_basic_auth(url.user, url.password or "")} if url.user else None
        return {"proxy": url.with_user(None), "proxy_headers": auth}
    except ValueError:
        raise aiohttp.ClientError("the proxy's address is not valid") from None


def make_connector(ca_file: Path | None) -> aiohttp.TCPConnector:
    """Return a connector that trusts the system's authorities and those in the operator's current file.

    Raises:
        AuthoritiesError: the file cannot be read.
    """
    if ca_file is None:
        return aiohttp.TCPConnector()
    try:
        status = ca_file.stat()
        context = _context(ca_file, (status.st_ino, status.st_mtime_ns, status.st_size))
    except OSError as error:
        failure = AuthoritiesError(error)
        log.error("%s: %s. %s", ca_file, failure, RESTORE_CA_FILE)  # noqa: TRY400 - the traceback is that of the error below
        raise failure from error
    return aiohttp.TCPConnector(ssl=context)


class AuthoritiesError(BotError):
    def __init__(self, error: OSError) -> None:
        super().__init__(f"{CA_FILE_UNREADABLE} ({error.strerror or type(error).__name__})")


@lru_cache(maxsize=4)
def _context(ca_file: Path, _state: tuple[int, int, int]) -> ssl.SSLContext:
    """Cached per state of the file: loading takes some 30 ms."""
    context = ssl.create_default_context()
    context.load_verify_locations(ca_file)
    return context
