"""Agent files in YAML.

`AgentFile.load` reads a file without looking up keys; `provider`, `embeddings` and `servers` read the environment.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from agent_runtime.agent.delegation import Delegation
from agent_runtime.agent.document import Document, read_document, read_settings, validate
from agent_runtime.agent.trust import SourceFiles, TrustRequest, instruction_file, read_text
from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.errors import SettingsError, did_you_mean
from agent_runtime.core.values import EmbeddingService, Skill, TransportName
from agent_runtime.mcp.settings import McpServer
from agent_runtime.policy.policy import Policy, Rule, RunLimits
from agent_runtime.processes.spawn import home_dir
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.retry import BRIEF_RETRY, FallbackProvider, RetryPolicy
from agent_runtime.sandbox.protocol import ToolchainSetting
from agent_runtime.sandbox.select import SandboxName

if TYPE_CHECKING:
    from agent_runtime.agent.schema import Agent, Model


T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A model and the options of its requests."""

    provider: str
    """A key of `CATALOG`."""
    name: str | None
    """None for the provider's default."""
    base_url: str | None
    """Address of a compatible server."""
    key_variable: str | None
    """Environment variable with the key."""
    options: ModelOptions
    """Request options."""
    location: str
    """Location in the agent file, for error texts."""
    needs_key: bool = True
    """Whether requests fail without a key."""

    @classmethod
    def from_section(cls, section: Model, files: SourceFiles, location: str) -> Self:
        return cls(
            provider=section.provider,
            name=section.name,
            base_url=section.base_url,
            key_variable=section.api_key_env
            or CATALOG[section.provider].endpoint({}, base_url=section.base_url).key_variable,
            options=section.options(files),
            location=location,
        )

    @classmethod
    def for_provider(cls, provider: str, *, name: str | None = None, options: ModelOptions | None = None) -> Self:
        if provider not in CATALOG:
            raise SettingsError(f"There is no provider {provider!r}. {did_you_mean(provider, CATALOG)}")
        return cls(
            provider=provider,
            name=name,
            base_url=None,
            key_variable=CATALOG[provider].key_variable,
            options=options or ModelOptions(),
            location="the built-in agent",
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Select the first provider whose key, or else whose address, is in the environment."""
        variables = os.environ if environ is None else environ
        keyed = {name: entry.key_variable for name, entry in CATALOG.items() if entry.key_variable}
        served = {name: entry.address_variable for name, entry in CATALOG.items() if entry.address_variable}
        for name, variable in (*keyed.items(), *served.items()):
            if variables.get(variable, "").strip():
                return cls.for_provider(name)
        keys = " or ".join(keyed.values())
        raise SettingsError(
            f"No model: set {keys}, give --base-url and --model, or write an agent.yaml that names a model."
        )

    def at_url(
        self, base_url: str | None, environ: Mapping[str, str] | None = None, *, key_variable: str | None = None
    ) -> Self:
        """Return the settings for `base_url`, which defaults to the file's, then the environment's."""
        if self.base_url and (not base_url or base_url == self.base_url):
            return self
        endpoint = CATALOG[self.provider].endpoint(
            os.environ if environ is None else environ,
            base_url=base_url,
            key_variable=key_variable,
            own_key_variable=None if self.base_url else self.key_variable,
        )
        return replace(
            self,
            base_url=endpoint.base_url,
            key_variable=endpoint.key_variable,
            needs_key=endpoint.needs_key,
            options=replace(self.options, url_setting=endpoint.address_variable or self.options.url_setting),
        )

    def api_key(self, environ: Mapping[str, str] | None = None) -> str | None:
        if self.key_variable is None:
            return None
        key = (os.environ if environ is None else environ).get(self.key_variable, "").strip()
        if not key and not self.needs_key:
            return None
        if not key:
            raise SettingsError(
                f"{self.location}: the provider `{self.provider}` needs a key, and the environment variable "
                f"{self.key_variable} is not set. Set it, or name another one as api_key_env."
            )
        return key

    def with_retry(self, retry: RetryPolicy) -> Self:
        return replace(self, options=replace(self.options, retry=retry))

    def create_provider(self, environ: Mapping[str, str] | None = None) -> Provider:
        model, cloud = self.at_url(None, environ), CATALOG[self.provider].cloud
        settings = cloud.read(os.environ if environ is None else environ) if cloud else {}
        options = replace(model.options, key_variable=model.key_variable or "`api_key_env`", cloud=settings)
        key = model.api_key(environ)
        return provider_for(model.provider, model=model.name, api_key=key, base_url=model.base_url, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """The section `index`; see `schema.Vectors`."""

    api_key_env: str | None
    model: str
    base_url: str
    max_results: int
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """A validated `agent.yaml`. `load` makes paths absolute."""

    path: Path | None = None
    """The file; None for `built_in`."""
    name: str = "Codepilot"
    """The agent's name."""
    role: str = "an autonomous software engineering agent."
    """One sentence."""
    instructions: str = ""
    """Its `system_prompt`."""
    model: ModelSettings
    """The main model."""
    fallback: tuple[ModelSettings, ...] = ()
    """Models to try in this order when the previous ones fail."""
    work_dir: Path
    """The directory that the agent reads and changes."""
    unsafe_mode: bool = False
    """Whether file tools may leave `work_dir`."""
    sandbox: SandboxName = "auto"
    """The sandbox for commands."""
    toolchains: ToolchainSetting = "auto"
    """Toolchains that the sandbox shows besides the system's."""
    docker_image: str | None = None
    """The image for the sandbox `docker`."""
    limits: RunLimits = field(default_factory=RunLimits)
    """Limits of one run."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    """When to summarise the conversation."""
    tools: tuple[str, ...] | None = None
    """Names of built-in tools; None for all."""
    max_output_chars: Mapping[str, int] = field(default_factory=dict)
    """Maximum characters of a result by tool name."""
    rules: tuple[Rule, ...] = ()
    """Permission rules; the first match decides."""
    git_writable: bool = False
    """Whether commands may create and change git repositories in `work_dir`."""
    index: IndexSettings | None = None
    """Embedding service for `semantic_search`."""
    transport: TransportName | None = None
    """None for the model's default."""
    delegation: Delegation | None = None
    """Limits of delegated tasks; None disables them."""
    mcp: tuple[McpServer, ...] = ()
    """MCP servers, with `${NAME}` unexpanded."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Texts of `SKILL.md` files by path."""

    @classmethod
    def load(
        cls, path: Path | str, *, review: Callable[[TrustRequest], object] | None = None, waits: bool = True
    ) -> Self:
        """Read an agent file without looking up keys; `waits` is for files that do not set `outage_seconds`.

        If keys need trust, `review` is called before anything takes effect or any outside file is opened; it raises to
        refuse.

        Raises:
            SettingsError: the text has file, line, key and remedy of each error.
        """
        source = _Source(Path(path))
        if review is not None:
            source.review(review)
        agent, runtime, build = source.agent, source.agent.runtime, source.build
        instructions, main, fallback, skills = source.references
        tools = [tool for tool in agent.tools or () if tool.enabled]
        loaded = cls(
            path=source.path,
            name=agent.name,
            role=agent.role,
            instructions=instructions,
            model=main,
            fallback=fallback,
            work_dir=build(
                lambda: source.files.directory(source.files.folder / runtime.work_dir), "runtime", "work_dir"
            ),
            unsafe_mode=runtime.unsafe_mode,
            git_writable=runtime.git_writable,
            sandbox=runtime.sandbox,
            toolchains=_toolchains(runtime.toolchains, source.files.folder),
            docker_image=runtime.docker_image,
            limits=runtime.limits,
            memory=build(lambda: MemorySettings(**agent.memory.model_dump()), "memory"),
            tools=None if agent.tools is None else tuple(tool.name for tool in tools),
            max_output_chars={t.name: t.config.max_output_chars for t in tools if t.config.max_output_chars},
            transport=agent.model.transport,
            index=_index_settings(agent, source.document),
            delegation=build(agent.delegation_bounds, "delegation"),
            skills=skills,
            mcp=tuple(build(entry.server, "mcp", at) for at, entry in enumerate(agent.mcp)),
            rules=(
                *(build(entry.rule, "permissions", at) for at, entry in enumerate(agent.permissions)),
                # Those of `require_permission` come last, so that `permissions` can make exceptions.
                *(
                    Rule(decision="ask", tool=tool.name, reason=f"the agent file asks before every {tool.name}")
                    for tool in tools
                    if tool.config.require_permission
                ),
            ),
        )
        return loaded if runtime.outage_seconds or (waits and loaded.limits.outage_seconds) else loaded.without_waits()

    @classmethod
    def built_in(cls, work_dir: Path, *, model: ModelSettings) -> Self:
        """Return the default agent for a directory without an agent file."""
        return cls(work_dir=work_dir, model=model)

    def without_waits(self) -> Self:
        """Return the settings with three quick attempts, and no wait, for a model service that is down."""
        main, *fallback = (model.with_retry(BRIEF_RETRY) for model in (self.model, *self.fallback))
        limits = replace(self.limits, outage_seconds=0.0)
        return replace(self, model=main, fallback=tuple(fallback), limits=limits)

    def policy(self) -> Policy:
        return Policy(rules=self.rules, limits=self.limits)

    @property
    def kept_index(self) -> Path | None:
        """Index file in the user's home; None without `index`."""
        if self.index is None:
            return None
        name = hashlib.blake2b(os.fsencode(self.work_dir), digest_size=8).hexdigest()
        return home_dir("Vectors of definitions are kept") / ".codepilot" / "index" / f"{name}.db"

    def embeddings(self, environ: Mapping[str, str] | None = None) -> EmbeddingService | None:
        if (index := self.index) is None:
            return None
        key = (os.environ if environ is None else environ).get(index.api_key_env or "", "").strip() or None
        if index.api_key_env and key is None:
            raise SettingsError(
                f"`index` needs a key, and the environment variable {index.api_key_env} is not set. Set it, or remove "
                "the section, or these keys of `semantic_search`, which then searches by words."
            )
        return EmbeddingService(
            model=index.model, base_url=index.base_url, api_key=key, seconds=index.timeout, most=index.max_results
        )

    @staticmethod
    def read_servers(source: Path | str, environ: Mapping[str, str] | None = None) -> dict[str, McpServer]:
        """Read MCP servers by name from YAML with the key `mcp`: a file, or the text itself."""
        from agent_runtime.agent.schema import ServersDocument  # noqa: PLC0415 - loads pydantic

        variables = os.environ if environ is None else environ
        text, name = (source, "mcp") if isinstance(source, str) else (read_text(source), str(source))
        document = read_settings(text, ServersDocument, source=name)
        servers = [entry.server().with_environment(variables) for entry in document.mcp]
        by_name = {entry.name: entry for entry in servers}
        if len(by_name) < len(servers):
            raise SettingsError(f"{name}: two MCP servers have the same name; give one of them another.")
        return by_name

    def servers(self, environ: Mapping[str, str] | None = None) -> tuple[McpServer, ...]:
        """Return the MCP servers with variables expanded."""
        return tuple(server.with_environment(os.environ if environ is None else environ) for server in self.mcp)

    def provider(self, environ: Mapping[str, str] | None = None) -> Provider:
        """Create the provider, with its fallbacks. Nothing is sent.

        Raises:
            SettingsError: a key is missing, or the settings do not suit a provider.
        """
        chain = (self.model, *self.fallback)
        # Further attempts at a model with a fallback would only delay the run.
        preferred = [model.with_retry(replace(model.options.retry, attempts=2)) for model in chain[:-1]]
        providers = [model.create_provider(environ) for model in (*preferred, chain[-1])]
        return FallbackProvider(providers) if len(providers) > 1 else providers[0]


class _Source:
    """An agent file and the files that it names, as they are read; an error of `build` has the place of the key."""

    def __init__(self, path: Path) -> None:
        from agent_runtime.agent.schema import AgentDocument  # noqa: PLC0415 - loads pydantic

        self.path = path
        self.files = SourceFiles(folder=path.absolute().parent)
        self.document = read_document(self.files.text(path), source=str(path))
        self.agent = validate(self.document, AgentDocument).agent

    def build(self, make: Callable[[], T], *keys: str | int) -> T:
        try:
            return make()
        except SettingsError as error:
            raise SettingsError(f"{self.document.location(('agent', *keys))}: {error}") from error

    def review(self, review: Callable[[TrustRequest], object]) -> None:
        """Call `review` if keys need trust."""
        models = (self.agent.model, *self.agent.model.fallback)
        names = filter(None, (instruction_file(self.agent.system_prompt), *(model.script for model in models)))
        request = self.files.build_request(
            self.path, self.document, names=names, skills=self.agent.skills, read=lambda: self.references
        )
        if request is not None:
            review(request)

    @cached_property
    def references(self) -> tuple[str, ModelSettings, tuple[ModelSettings, ...], dict[str, str]]:
        """Instructions, the models with their scripts, and skills."""
        agent, files = self.agent, self.files
        return (
            self.build(lambda: _read_instructions(agent.system_prompt, files), "system_prompt"),
            self._model(agent.model, "model"),
            tuple(self._model(entry, "model", "fallback", at) for at, entry in enumerate(agent.model.fallback)),
            self.build(lambda: _read_skills(agent.skills, files), "skills"),
        )

    def _model(self, section: Model, *keys: str | int) -> ModelSettings:
        location = self.document.location(("agent", *keys, "api_key_env"))
        return self.build(partial(ModelSettings.from_section, section, self.files, location), *keys)


def _toolchains(setting: ToolchainSetting | list[str], folder: Path) -> ToolchainSetting:
    return tuple(folder / Path(name).expanduser() for name in setting) if isinstance(setting, list) else setting


def _read_instructions(value: str, files: SourceFiles) -> str:
    name = instruction_file(value)
    return value if name is None else files.text(files.folder / name)


def _index_settings(agent: Agent, document: Document) -> IndexSettings | None:
    section = agent.index
    if agent.old_vectors is not None:
        at, section = agent.old_vectors
        _log_once(
            f"{document.location(('agent', 'tools', at, 'config'))}: semantic_search has keys of `index` here, as in "
            f"CodePilot 0.9. They are used, and definitions are sent to {section.base_url!r}. Move them to `index`."
        )
    return None if section is None else IndexSettings(**section.model_dump(exclude={"provider"}))


@cache
def _log_once(text: str) -> None:
    log.warning("%s", text)


def _read_skills(folders: Sequence[str], files: SourceFiles) -> dict[str, str]:
    texts: dict[str, str] = {}
    for folder in folders:
        paths = files.skills(files.folder / folder)
        if not paths:
            raise SettingsError(f"`skills`: {files.folder / folder} has no folder with a SKILL.md.")
        for path in paths:
            texts[path.as_posix()] = files.text(path)
            Skill.parse(path.as_posix(), texts[path.as_posix()])
    return texts
