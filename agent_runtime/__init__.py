"""The embeddable agent runtime: everything public, and nothing else."""

from agent_runtime.errors import (
    AgentError,
    ModelError,
    ModelRefusedError,
    ModelRejectedError,
    ModelUnreachableError,
    SandboxError,
    ScriptError,
    SettingsError,
    ToolError,
)
from agent_runtime.events import (
    CompletionWithdrawn,
    Ended,
    Event,
    Observed,
    Replied,
    Started,
    StepStarted,
    Streamed,
    StreamReset,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
)
from agent_runtime.outcome import Outcome, Status, Usage
from agent_runtime.policy import Policy, RunLimits
from agent_runtime.providers.catalog import CATALOG, provider_for
from agent_runtime.providers.options import ModelOptions
from agent_runtime.providers.protocol import Provider
from agent_runtime.providers.scripted import ScriptedProvider
from agent_runtime.runtime import AsyncRuntime
from agent_runtime.sandbox.protocol import Sandbox, SandboxLimits, SandboxSettings
from agent_runtime.sandbox.select import pick as pick_sandbox
from agent_runtime.sessions.memory import InMemorySession
from agent_runtime.sessions.protocol import Session
from agent_runtime.task import Quote, Task
from agent_runtime.tools.protocol import ToolResult

__all__ = [
    "CATALOG",
    "AgentError",
    "AsyncRuntime",
    "CompletionWithdrawn",
    "Ended",
    "Event",
    "InMemorySession",
    "ModelError",
    "ModelOptions",
    "ModelRefusedError",
    "ModelRejectedError",
    "ModelUnreachableError",
    "Observed",
    "Outcome",
    "Policy",
    "Provider",
    "Quote",
    "Replied",
    "RunLimits",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "SandboxSettings",
    "ScriptError",
    "ScriptedProvider",
    "Session",
    "SettingsError",
    "Started",
    "Status",
    "StepStarted",
    "StreamReset",
    "Streamed",
    "Task",
    "ToolCalled",
    "ToolError",
    "ToolProgressed",
    "ToolResult",
    "ToolReturned",
    "Usage",
    "pick_sandbox",
    "provider_for",
]
