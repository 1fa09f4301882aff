"""Setup of a workspace before the agent starts, as the base branch of its repository asks.

The commands run in the sandbox; what they make can be copied from a cache that is keyed by the files they depend on. A
failure ends nothing, since it may be what the agent is asked to fix. If setup failed for lack of network, the report
names the setting that gives it one.
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
from pathlib import Path

from agent_runtime import CommandEnd, CommandRunner, Connection, Destination, Network, Quote, Sandbox
from bot.git.errors import WorkspaceError
from bot.git.setup_cache import SetupCache
from bot.git.tree import Tree
from bot.permissions.levels import NarrowedNetwork, describe_network, narrow_network
from bot.permissions.repo_config import RepoConfig, RepoConfigError, cache_conflict, file_kinds
from bot.prompt.sanitize import clean_code
from bot.publishing.markdown import code, fence, one_line
from bot.publishing.status_view import Activity

log = logging.getLogger(__name__)
_WENT_BY = "I used those of the base branch."
_TOLD_CHARS, _SHOWN_CHARS = 4_000, 1_500
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
    """What a repository asks for.

    Attributes:
        config: its file, over its organisation's.
        base_sha: the commit of the base branch that the files are from.
        instructions: what its files for agents say, by their names.
        skills: its `SKILL.md` files, by path.
        blobs: of each file that the bot goes by, git's id of its content there; None where there is no file.
    """

    config: RepoConfig
    base_sha: str
    instructions: Mapping[str, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    blobs: Mapping[str, str | None] = field(default_factory=dict)

    def ignored(self, blobs: Mapping[str, str]) -> str:
        """What the comment says of the same files where the branch that is worked on has others; else empty.

        Args:
            blobs: git's ids of the files' contents in that branch.
        """
        others = [code(path) for path, blob in self.blobs.items() if blobs.get(path) != blob]
        if not others:
            return ""
        return f"This branch and its base branch have different versions of {' and '.join(others)}. {_WENT_BY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupResult:
    """What came of it.

    Attributes:
        facts: notes for the agent about it, one line each.
        quotes: what commands wrote, for the agent: nobody's words that are to be followed.
        warning: what the comment says when something failed, or empty.
        failed: the command that failed, and how, as Markdown; or empty.
    """

    facts: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    warning: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What setups of all jobs share.

    Attributes:
        sandbox: where the commands run.
        network: what they may reach at most.
        seconds: how long those of one job may take together.
        cache: keeps what they made; None keeps nothing.
        on_runner: whether the bot is a step of a workflow, where settings are inputs.
    """

    sandbox: Sandbox
    network: Network
    seconds: float
    cache: SetupCache | None
    on_runner: bool = False

    async def run(
        self,
        tree: Tree,
        asked: RepoSettings,
        *,
        repo_id: int,
        tell: Callable[[Activity], None],
        start_in: str = "",
    ) -> SetupResult:
        """Run the commands until one fails, or copy what they made before.

        A failure is told and ends nothing: what the agent is asked to fix may be what makes the setup fail.

        Args:
            tree: a fresh checkout, in which no program runs.
            asked: what the base branch asks for.
            repo_id: GitHub's numeric id.
            tell: given each command when it begins, and again when it ended.
            start_in: the directory of the repository in which they start.

        Raises:
            RepoConfigError: what is to be kept is in the way of the repository's own files.
            SandboxError: the sandbox cannot be started.
            SettingsError: the sandbox cannot keep to the network.
        """
        config = asked.config
        if obstacle := cache_conflict(config.cache, tree.blobs.keys(), config_path=config.path):
            raise RepoConfigError(obstacle)
        if not config.setup:
            return SetupResult()
        network = narrow_network(self.network, config.network)
        key = await self._key(tree, config, network.network, start_in)
        is_restored = False
        if self.cache is not None and key is not None:
            try:
                is_restored = await self.cache.restore(repo_id, key, tree.path, config.cache)
            except (WorkspaceError, OSError) as error:  # without it the job only takes longer
                log.warning("setup cache: entry %s of repository %d could not be used: %s", key, repo_id, error)
        if is_restored:
            await tree.reset_baseline(config.cache)
            tell(Activity(label="setup: copied what an earlier job made", state="done"))
            return SetupResult(facts=(_done(config),))
        connections: list[Connection] = []
        ends = await self._commands(tree.path, config, network.network, tell, start_in, connections.append)
        is_done = all(end.ok for end in ends)
        # Programs of a pull request run in its setup, and what they leave must not reach anybody else's job.
        if is_done and self.cache is not None and key is not None and tree.base_sha == asked.base_sha:
            try:
                await self.cache.keep(repo_id, key, tree.path, config.cache)
            except (WorkspaceError, OSError) as error:  # without it the next job only takes longer
                log.warning("setup cache: nothing was stored for repository %d: %s", repo_id, error)
        await tree.reset_baseline(config.cache)
        if is_done:
            return SetupResult(facts=(_done(config),))
        reachable = Reach(
            operator=self.network,
            narrowed=network,
            wanted=config.network or (),
            file=config.path,
            on_runner=self.on_runner,
            keeps=self.sandbox.level == "bubblewrap",
        )
        remedy = network_remedy(ends[-1].output, refused_hosts(connections), reachable)
        return self._failed(ends[-1], network, skipped=len(config.setup) - len(ends), remedy=remedy)

    async def _commands(  # noqa: PLR0917 - one caller
        self,
        workspace: Path,
        config: RepoConfig,
        network: Network,
        tell: Callable[[Activity], None],
        start_in: str,
        connected: Callable[[Connection], None],
    ) -> list[CommandEnd]:
        """Run them; how each ended, up to the first that failed."""
        ends: list[CommandEnd] = []
        deadline = time.monotonic() + self.seconds

        def told(connection: Connection) -> None:
            log.info("setup: network: %s", connection)
            connected(connection)

        async with CommandRunner(
            self.sandbox,
            workspace,
            network=network,
            on_connection=told,
            start_in=start_in,
        ) as runner:
            for command in config.setup:
                doing = Activity(label=f"setup: {command}", state="doing")
                tell(doing)
                end = await runner.run(command, seconds=max(0.0, deadline - time.monotonic()))
                ends.append(end)
                tell(replace(doing, state="done" if end.ok else "failed"))
                log.info(
                    "setup: `%s` %s %s; it wrote:\n%s",
                    one_line(command, 200),
                    _how(end),
                    end.note,
                    end.output,
                )
                if not end.ok:
                    break
        return ends

    async def _key(self, tree: Tree, config: RepoConfig, network: Network, start_in: str) -> str | None:
        """What the result is kept under; None when nothing is to be kept."""
        if self.cache is None or not config.cache:
            return None
        async with CommandRunner(self.sandbox, tree.path) as runner:
            toolchain = await runner.run(_TOOLCHAIN, seconds=_TOOLCHAIN_SECONDS)
        if not toolchain.ok:
            log.warning("setup cache: not used, because the toolchain could not be determined: %s", _how(toolchain))
            return None
        facts = f"{self.sandbox.level} {toolchain.output}{start_in and f' in {start_in}'}"
        return await asyncio.to_thread(setup_key, config, tree.blobs, network=network, toolchain=facts)

    def _failed(self, end: CommandEnd, network: NarrowedNetwork, *, skipped: int, remedy: str) -> SetupResult:
        command, how = one_line(end.command, 200), _how(end)
        if skipped:
            how += f"; {skipped} more {'was' if skipped == 1 else 'were'} not run"
        notes = [f"It ran with {describe_network(network.network)}."]
        if network.left_out:
            left_out = Network.of(*network.left_out)
            setting = f"the input `{INPUT}`" if self.on_runner else f"`{VARIABLE}`"
            notes.append(f"The repository also asks for {code(str(left_out))}, which {setting} does not allow.")
        if end.timed_out:
            setting = "the workflow raises the input `setup-seconds`"
            if not self.on_runner:
                setting = "the operator raises `CODEPILOT_SETUP_SECONDS`"
            notes.append(f"All commands together may take {self.seconds:g} s, unless {setting}.")
        # The note may hold what programs wrote; so it is quoted to the agent with their output.
        wrote = "\n".join(filter(None, (end.output.strip(), end.note and f"[{end.note}]")))
        shown = f"\n\n{fence(wrote[-_SHOWN_CHARS:])}" if wrote else ""
        todo = f"\n\n**How to fix it:** {remedy}" if remedy else ""
        lead = f"**Setup failed**, and the agent worked without it: `{command}` {how}."
        quote = Quote(
            source=f"the last output of `{command}`", text=clean_code(wrote[-_TOLD_CHARS:], limit=_TOLD_CHARS)
        )
        return SetupResult(
            facts=(f"Setup FAILED before you started: `{command}` {how}. What it installs may be missing.",),
            quotes=(quote,) if wrote else (),
            warning=f"{lead} {' '.join(notes)}{todo}{shown}",
            failed=f"{code(command)} {how}",
        )


def _done(config: RepoConfig) -> str:
    commands = "; ".join(f"`{one_line(command, 200)}`" for command in config.setup)
    kept = f"; no part of your change: {', '.join(config.cache)}" if config.cache else ""
    return f"Setup was run before you started, and succeeded: {commands}{kept}"


def _how(end: CommandEnd) -> str:
    ended = "did not end" if end.exit_code is None else f"ended with exit code {end.exit_code}"
    return f"{ended} after {end.seconds:.1f} s"


_VERSION = 1
"""Another one makes all that was kept before worthless."""
_WORDS = re.compile(r"[^\s'\"=;|&()<>`$]+")


def setup_key(config: RepoConfig, blobs: Mapping[str, str], *, network: Network, toolchain: str) -> str:
    """The key, as hexadecimal digits.

    Args:
        config: the commands, and what of their result is kept.
        blobs: path to git's blob id of every file in the commit that is worked on.
        network: what the commands may reach.
        toolchain: the versions of the programs in the sandbox, and its machine.
    """
    named = {word.removeprefix("./") for command in config.setup for word in _WORDS.findall(command)}
    kinds = _by_depth().items()
    counted = {
        path: blob
        for path, blob in blobs.items()
        if path in named or any(kind.match("/".join(path.split("/")[-depth:])) for depth, kind in kinds)
    }
    facts = [_VERSION, config.setup, config.cache, str(network), toolchain, sorted(counted.items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@cache
def _by_depth() -> dict[int, re.Pattern[str]]:
    """How many names at the end of a path count, and what they are to be."""
    globs: dict[int, list[str]] = {}
    for glob in (glob for kind in file_kinds() if kind.install for glob in kind.globs):
        tail = glob.removeprefix("**/")
        globs.setdefault(tail.count("/") + 1, []).append(translate(tail))
    return {depth: re.compile("|".join(each)) for depth, each in globs.items()}


INPUT, VARIABLE = "setup-network", "CODEPILOT_SETUP_NETWORK"
# What resolvers and clients of package registries say where there is no way out.
_UNREACHED = re.compile(
    r"name or service not known|temporary failure in name resolution|could not resolve|unable to resolve host|"
    r"failed to resolve|getaddrinfo|ENOTFOUND|EAI_AGAIN|ENETUNREACH|network is unreachable|no such host|"
    r"unknownhostexception|unknown host|failed to lookup address|dns error|nodename nor servname|"
    r"failed to establish a new connection|couldn't connect to server|could not connect to server",
    re.IGNORECASE,
)
# Registries that `registries` leaves out, because one can publish there, too: they have to be named.
_NAMED_APART = re.compile(r"\b(?:registry\.npmjs\.org|registry\.yarnpkg\.com|rubygems\.org)\b")
_MOST_HOSTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What setup could reach.

    Attributes:
        operator: what the operator allows.
        narrowed: of that, what the repository wants.
        wanted: what the repository's file says; empty where it says nothing.
        file: where that file is.
        on_runner: whether the operator is a workflow, which sets inputs and no variables.
        keeps: whether the sandbox can keep programs to a list of hosts.
    """

    operator: Network
    narrowed: NarrowedNetwork
    wanted: tuple[str, ...]
    file: str
    on_runner: bool
    keeps: bool = True


def refused_hosts(connections: Sequence[Connection]) -> tuple[Destination, ...]:
    """The hosts that were asked for and are not on the list."""
    found = {
        Destination(each.host, each.port)
        for each in connections
        if not each.allowed and each.reason.endswith("may reach") and each.port and _is_name(each.host)
    }
    return tuple(sorted(found))[:_MOST_HOSTS]


def network_remedy(output: str, refused: Sequence[Destination], reach: Reach) -> str:
    """What gives setup the network that it failed for lack of, as Markdown; empty where the network was not the cause.

    Args:
        output: what the command that failed wrote.
        refused: the hosts that it asked for and may not reach.
        reach: what it could reach.
    """
    network = reach.narrowed.network
    if refused:
        names = ", ".join(code(str(each)) for each in refused)
        cause = f"It tried to reach {names}, which setup may not reach."
    elif not network and _UNREACHED.search(output):
        cause = "It requires the network, and setup has none."
    else:
        return ""
    needed = Network(allowed=network.allowed | set(refused))
    if not network:
        wanted = Network.of(*reach.wanted) or Network.of("registries")
        named = {Destination(host) for host in _NAMED_APART.findall(output)}
        needed = Network(allowed=needed.allowed | wanted.allowed | named)
    steps = []
    if not needed.allowed <= reach.operator.allowed:
        hosts = str(Network(allowed=needed.allowed | reach.operator.allowed))
        sandbox = "" if reach.keeps else " This requires the sandbox `bubblewrap`."
        if reach.on_runner:
            lines = fence(f"with:\n  {INPUT}: {hosts}", "yaml")
            steps.append(f"In the workflow, add this input to the Codepilot step:{sandbox}\n\n{lines}")
        else:
            steps.append(f"The operator allows it with `{VARIABLE}={hosts.replace(', ', ',')}`.{sandbox}")
    if reach.wanted and not needed.allowed <= Network.of(*reach.wanted).allowed:
        steps.append(f"In `{reach.file}` on the base branch:\n\n{fence(f'network: [{needed}]', 'yaml')}")
    return "\n\n".join([cause, *steps])


def _is_name(host: str) -> bool:
    try:
        Destination.parse(host)
    except ValueError:
        return False
    return True
