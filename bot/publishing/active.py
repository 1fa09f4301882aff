"""Limit what acts on a GitHub page. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

# Pages that only show something. Links to others can prepare what one more click does: a new file, an issue, a pull
# request, a grant to an app. No query is kept for the same reason.
_PAGE = re.compile(
    r"|/(?:actions|branches|issues|pulls|releases|tags)"
    r"|/(?:blame|blob|commits|tree)/[^/].*"
    r"|/commit/[0-9a-f]{7,64}"
    r"|/actions/runs/[0-9]+(?:/job/[0-9]+)?"
    r"|/releases/tag/[^/].*",
    re.DOTALL,
)
_QUERIES = {"", "plain=1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may keep its effect.

    Attributes:
        login: the person who asked; may be mentioned.
        number: the thread's own number; may be referred to.
        server: the GitHub server's address, e.g. `https://github.com`.
        repo: `owner/name` of the thread; links to those of its pages stay that only show something.
    """

    login: str
    number: int
    server: str
    repo: str

    def link(self, url: str) -> bool:
        """Whether a link may stay: to a page of this repository that changes nothing, and of no other thread."""
        if not url.isprintable() or "\\" in url:
            return False
        try:
            there, here = urlsplit(url), urlsplit(self.server)
        except ValueError:
            return False
        if (there.scheme, there.netloc) != (here.scheme, here.netloc) or there.query not in _QUERIES:
            return False
        path = unquote(there.path).rstrip("/")
        if {".", ".."} & set(path.split("/")):  # a browser walks up before it asks
            return False
        root, rest = path[: len(self.repo) + 1], path[len(self.repo) + 1 :]
        pull = f"/pull/{self.number}"
        own_thread = {f"/issues/{self.number}", pull, f"{pull}/files", f"{pull}/commits", f"{pull}/checks"}
        return root == f"/{self.repo}" and (_PAGE.fullmatch(rest) is not None or rest in own_thread)

    def mention(self, name: str) -> bool:
        """Whether `@name` may stay."""
        return name.casefold() == self.login.casefold()

    def reference(self, text: str) -> bool:
        """Whether `#1`, `owner/name#1` or `GH-1` may stay."""
        return text in {f"#{self.number}", f"{self.repo}#{self.number}"}

    def spoken(self, match: re.Match[str]) -> bool:
        """Whether a match of `SPOKEN` may stay."""
        if match["ref"] is not None:
            return self.reference(match["ref"])
        return match["name"] is not None and self.mention(match["name"].rstrip("-"))


# GitHub's patterns know ASCII alone: a letter of another alphabet before `@`, `#` or `https` is no part of a word.
_REFERENCE = r"(?P<ref>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?#\d++|(?<![\w&])#\d++|(?<!\w)[Gg][Hh]-\d++)"
_COMMIT = r"(?P<commit>(?<![\w/.-])[\w-][\w.-]*+(?:/[\w.-]++)?@[0-9a-f]{7,40}\b)"
_MENTION = r"(?<![A-Za-z0-9])@(?P<name>[A-Za-z0-9][A-Za-z0-9-]*+(?:/[\w.-]++)?(?:\[bot\])?)"
_URL = r"(?P<url>(?i:(?<![A-Za-z])(?:https?|ftp)://|(?<![\w/.])www\.|(?<![A-Za-z])(?:mailto|xmpp|ftp):)[^\s<>`\"']++)"
_EMAIL = r"(?P<email>(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++)"
_LINK = r"(?P<image>!?)\[(?P<label>[^\[\]\n]*+)\]\((?P<target>[^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+)(?:\s[^()\n]*+)?\)"

SPOKEN = re.compile(f"{_COMMIT}|{_REFERENCE}|{_MENTION}", re.ASCII)
"""What GitHub acts on in text that its parser leaves as text: mentions, and references to threads and commits."""

ACTIVE = re.compile(f"{_LINK}|{_URL}|{_EMAIL}|{_COMMIT}|{_REFERENCE}|{_MENTION}", re.ASCII)
"""The same, links, addresses and images in the source of a text."""
