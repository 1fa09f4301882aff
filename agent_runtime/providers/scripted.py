"""A model that replays a script: for demonstrations, tests and trying out a set-up without a key or costs.

A script is YAML, a list with one entry a reply; its format is public and stable:

    - reply: |
        Looking first.
        ```codepilot
        read_file("calc.py")
        ```
    - expect: [def add, {regex: "return a .? b"}]
      expect_not: Traceback
      usage: {input_tokens: 900, output_tokens: 40}
      reply: |
        ...
    - stop: length
      reply: cut off in the mid
    - calls:
        - read_file: {path: calc.py}
        - finish: {summary: Fixed.}

`expect` and `expect_not` take one text or a list of them, each a literal piece of the newest message, answers to calls
included, or `{regex: …}` (multi-line, `.` matches line breaks). `calls` are asked for by native tool calls, each a
tool's name with its arguments, or with a text in place of their JSON; `reply` may be left out then. `usage` replaces
the estimate for this reply. `stop` is `stop` (the default) or `length`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self, get_args

from agent_runtime.core.errors import ScriptError, SettingsError, did_you_mean
from agent_runtime.core.values import IMAGE_TOKENS, ToolRequest, Usage, join_answers
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    ReplyEnd,
    ReplyStart,
    Request,
    StopReason,
    TextChunk,
    ToolCalling,
    ToolSchema,
)

MODEL = "scripted"

_CHARS_PER_TOKEN = 4


class ScriptedProvider:
    """A provider that gives prepared replies in order, and fails when the conversation leaves the script.

    Tokens are estimated at four characters each, as a service with a warm cache would count them: what the last
    request already sent is cached, the rest of the conversation is written to the cache, the status is neither.
    A script costs nothing: `Usage.cost_usd` is 0.0.
    """

    def __init__(
        self,
        replies: Iterable[str | ScriptedReply],
        *,
        source: str = "given in code",
        chunk_chars: int = 16,
        delay: float = 0.0,
        sees_images: bool = False,
    ) -> None:
        """Get ready to replay.

        Args:
            replies: the replies, oldest first; a plain text expects nothing.
            source: where they come from, for error texts.
            chunk_chars: characters a chunk; small, so that the readers of the stream are put to the test.
            delay: seconds before each chunk, for people to watch.
            sees_images: whether it is asked with images; it looks at none.

        Raises:
            SettingsError: a chunk size below 1, or a delay below 0.
        """
        if chunk_chars < 1 or delay < 0:
            raise SettingsError(f"chunk_chars is {chunk_chars} and delay {delay}; they must be at least 1 and 0.")
        self._replies = tuple(ScriptedReply(text=reply) if isinstance(reply, str) else reply for reply in replies)
        self._source = source
        self._chunk_chars = chunk_chars
        self._delay = delay
        self._sees_images = sees_images
        self._given = 0
        self._cache = _PrefixCache()

    @classmethod
    def from_file(
        cls, path: Path | str, *, chunk_chars: int = 16, delay: float = 0.0, sees_images: bool = False
    ) -> Self:
        """Replay a file.

        Raises:
            ScriptError: it cannot be read, or is not a script.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptError(f"Script {path} cannot be read: {error}.") from error
        replies = parse_script(text, source=str(path))
        return cls(replies, source=str(path), chunk_chars=chunk_chars, delay=delay, sees_images=sees_images)

    @property
    def model(self) -> str:
        """Always `scripted`."""
        return MODEL

    @property
    def sees_images(self) -> bool:
        """Whether it is asked with images."""
        return self._sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        """Preferred by a script that has native tool calls; others may be given any."""
        return "preferred" if any(reply.calls for reply in self._replies) else "supported"

    @property
    def remaining(self) -> int:
        """Replies not given yet; a test may want none."""
        return len(self._replies) - self._given

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Give the next reply.

        Raises:
            ScriptError: there is none, or the newest message is not as it expects.
        """
        newest = request.messages[-1]
        message = join_answers(newest.text, newest.answers)
        if not self.remaining:
            count = len(self._replies)
            raise ScriptError(
                f"Script {self._source} has {count} {'reply' if count == 1 else 'replies'}, "
                f"and the conversation needs one more. Add an entry, or end the last one with a completion. "
                f"The newest message: {message[:400]!r}"
            )
        number = self._given + 1
        reply = self._replies[self._given]
        complaint = reply.complaint(message)
        if complaint is not None:
            raise ScriptError(f"Script {self._source}, entry {number}: {complaint}")
        self._given = number
        usage = self._cache.usage(request, reply)
        yield ReplyStart(attempt=1)
        for start in range(0, len(reply.text), self._chunk_chars):
            if self._delay:
                await asyncio.sleep(self._delay)
            yield TextChunk(text=reply.text[start : start + self._chunk_chars])
        for index, call in enumerate(reply.calls):
            yield CallChunk(index=index, id=call.id, name=call.name)
            for start in range(0, len(call.arguments), self._chunk_chars):
                if self._delay:
                    await asyncio.sleep(self._delay)
                yield CallChunk(index=index, arguments=call.arguments[start : start + self._chunk_chars])
        yield ReplyEnd(stop=reply.stop, usage=reply.usage or usage)

    async def close(self) -> None:
        """Do nothing."""


def scripted_provider(
    *,
    api_key: str | None = None,  # noqa: ARG001 - part of every maker's signature
    model: str | None = None,  # noqa: ARG001 - the same
    base_url: str | None = None,  # noqa: ARG001 - the same
    options: ModelOptions | None = None,
) -> ScriptedProvider:
    """Make the provider for `ModelOptions.script`; a key, a model's name and an address mean nothing to it.

    Raises:
        SettingsError: no script is named.
        ScriptError: it cannot be read, or is not a script.
    """
    if options is None or options.script is None:
        raise SettingsError("The provider `scripted` needs a script to replay: set `script` to a YAML file.")
    if options.script_text is None:
        return ScriptedProvider.from_file(options.script, sees_images=bool(options.images))
    source = str(options.script)
    replies = parse_script(options.script_text, source=source)
    return ScriptedProvider(replies, source=source, sees_images=bool(options.images))


class _PrefixCache:
    """The cache that a service would have: the last request, its status aside."""

    def __init__(self) -> None:
        self._system: tuple[str, tuple[ToolSchema, ...]] = ("", ())
        self._messages: tuple[Message, ...] = ()
        self._chars = 0

    def usage(self, request: Request, reply: ScriptedReply) -> Usage:
        """The estimate for one exchange; remembers the request."""
        known = len(self._messages)
        system = (request.system, request.tools)
        warm = system == self._system and request.messages[:known] == self._messages
        cached = self._chars if warm else 0
        added = request.messages[known:] if warm else request.messages
        new = sum(_chars(message) for message in added)
        if not warm:
            new += len(request.system) + sum(len(json.dumps(asdict(each))) for each in request.tools)
        self._system, self._messages, self._chars = system, request.messages, cached + new
        return Usage(
            requests=1,
            input_tokens=_tokens(len(request.status)),
            cached_tokens=_tokens(cached),
            cache_write_tokens=_tokens(new),
            output_tokens=_tokens(len(reply.text) + sum(len(each.name) + len(each.arguments) for each in reply.calls)),
        )


def _chars(message: Message) -> int:
    asked = sum(len(each.name) + len(each.arguments) for each in message.requests)
    answered = sum(len(each.text) for each in message.answers)
    images = len(message.images) + sum(len(each.images) for each in message.answers)
    return len(message.text) + asked + answered + images * IMAGE_TOKENS * _CHARS_PER_TOKEN


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)


_FLAGS = re.MULTILINE | re.DOTALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply, and the conditions for it.

    Attributes:
        text: the reply, verbatim.
        expect: each must be found in the newest message.
        expect_not: none may be found in it.
        usage: what the reply counts as; None for an estimate.
        stop: why the reply ends.
        calls: the calls that it asks for by native tool calls.
    """

    text: str = ""
    expect: tuple[str | re.Pattern[str], ...] = ()
    expect_not: tuple[str | re.Pattern[str], ...] = ()
    usage: Usage | None = None
    stop: StopReason = "stop"
    calls: tuple[ToolRequest, ...] = ()

    def complaint(self, message: str) -> str | None:
        """Return how the newest `message` differs from the expected one; None if it does not."""
        for wanted in self.expect:
            if _find(wanted, message) is None:
                return f"the newest message should hold {_show(wanted)} and does not. It reads:\n{_ends(message)}"
        for unwanted in self.expect_not:
            found = _find(unwanted, message)
            if found is not None:
                return f"the newest message should not hold {_show(unwanted)} and does:\n{_around(message, *found)}"
        return None


_SHOWN_CHARS = 700

_KEYS = ("reply", "calls", "expect", "expect_not", "usage", "stop")

_USAGE_KEYS = tuple(field.name for field in fields(Usage) if field.name.endswith("tokens"))


def parse_script(text: str, *, source: str) -> tuple[ScriptedReply, ...]:
    """Read a script.

    Args:
        text: the YAML.
        source: where it came from, for error texts.

    Raises:
        ScriptError: it is not a script; the text names the entry and the key.
    """
    import yaml  # noqa: PLC0415 - only who reads a script pays for it

    try:
        entries = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"Script {source} is not YAML: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise ScriptError(f"Script {source} must be a list of entries such as `- reply: |`, with at least one.")
    replies = []
    for number, entry in enumerate(entries, start=1):
        try:
            replies.append(_entry(entry))
        except ValueError as error:
            raise ScriptError(f"Script {source}, entry {number}: {error}") from error
    return tuple(replies)


def _entry(entry: object) -> ScriptedReply:
    values = _mapping(entry, known=_KEYS, what="an entry")
    calls = _calls(values.get("calls", []))
    reply = values.get("reply", "" if calls else None)
    if not isinstance(reply, str):
        raise ValueError("`reply` is missing or not text; write `reply: |` and the text below it.")  # noqa: TRY004 - told as ScriptError
    return ScriptedReply(
        text=reply,
        expect=_patterns(values.get("expect")),
        expect_not=_patterns(values.get("expect_not")),
        usage=_usage(values["usage"]) if "usage" in values else None,
        stop=_stop(values.get("stop", "stop")),
        calls=calls,
    )


def _calls(value: object) -> tuple[ToolRequest, ...]:
    calls = []
    for number, call in enumerate(value if isinstance(value, list) else [None], start=1):
        match [*call.items()] if isinstance(call, dict) else []:
            case [(str(name), dict() | str() as given)]:
                arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
                calls.append(ToolRequest(id=f"call_{number}", name=name, arguments=arguments))
            case _:
                raise ValueError("`calls` must be a list of entries such as `- read_file: {path: calc.py}`.")
    return tuple(calls)


def _stop(value: object) -> StopReason:
    match value:
        case "stop" | "length":
            return value
        case _:
            raise ValueError(f"unknown stop {value!r}. {did_you_mean(str(value), get_args(StopReason))}")


def _mapping(value: object, *, known: Iterable[str], what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a mapping, not {value!r}.")  # noqa: TRY004 - told as ScriptError
    for key in value:
        if key not in known:
            raise ValueError(f"unknown key {key!r}. {did_you_mean(str(key), known)}")
    return value


def _patterns(value: object) -> tuple[str | re.Pattern[str], ...]:
    if value is None:
        return ()
    patterns: list[str | re.Pattern[str]] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            patterns.append(item)
            continue
        regex = _mapping(item, known=("regex",), what="an expectation that is not text").get("regex")
        if not isinstance(regex, str):
            raise ValueError(f"`regex` must be text, not {regex!r}.")  # noqa: TRY004 - told as ScriptError
        try:
            patterns.append(re.compile(regex, _FLAGS))
        except re.error as error:
            raise ValueError(f"{regex!r} is not a regular expression: {error}.") from error
    return tuple(patterns)


def _usage(value: object) -> Usage:
    counts = _mapping(value, known=_USAGE_KEYS, what="`usage`")
    for key, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ValueError(f"`usage` {key} must be a whole number of tokens, not {count!r}.")
    return Usage(requests=1, **counts)  # type: ignore[arg-type]  # the loop above has checked every value


def _find(pattern: str | re.Pattern[str], message: str) -> tuple[int, int] | None:
    if isinstance(pattern, str):
        start = message.find(pattern)
        return None if start < 0 else (start, start + len(pattern))
    match = pattern.search(message)
    return match.span() if match else None


def _show(pattern: str | re.Pattern[str]) -> str:
    return repr(pattern) if isinstance(pattern, str) else f"a match of {pattern.pattern!r}"


def _ends(message: str) -> str:
    """Head and tail of a long message; the tail holds what happened last."""
    if len(message) <= _SHOWN_CHARS:
        return message
    half = _SHOWN_CHARS // 2
    return f"{message[:half]}\n… {len(message) - 2 * half} characters …\n{message[-half:]}"


def _around(message: str, start: int, end: int) -> str:
    margin = _SHOWN_CHARS // 4
    end = min(end, start + _SHOWN_CHARS)
    before = "…" if start > margin else ""
    after = "…" if end + margin < len(message) else ""
    return f"{before}{message[max(0, start - margin) : end + margin]}{after}"
