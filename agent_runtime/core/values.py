"""Values that callers, runs, models and tools exchange. Pure."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import re
import warnings
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from io import BytesIO
from typing import Literal, Protocol, Self

from typing_extensions import TypeAliasType, override

from agent_runtime.core.errors import AgentError, SettingsError

Plain = TypeAliasType("Plain", "bool | int | float | str | list[Plain] | tuple[Plain, ...] | dict[str, Plain] | None")
"""Data that may cross between the control block and the tools."""

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]

MAX_IMAGE_BYTES = 3_500_000
"""Anthropic's limit of 5 MB of base64; OpenAI's is higher."""

MAX_IMAGE_SIDE = 8_000
"""Pixels; Anthropic's limit."""

IMAGE_TOKENS = 4_784
"""Estimate per image: the maximum of Anthropic's models since Claude 4.7, which shrink to 3.75 megapixels.
https://platform.claude.com/docs/en/build-with-claude/vision, https://developers.openai.com/api/docs/guides/images-vision.
"""

_HEAD_BYTES = 1024 * 1024
"""Enough to pass colour profiles and thumbnails before the size."""

_MAGIC: tuple[tuple[re.Pattern[bytes], MediaType], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
"""File signatures of the formats that every service accepts. Keep other formats out: parsing a crafted header of some
takes minutes.
"""


class ImageError(AgentError):
    """Bytes that are no usable image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image for the model; `data` is base64, `source` e.g. `issue #12 by @mona`."""

    source: str
    media_type: MediaType
    data: str = field(repr=False)

    @classmethod
    def of(cls, source: str, content: bytes) -> Self:
        """Create an image from a file's bytes; decodes nothing.

        Raises:
            ImageError: unknown format, more than `MAX_IMAGE_BYTES` or `MAX_IMAGE_SIDE`.
        """
        import imagesize  # noqa: PLC0415 - loads an HTTP client, which only images need

        if len(content) > MAX_IMAGE_BYTES:
            raise ImageError(f"it has {len(content):,} bytes, and {MAX_IMAGE_BYTES:,} are the most")
        media_type = next((kind for magic, kind in _MAGIC if magic.match(content)), None)
        if media_type is None:
            raise ImageError("it is not a PNG, JPEG, GIF or WebP image")
        sides = imagesize.get(BytesIO(content[:_HEAD_BYTES]), exif_rotation=False)
        if min(sides) < 1:
            raise ImageError("its header does not contain the size of the image")
        if max(sides) > MAX_IMAGE_SIDE:
            raise ImageError(f"it is {sides[0]} by {sides[1]} pixels, and {MAX_IMAGE_SIDE:,} are the most on a side")
        return cls(source=source, media_type=media_type, data=base64.b64encode(content).decode("ascii"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Cleaned text by people without command rights."""

    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The trusted request with its untrusted quotes and images; `output_schema` is JSON schema."""

    goal: str
    quotes: tuple[Quote, ...] = ()
    images: tuple[Image, ...] = ()
    output_schema: dict[str, Plain] | None = None


TransportName = Literal["blocks", "tools"]
"""Protocol of tool calls: control blocks in the reply, or the service's native tool calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A native tool call of a reply; `arguments` are unvalidated JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer to a `ToolRequest`."""

    id: str
    text: str
    ok: bool = True
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLines:
    """A heading, numbered lines of a file from `first` to `last`, and notes."""

    value: str
    """The lines without numbers."""
    text: str
    path: str
    version: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool: `value` for the control block, `text` for the model."""

    value: Plain
    text: str
    lines: tuple[ListedLines, ...] = ()
    """The parts of `text`, if it lists files."""
    max_chars: int = 0
    """Characters that the call asks to show, beyond the limit of a step."""
    rest: str = ""
    """Says which call shows all of a text that is cut."""
    images: tuple[Image, ...] = ()


class CallTool(Protocol):
    """Executes a tool call of a step."""

    def __call__(self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, show: bool) -> Awaitable[Plain]:
        """Call the tool; `show` the result to the model if the code discards it.

        Raises:
            ToolError: catchable by the caller.
            Suspend: suspend the step at this call.
        """


def append_requests(text: str, requests: Sequence[ToolRequest]) -> str:
    calls = (f"[call] {request.name}({request.arguments})" for request in requests)
    return "\n".join([*filter(None, [text]), *calls])


def join_answers(text: str, answers: Sequence[ToolAnswer]) -> str:
    return "\n\n".join(filter(None, [*(answer.text for answer in answers), text]))


class Status(StrEnum):
    """The end of a run."""

    FINISHED = "finished"
    """A completion block in a successful step."""
    ANSWERED = "answered"
    """A conversational reply without a control block (chat only)."""
    PAUSED = "paused"
    """A call waits for a person; `resume` continues at `pending`."""
    STOPPED = "stopped"
    """Stopped by the caller."""
    MAX_STEPS = "max_steps"
    """Step limit."""
    MAX_TOKENS = "max_tokens"
    """Token budget."""
    MAX_COST = "max_cost"
    """Cost budget."""
    TIMEOUT = "timeout"
    """Time limit."""
    REPEATED_CALLS = "repeated_calls"
    """The same calls with the same results, repeated."""
    FORMAT_ERRORS = "format_errors"
    """Several malformed replies in a row."""
    INVALID_OUTPUT = "invalid_output"
    """The completion never fit the output schema."""
    FAILED = "failed"
    """The model service failed; see `reason`."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox did not start, or its programs exceeded the limits repeatedly; see `reason`."""
    MODEL_UNAVAILABLE = "model_unavailable"
    """The model service is down; `resume` continues the run."""
    NETWORK_LOST = "network_lost"
    """The sandbox lost its network; see `reason`."""


TOKENS_PER_USD = 400_000
"""Tokens that count as one US dollar if a model's price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and cost of model calls.

    Attributes:
        input_tokens: outside the provider's cache.
        output_tokens: with reasoning.
        cost_usd: None for an unknown price.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        priced = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if priced else None,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.cached_tokens + self.cache_write_tokens + self.output_tokens

    @property
    def estimated_cost_usd(self) -> float:
        """The cost, estimated by the tokens if the model's price is unknown."""
        return self.total_tokens / TOKENS_PER_USD if self.cost_usd is None else self.cost_usd


PendingKind = Literal["permission", "question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """The tool call that waits for a person; `workspace` is a hash of the files."""

    request_id: str
    kind: PendingKind
    tool: str
    args: dict[str, Plain]
    reason: str
    preview: str
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a run or segment. `str` gives the summary or the reason."""

    status: Status
    summary: str | None = None
    reason: str | None = None
    pending: PendingCall | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    retry_after: float | None = None
    output_json: str = ""

    @property
    def structured_output(self) -> Plain:
        output: Plain = json.loads(self.output_json) if self.output_json else None
        return output

    def to_dict(self) -> dict[str, Plain]:
        data: dict[str, Plain] = asdict(self)
        return data | {"status": self.status.value}

    @override
    def __str__(self) -> str:
        return self.summary or self.reason or ""

    @override
    def __eq__(self, other: object) -> bool:
        """Compare all fields; warn on a comparison with a string."""
        if isinstance(other, str):
            warning = (
                "An Outcome never equals a text; compare its `summary`, which is None unless the run has finished."
            )
            warnings.warn(warning, stacklevel=2)
        return isinstance(other, Outcome) and all(
            getattr(self, item.name) == getattr(other, item.name) for item in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # `pending` has a dictionary


MAX_SKILLS = 30

_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?P<head>.{0,3000}?)^---[ \t]*$(?P<text>.*)", re.DOTALL | re.MULTILINE
)

_SKILL_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")

_MAX_BRACKETS = 64
"""Brackets are the slowest part to parse, and parsing blocks the event loop."""

_MAX_DESCRIPTION_CHARS = 300
"""Less than the format's 1,024: all descriptions share the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """An agent skill (https://agentskills.io); `text` is the body of the `SKILL.md` at `path`."""

    name: str
    description: str
    path: str
    text: str

    @classmethod
    def parse(cls, path: str, content: str) -> Self:
        """Parse a `SKILL.md`.

        Raises:
            SettingsError: invalid front matter, or a name other than the folder's.
        """
        head, text = read_front_matter(path, content)
        name, description = head.get("name"), head.get("description")
        folder = path.split("/")[-2] if "/" in path else ""
        if not isinstance(name, str) or not _SKILL_NAME.fullmatch(name) or name != folder:
            raise SettingsError(f"{path}: `name` must be the folder's: lower-case letters, digits and single hyphens.")
        if not isinstance(description, str) or not description.strip():
            raise SettingsError(f"{path}: `description` must say what the skill is for.")
        line = "".join(char if char.isprintable() else " " for char in description[: 4 * _MAX_DESCRIPTION_CHARS])
        return cls(name=name, description=" ".join(line.split())[:_MAX_DESCRIPTION_CHARS], path=path, text=text)


def read_front_matter(path: str, content: str) -> tuple[dict[str, object], str]:
    """Return a Markdown file's head and the text below it.

    Raises:
        SettingsError: an invalid head.
    """
    import yaml  # noqa: PLC0415 - few agents have such files

    front_matter = _FRONT_MATTER.match(content)
    if front_matter is None:
        raise SettingsError(f"{path}:1: must begin with front matter: `---`, `name:`, `description:`, `---`.")
    if front_matter["head"].count("[") + front_matter["head"].count("{") > _MAX_BRACKETS:
        raise SettingsError(f"{path}: its front matter has more than {_MAX_BRACKETS} `[` and `{{`; use fewer.")
    # Ten times as fast, but missing in some builds of PyYAML.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        # Only strings, lists and mappings. No merge keys: a few lines of them expand to gigabytes.
        head = yaml.load(front_matter["head"], Loader=loader)  # noqa: S506 - see above
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: its front matter is not valid YAML: {type(error).__name__}.") from error
    if not isinstance(head, dict | None):
        raise SettingsError(f"{path}: its front matter must have keys, such as `description: …`.")
    return head or {}, front_matter["text"]


def parse_skills(files: Mapping[str, str]) -> dict[str, Skill]:
    """Return up to `MAX_SKILLS` valid skills by name."""
    skills: dict[str, Skill] = {}
    for path, content in files.items():
        try:
            skill = Skill.parse(path, content)
        except SettingsError:  # written for another agent's dialect
            continue
        if len(skills) < MAX_SKILLS:
            skills.setdefault(skill.name, skill)
    return skills


# Host names of certificates (RFC 1123, RFC 5280): at least two labels, the last not numeric, which excludes addresses.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

_HOST = re.compile(rf"(?=.{{4,253}}\Z)(?:{_LABEL}\.)+(?=[a-z]){_LABEL}")

_PORT = re.compile(r"[1-9][0-9]{0,4}")

_MAX_PORT = 65_535

OFF, REGISTRIES = "off", "registries"


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """A lower-case host name without trailing dot, and a TCP port."""

    host: str
    port: int = 443

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or not 1 <= self.port <= _MAX_PORT:
            raise ValueError(f"{self.host}:{self.port} is not a host name in lower case and a port from 1 to 65535")

    @classmethod
    def parse(cls, text: str) -> Self:
        host, colon, port = text.strip().lower().partition(":")
        if colon and not _PORT.fullmatch(port):
            raise ValueError(f"must name hosts as example.org or example.org:8443, not {text!r}")
        try:
            return cls(host, int(port) if colon else 443)
        except ValueError:
            raise ValueError(
                f"must name hosts as example.org or example.org:8443 (no address, no wildcard, no path), not {text!r}"
            ) from None

    @override
    def __str__(self) -> str:
        return self.host if self.port == 443 else f"{self.host}:{self.port}"  # noqa: PLR2004 - HTTPS


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """Limits of a sandbox's connections; `handshake_seconds` per step before the first byte."""

    total_bytes: int = 2 * 1024**3
    connections: int = 2_000
    at_once: int = 64
    handshake_seconds: float = 10.0
    idle_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The hosts that a sandbox may reach over TLS; none by default."""

    allowed: frozenset[Destination] = frozenset()
    limits: NetworkLimits = field(default_factory=NetworkLimits)

    @classmethod
    def of(cls, *words: str) -> Self:
        """Parse `off`, `registries`, `example.org` or `example.org:8443`.

        Raises:
            ValueError: unknown word, or `off` with others.
        """
        names = [word.strip().lower() for word in words if word.strip()]
        if OFF in names and len(names) > 1:
            raise ValueError(f"must be `{OFF}` alone or hosts, not both: {', '.join(names)}")
        allowed: set[Destination] = set()
        for word in names:
            if word == REGISTRIES:
                allowed |= registries()
            elif word != OFF:
                allowed.add(Destination.parse(word))
        return cls(allowed=frozenset(allowed))

    def intersect(self, network: Network) -> Network:
        """Return the hosts that both allow, with this network's limits."""
        return replace(self, allowed=self.allowed & network.allowed)

    def __bool__(self) -> bool:
        return bool(self.allowed)

    @override
    def __str__(self) -> str:
        whole = bool(self.allowed) and registries() <= self.allowed
        hosts = sorted(self.allowed - registries() if whole else self.allowed)
        return ", ".join([*([REGISTRIES] if whole else []), *map(str, hosts)]) or OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A finished or refused connection of a sandboxed program; host and port are empty if unreadable."""

    host: str
    port: int
    allowed: bool
    reason: str = ""
    sent_bytes: int = 0
    received_bytes: int = 0

    @override
    def __str__(self) -> str:
        verdict = "allowed" if self.allowed else "refused"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.host or '?'}:{self.port} {verdict}, {self.sent_bytes} bytes out, {self.received_bytes} in{why}"


@functools.cache
def registries() -> frozenset[Destination]:
    """Return download-only hosts of well-known package registries."""
    return frozenset(Destination(host) for host in _load_hosts("downloads"))


@functools.cache
def upload_hosts() -> frozenset[str]:
    """Return registry hosts that also accept uploads."""
    return frozenset(_load_hosts("also_takes_uploads"))


def _load_hosts(table: str) -> Iterable[str]:
    import tomllib  # noqa: PLC0415 - 10 ms with the next, for a list that few runs need
    from importlib.resources import files  # noqa: PLC0415 - the same

    hosts: dict[str, list[str]] = tomllib.loads((files("agent_runtime") / "registries.toml").read_text("utf-8"))[table]
    return [host for group in hosts.values() for host in group]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingService:
    """An embedding service for semantic search; `seconds` limits a request with its retries."""

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    seconds: float = 60.0
    most: int = 50

    def __post_init__(self) -> None:
        if importlib.util.find_spec("numpy") is None:
            raise SettingsError(
                "`semantic_search` vectors need numpy: install codepilot-bot[embeddings], or remove `index` or `config`"
            )
