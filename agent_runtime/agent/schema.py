"""Pydantic models of the agent file's sections.

`docs/agent.schema.json` is generated from them, with their docstrings. This module imports pydantic: import it lazily.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from agent_runtime.agent import delegation as values
from agent_runtime.agent.document import schema_of
from agent_runtime.agent.trust import SourceFiles
from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.errors import SettingsError, did_you_mean
from agent_runtime.core.values import TransportName
from agent_runtime.mcp.settings import McpServer
from agent_runtime.policy.policy import Rule, RunLimits, Verdict
from agent_runtime.providers import models
from agent_runtime.providers.catalog import CATALOG
from agent_runtime.sandbox.select import SandboxName
from agent_runtime.tools.code_index import IndexTools
from agent_runtime.tools.conversation import ContextTools, QuestionTools
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools

BUILT_IN = (
    *(
        name
        for family in (FileTools, SearchTools, IndexTools, ShellTools, QuestionTools, ContextTools)
        for name in family.value_types
    ),
    *values.DELEGATION_TOOLS,
)
"""Default tools; the delegation tools also need `delegation`."""

_PATH_TOOLS = (*FileTools.value_types, *SearchTools.value_types)
_COMMAND_TOOLS = ("execute", "send_input")
_MEMORY = MemorySettings()
_DELEGATION = values.Delegation()
_LIMITS = RunLimits()
_KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_MAX_WORD_CHARS = 24
"""Longer pieces without an underscore are parts of keys, not of variable names."""


def _check_tool(name: str) -> str:
    if name not in BUILT_IN:
        raise ValueError(f"there is no tool {name!r}. {did_you_mean(name, BUILT_IN)} Register your own tools in code")
    return name


def _check_rule_tool(name: str) -> str:
    return name if name == "*" else _check_tool(name)


def _check_provider(name: str) -> str:
    if name not in CATALOG:
        raise ValueError(f"there is no provider {name!r}. {did_you_mean(name, CATALOG)}")
    return name


def _check_key_variable(name: str) -> str:
    if not _KEY_VARIABLE.fullmatch(name) or max(map(len, name.split("_"))) > _MAX_WORD_CHARS:
        raise ValueError(  # never with the value: it may be the key itself
            "must be the name of an environment variable, in capitals such as ANTHROPIC_API_KEY. If this is a "
            "key itself, remove it, and replace it by a new one if anybody else may have seen it"
        )
    return name


def _enum_schema(names: tuple[str, ...]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(names)})


ToolName = Annotated[str, AfterValidator(_check_tool), _enum_schema(BUILT_IN)]
RuleTool = Annotated[str, AfterValidator(_check_rule_tool), _enum_schema(("*", *BUILT_IN))]
ProviderName = Annotated[str, AfterValidator(_check_provider), _enum_schema(tuple(CATALOG))]
KeyVariable = Annotated[
    str,
    AfterValidator(_check_key_variable),
    WithJsonSchema({"type": "string", "pattern": f"^{_KEY_VARIABLE.pattern}$"}),
]
Text = Annotated[str, Field(min_length=1)]
Patterns = Annotated[list[Text], Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _require_value(cls, value: object, info: ValidationInfo) -> object:
        if value is None and info.field_name and cls.model_fields[info.field_name].default is None:
            raise ValueError("has no value; write one, or remove the key")
        return value


class Thinking(_Section):
    """Reasoning before the answer, for `anthropic`; without this section, the model's default applies."""

    enabled: bool = False
    """Whether the model thinks before it answers."""
    budget_tokens: Annotated[int, Field(ge=1024)] = models.Thinking().budget_tokens
    """The maximum number of reasoning tokens, for models that accept a budget; they count towards `max_tokens`."""


class Model(_Section):
    """A model, and how it is asked."""

    provider: ProviderName
    """The model service."""
    name: Text | None = None
    """The model's name at the service; by default the provider's default model."""
    api_key_env: KeyVariable | None = None
    """The environment variable with the key, never the key itself. By default the provider's usual variable, or none if
    `base_url` is another server's."""
    base_url: Text | None = None
    """The address of a compatible server. By default the one in `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`, or else the
    service's own."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """The sampling temperature; by default the service's own. Most reasoning models reject any other. It is not sent
    to `anthropic` if the model thinks."""
    max_tokens: Annotated[int, Field(ge=1)] = models.ModelOptions().max_tokens
    """The maximum length of a reply in tokens, including reasoning; less for models with a known lower limit."""
    silence: Annotated[float, Field(gt=0)] | None = None
    """Seconds without data from the service before a reply is considered broken off; by default 900 for a model that
    may think and 300 for others."""
    thinking: Thinking | None = None
    """Reasoning before the answer, for `anthropic`."""
    reasoning_effort: models.ReasoningEffort | None = None
    """The reasoning effort, for models that support it."""
    api: models.OpenAIApi | None = None
    """For `openai`: the API to use. By default `chat` if `base_url` is set, otherwise `responses`."""
    script: Text | None = None
    """For `scripted`: the file with the replies to replay, relative to the agent file."""
    images: bool | None = None
    """Whether the model supports images; by default determined from its name."""

    def options(self, files: SourceFiles) -> models.ModelOptions:
        """Return the request options."""
        shared = {"max_tokens", "silence", "temperature", "reasoning_effort", "api", "images"}
        return models.ModelOptions(
            thinking=None if self.thinking is None else models.Thinking(**self.thinking.model_dump()),
            script=None if self.script is None else files.folder / self.script,
            script_text=None if self.script is None else files.text(files.folder / self.script),
            **self.model_dump(include=shared),
        )


class MainModel(Model):
    """The model and its fallbacks."""

    transport: TransportName | None = None
    """How the model calls tools: in control blocks, or by the service's own tool calls; the default depends on the
    model."""
    fallback: list[Model] = Field(default_factory=list)
    """Models to use, in this order, when the previous ones cannot answer."""


class Runtime(_Section):
    """The agent's directory, its sandbox, and the limits of a run."""

    work_dir: Text = "."
    """The directory that the agent reads and changes, relative to the agent file."""
    max_steps: Annotated[int, Field(ge=1)] = 20  # what agent files have always meant when they say nothing
    """The maximum number of model replies that may call tools."""
    unsafe_mode: bool = False
    """Whether file tools may leave `work_dir`. Commands stay in the sandbox."""
    git_writable: bool = False
    """Whether commands may make and change git repositories in `work_dir`, for example commit."""
    sandbox: SandboxName = "auto"
    """The sandbox for commands; `local` does not isolate them at all."""
    toolchains: Literal["auto", "none"] | list[Text] = "auto"
    """Toolchains that commands find: those of `work_dir` and of the user (`auto`), none, or these directories, too."""
    docker_image: Text | None = None
    """The image for the sandbox `docker`, which must be on this machine; pin it by digest."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """The maximum cost of a run in US dollars; by default unlimited."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The maximum number of tokens that a run may send and receive; by default unlimited."""
    max_seconds: Annotated[float, Field(gt=0)] = _LIMITS.max_seconds
    """The time limit of a run in seconds."""
    outage_seconds: Annotated[float, Field(ge=0)] | None = None
    """How long a run waits for a model service that is down, in seconds; by default 300, or 0 for
    `Runtime("agent.yaml")` in code."""

    @property
    def limits(self) -> RunLimits:
        """Limits of a run."""
        names = {"max_steps", "max_cost_usd", "max_tokens", "max_seconds", "outage_seconds"}
        return RunLimits(**self.model_dump(include=names, exclude_none=True))


class Memory(_Section):
    """When to shorten the conversation."""

    max_context_tokens: int = _MEMORY.max_context_tokens
    """The maximum size of the conversation in tokens."""
    global_summary_threshold: float = _MEMORY.global_summary_threshold
    """The fraction of `max_context_tokens` at which the oldest part is replaced by a summary."""
    global_summary_max_tokens: int = _MEMORY.global_summary_max_tokens
    """The maximum length of a summary in tokens, or a twentieth of what it replaces if that is more."""


class Vectors(_Section):
    """Vectors for `semantic_search`, which then ranks by them and by words. Definitions are sent to this service."""

    api_key_env: KeyVariable | None = None
    """The environment variable with the key, never the key itself; by default none."""
    model: Text = "voyage-code-3"
    """The model's name at the service."""
    base_url: Text = "https://api.voyageai.com/v1"
    """The address of a service with OpenAI's API for embeddings."""
    provider: Literal["openai"] = "openai"
    """The API of the service."""
    max_results: Annotated[int, Field(ge=1, le=50)] = 50
    """The maximum number of definitions that one search returns."""
    timeout: Annotated[float, Field(gt=0)] = 60.0
    """The time limit of one request in seconds."""


class ToolConfig(Vectors):
    """Options of one tool. Those of `index` are for `semantic_search`, as in CodePilot 0.9."""

    require_permission: bool = False
    """Whether every call requires approval."""
    max_output_chars: Annotated[int, Field(ge=200)] | None = None
    """The maximum number of characters of a result that the model sees: its beginning and its end."""

    @property
    def vectors(self) -> Vectors | None:
        """The keys of `index`, if there are any."""
        if not (keys := self.model_fields_set & Vectors.model_fields.keys()):
            return None
        usual = {"api_key_env": "VOYAGE_API_KEY"} if self.base_url == Vectors().base_url else {}
        return Vectors(**usual | self.model_dump(include=keys))


class Tool(_Section):
    """One tool."""

    name: ToolName
    """The tool's name."""
    enabled: bool = True
    """Whether the agent has this tool."""
    config: ToolConfig = ToolConfig()

    @model_validator(mode="after")
    def _check_config(self) -> Self:
        if self.config.vectors and self.name != "semantic_search":
            key = min(self.config.model_fields_set & Vectors.model_fields.keys())
            raise ValueError(f"`{key}` has no effect for {self.name}; it is for semantic_search")
        return self


class Permission(_Section):
    """One rule about calls: exactly one of `allow`, `ask` and `deny`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [key]} for key in ("allow", "ask", "deny")]})

    allow: RuleTool | None = None
    """The tool whose calls need no approval; `*` for every tool."""
    ask: RuleTool | None = None
    """The tool whose calls require approval; `*` for every tool."""
    deny: RuleTool | None = None
    """The tool whose calls are denied; `*` for every tool."""
    paths: Patterns | None = None
    """Only calls on paths that match one of these patterns, relative to `work_dir`; `**` crosses directories."""
    commands: Patterns | None = None
    """Only commands that match one of these patterns, word by word, such as `pytest *`."""
    reason: Text | None = None
    """The reason to show to people, and for `deny` to the agent."""

    @property
    def decision(self) -> tuple[Verdict, str]:
        """The verdict and the tool.

        Raises:
            ValueError: not exactly one is set.
        """
        verdicts: tuple[Verdict, ...] = ("allow", "ask", "deny")
        decisions = [(verdict, tool) for verdict in verdicts if (tool := getattr(self, verdict)) is not None]
        if len(decisions) != 1:
            raise ValueError("write exactly one of `allow`, `ask` and `deny`")
        return decisions[0]

    def rule(self) -> Rule:
        """Return the policy rule."""
        decision, tool = self.decision
        paths, commands = tuple(self.paths or ()), tuple(self.commands or ())
        return Rule(decision=decision, tool=tool, paths=paths, commands=commands, reason=self.reason or "")

    @model_validator(mode="after")
    def _check_patterns(self) -> Self:
        _, tool = self.decision
        if self.paths is not None and tool not in {"*", *_PATH_TOOLS}:
            raise ValueError(
                f"`paths` has no effect for {tool}, which takes no files; it is for {', '.join(_PATH_TOOLS)}"
            )
        if self.commands is not None and tool not in {"*", *_COMMAND_TOOLS}:
            raise ValueError(f"`commands` has no effect for {tool}; it is for {', '.join(_COMMAND_TOOLS)}")
        return self


class Persona(_Section):
    """One persona: a way for child runs to work, which can only narrow what the agent may do."""

    name: Text
    """The name by which tasks ask for it."""
    role: str = ""
    """Its role, in one sentence; by default the agent's."""
    system_prompt: str = ""
    """Further instructions, after those of the agent."""
    tools: list[ToolName] | None = None
    """The agent's tools that it can use; by default all of them."""

    def persona(self) -> values.Persona:
        """Return the library's persona."""
        tools = None if self.tools is None else tuple(self.tools)
        return values.Persona(name=self.name, role=self.role, instructions=self.system_prompt, tools=tools)


class Delegation(_Section):
    """Tasks for child runs, each of which has a copy of `work_dir` and a share of what is left of the run's limits."""

    max_tasks: Annotated[int, Field(ge=1)] = _DELEGATION.max_tasks
    """The maximum number of tasks that one run delegates."""
    at_once: Annotated[int, Field(ge=1)] = _DELEGATION.at_once
    """The maximum number of child runs at the same time."""
    max_depth: Annotated[int, Field(ge=1, le=5)] = _DELEGATION.max_depth
    """The maximum depth; with 1, child runs cannot delegate."""
    share: Annotated[float, Field(gt=0, le=1)] = _DELEGATION.share
    """The fraction of the steps, tokens and money left that one child run may use."""
    personas: list[Persona] = Field(default_factory=list)
    """Personas that tasks can ask for."""


class ServedTools(_Section):
    """An MCP server: a program in the sandbox (`command`), or an address (`url`)."""

    name: Text
    """The server's name, a prefix of the names of its tools: the tool `search` of `docs` is called `docs_search`."""
    command: Text | None = None
    """The program, which is started in the sandbox's home directory."""
    args: list[str] = Field(default_factory=list)
    """The program's arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables for the program; `${NAME}` stands for the environment variable of that name."""
    url: Text | None = None
    """The address of a server that speaks streamable HTTP."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of each request to `url`; `${NAME}` stands for the environment variable of that name."""
    private: bool = False
    """Whether `url` may be an address that is not public, and may start with `http://`."""
    tools: list[Text] | None = None
    """The server's tools to offer to the model; by default all of them."""
    allow: list[Text] = Field(default_factory=list)
    """The tools whose calls need no approval."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = McpServer(name="x", command=("x",)).timeout
    """The time limit in seconds of each call, and of the server's start."""

    def server(self) -> McpServer:
        """Return the library's server settings."""
        if self.command is None and self.args:
            raise SettingsError(f"MCP server {self.name!r}: `args` has no effect without `command`")
        options = self.model_dump(exclude={"command", "args", "tools", "allow", "url"})
        return McpServer(
            command=() if self.command is None else (self.command, *self.args),
            url=self.url or "",
            tools=None if self.tools is None else tuple(self.tools),
            allow=tuple(self.allow),
            **options,
        )


class ServersDocument(_Section):
    """MCP servers."""

    mcp: list[ServedTools] = Field(default_factory=list)
    """The servers."""


class Agent(_Section):
    """The agent."""

    name: Text
    """The agent's name. In lower case, with hyphens, it is also the default session id."""
    role: Text = "an autonomous software engineering agent."
    """The agent's role, in one sentence."""
    system_prompt: str = ""
    """Further instructions: the text itself, or the path of a .md file, relative to the agent file."""
    model: MainModel
    runtime: Runtime = Runtime()
    memory: Memory = Memory()
    tools: list[Tool] | None = None
    """The complete list of the agent's tools; by default every built-in one, but the tools that delegate only with
    `delegation`."""
    index: Vectors | None = None
    """Vectors for `semantic_search`; by default it searches by words only, and nothing is sent anywhere."""
    delegation: Delegation | None = None
    """Delegated tasks; by default there are none."""
    skills: list[Text] = Field(default_factory=list)
    """Folders of skills: each of their folders has a `SKILL.md`. Relative to the agent file."""
    mcp: list[ServedTools] = Field(default_factory=list)
    """MCP servers whose tools the agent can use; each call requires approval unless `allow` lists the tool."""
    permissions: list[Permission] = Field(default_factory=list)
    """Which calls are allowed, require approval or are denied; the first matching rule decides."""

    def delegation_bounds(self) -> values.Delegation | None:
        """Return the section's limits, or the defaults if `tools` lists `delegate`."""
        if (section := self.delegation) is None:
            listed = any(tool.name == "delegate" and tool.enabled for tool in self.tools or ())
            return values.Delegation() if listed else None
        personas = tuple(persona.persona() for persona in section.personas)
        return values.Delegation(personas=personas, **section.model_dump(exclude={"personas"}))

    @property
    def old_vectors(self) -> tuple[int, Vectors] | None:
        """The vectors of `semantic_search` as in CodePilot 0.9, and its place in `tools`."""
        places = ((at, tool.config.vectors) for at, tool in enumerate(self.tools or ()) if tool.enabled)
        return next(((at, vectors) for at, vectors in places if vectors), None)

    @field_validator("tools")
    @classmethod
    def _check_duplicates(cls, tools: list[Tool] | None) -> list[Tool] | None:
        names = [tool.name for tool in tools or ()]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ValueError(f"{', '.join(duplicates)} is listed more than once; keep one entry")
        return tools

    @model_validator(mode="after")
    def _check_delegation(self) -> Self:
        listed = {tool.name for tool in self.tools or () if tool.enabled}
        if self.delegation is not None and self.tools is not None and "delegate" not in listed:
            raise ValueError("`delegation` has no effect, because `tools` does not list `delegate`; add it there")
        return self

    @model_validator(mode="after")
    def _check_index(self) -> Self:
        if self.index is not None and self.old_vectors is not None:
            raise ValueError("`index` and the `config` of semantic_search name a service; keep `index`")
        return self


class AgentDocument(_Section):
    """An agent of Codepilot."""

    agent: Agent


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of agent files."""
    return schema_of(AgentDocument, "Codepilot agent file")
