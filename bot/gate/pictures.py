"""Choose the pictures of a thread that the agent is shown, and check their hosts. Pure.

A picture counts where `hiding.py` leaves its text in sight, in Markdown or as an `<img>`. It is
fetched from where GitHub keeps what people attach and from nowhere else:
https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/attaching-files
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from bot.gate.hiding import shown_images
from bot.gate.tags import image_sources

MOST = 5
"""Pictures that one job shows."""

LARGEST_BYTES = 3_500_000
"""Of one picture; `Image.of` takes no larger one."""

TOGETHER_BYTES = 8_000_000
"""Of all pictures of one job."""

MOST_NOTES = 10

# GitHub signs addresses at the second of these for a few minutes; the first is from before it did.
_IMAGE_HOSTS = frozenset({"user-images.githubusercontent.com", "private-user-images.githubusercontent.com"})
_SERVER = "https://github.com"
# Where github.com redirects requests for an attachment of a public repository.
_STORE = "github-production-user-asset-6210df.s3.amazonaws.com"

# Where an Enterprise Server keeps attachments. With subdomain isolation, `media.` before its name replaces `/media`:
# https://docs.github.com/enterprise-server@latest/admin/configuring-settings/hardening-security-for-your-enterprise/enabling-subdomain-isolation
_MEDIA = re.compile(r"/media/user/[0-9]+/files/[0-9a-f-]{36}", re.ASCII)

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Also as they were until 2024: `/owner/name/assets/<account>/<uuid>`.
_ATTACHMENT = re.compile(rf"/(?:user-attachments/assets|[\w.-]+/[\w.-]+/assets/[0-9]+)/{_UUID}", re.ASCII)
_ASSET = re.compile(_UUID)
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/[!#-;=?-\[\]_a-z~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureText:
    """A text of a thread in which pictures may stand.

    Attributes:
        kind: what it is: the `thread`'s description, a `comment`, a comment on lines or the words of a `review`.
        id: GitHub's id; of no use for the description.
        name: where a picture comes from, for the agent, e.g. `comment 17 by @mona`; cleaned.
        text: the Markdown.
    """

    kind: Literal["thread", "comment", "review_comment", "review"]
    id: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that a text shows.

    Attributes:
        words: the text.
        place: where it is in reading order: the number of the text, and its own within that.
        address: as the text has it; empty where a definition elsewhere gives it.
    """

    words: PictureText
    place: tuple[int, int]
    address: str

    @property
    def source(self) -> str:
        """Where it comes from, for the agent."""
        number = self.place[1]
        return self.words.name if number == 1 else f"{self.words.name}, picture {number}"


def pictures(description: PictureText, said: Sequence[PictureText], command: PictureText | None) -> tuple[Picture, ...]:
    """The pictures of a thread, those that matter most first, each address once.

    The command's come first, then the description's, then those of what was said last. They are read in another order:
    the description, what was said, the command.

    Args:
        description: the thread's.
        said: in the thread, oldest first.
        command: what the one who asked wrote, where the job came from words.
    """
    texts = [description, *said, *([command] if command else [])]
    found = [
        [Picture(words=words, place=(order, number), address=address) for number, address in enumerate(addresses, 1)]
        for order, (words, addresses) in enumerate((words, shown(words.text)) for words in texts)
    ]
    later = found[1 : 1 + len(said)]
    once: dict[str, Picture] = {}
    for group in [*found[1 + len(said) :], found[0], *reversed(later)]:
        for picture in group:
            once.setdefault(picture.address or picture.source, picture)
    return tuple(once.values())


def shown(text: str) -> list[str]:
    """Addresses of the pictures that a reader of the page sees, in order."""
    if "![" not in text and "<img" not in text.casefold():
        return []
    return shown_images(text.replace("\r\n", "\n").replace("\r", "\n"))


def may_be_fetched(address: str, server_url: str, *, redirected: bool = False) -> bool:
    """Whether an address is one of an attachment at GitHub, or at the server that the bot works for.

    Args:
        address: whole; nothing in it is repaired.
        server_url: the configured server's.
        redirected: whether another such address leads there.
    """
    if not _ADDRESS.fullmatch(address):
        return False
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    server = server_url.rstrip("/")
    if origin in {_SERVER, server}:
        own_media = origin == server != _SERVER and _MEDIA.fullmatch(parts.path) is not None
        return own_media or _ATTACHMENT.fullmatch(parts.path) is not None
    if server != _SERVER and origin == server.replace("://", "://media.", 1):
        return _MEDIA.fullmatch(f"/media{parts.path}") is not None
    hosts = _IMAGE_HOSTS | {_STORE} if redirected else _IMAGE_HOSTS
    return parts.scheme == "https" and parts.netloc in hosts


def signed(address: str, page: str, server_url: str) -> str:
    """The address at which GitHub gives out an attachment for the next minutes, from a text as it renders it.

    Private attachments are given out nowhere else. The signed address names the same asset in its path.

    Args:
        address: as the text has it.
        page: the text's `body_html`.
        server_url: the configured server's.

    Returns:
        The address itself where the page has no other of that asset.
    """
    asset = _ASSET.search(urlsplit(address).path)
    if asset is None:
        return address
    for source in image_sources(page):
        if asset[0] in source and may_be_fetched(source, server_url) and asset[0] in urlsplit(source).path:
            return source
    return address


def notes(left_out: Iterable[tuple[Picture, str]]) -> list[str]:
    """Notes for the agent about the pictures that it is not shown, up to `MOST_NOTES`."""
    every = list(left_out)
    told = [f"a picture of {picture.source}: {reason}" for picture, reason in every[:MOST_NOTES]]
    return [*told, f"further pictures: {len(every) - MOST_NOTES}"] if len(every) > MOST_NOTES else told
