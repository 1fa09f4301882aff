"""The embeddable agent runtime: everything public, and nothing else.

Each name is loaded when it is first asked for, so that a program loads only the modules of what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime.agent.agent import Agent as Agent
    from agent_runtime.agent.agent_file import AgentFile as AgentFile
    from agent_runtime.agent.agent_file import ModelSettings as ModelSettings
    from agent_runtime.agent.delegation import Delegation as Delegation
    from agent_runtime.agent.delegation import Persona as Persona
    from agent_runtime.agent.document import read_settings as read_settings
    from agent_runtime.agent.document import schema_of as schema_of
    from agent_runtime.context.first_message import INSTRUCTION_FILES as INSTRUCTION_FILES
    from agent_runtime.context.first_message import read_instructions as read_instructions
    from agent_runtime.context.first_message import read_skills as read_skills
    from agent_runtime.context.transcript import MemorySettings as MemorySettings
    from agent_runtime.core.errors import AgentError as AgentError
    from agent_runtime.core.errors import BoundExceededError as BoundExceededError
    from agent_runtime.core.errors import ContextOverflowError as ContextOverflowError
    from agent_runtime.core.errors import ModelError as ModelError
    from agent_runtime.core.errors import ModelOutageError as ModelOutageError
    from agent_runtime.core.errors import ModelRefusedError as ModelRefusedError
    from agent_runtime.core.errors import ModelRejectedError as ModelRejectedError
    from agent_runtime.core.errors import ModelUnreachableError as ModelUnreachableError
    from agent_runtime.core.errors import ResumeCode as ResumeCode
    from agent_runtime.core.errors import ResumeError as ResumeError
    from agent_runtime.core.errors import SandboxError as SandboxError
    from agent_runtime.core.errors import SandboxLimitError as SandboxLimitError
    from agent_runtime.core.errors import ScriptError as ScriptError
    from agent_runtime.core.errors import SessionError as SessionError
    from agent_runtime.core.errors import SessionInUseError as SessionInUseError
    from agent_runtime.core.errors import SessionNewerError as SessionNewerError
    from agent_runtime.core.errors import SessionUnavailableError as SessionUnavailableError
    from agent_runtime.core.errors import SettingsError as SettingsError
    from agent_runtime.core.errors import ToolError as ToolError
    from agent_runtime.core.errors import UsageError as UsageError
    from agent_runtime.core.events import Archived as Archived
    from agent_runtime.core.events import ChildRecorded as ChildRecorded
    from agent_runtime.core.events import ChildResult as ChildResult
    from agent_runtime.core.events import ChildWatched as ChildWatched
    from agent_runtime.core.events import CompletionWithdrawn as CompletionWithdrawn
    from agent_runtime.core.events import Ended as Ended
    from agent_runtime.core.events import Event as Event
    from agent_runtime.core.events import Faulted as Faulted
    from agent_runtime.core.events import MessageInjected as MessageInjected
    from agent_runtime.core.events import MessageQueued as MessageQueued
    from agent_runtime.core.events import ModelAwaited as ModelAwaited
    from agent_runtime.core.events import NetworkLost as NetworkLost
    from agent_runtime.core.events import NetworkUsed as NetworkUsed
    from agent_runtime.core.events import Observed as Observed
    from agent_runtime.core.events import Parked as Parked
    from agent_runtime.core.events import Paused as Paused
    from agent_runtime.core.events import PermissionAsked as PermissionAsked
    from agent_runtime.core.events import QuestionAsked as QuestionAsked
    from agent_runtime.core.events import Recovered as Recovered
    from agent_runtime.core.events import Refused as Refused
    from agent_runtime.core.events import Replied as Replied
    from agent_runtime.core.events import ReplyBroken as ReplyBroken
    from agent_runtime.core.events import Resumed as Resumed
    from agent_runtime.core.events import Revealed as Revealed
    from agent_runtime.core.events import SessionReset as SessionReset
    from agent_runtime.core.events import Shrunk as Shrunk
    from agent_runtime.core.events import Started as Started
    from agent_runtime.core.events import StepStarted as StepStarted
    from agent_runtime.core.events import Streamed as Streamed
    from agent_runtime.core.events import StreamReset as StreamReset
    from agent_runtime.core.events import Summarised as Summarised
    from agent_runtime.core.events import Told as Told
    from agent_runtime.core.events import ToolCalled as ToolCalled
    from agent_runtime.core.events import ToolProgressed as ToolProgressed
    from agent_runtime.core.events import ToolReturned as ToolReturned
    from agent_runtime.core.events import ToolsListed as ToolsListed
    from agent_runtime.core.values import Connection as Connection
    from agent_runtime.core.values import Destination as Destination
    from agent_runtime.core.values import Image as Image
    from agent_runtime.core.values import ImageError as ImageError
    from agent_runtime.core.values import Network as Network
    from agent_runtime.core.values import NetworkLimits as NetworkLimits
    from agent_runtime.core.values import Outcome as Outcome
    from agent_runtime.core.values import PendingCall as PendingCall
    from agent_runtime.core.values import Quote as Quote
    from agent_runtime.core.values import Status as Status
    from agent_runtime.core.values import Task as Task
    from agent_runtime.core.values import ToolAnswer as ToolAnswer
    from agent_runtime.core.values import ToolRequest as ToolRequest
    from agent_runtime.core.values import ToolResult as ToolResult
    from agent_runtime.core.values import Usage as Usage
    from agent_runtime.delegation.children import TaskStatus as TaskStatus
    from agent_runtime.mcp.settings import McpServer as McpServer
    from agent_runtime.policy.policy import Policy as Policy
    from agent_runtime.policy.policy import Rule as Rule
    from agent_runtime.policy.policy import RunLimits as RunLimits
    from agent_runtime.policy.policy import alike_patterns as alike_patterns
    from agent_runtime.policy.policy import exact_patterns as exact_patterns
    from agent_runtime.policy.policy import is_covered as is_covered
    from agent_runtime.processes.bounded import call_bounded as call_bounded
    from agent_runtime.processes.bounded import run_bounded as run_bounded
    from agent_runtime.processes.spawn import traced as traced
    from agent_runtime.providers.catalog import CATALOG as CATALOG
    from agent_runtime.providers.catalog import known_models as known_models
    from agent_runtime.providers.catalog import provider_for as provider_for
    from agent_runtime.providers.models import ModelOptions as ModelOptions
    from agent_runtime.providers.models import Thinking as Thinking
    from agent_runtime.providers.protocol import CallChunk as CallChunk
    from agent_runtime.providers.protocol import CallsTools as CallsTools
    from agent_runtime.providers.protocol import Chunk as Chunk
    from agent_runtime.providers.protocol import Message as Message
    from agent_runtime.providers.protocol import Provider as Provider
    from agent_runtime.providers.protocol import ReplyEnd as ReplyEnd
    from agent_runtime.providers.protocol import ReplyStart as ReplyStart
    from agent_runtime.providers.protocol import Request as Request
    from agent_runtime.providers.protocol import TextChunk as TextChunk
    from agent_runtime.providers.protocol import ToolSchema as ToolSchema
    from agent_runtime.providers.recording import RecordingProvider as RecordingProvider
    from agent_runtime.providers.recording import ReplayProvider as ReplayProvider
    from agent_runtime.providers.retry import FallbackProvider as FallbackProvider
    from agent_runtime.providers.scripted import ScriptedProvider as ScriptedProvider
    from agent_runtime.recordings import Comparison as Comparison
    from agent_runtime.recordings import Recorder as Recorder
    from agent_runtime.recordings import Replayed as Replayed
    from agent_runtime.recordings import compare_recording as compare_recording
    from agent_runtime.recordings import replay_recording as replay_recording
    from agent_runtime.run.hooks import EventType as EventType
    from agent_runtime.run.hooks import HookSystem as HookSystem
    from agent_runtime.run.hooks import NoAnswer as NoAnswer
    from agent_runtime.run.hooks import on_ask_user as on_ask_user
    from agent_runtime.run.hooks import on_completion_withdrawn as on_completion_withdrawn
    from agent_runtime.run.hooks import on_end as on_end
    from agent_runtime.run.hooks import on_finish as on_finish
    from agent_runtime.run.hooks import on_max_steps as on_max_steps
    from agent_runtime.run.hooks import on_model_awaited as on_model_awaited
    from agent_runtime.run.hooks import on_paused as on_paused
    from agent_runtime.run.hooks import on_permission_request as on_permission_request
    from agent_runtime.run.hooks import on_runtime_error as on_runtime_error
    from agent_runtime.run.hooks import on_security_error as on_security_error
    from agent_runtime.run.hooks import on_session_reset as on_session_reset
    from agent_runtime.run.hooks import on_start as on_start
    from agent_runtime.run.hooks import on_step as on_step
    from agent_runtime.run.hooks import on_stream as on_stream
    from agent_runtime.run.hooks import on_stream_reset as on_stream_reset
    from agent_runtime.run.hooks import on_tool_call as on_tool_call
    from agent_runtime.run.hooks import on_tool_progress as on_tool_progress
    from agent_runtime.run.hooks import on_tool_result as on_tool_result
    from agent_runtime.run.hooks import on_user_message_injected as on_user_message_injected
    from agent_runtime.run.hooks import on_user_message_queued as on_user_message_queued
    from agent_runtime.run.output_schema import require_output_schema as require_output_schema
    from agent_runtime.run.runtime import AsyncRuntime as AsyncRuntime
    from agent_runtime.run.runtime import Runtime as Runtime
    from agent_runtime.run.runtime import preload as preload
    from agent_runtime.run.task_manager import BlockingTaskManager as BlockingTaskManager
    from agent_runtime.run.task_manager import TaskManager as TaskManager
    from agent_runtime.run.toolbox import CommandEnd as CommandEnd
    from agent_runtime.run.toolbox import CommandRunner as CommandRunner
    from agent_runtime.sandbox.protocol import ContainerSettings as ContainerSettings
    from agent_runtime.sandbox.protocol import Sandbox as Sandbox
    from agent_runtime.sandbox.protocol import SandboxLimits as SandboxLimits
    from agent_runtime.sandbox.protocol import SandboxSettings as SandboxSettings
    from agent_runtime.sandbox.select import SandboxName as SandboxName
    from agent_runtime.sandbox.select import pick_sandbox as pick_sandbox
    from agent_runtime.sessions.create import create_session as create_session
    from agent_runtime.sessions.create import export_session_file as export_session_file
    from agent_runtime.sessions.create import import_session_file as import_session_file
    from agent_runtime.sessions.create import import_session_table as import_session_table
    from agent_runtime.sessions.database import DatabaseSession as DatabaseSession
    from agent_runtime.sessions.file import FileSession as FileSession
    from agent_runtime.sessions.protocol import BaseSession as BaseSession
    from agent_runtime.sessions.protocol import InMemorySession as InMemorySession
    from agent_runtime.sessions.protocol import Session as Session

_MODULES = {
    "agent.agent": "Agent",
    "agent.agent_file": "AgentFile ModelSettings",
    "agent.delegation": "Delegation Persona",
    "agent.document": "read_settings schema_of",
    "context.first_message": "INSTRUCTION_FILES read_instructions read_skills",
    "context.transcript": "MemorySettings",
    "core.errors": (
        "AgentError BoundExceededError ContextOverflowError ModelError ModelOutageError "
        "ModelRefusedError ModelRejectedError ModelUnreachableError ResumeCode ResumeError SandboxError "
        "SandboxLimitError ScriptError SessionError SessionInUseError SessionNewerError "
        "SessionUnavailableError SettingsError ToolError UsageError"
    ),
    "core.events": (
        "Archived ChildRecorded ChildResult ChildWatched CompletionWithdrawn Ended Event Faulted "
        "MessageInjected MessageQueued ModelAwaited NetworkLost NetworkUsed Observed Parked Paused "
        "PermissionAsked QuestionAsked Recovered Refused Replied ReplyBroken Resumed Revealed "
        "SessionReset Shrunk Started StepStarted StreamReset Streamed Summarised Told ToolCalled "
        "ToolProgressed ToolReturned ToolsListed"
    ),
    "core.values": (
        "Connection Destination Image ImageError Network NetworkLimits Outcome PendingCall Quote Status "
        "Task ToolAnswer ToolRequest ToolResult Usage"
    ),
    "delegation.children": "TaskStatus",
    "mcp.settings": "McpServer",
    "policy.policy": "Policy Rule RunLimits alike_patterns exact_patterns is_covered",
    "processes.bounded": "call_bounded run_bounded",
    "processes.spawn": "traced",
    "providers.catalog": "CATALOG known_models provider_for",
    "providers.protocol": (
        "CallChunk CallsTools Chunk Message Provider ReplyEnd ReplyStart Request TextChunk ToolSchema"
    ),
    "providers.recording": "RecordingProvider ReplayProvider",
    "providers.models": "ModelOptions Thinking",
    "providers.retry": "FallbackProvider",
    "providers.scripted": "ScriptedProvider",
    "recordings": "Comparison Recorder Replayed compare_recording replay_recording",
    "run.hooks": (
        "EventType HookSystem NoAnswer on_ask_user on_completion_withdrawn on_end on_finish on_max_steps "
        "on_model_awaited on_paused on_permission_request on_runtime_error on_security_error "
        "on_session_reset on_start on_step on_stream on_stream_reset on_tool_call on_tool_progress "
        "on_tool_result on_user_message_injected on_user_message_queued"
    ),
    "run.output_schema": "require_output_schema",
    "run.runtime": "AsyncRuntime Runtime preload",
    "run.task_manager": "BlockingTaskManager TaskManager",
    "run.toolbox": "CommandEnd CommandRunner",
    "sandbox.protocol": "ContainerSettings Sandbox SandboxLimits SandboxSettings",
    "sandbox.select": "SandboxName pick_sandbox",
    "sessions.create": "create_session export_session_file import_session_file import_session_table",
    "sessions.database": "DatabaseSession",
    "sessions.file": "FileSession",
    "sessions.protocol": "BaseSession InMemorySession Session",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker would take any name for a public one, and cannot read this list
    __all__ = list(_MODULE_OF)

    def __getattr__(name: str) -> object:
        """A public name, from its module (PEP 562); afterwards it is an attribute like others.

        Raises:
            AttributeError: there is no such name.
        """
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return value


def __dir__() -> list[str]:
    """Its attributes, with the names that were not asked for yet."""
    return sorted({*globals(), *_MODULE_OF})
