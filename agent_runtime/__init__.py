"""The embeddable agent runtime: everything public, and nothing else."""

from agent_runtime.errors import AgentError, ModelError, SandboxError, SettingsError
from agent_runtime.outcome import Outcome, Status, Usage
from agent_runtime.policy import Policy, RunLimits
from agent_runtime.task import Quote, Task

__all__ = [
    "AgentError",
    "ModelError",
    "Outcome",
    "Policy",
    "Quote",
    "RunLimits",
    "SandboxError",
    "SettingsError",
    "Status",
    "Task",
    "Usage",
]
