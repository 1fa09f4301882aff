"""Set up a workspace with the commands of the repository's base branch.

The commands run in the sandbox; a cache keeps their results. A failure ends nothing: it may be the agent's task.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cache

from agent_runtime import (
    CommandEnd,
    CommandRunner,
    Connection,
    Destination,
    Network,
    Quote,
    Sandbox,
    order_instructions,
)
from bot.git.errors import WorkspaceError
from bot.git.setup_cache import SetupCache
from bot.git.tree import Tree
from bot.permissions.levels import NarrowedNetwork, describe_network, narrow_network
from bot.permissions.repo_config import RepoConfig, RepoConfigError, cache_conflict, file_kinds
from bot.prompt.sanitize import clean_code
from bot.publishing.markdown import code, fence, one_line
from bot.publishing.status_view import Activity

log = logging.getLogger(__name__)
_USED_BASE = "I used those of the base branch."
_QUOTE_CHARS, _WARNING_CHARS, _MAX_CHANGED = 4_000, 1_500, 10
_TOOLCHAIN_SECONDS = 30.0
# Outside of the workspace, whose files some of these programs would read. None of them may fetch another version.
_TOOLCHAIN = r"""
cd /
uname -sm
cat /etc/os-release 2>/dev/null || true
export GOTOOLCHAIN=local
for ask in "python3 --version" "node --version" "ruby --version" "php --version" "java -version" "go version" \
    "rustc --version" "gcc -dumpfullversion"; do
  command -v ${ask%% *} || continue
  $ask 2>&1 || true
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoSettings:
    """The settings of a repository.

    Attributes:
        config: merged with the organisation's.
        base_sha: the commit of the files.
        blobs: git ids of settings files; None if missing.
        titles: of the latest commits, without merges.
        personas: paths by name.
    """

    config: RepoConfig
    base_sha: str
    instructions: Mapping[str, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    blobs: Mapping[str, str | None] = field(default_factory=dict)
    titles: tuple[str, ...] = ()
    personas: Mapping[str, str] = field(default_factory=dict)

    def conflict_note(self, blobs: Mapping[str, str]) -> str:
        changed = [code(path) for path, blob in self.blobs.items() if blobs.get(path) != blob]
        changed += map(code, order_instructions(path for path in blobs if path not in self.blobs))
        if not changed:
            return ""
        rest = [f"{count} more" for count in [len(changed) - _MAX_CHANGED] if count > 0]
        names = " and ".join([*changed[:_MAX_CHANGED], *rest])
        return f"This branch and its base branch have different versions of {names}. {_USED_BASE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupResult:
    """The result of the setup; `facts` and untrusted `quotes` are for the agent."""

    facts: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    warning: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Run the setup of jobs; `seconds` limits all commands of a job."""

    sandbox: Sandbox
    network: Network
    seconds: float
    cache: SetupCache | None
    on_runner: bool = False

    async def run(
        self,
        tree: Tree,
        settings: RepoSettings,
        *,
        repo_id: int,
        report: Callable[[Activity], None],
        start_in: str = "",
    ) -> SetupResult:
        """Run the commands until one fails, or restore their results from the cache.

        Raises:
            RepoConfigError: a cached path overlaps committed files.
            SandboxError: the sandbox cannot be started.
            SettingsError: the sandbox cannot enforce the network.
        """
        config = settings.config
        if conflict := cache_conflict(config.cache, tree.blobs.keys(), config_path=config.path):
            raise RepoConfigError(conflict)
        if not config.setup:
            return SetupResult()
        network = narrow_network(self.network, config.network)
        key = await self._cache_key(tree, config, network.network, start_in)
        is_restored = False
        if self.cache is not None and key is not None:
            try:
                is_restored = await self.cache.restore(repo_id, key, tree.path, config.cache)
            except (WorkspaceError, OSError) as error:  # without it the job only takes longer
                log.warning("setup cache: entry %s of repository %d could not be used: %s", key, repo_id, error)
        if is_restored:
            await tree.reset_baseline(config.cache)
            report(Activity(label="setup: copied what an earlier job made", state="done"))
            return SetupResult(facts=(_success_fact(config),))
        connections: list[Connection] = []
        ends = await self._run_commands(tree, config, network.network, report, start_in, connections.append)
        is_done = all(end.ok for end in ends)
        # Programs of a pull request run in its setup, and what they leave must not reach anybody else's job.
        if is_done and self.cache is not None and key is not None and tree.base_sha == settings.base_sha:
            try:
                await self.cache.keep(repo_id, key, tree.path, config.cache)
            except (WorkspaceError, OSError) as error:  # without it the next job only takes longer
                log.warning("setup cache: nothing was stored for repository %d: %s", repo_id, error)
        await tree.reset_baseline(config.cache)
        if is_done:
            return SetupResult(facts=(_success_fact(config),))
        reach = SetupNetwork(
            operator=self.network,
            narrowed=network,
            requested=config.network or (),
            file=config.path,
            on_runner=self.on_runner,
            can_filter=self.sandbox.level == "bubblewrap",
        )
        remedy = network_remedy(ends[-1].output, refused_hosts(connections), reach)
        return self._failed_result(ends[-1], network, skipped=len(config.setup) - len(ends), remedy=remedy)

    async def _run_commands(  # noqa: PLR0917 - one caller
        self,
        tree: Tree,
        config: RepoConfig,
        network: Network,
        report: Callable[[Activity], None],
        start_in: str,
        on_connection: Callable[[Connection], None],
    ) -> list[CommandEnd]:
        results: list[CommandEnd] = []
        deadline = time.monotonic() + self.seconds

        def report_connection(connection: Connection) -> None:
            log.info("setup: network: %s", connection)
            on_connection(connection)

        async with CommandRunner(
            self.sandbox.showing(tree.readable),
            tree.path,
            network=network,
            on_connection=report_connection,
            start_in=start_in,
        ) as runner:
            for command in config.setup:
                activity = Activity(label=f"setup: {command}", state="doing")
                report(activity)
                result = await runner.run(command, seconds=max(0.0, deadline - time.monotonic()))
                results.append(result)
                report(replace(activity, state="done" if result.ok else "failed"))
                log.info(
                    "setup: `%s` %s %s; it wrote:\n%s",
                    one_line(command, 200),
                    _outcome(result),
                    result.note,
                    result.output,
                )
                if not result.ok:
                    break
        return results

    async def _cache_key(self, tree: Tree, config: RepoConfig, network: Network, start_in: str) -> str | None:
        if self.cache is None or not config.cache:
            return None
        async with CommandRunner(self.sandbox, tree.path) as runner:
            toolchain = await runner.run(_TOOLCHAIN, seconds=_TOOLCHAIN_SECONDS)
        if not toolchain.ok:
            log.warning("setup cache: not used, because the toolchain could not be determined: %s", _outcome(toolchain))
            return None
        facts = f"{self.sandbox.level} {toolchain.output}{start_in and f' in {start_in}'}"
        return await asyncio.to_thread(setup_key, config, tree.blobs, network=network, toolchain=facts)

    def _failed_result(self, result: CommandEnd, network: NarrowedNetwork, *, skipped: int, remedy: str) -> SetupResult:
        command, outcome = one_line(result.command, 200), _outcome(result)
        if skipped:
            outcome += f"; {skipped} more {'was' if skipped == 1 else 'were'} not run"
        notes = [f"It ran with {describe_network(network.network)}."]
        if network.left_out:
            left_out = Network.of(*network.left_out)
            setting = f"the input `{INPUT}`" if self.on_runner else f"`{VARIABLE}`"
            notes.append(f"The repository also asks for {code(str(left_out))}, which {setting} does not allow.")
        if result.timed_out:
            setting = "the workflow raises the input `setup-seconds`"
            if not self.on_runner:
                setting = "the operator raises `CODEPILOT_SETUP_SECONDS`"
            notes.append(f"All commands together may take {self.seconds:g} s, unless {setting}.")
        # The note may hold what programs wrote; so it is quoted to the agent with their output.
        output = "\n".join(filter(None, (result.output.strip(), result.note and f"[{result.note}]")))
        excerpt = f"\n\n{fence(output[-_WARNING_CHARS:])}" if output else ""
        advice = f"\n\n**How to fix it:** {remedy}" if remedy else ""
        lead = f"**Setup failed**, and the agent worked without it: `{command}` {outcome}."
        quote = Quote(
            source=f"the last output of `{command}`", text=clean_code(output[-_QUOTE_CHARS:], limit=_QUOTE_CHARS)
        )
        return SetupResult(
            facts=(f"Setup FAILED before you started: `{command}` {outcome}. What it installs may be missing.",),
            quotes=(quote,) if output else (),
            warning=f"{lead} {' '.join(notes)}{advice}{excerpt}",
            failed=f"{code(command)} {outcome}",
        )


def _success_fact(config: RepoConfig) -> str:
    commands = "; ".join(f"`{one_line(command, 200)}`" for command in config.setup)
    cached = f"; no part of your change: {', '.join(config.cache)}" if config.cache else ""
    return f"Setup was run before you started, and succeeded: {commands}{cached}"


def _outcome(end: CommandEnd) -> str:
    outcome = "did not end" if end.exit_code is None else f"ended with exit code {end.exit_code}"
    return f"{outcome} after {end.seconds:.1f} s"


_VERSION = 1
"""Invalidates earlier entries."""
_WORDS = re.compile(r"[^\s'\"=;|&()<>`$]+")


def setup_key(config: RepoConfig, blobs: Mapping[str, str], *, network: Network, toolchain: str) -> str:
    """Return the cache key in hexadecimal, from commands, referenced files, network and toolchain."""
    mentioned = {word.removeprefix("./") for command in config.setup for word in _WORDS.findall(command)}
    kinds = _patterns_by_depth().items()
    relevant = {
        path: blob
        for path, blob in blobs.items()
        if path in mentioned or any(kind.match("/".join(path.split("/")[-depth:])) for depth, kind in kinds)
    }
    facts = [_VERSION, config.setup, config.cache, str(network), toolchain, sorted(relevant.items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@cache
def _patterns_by_depth() -> dict[int, re.Pattern[str]]:
    """Map numbers of trailing path components to patterns."""
    globs: dict[int, list[str]] = {}
    for glob in (glob for kind in file_kinds() if kind.install for glob in kind.globs):
        tail = glob.removeprefix("**/")
        globs.setdefault(tail.count("/") + 1, []).append(translate(tail))
    return {depth: re.compile("|".join(patterns)) for depth, patterns in globs.items()}


INPUT, VARIABLE = "setup-network", "CODEPILOT_SETUP_NETWORK"
# What resolvers and clients of package registries say where there is no way out.
_UNREACHABLE = re.compile(
    r"name or service not known|temporary failure in name resolution|could not resolve|unable to resolve host|"
    r"failed to resolve|getaddrinfo|ENOTFOUND|EAI_AGAIN|ENETUNREACH|network is unreachable|no such host|"
    r"unknownhostexception|unknown host|failed to lookup address|dns error|nodename nor servname|"
    r"failed to establish a new connection|couldn't connect to server|could not connect to server",
    re.IGNORECASE,
)
# Registries that `registries` leaves out, because one can publish there, too: they have to be named.
_UNLISTED_REGISTRIES = re.compile(r"\b(?:registry\.npmjs\.org|registry\.yarnpkg\.com|rubygems\.org)\b")
_MAX_HOSTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupNetwork:
    """The network of the setup; `can_filter` is whether the sandbox can restrict hosts."""

    operator: Network
    narrowed: NarrowedNetwork
    requested: tuple[str, ...]
    file: str
    on_runner: bool
    can_filter: bool = True


def refused_hosts(connections: Sequence[Connection]) -> tuple[Destination, ...]:
    hosts = {
        Destination(conn.host, conn.port)
        for conn in connections
        if not conn.allowed and conn.reason.endswith("may reach") and conn.port and _is_name(conn.host)
    }
    return tuple(sorted(hosts))[:_MAX_HOSTS]


def network_remedy(output: str, refused: Sequence[Destination], reach: SetupNetwork) -> str:
    """Return the remedy for a setup that failed without network, in Markdown; empty for another cause."""
    network = reach.narrowed.network
    if refused:
        names = ", ".join(code(str(host)) for host in refused)
        cause = f"It tried to reach {names}, which setup may not reach."
    elif not network and _UNREACHABLE.search(output):
        cause = "It requires the network, and setup has none."
    else:
        return ""
    needed = Network(allowed=network.allowed | set(refused))
    if not network:
        requested = Network.of(*reach.requested) or Network.of("registries")
        unlisted = {Destination(host) for host in _UNLISTED_REGISTRIES.findall(output)}
        needed = Network(allowed=needed.allowed | requested.allowed | unlisted)
    steps = []
    if not needed.allowed <= reach.operator.allowed:
        hosts = str(Network(allowed=needed.allowed | reach.operator.allowed))
        sandbox = "" if reach.can_filter else " This requires the sandbox `bubblewrap`."
        if reach.on_runner:
            lines = fence(f"with:\n  {INPUT}: {hosts}", "yaml")
            steps.append(f"In the workflow, add this input to the Codepilot step:{sandbox}\n\n{lines}")
        else:
            steps.append(f"The operator allows it with `{VARIABLE}={hosts.replace(', ', ',')}`.{sandbox}")
    if reach.requested and not needed.allowed <= Network.of(*reach.requested).allowed:
        steps.append(f"In `{reach.file}` on the base branch:\n\n{fence(f'network: [{needed}]', 'yaml')}")
    return "\n\n".join([cause, *steps])


def _is_name(host: str) -> bool:
    try:
        Destination.parse(host)
    except ValueError:
        return False
    return True
