"""An agent as a YAML file, and the model that it names.

`AgentFile.load` reads and checks a file; `schema` describes its keys. Reading looks up no key and sends nothing:
`provider`, `embeddings` and `servers` take the secrets from the environment when the agent is made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from agent_runtime.agent.delegation import Delegation
from agent_runtime.agent.document import read_document, read_settings, validate
from agent_runtime.agent.trust import SourceFiles, TrustRequest, instruction_file, read_text
from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.errors import SettingsError, did_you_mean
from agent_runtime.core.values import EmbeddingService, Skill, TransportName
from agent_runtime.mcp.settings import McpServer
from agent_runtime.policy.policy import Policy, Rule, RunLimits
from agent_runtime.processes.spawn import home
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.retry import FallbackProvider, RetryPolicy
from agent_runtime.sandbox.select import SandboxName

if TYPE_CHECKING:
    from agent_runtime.agent.schema import Agent, Model


T = TypeVar("T")

_QUICK = RetryPolicy(attempts=2)
"""For a model that another one stands in for: asking it again and again would only hold the run up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model and how it is asked.

    Attributes:
        provider: a key of `CATALOG`.
        name: the model's name; None for the provider's default.
        base_url: the address of a compatible server, or None.
        key_variable: the environment variable that holds the key; None for no key.
        options: everything else about it.
        place: where it is in its file, for error texts.
        needs_key: whether it cannot be asked without one.
    """

    provider: str
    name: str | None
    base_url: str | None
    key_variable: str | None
    options: ModelOptions
    place: str
    needs_key: bool = True

    @classmethod
    def of(cls, section: Model, files: SourceFiles, place: str) -> Self:
        """The model of a section of an agent file.

        Raises:
            SettingsError: an option is out of range, or the script cannot be read.
        """
        return cls(
            provider=section.provider,
            name=section.name,
            base_url=section.base_url,
            # A server of one's own must not be sent the key of the service that it stands in for.
            key_variable=section.api_key_env or (None if section.base_url else CATALOG[section.provider].key_variable),
            options=section.options(files),
            place=place,
        )

    @classmethod
    def named(cls, provider: str, *, name: str | None = None, options: ModelOptions | None = None) -> Self:
        """A model that no file describes.

        Raises:
            SettingsError: there is no such provider.
        """
        if provider not in CATALOG:
            raise SettingsError(f"There is no provider {provider!r}. {did_you_mean(provider, CATALOG)}")
        return cls(
            provider=provider,
            name=name,
            base_url=None,
            key_variable=CATALOG[provider].key_variable,
            options=options or ModelOptions(),
            place="the built-in agent",
        )

    @classmethod
    def found(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The first model of the catalogue whose key is in the environment, or else whose address is.

        Raises:
            SettingsError: there is none.
        """
        variables = os.environ if environ is None else environ
        keyed = {name: entry.key_variable for name, entry in CATALOG.items() if entry.key_variable}
        served = {name: entry.address_variable for name, entry in CATALOG.items() if entry.address_variable}
        for name, variable in (*keyed.items(), *served.items()):
            if variables.get(variable, "").strip():
                return cls.named(name)
        keys = " or ".join(keyed.values())
        raise SettingsError(f"No model: set {keys}, give a --base-url, or write an agent.yaml that names a model.")

    def at(
        self, base_url: str | None, environ: Mapping[str, str] | None = None, *, key_variable: str | None = None
    ) -> Self:
        """The same model at `base_url`, or else where its file says, or else the environment.

        A key is sent only where it was meant to go. The provider's own goes to the service itself, and to the address
        in the variable of its SDK, because both variables were set for that. Another server may need no key.

        Args:
            base_url: the address; None where none was named.
            environ: the variables, by default the process's own.
            key_variable: the environment variable with the key for `base_url`.
        """
        variables = os.environ if environ is None else environ
        entry = CATALOG[self.provider]
        if base_url and base_url != self.base_url:
            own = entry.is_own(base_url) and not variables.get(key_variable or "", "").strip()
            usual = self.key_variable if self.base_url is None else entry.key_variable
            return replace(self, base_url=base_url, key_variable=usual if own else key_variable, needs_key=own)
        address = variables.get(entry.address_variable or "", "").strip()
        if self.base_url or not address:
            return self
        return replace(self, base_url=address, key_variable=entry.key_variable, needs_key=entry.is_own(address))

    def api_key(self, environ: Mapping[str, str] | None = None) -> str | None:
        """The key, from its variable; one that is empty counts as not set. None where none is needed, or there is none.

        Args:
            environ: the variables, by default the process's own.

        Raises:
            SettingsError: the variable is not set.
        """
        if self.key_variable is None:
            return None
        key = (os.environ if environ is None else environ).get(self.key_variable, "").strip()
        if not key and not self.needs_key:
            return None
        if not key:
            raise SettingsError(
                f"{self.place}: the provider `{self.provider}` needs a key, and the environment variable "
                f"{self.key_variable} is not set. Set it, or name another one as api_key_env."
            )
        return key

    def made(self, environ: Mapping[str, str] | None = None) -> Provider:
        """The model, ready to be asked.

        Raises:
            SettingsError: the key is not set, or the provider cannot work with the settings.
        """
        key = self.api_key(environ)
        cloud = CATALOG[self.provider].cloud
        found = cloud.read(os.environ if environ is None else environ) if cloud else {}
        options = replace(self.options, key_variable=self.key_variable, cloud=found)
        return provider_for(self.provider, model=self.name, api_key=key, base_url=self.base_url, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """The section `index` of an agent file; see `schema.Vectors`."""

    api_key_env: str | None
    model: str
    base_url: str
    max_results: int
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """What an `agent.yaml` says; every path in it is relative to the file. Made by `load`.

    Attributes:
        path: the file; None for `built_in`.
        name: what the agent is called.
        role: what it is, in one sentence.
        instructions: its `system_prompt`: further words for ours.
        model: the model it asks.
        fallback: asked instead, in this order, when the ones before cannot answer.
        work_dir: the directory that it reads and changes.
        unsafe_mode: whether file tools may leave `work_dir`.
        git_writable: whether commands may make and change git repositories in `work_dir`.
        sandbox: where commands run.
        docker_image: the image for the sandbox `docker`, or None.
        limits: bounds of one run.
        memory: when the conversation is made shorter.
        tools: the tools it has; None for every built-in one.
        max_output_chars: tool name → characters of one result that the model is shown at most.
        index: what makes vectors for `semantic_search`, with the variable of its key; None for nothing.
        delegation: how it may delegate tasks; None for not at all.
        rules: which calls are made, asked about or refused; the first that fits decides.
        transport: how its model calls tools; None for what suits the model.
        skills: texts of `SKILL.md` files, by path.
        mcp: servers whose tools it has, with `${NAME}` as it is written.
    """

    path: Path | None = None
    name: str = "Codepilot"
    role: str = "an autonomous software engineering agent."
    instructions: str = ""
    model: ModelSettings
    fallback: tuple[ModelSettings, ...] = ()
    work_dir: Path
    unsafe_mode: bool = False
    sandbox: SandboxName = "auto"
    docker_image: str | None = None
    limits: RunLimits = field(default_factory=RunLimits)
    memory: MemorySettings = field(default_factory=MemorySettings)
    tools: tuple[str, ...] | None = None
    max_output_chars: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    git_writable: bool = False
    index: IndexSettings | None = None
    transport: TransportName | None = None
    delegation: Delegation | None = None
    mcp: tuple[McpServer, ...] = ()
    skills: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | str, *, review: Callable[[TrustRequest], object] | None = None) -> Self:
        """Read an agent file. No key is looked up for it; `provider` does that.

        Args:
            path: the file.
            review: called before anything takes effect, and before any file outside the directory is opened, if the
                file has keys that need trust, e.g. in a clone of somebody else's repository; raises an error to refuse
                it. By default the file is trusted.

        Raises:
            SettingsError: it cannot be read or does not fit; the text names file, line and key of everything that is
                wrong, with what to write instead.
        """
        from agent_runtime.agent.schema import AgentDocument  # noqa: PLC0415 - loads pydantic

        path = Path(path)
        folder = path.absolute().parent
        files = SourceFiles(folder=folder)
        document = read_document(files.text(path), source=str(path))
        agent = validate(document, AgentDocument).agent
        tools = None if agent.tools is None else [tool for tool in agent.tools if tool.enabled]

        def made(make: Callable[[], T], *keys: str | int) -> T:
            """Make a value of a section; an error names the section's place in the file."""
            try:
                return make()
            except SettingsError as error:
                raise SettingsError(f"{document.place(('agent', *keys))}: {error}") from error

        def model(section: Model, *keys: str | int) -> ModelSettings:
            place = document.place(("agent", *keys, "api_key_env"))
            return made(partial(ModelSettings.of, section, files, place), *keys)

        @cache
        def named() -> tuple[str, ModelSettings, tuple[ModelSettings, ...], dict[str, str]]:
            """Read the files that the agent file names, each once."""
            return (
                made(lambda: _instructions(agent.system_prompt, files), "system_prompt"),
                model(agent.model, "model"),
                tuple(model(each, "model", "fallback", at) for at, each in enumerate(agent.model.fallback)),
                made(lambda: _skills(agent.skills, files), "skills"),
            )

        if review is not None:
            request = files.request(path, document, names=_named_files(agent), skills=agent.skills, read=named)
            if request is not None:
                review(request)
        instructions, main, fallback, skills = named()
        return cls(
            path=path,
            name=agent.name,
            role=agent.role,
            instructions=instructions,
            model=main,
            fallback=fallback,
            work_dir=made(lambda: files.directory(folder / agent.runtime.work_dir), "runtime", "work_dir"),
            unsafe_mode=agent.runtime.unsafe_mode,
            git_writable=agent.runtime.git_writable,
            sandbox=agent.runtime.sandbox,
            docker_image=agent.runtime.docker_image,
            limits=agent.runtime.limits,
            memory=made(lambda: MemorySettings(**agent.memory.model_dump()), "memory"),
            tools=None if tools is None else tuple(tool.name for tool in tools),
            max_output_chars={t.name: t.config.max_output_chars for t in tools or () if t.config.max_output_chars},
            transport=agent.model.transport,
            index=None if agent.index is None else IndexSettings(**agent.index.model_dump(exclude={"provider"})),
            delegation=made(agent.delegation_bounds, "delegation"),
            skills=skills,
            mcp=tuple(made(each.server, "mcp", at) for at, each in enumerate(agent.mcp)),
            rules=(
                *(made(each.rule, "permissions", at) for at, each in enumerate(agent.permissions)),
                # Those of `require_permission` come last, so that `permissions` can make exceptions.
                *(
                    Rule(decision="ask", tool=tool.name, reason=f"the agent file asks before every {tool.name}")
                    for tool in tools or ()
                    if tool.config.require_permission
                ),
            ),
        )

    @classmethod
    def built_in(cls, work_dir: Path, *, model: ModelSettings) -> Self:
        """Return the agent for a directory without an agent file: every tool, default limits, the best sandbox."""
        return cls(work_dir=work_dir, model=model)

    def policy(self) -> Policy:
        """What its runs may do and spend."""
        return Policy(rules=self.rules, limits=self.limits)

    @property
    def kept_index(self) -> Path | None:
        """Where the index is kept between runs: in the user's home, for those whose vectors cost something."""
        if self.index is None:
            return None
        name = hashlib.blake2b(os.fsencode(self.work_dir), digest_size=8).hexdigest()
        return home("Vectors of definitions are kept") / ".codepilot" / "index" / f"{name}.db"

    def embeddings(self, environ: Mapping[str, str] | None = None) -> EmbeddingService | None:
        """What makes vectors, ready to be asked.

        Args:
            environ: the variables that hold the keys, by default the process's own.

        Raises:
            SettingsError: its key is not set, or numpy is not installed.
        """
        if (index := self.index) is None:
            return None
        key = (os.environ if environ is None else environ).get(index.api_key_env or "", "").strip() or None
        if index.api_key_env and key is None:
            raise SettingsError(
                f"`index` needs a key, and the environment variable {index.api_key_env} is not set. Set it, or remove "
                "the section: `semantic_search` then searches by words."
            )
        return EmbeddingService(
            model=index.model, base_url=index.base_url, api_key=key, seconds=index.timeout, most=index.max_results
        )

    @staticmethod
    def servers_in(path: Path, environ: Mapping[str, str] | None = None) -> dict[str, McpServer]:
        """The MCP servers, by name, of a YAML file whose only key is `mcp`, for agents that no agent file describes.

        Args:
            path: of the file.
            environ: the variables that `${NAME}` stands for, by default the process's own.

        Raises:
            SettingsError: it cannot be read or does not fit, a variable is not set, or two servers have one name.
        """
        from agent_runtime.agent.schema import ServersDocument  # noqa: PLC0415 - loads pydantic

        variables = os.environ if environ is None else environ
        document = read_settings(read_text(path), ServersDocument, source=str(path))
        servers = [each.server().with_environment(variables) for each in document.mcp]
        named = {each.name: each for each in servers}
        if len(named) < len(servers):
            raise SettingsError(f"{path}: two MCP servers have the same name; give one of them another.")
        return named

    def servers(self, environ: Mapping[str, str] | None = None) -> tuple[McpServer, ...]:
        """Its MCP servers, ready to be asked.

        Args:
            environ: the variables that `${NAME}` stands for, by default the process's own.

        Raises:
            SettingsError: one is not set.
        """
        return tuple(each.with_environment(os.environ if environ is None else environ) for each in self.mcp)

    def provider(self, environ: Mapping[str, str] | None = None) -> Provider:
        """Its model, ready to be asked, with those that stand in for it. Looks the keys up; sends nothing.

        Args:
            environ: the variables that hold the keys, by default the process's own.

        Raises:
            SettingsError: a key is not set, or the provider cannot work with the settings.
        """
        chain = (self.model, *self.fallback)
        quick = [replace(each, options=replace(each.options, retry=_QUICK)) for each in chain[:-1]]
        made = [each.made(environ) for each in (*quick, chain[-1])]
        return FallbackProvider(made) if len(made) > 1 else made[0]


def _named_files(agent: Agent) -> list[str]:
    """Return the files that an agent file names, without its skills."""
    names = (instruction_file(agent.system_prompt), *(each.script for each in (agent.model, *agent.model.fallback)))
    return [each for each in names if each]


def _instructions(written: str, files: SourceFiles) -> str:
    """The system prompt: what is written, or what is in the file that is written there."""
    name = instruction_file(written)
    return written if name is None else files.text(files.folder / name)


def _skills(named: Sequence[str], files: SourceFiles) -> dict[str, str]:
    """The texts of all skills in the folders that are named."""
    found: dict[str, str] = {}
    for each in named:
        paths = files.skills(files.folder / each)
        if not paths:
            raise SettingsError(f"`skills`: {files.folder / each} has no folder with a SKILL.md.")
        for path in paths:
            found[path.as_posix()] = files.text(path)
            Skill.parse(path.as_posix(), found[path.as_posix()])
    return found
