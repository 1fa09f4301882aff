"""The shape of an agent file. Loads pydantic: import it only where a file is read or the schema is printed."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

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

from agent_runtime.agent.published import schema_of
from agent_runtime.context.memory import MemorySettings
from agent_runtime.core.did_you_mean import did_you_mean
from agent_runtime.core.policy import RunLimits, Verdict
from agent_runtime.providers import options
from agent_runtime.providers.catalog import CATALOG
from agent_runtime.sandbox.select import SandboxName
from agent_runtime.tools.context import ContextTools
from agent_runtime.tools.files import FileTools
from agent_runtime.tools.questions import QuestionTools
from agent_runtime.tools.search import SearchTools
from agent_runtime.tools.shell import ShellTools

BUILT_IN = tuple(
    name for family in (FileTools, SearchTools, ShellTools, QuestionTools, ContextTools) for name in family.value_types
)
"""The tools that every agent has unless its file says otherwise."""

_TAKE_PATHS = (*FileTools.value_types, *SearchTools.value_types)
_TAKE_COMMANDS = ("execute", "send_input")
_MEMORY = MemorySettings()
_LIMITS = RunLimits()
_KEY_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_LONGEST_WORD = 24
"""Letters and digits in one piece; longer pieces are what keys are made of, not names of variables."""


def _tool(name: str) -> str:
    if name == "semantic_search":
        raise ValueError("`semantic_search` is not offered yet; remove the entry (`find` searches by pattern)")
    if name not in BUILT_IN:
        raise ValueError(
            f"there is no tool {name!r}. {did_you_mean(name, BUILT_IN)} Tools of your own are registered in code"
        )
    return name


def _tool_or_all(name: str) -> str:
    return name if name == "*" else _tool(name)


def _provider(name: str) -> str:
    if name not in CATALOG:
        raise ValueError(f"there is no provider {name!r}. {did_you_mean(name, CATALOG)}")
    return name


def _key_variable(name: str) -> str:
    if not _KEY_VARIABLE.fullmatch(name) or max(map(len, name.split("_"))) > _LONGEST_WORD:
        raise ValueError(  # never with the value: it may be the key itself
            "must be the name of an environment variable, in capitals such as ANTHROPIC_API_KEY. If a key itself "
            "stands there, take it out, and replace it by a new one if anybody else may have seen it"
        )
    return name


def _one_of(names: tuple[str, ...]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(names)})


ToolName = Annotated[str, AfterValidator(_tool), _one_of(BUILT_IN)]
RuleTool = Annotated[str, AfterValidator(_tool_or_all), _one_of(("*", *BUILT_IN))]
ProviderName = Annotated[str, AfterValidator(_provider), _one_of(tuple(CATALOG))]
KeyVariable = Annotated[
    str, AfterValidator(_key_variable), WithJsonSchema({"type": "string", "pattern": f"^{_KEY_VARIABLE.pattern}$"})
]
Text = Annotated[str, Field(min_length=1)]
Patterns = Annotated[list[Text], Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a key without a value, e.g. because all below it is commented out: it would mean the very opposite."""
        if value is None and info.field_name and cls.model_fields[info.field_name].default is None:
            raise ValueError("stands there without a value; write one, or leave the key out")
        return value


class Thinking(_Section):
    """Reasoning before the answer, for `anthropic`; left to the model when the section is left out."""

    enabled: bool = False
    """Whether the model thinks before it answers."""
    budget_tokens: Annotated[int, Field(ge=1024)] = options.Thinking().budget_tokens
    """Tokens to think with at most, for models that take a budget; they count towards `max_tokens`."""


class Model(_Section):
    """A model, and how it is asked."""

    provider: ProviderName
    """The service."""
    name: Text | None = None
    """The model's name as the service knows it; the provider's default when left out."""
    api_key_env: KeyVariable | None = None
    """The environment variable that holds the key, never the key itself. The provider's usual one when left out, and
    none with a `base_url`."""
    base_url: Text | None = None
    """The address of a compatible server, instead of the service's own."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature; left to the service when left out. Most reasoning models refuse any other."""
    max_tokens: Annotated[int, Field(ge=1)] = options.ModelOptions().max_tokens
    """Longest reply in tokens, reasoning included."""
    silence: Annotated[float, Field(gt=0)] | None = None
    """Seconds without a byte from the service before a reply counts as broken off. When left out, 900 for a model that
    may think and 300 for others."""
    thinking: Thinking | None = None
    """Reasoning before the answer, for `anthropic`."""
    reasoning_effort: options.ReasoningEffort | None = None
    """How hard to reason, for models that can."""
    api: options.OpenAIApi | None = None
    """For `openai`: which of its two APIs to speak; `chat` wherever `base_url` is set, else `responses`."""
    script: Text | None = None
    """For `scripted`: the file with the replies to replay, relative to the agent file."""
    images: bool | None = None
    """Whether the model sees images; what is known of it by its name when left out."""


class MainModel(Model):
    """The model, and what stands in for it."""

    fallback: list[Model] = Field(default_factory=list)
    """Asked instead, in this order, when the ones before cannot answer."""


class Runtime(_Section):
    """Where the agent works, and how much it may do in one run."""

    work_dir: Text = "."
    """The directory that the agent reads and changes, relative to the agent file."""
    max_steps: Annotated[int, Field(ge=1)] = 20  # what agent files have always meant when they say nothing
    """Model replies that may act."""
    unsafe_mode: bool = False
    """Whether file tools may leave `work_dir`. Commands stay inside the sandbox all the same."""
    sandbox: SandboxName = "auto"
    """Where commands run; `local` is no protection at all."""
    docker_image: Text | None = None
    """The image for the sandbox `docker`, which must be on this machine; best named by its digest."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """US dollars that one run may cost; no bound when left out."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens that one run may use, sent and received; no bound when left out."""
    max_seconds: Annotated[float, Field(gt=0)] = _LIMITS.max_seconds
    """Seconds that one run may take."""


class Memory(_Section):
    """When the conversation is made shorter."""

    max_context_tokens: int = _MEMORY.max_context_tokens
    """Tokens of conversation that the model is given at most."""
    global_summary_threshold: float = _MEMORY.global_summary_threshold
    """The share of them from which the oldest part is replaced by a summary."""
    global_summary_max_tokens: int = _MEMORY.global_summary_max_tokens
    """The longest such summary, in tokens."""


class ToolConfig(_Section):
    """How one tool is offered."""

    require_permission: bool = False
    """Whether every call of it waits for approval."""
    max_output_chars: Annotated[int, Field(ge=200)] | None = None
    """Characters of one result that the model is shown at most: its beginning and its end."""


class Tool(_Section):
    """One tool."""

    name: ToolName
    """Which one."""
    enabled: bool = True
    """Whether the agent has it."""
    config: ToolConfig = ToolConfig()


class Permission(_Section):
    """One rule about calls: exactly one of `allow`, `ask` and `deny`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [key]} for key in ("allow", "ask", "deny")]})

    allow: RuleTool | None = None
    """The tool whose calls are made without asking; `*` for every tool."""
    ask: RuleTool | None = None
    """The tool whose calls wait for approval."""
    deny: RuleTool | None = None
    """The tool whose calls are refused."""
    paths: Patterns | None = None
    """Only calls on paths that match one of these patterns, relative to `work_dir`; `**` crosses directories."""
    commands: Patterns | None = None
    """Only commands that match one of these, word by word, such as `pytest *`."""
    reason: Text | None = None
    """What people, and for `deny` the agent, are told."""

    @property
    def decided(self) -> tuple[Verdict, str]:
        """The decision and the tool."""
        verdicts: tuple[Verdict, ...] = ("allow", "ask", "deny")
        given = [(verdict, tool) for verdict in verdicts if (tool := getattr(self, verdict)) is not None]
        if len(given) != 1:
            raise ValueError("write exactly one of `allow`, `ask` and `deny`")
        return given[0]

    @model_validator(mode="after")
    def _is_about_something(self) -> Self:
        _, tool = self.decided
        if self.paths is not None and tool not in {"*", *_TAKE_PATHS}:
            raise ValueError(
                f"`paths` would never hold for {tool}, which names no files; it is for {', '.join(_TAKE_PATHS)}"
            )
        if self.commands is not None and tool not in {"*", *_TAKE_COMMANDS}:
            raise ValueError(f"`commands` would never hold for {tool}; it is for {', '.join(_TAKE_COMMANDS)}")
        return self


class Agent(_Section):
    """The agent."""

    name: Text
    """What it is called. In lower case, with dashes, it is also the default session id."""
    role: Text = "an autonomous software engineering agent."
    """What it is, in one sentence."""
    system_prompt: str = ""
    """Further instructions: the text itself, or the path of a .md file, relative to the agent file."""
    model: MainModel
    runtime: Runtime = Runtime()
    memory: Memory = Memory()
    tools: list[Tool] | None = None
    """The tools it has, exactly these; every built-in one when left out."""
    permissions: list[Permission] = Field(default_factory=list)
    """Which calls are made, asked about or refused; the first rule that fits decides."""

    @field_validator("tools")
    @classmethod
    def _each_tool_once(cls, tools: list[Tool] | None) -> list[Tool] | None:
        names = [tool.name for tool in tools or ()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands there more than once; keep one entry")
        return tools


class AgentDocument(_Section):
    """An agent of Codepilot."""

    agent: Agent


def json_schema() -> dict[str, Any]:
    """The shape of an agent file as JSON schema, for editors."""
    return schema_of(AgentDocument, "Codepilot agent file")
