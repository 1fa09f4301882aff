"""Attachments that people uploaded."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A picture that somebody attached; who may see the repository may see it.

    Attributes:
        asset: the UUID in its address.
        media_type: as it was uploaded.
    """

    id: int
    asset: str
    repo_id: int
    author_id: int
    media_type: str
    content: bytes = field(repr=False)
