"""The part of a provider that one around another passes on unchanged."""

from __future__ import annotations

from agent_runtime.providers.protocol import Provider, ToolCalling, tool_calling


class WrappedProvider:
    """Base of a provider that asks another one; `reply` and `close` are its own.

    Args:
        inner: the provider that is asked.
    """

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        """The inner provider's model."""
        return self._inner.model

    @property
    def sees_images(self) -> bool:
        """Whether the inner provider's model sees."""
        return self._inner.sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        """Whether the inner provider's model calls tools."""
        return tool_calling(self._inner)
