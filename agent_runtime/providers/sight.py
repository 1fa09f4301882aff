"""List the models that accept images. An unknown model accepts none, unless `ModelOptions.images` says so."""

from __future__ import annotations

import re
from collections.abc import Collection

from agent_runtime.core.errors import SettingsError
from agent_runtime.core.images import Image
from agent_runtime.providers.model_names import plain_name
from agent_runtime.providers.protocol import Provider

_SEEING: tuple[tuple[str, str], ...] = (
    # Anthropic, all since Claude 3: https://platform.claude.com/docs/en/about-claude/models/overview
    ("claude-3-…", r"claude-3-.+"),
    ("claude-opus-4-8", r"claude-(?!instant)[a-z]+-\d.*"),
    # OpenAI, all newer ones unless they are made for less: https://developers.openai.com/api/docs/models
    ("gpt-4o, gpt-4.1", r"(?:chatgpt-|gpt-)4o(?!.*-(?:audio|realtime|search|transcribe|tts)).*|gpt-4(?:\.\d|-turbo).*"),
    ("gpt-5 and later", r"gpt-(?:[5-9]|\d\d)(?!.*-(?:spark|search)).*"),
    ("o1, o3, o4-mini", r"o1(?!-mini|-preview).*|o3(?!-mini).*|o4-mini.*"),
    # Alibaba, where the largest of a generation reads text only: https://www.alibabacloud.com/help/en/model-studio/vision
    ("qwen3-vl-plus", r"qwen[\d.]*-vl-.+|qvq-.+"),
    ("qwen3.7-plus", r"qwen3\.[56]-(?:plus|flash).*|qwen3\.7-plus.*"),
)
"""A name to recognise each family by, and the names of all its models; looked up in October and November 2026."""

_KNOWN = re.compile("|".join(names for _, names in _SEEING))


def sees(model: str, said: bool | None = None) -> bool:  # noqa: FBT001 - `ModelOptions.images`, unchanged
    """Whether a model sees.

    Args:
        model: its name; one that a gateway puts its maker before, e.g. `openai/gpt-6.2-sol`, is the same model.
        said: what the options say of it, which goes before what is known.
    """
    return _KNOWN.fullmatch(plain_name(model)) is not None if said is None else said


def require_sight(provider: Provider, images: Collection[Image]) -> None:
    """Refuse to show images to a model that does not see.

    Raises:
        SettingsError: it does not.
    """
    if images and not provider.sees_images:
        raise SettingsError(
            f"The task has {len(images)} image{'s' if len(images) > 1 else ''}, and the model {provider.model!r} is "
            "not known to support images. Choose another one, or, if it does support them, set `images: true` below "
            "`model` (and each `fallback`) in the agent file, ModelOptions(images=True) in code. Or omit the images."
        )
