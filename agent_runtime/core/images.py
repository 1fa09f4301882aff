"""A picture that the model is shown beside the words of a task."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from io import BytesIO
from typing import Literal, Self

from agent_runtime.core.errors import AgentError

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]

MAX_BYTES = 3_500_000
"""Anthropic takes 5 MB of an image as base64, which is four thirds of its bytes; OpenAI takes more."""

MAX_SIDE = 8_000
"""Pixels; Anthropic refuses the request when an image has a longer side."""

IMAGE_TOKENS = 4_784
"""What an estimate counts for a picture: the most that Anthropic's models count since Claude 4.7, which shrink a larger
one to 3.75 megapixels. Those before count up to 1,600, most of OpenAI's up to 1,536 times a factor of the model's:
https://platform.claude.com/docs/en/build-with-claude/vision, https://developers.openai.com/api/docs/guides/images-vision.
"""

_HEAD_BYTES = 1024 * 1024
"""In which a picture's size is looked for; all profiles of colours and small copies that stand before it fit in."""

_MAGIC: tuple[tuple[re.Pattern[bytes], MediaType], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
"""How files of each kind begin; the four kinds are those that every service takes. No other kind may begin like one: to
find the size of some takes minutes, where somebody wants it to."""


class ImageError(AgentError):
    """Bytes that cannot be shown to a model; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture.

    Attributes:
        source: where it came from, e.g. `issue #12 by @mona`; the model is told it.
        media_type: its kind, found out from its bytes.
        data: its bytes as base64, as the services take them and as sessions keep them.
    """

    source: str
    media_type: MediaType
    data: str = field(repr=False)

    @classmethod
    def of(cls, source: str, content: bytes) -> Self:
        """The picture that a file's bytes are. Only its head is looked at: nothing is decoded here.

        Raises:
            ImageError: it is of no kind that models see, larger than `MAX_BYTES`, or longer than `MAX_SIDE`.
        """
        import imagesize  # noqa: PLC0415 - loads an HTTP client, for which only who shows images pays

        if len(content) > MAX_BYTES:
            raise ImageError(f"it has {len(content):,} bytes, and {MAX_BYTES:,} are the most")
        media_type = next((kind for magic, kind in _MAGIC if magic.match(content)), None)
        if media_type is None:
            raise ImageError("it is not a PNG, JPEG, GIF or WebP image")
        sides = imagesize.get(BytesIO(content[:_HEAD_BYTES]), exif_rotation=False)
        if min(sides) < 1:
            raise ImageError("its header does not contain the size of the image")
        if max(sides) > MAX_SIDE:
            raise ImageError(f"it is {sides[0]} by {sides[1]} pixels, and {MAX_SIDE:,} are the most on a side")
        return cls(source=source, media_type=media_type, data=base64.b64encode(content).decode("ascii"))
