"""The values that callers, runs, models and tools exchange. Pure.

In this order: a `Task` with its quotes and images; tool calls and their results; the `Outcome` of a run with its
`Usage`; skills (https://agentskills.io); the network of a sandbox; the service of a semantic index.
"""

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
"""The only data that crosses between the control block and the tools."""

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]

MAX_IMAGE_BYTES = 3_500_000
"""Anthropic takes 5 MB of an image as base64, which is four thirds of its bytes; OpenAI takes more."""

MAX_IMAGE_SIDE = 8_000
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
        """Make a picture of a file's bytes. Only its head is read: nothing is decoded here.

        Raises:
            ImageError: it is of no known kind, larger than `MAX_IMAGE_BYTES`, or longer than `MAX_IMAGE_SIDE`.
        """
        import imagesize  # noqa: PLC0415 - loads an HTTP client, for which only who shows images pays

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
    """Text from people who may not command the agent, e.g. an issue's body.

    Attributes:
        source: where it came from, e.g. `issue #12 by @mona`.
        text: the text, already cleaned by the quote's creator.
    """

    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The trusted request, and untrusted quotes; they stay apart all the way into the prompt.

    Attributes:
        goal: what to do, in the words of someone who may ask for it.
        quotes: material to read, never instructions.
        images: material to look at, e.g. screenshots; for a provider whose model sees.
        output_schema: a JSON schema that the result must fit; `Outcome.structured_output` then holds that result. None
            for a result in words.
    """

    goal: str
    quotes: tuple[Quote, ...] = ()
    images: tuple[Image, ...] = ()
    output_schema: dict[str, Plain] | None = None


TransportName = Literal["blocks", "tools"]
"""The way in which a model calls tools: by a control block in its reply, or by its service's native tool calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call as a model asks for it through its service's own tool calls.

    Attributes:
        id: names the call in its answer; unique in its reply.
        name: the tool's name, as the model wrote it.
        arguments: the JSON text of the arguments, as the model wrote it; it may be no JSON.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer to a `ToolRequest`.

    Attributes:
        id: of the request.
        text: the result, or why there is none.
        ok: False when the call was refused or failed.
        images: pictures beside the text; only for a provider that sees.
    """

    id: str
    text: str
    ok: bool = True
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLines:
    """The lines of a file, from 1, that a text lists: one a line, below a line of its own.

    Attributes:
        path: the file, as the call named it.
        first: the first of them.
        last: the last of them, or of those that the call asked for.
    """

    path: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool: a value for the code that called it, a text for the model.

    Attributes:
        value: what the call evaluates to in the control block.
        text: what the model is shown when the code throws the value away.
        lines: those that the text lists, for the result of a read.
        images: pictures for a model that accepts them, beside the text; only the transport `tools` shows them.
    """

    value: Plain
    text: str
    lines: ListedLines | None = None
    images: tuple[Image, ...] = ()


class CallTool(Protocol):
    """Answers one tool call of a step."""

    def __call__(
        self, tool: str, args: tuple[Plain, ...], kwargs: dict[str, Plain], *, shown: bool
    ) -> Awaitable[Plain]:
        """Run the tool.

        Args:
            tool: its name.
            args: positional arguments, plain data.
            kwargs: keyword arguments, plain data.
            shown: whether the caller throws the value away, so that the result must be shown.

        Raises:
            ToolError: told to the caller, which may go on.
            Suspend: not now: the step is suspended at this call.
        """
        ...


def with_requests(text: str, requests: Sequence[ToolRequest]) -> str:
    """Return a reply as one text: its words, then each call on a line of its own."""
    calls = (f"[call] {each.name}({each.arguments})" for each in requests)
    return "\n".join([*filter(None, [text]), *calls])


def with_answers(text: str, answers: Sequence[ToolAnswer]) -> str:
    """Return the answers to a reply's calls and the text behind them as one text."""
    return "\n\n".join(filter(None, [*(each.text for each in answers), text]))


class Status(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    """A completion block, and its step succeeded."""
    ANSWERED = "answered"
    """A conversational reply without a control block (chat only)."""
    PAUSED = "paused"
    """A call waits for a person; `pending` says which, and `resume` goes on at it."""
    STOPPED = "stopped"
    """Someone stopped it."""
    MAX_STEPS = "max_steps"
    """The step limit was reached first."""
    MAX_TOKENS = "max_tokens"
    """The token budget was reached first."""
    MAX_COST = "max_cost"
    """The budget of money was reached first."""
    TIMEOUT = "timeout"
    """The time limit was reached first."""
    REPEATED_CALLS = "repeated_calls"
    """The same call was made over and over, to the same end."""
    FORMAT_ERRORS = "format_errors"
    """Several replies in a row could not be understood."""
    INVALID_OUTPUT = "invalid_output"
    """The completion did not fit the task's output schema, however often it was asked for again."""
    FAILED = "failed"
    """The model service failed; `reason` says how."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox could not be started, or its programs went over its limits again and again; `reason` says which."""
    MODEL_UNAVAILABLE = "model_unavailable"
    """The model service is down; `reason` says how. The run is not over: `resume` asks it again."""
    NETWORK_LOST = "network_lost"
    """The network that the run was given went away; `reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens and the cost of model calls, summed over a run.

    Attributes:
        requests: model requests answered.
        input_tokens: tokens sent that were neither read from nor written to the provider's cache.
        cached_tokens: tokens read from the provider's cache.
        cache_write_tokens: tokens written to the provider's cache.
        output_tokens: tokens received, reasoning included.
        cost_usd: US dollars, or None when a model's price is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Sum two usages; an unknown cost makes the sum unknown."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )

    @property
    def total_tokens(self) -> int:
        """All tokens, sent and received."""
        return self.input_tokens + self.cached_tokens + self.cache_write_tokens + self.output_tokens


PendingKind = Literal["permission", "question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """The one tool call that waits for a person.

    Attributes:
        request_id: names this request in answers to it; random, 8 hexadecimal digits.
        kind: `permission` for a call that may only be made when somebody approves, `question` for `ask_user`.
        tool: the tool's name.
        args: by parameter name, whole; plain data.
        reason: why it waits, e.g. the rule that asks; for a question, the question.
        preview: what the call would do, whole, as text for people: a diff for a write, the command for a shell. Empty
            where that is too long; such a call never waits.
        workspace: a hash over the workspace's files, as they were when the call was shown.
    """

    request_id: str
    kind: PendingKind
    tool: str
    args: dict[str, Plain]
    reason: str
    preview: str
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one run, or of one leg of a run that paused. As text it is the summary, or else the reason.

    Attributes:
        status: how it ended.
        summary: the completion or answer, else None.
        reason: for every ending but `finished` and `answered`: why, and what to do.
        pending: for `paused`: the call that waits.
        steps: steps taken.
        usage: what the model calls used.
        seconds: wall time.
        retry_after: for `model_unavailable`: the seconds that the service asked to be left alone, if it said.
        output_json: for a task with an output schema that is `finished`: the result as compact JSON, else empty.
    """

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
        """The result of a task with an output schema, as data; None without one."""
        output: Plain = json.loads(self.output_json) if self.output_json else None
        return output

    def to_dict(self) -> dict[str, Plain]:
        """All of it as plain data, which JSON takes."""
        data: dict[str, Plain] = asdict(self)
        return data | {"status": self.status.value}

    @override
    def __str__(self) -> str:
        """The text for the person who asked."""
        return self.summary or self.reason or ""

    @override
    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal. A text is never equal, and who compares with one is warned."""
        if isinstance(other, str):
            warning = (
                "An Outcome never equals a text; compare its `summary`, which is None unless the run has finished."
            )
            warnings.warn(warning, stacklevel=2)
        return isinstance(other, Outcome) and all(
            getattr(self, each.name) == getattr(other, each.name) for each in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # `pending` has a dictionary


MAX_SKILLS = 30

_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?P<head>.{0,3000}?)^---[ \t]*$(?P<text>.*)", re.DOTALL | re.MULTILINE
)

_SKILL_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")

_MOST_BRACKETS = 64
"""They take several times as long as any other text, and heads are read where everything else waits."""

_DESCRIPTION_CHARS = 300
"""The format allows 1,024; all descriptions together stand in the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill.

    Attributes:
        name: of its folder, too.
        description: its purpose, and when to read it: one line, cut.
        path: of its `SKILL.md`.
        text: the text below the head of that file.
    """

    name: str
    description: str
    path: str
    text: str

    @classmethod
    def parse(cls, path: str, content: str) -> Self:
        """Read a `SKILL.md`.

        Args:
            path: of the file, with the folder that it is in.
            content: the file's.

        Raises:
            SettingsError: it has no head with a name and a description, or another name than its folder.
        """
        import yaml  # noqa: PLC0415 - few agents have skills

        found = _FRONT_MATTER.match(content)
        if found is None:
            raise SettingsError(f"{path}:1: must begin with front matter: `---`, `name:`, `description:`, `---`.")
        if found["head"].count("[") + found["head"].count("{") > _MOST_BRACKETS:
            raise SettingsError(f"{path}: its front matter has more than {_MOST_BRACKETS} `[` and `{{`; use fewer.")
        # That in C takes a tenth of the time; not every build of PyYAML has it.
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            # Texts, lists and mappings, and nothing else. No merge keys: a few lines of them unfold into gigabytes.
            head = yaml.load(found["head"], Loader=loader)  # noqa: S506 - see above
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SettingsError(f"{path}: its front matter is not valid YAML: {type(error).__name__}.") from error
        name, description = (head.get(key) if isinstance(head, dict) else None for key in ("name", "description"))
        folder = path.split("/")[-2] if "/" in path else ""
        if not isinstance(name, str) or not _SKILL_NAME.fullmatch(name) or name != folder:
            raise SettingsError(f"{path}: `name` must be the folder's: lower-case letters, digits and single hyphens.")
        if not isinstance(description, str) or not description.strip():
            raise SettingsError(f"{path}: `description` must say what the skill is for.")
        line = "".join(char if char.isprintable() else " " for char in description[: 4 * _DESCRIPTION_CHARS])
        return cls(name=name, description=" ".join(line.split())[:_DESCRIPTION_CHARS], path=path, text=found["text"])


def usable_skills(files: Mapping[str, str]) -> dict[str, Skill]:
    """Return the valid skills among files by name: the first of each name, and a bounded number.

    Args:
        files: contents by path.
    """
    found: dict[str, Skill] = {}
    for path, content in files.items():
        try:
            skill = Skill.parse(path, content)
        except SettingsError:  # a file for another agent's dialect of the format
            continue
        if len(found) < MAX_SKILLS:
            found.setdefault(skill.name, skill)
    return found


# Names as certificates have them (RFC 1123 with the dots of RFC 5280): at least two labels, the last of them no number,
# so that no spelling of an address is one.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

_HOST = re.compile(rf"(?=.{{4,253}}\Z)(?:{_LABEL}\.)+(?=[a-z]){_LABEL}")

_PORT = re.compile(r"[1-9][0-9]{0,4}")

_MAX_PORT = 65_535

OFF, REGISTRIES = "off", "registries"


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """A host and a port.

    Attributes:
        host: a name in lower case, without a dot at its end.
        port: a TCP port.
    """

    host: str
    port: int = 443

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or not 1 <= self.port <= _MAX_PORT:
            raise ValueError(f"{self.host}:{self.port} is not a host name in lower case and a port from 1 to 65535")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `host` or `host:port`.

        Raises:
            ValueError: it is neither; the text says what it must be.
        """
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
        """As it is written in settings."""
        return self.host if self.port == 443 else f"{self.host}:{self.port}"  # noqa: PLR2004 - HTTPS


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """Bounds of the connections of one sandbox.

    Attributes:
        total_bytes: sent and received together, over all connections.
        connections: over the whole life of the sandbox, the refused ones included.
        at_once: connections open at a time; more have to wait.
        handshake_seconds: for each step up to the first byte of content: request, name, connection, TLS greeting.
        idle_seconds: without a byte in either direction.
    """

    total_bytes: int = 2 * 1024**3
    connections: int = 2_000
    at_once: int = 64
    handshake_seconds: float = 10.0
    idle_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The hosts that programs in a sandbox may reach: by default none.

    Attributes:
        allowed: where to, exactly; TLS only.
        limits: bounds.
    """

    allowed: frozenset[Destination] = frozenset()
    limits: NetworkLimits = field(default_factory=NetworkLimits)

    @classmethod
    def of(cls, *words: str) -> Self:
        """The network that words describe: `off`, `registries`, hosts as `example.org` or `example.org:8443`.

        Raises:
            ValueError: a word is none of these, or `off` does not stand alone; the text says what it must be.
        """
        given = [word.strip().lower() for word in words if word.strip()]
        if OFF in given and len(given) > 1:
            raise ValueError(f"must be `{OFF}` alone or hosts, not both: {', '.join(given)}")
        allowed: set[Destination] = set()
        for word in given:
            if word == REGISTRIES:
                allowed |= registries()
            elif word != OFF:
                allowed.add(Destination.parse(word))
        return cls(allowed=frozenset(allowed))

    def narrowed(self, wanted: Network) -> Network:
        """Return the hosts that both allow, within these bounds."""
        return replace(self, allowed=self.allowed & wanted.allowed)

    def __bool__(self) -> bool:
        """Whether anything can be reached."""
        return bool(self.allowed)

    @override
    def __str__(self) -> str:
        """As it is written in settings, for reports."""
        whole = bool(self.allowed) and registries() <= self.allowed
        hosts = sorted(self.allowed - registries() if whole else self.allowed)
        return ", ".join([*([REGISTRIES] if whole else []), *map(str, hosts)]) or OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection that a program in a sandbox asked for, once it is over or was refused.

    Attributes:
        host: the host that was asked for, in lower case; empty when the request could not be read.
        port: the port that was asked for, or 0.
        allowed: whether content could pass.
        reason: why it was refused or broken off; empty when it simply ended.
        sent: bytes that the other side got.
        received: bytes that came back.
    """

    host: str
    port: int
    allowed: bool
    reason: str = ""
    sent: int = 0
    received: int = 0

    @override
    def __str__(self) -> str:
        """One line for logs."""
        verdict = "allowed" if self.allowed else "refused"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.host or '?'}:{self.port} {verdict}, {self.sent} bytes out, {self.received} in{why}"


@functools.cache
def registries() -> frozenset[Destination]:
    """Return the hosts from which packages of well-known languages are fetched and which take no uploads."""
    return frozenset(Destination(host) for host in _listed("downloads"))


@functools.cache
def taking_uploads() -> frozenset[str]:
    """Return hosts of well-known registries that `registries` leaves out, because one can publish there, too."""
    return frozenset(_listed("also_takes_uploads"))


def _listed(table: str) -> Iterable[str]:
    import tomllib  # noqa: PLC0415 - with the next one 10 ms, for a list that few runs need
    from importlib.resources import files  # noqa: PLC0415 - the same

    hosts: dict[str, list[str]] = tomllib.loads((files("agent_runtime") / "registries.toml").read_text("utf-8"))[table]
    return [host for each in hosts.values() for host in each]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingService:
    """A service that makes vectors of texts, for semantic search.

    Attributes:
        model: its name at the service.
        base_url: the service's address.
        api_key: the key; None for a server without one.
        seconds: how long one request may take, with all its attempts.
        most: how many definitions one search gives at most.
    """

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    seconds: float = 60.0
    most: int = 50

    def __post_init__(self) -> None:
        """Check that vectors can be compared here.

        Raises:
            SettingsError: numpy is not installed.
        """
        if importlib.util.find_spec("numpy") is None:
            raise SettingsError("`index` needs numpy: install codepilot-bot[embeddings], or remove the section")
