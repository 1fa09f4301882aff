"""A model that replays a script, for demos and tests.

The YAML format is public and stable:

    - reply: |
        Looking first.
        ```codepilot
        read_file("calc.py")
        ```
    - expect: [def add, {regex: "return a .? b"}]
      expect_not: Traceback
      usage: {input_tokens: 900, output_tokens: 40}
      reply: ...
    - stop: length
      reply: cut off in the mid
    - calls:
        - read_file: {path: calc.py}
        - finish: {summary: Fixed.}

`expect` and `expect_not` take texts in the newest message or `{regex: …}` (MULTILINE, DOTALL). `calls` are native
tool calls, with arguments or their text. `usage` overrides the estimate.
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
    """Replays prepared replies; fails if the conversation leaves the script.

    Estimates four characters per token, with a warm prefix cache. Costs nothing.
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
        """Store the replies; plain text expects nothing.

        Args:
            replies: oldest first.
            chunk_chars: small, to test stream readers.
            delay: seconds before each chunk.
            sees_images: accept images and ignore them.
        """
        if chunk_chars < 1 or delay < 0:
            raise SettingsError(f"chunk_chars is {chunk_chars} and delay {delay}; they must be at least 1 and 0.")
        self._replies = tuple(ScriptedReply(text=reply) if isinstance(reply, str) else reply for reply in replies)
        self._source = source
        self._chunk_chars = chunk_chars
        self._delay = delay
        self._sees_images = sees_images
        self._position = 0
        self._cache = _PrefixCache()

    @classmethod
    def from_file(
        cls, path: Path | str, *, chunk_chars: int = 16, delay: float = 0.0, sees_images: bool = False
    ) -> Self:
        """Load a script."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptError(f"Script {path} cannot be read: {error}.") from error
        replies = parse_script(text, source=str(path))
        return cls(replies, source=str(path), chunk_chars=chunk_chars, delay=delay, sees_images=sees_images)

    @property
    def model(self) -> str:
        return MODEL

    @property
    def sees_images(self) -> bool:
        return self._sees_images

    @property
    def tool_calling(self) -> ToolCalling:
        return "preferred" if any(reply.calls for reply in self._replies) else "supported"

    @property
    def remaining(self) -> int:
        return len(self._replies) - self._position

    async def reply(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield the next reply."""
        newest = request.messages[-1]
        message = join_answers(newest.text, newest.answers)
        if not self.remaining:
            count = len(self._replies)
            raise ScriptError(
                f"Script {self._source} has {count} {'reply' if count == 1 else 'replies'}, "
                f"and the conversation needs one more. Add an entry, or end the last one with a completion. "
                f"The newest message: {message[:400]!r}"
            )
        number = self._position + 1
        reply = self._replies[self._position]
        complaint = reply.find_mismatch(message)
        if complaint is not None:
            raise ScriptError(f"Script {self._source}, entry {number}: {complaint}")
        self._position = number
        usage = self._cache.update(request, reply)
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

    async def close(self) -> None: ...


def scripted_provider(
    *,
    api_key: str | None = None,  # noqa: ARG001 - part of every maker's signature
    model: str | None = None,  # noqa: ARG001 - the same
    base_url: str | None = None,  # noqa: ARG001 - the same
    options: ModelOptions | None = None,
) -> ScriptedProvider:
    if options is None or options.script is None:
        raise SettingsError("The provider `scripted` needs a script to replay: set `script` to a YAML file.")
    if options.script_text is None:
        return ScriptedProvider.from_file(options.script, sees_images=bool(options.images))
    source = str(options.script)
    replies = parse_script(options.script_text, source=source)
    return ScriptedProvider(replies, source=source, sees_images=bool(options.images))


class _PrefixCache:
    def __init__(self) -> None:
        self._system: tuple[str, tuple[ToolSchema, ...]] = ("", ())
        self._messages: tuple[Message, ...] = ()
        self._chars = 0

    def update(self, request: Request, reply: ScriptedReply) -> Usage:
        count = len(self._messages)
        system = (request.system, request.tools)
        is_warm = system == self._system and request.messages[:count] == self._messages
        cached = self._chars if is_warm else 0
        added = request.messages[count:] if is_warm else request.messages
        new = sum(_count_chars(message) for message in added)
        if not is_warm:
            new += len(request.system) + sum(len(json.dumps(asdict(item))) for item in request.tools)
        self._system, self._messages, self._chars = system, request.messages, cached + new
        return Usage(
            requests=1,
            input_tokens=_to_tokens(len(request.status)),
            cached_tokens=_to_tokens(cached),
            cache_write_tokens=_to_tokens(new),
            output_tokens=_to_tokens(len(reply.text) + sum(len(x.name) + len(x.arguments) for x in reply.calls)),
        )


def _count_chars(message: Message) -> int:
    call_chars = sum(len(item.name) + len(item.arguments) for item in message.requests)
    answer_chars = sum(len(item.text) for item in message.answers)
    images = len(message.images) + sum(len(item.images) for item in message.answers)
    return len(message.text) + call_chars + answer_chars + images * IMAGE_TOKENS * _CHARS_PER_TOKEN


def _to_tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)


_FLAGS = re.MULTILINE | re.DOTALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply; `expect` and `expect_not` check the newest message."""

    text: str = ""
    expect: tuple[str | re.Pattern[str], ...] = ()
    expect_not: tuple[str | re.Pattern[str], ...] = ()
    usage: Usage | None = None
    stop: StopReason = "stop"
    calls: tuple[ToolRequest, ...] = ()

    def find_mismatch(self, message: str) -> str | None:
        for pattern in self.expect:
            if _find_pattern(pattern, message) is None:
                return f"the newest message should hold {_quote(pattern)} and does not. It reads:\n" + _shorten(message)
        for unwanted in self.expect_not:
            span = _find_pattern(unwanted, message)
            if span is not None:
                return f"the newest message should not hold {_quote(unwanted)} and does:\n" + _excerpt(message, *span)
        return None


_MAX_EXCERPT_CHARS = 700

_KEYS = ("reply", "calls", "expect", "expect_not", "usage", "stop")

_USAGE_KEYS = tuple(field.name for field in fields(Usage) if field.name.endswith("tokens"))


def parse_script(text: str, *, source: str) -> tuple[ScriptedReply, ...]:
    """Parse a script; `source` is for errors."""
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
            replies.append(_parse_entry(entry))
        except ValueError as error:
            raise ScriptError(f"Script {source}, entry {number}: {error}") from error
    return tuple(replies)


def _parse_entry(entry: object) -> ScriptedReply:
    values = _check_mapping(entry, keys=_KEYS, label="an entry")
    calls = _parse_calls(values.get("calls", []))
    reply = values.get("reply", "" if calls else None)
    if not isinstance(reply, str):
        raise ValueError("`reply` is missing or not text; write `reply: |` and the text below it.")  # noqa: TRY004 - told as ScriptError
    return ScriptedReply(
        text=reply,
        expect=_parse_patterns(values.get("expect")),
        expect_not=_parse_patterns(values.get("expect_not")),
        usage=_parse_usage(values["usage"]) if "usage" in values else None,
        stop=_parse_stop(values.get("stop", "stop")),
        calls=calls,
    )


def _parse_calls(value: object) -> tuple[ToolRequest, ...]:
    calls = []
    for number, call in enumerate(value if isinstance(value, list) else [None], start=1):
        match [*call.items()] if isinstance(call, dict) else []:
            case [(str(name), dict() | str() as raw)]:
                arguments = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
                calls.append(ToolRequest(id=f"call_{number}", name=name, arguments=arguments))
            case _:
                raise ValueError("`calls` must be a list of entries such as `- read_file: {path: calc.py}`.")
    return tuple(calls)


def _parse_stop(value: object) -> StopReason:
    match value:
        case "stop" | "length":
            return value
        case _:
            raise ValueError(f"unknown stop {value!r}. {did_you_mean(str(value), get_args(StopReason))}")


def _check_mapping(value: object, *, keys: Iterable[str], label: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{label} must be a mapping, not {value!r}.")  # noqa: TRY004 - told as ScriptError
    for key in value:
        if key not in keys:
            raise ValueError(f"unknown key {key!r}. {did_you_mean(str(key), keys)}")
    return value


def _parse_patterns(value: object) -> tuple[str | re.Pattern[str], ...]:
    if value is None:
        return ()
    patterns: list[str | re.Pattern[str]] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            patterns.append(item)
            continue
        regex = _check_mapping(item, keys=("regex",), label="an expectation that is not text").get("regex")
        if not isinstance(regex, str):
            raise ValueError(f"`regex` must be text, not {regex!r}.")  # noqa: TRY004 - told as ScriptError
        try:
            patterns.append(re.compile(regex, _FLAGS))
        except re.error as error:
            raise ValueError(f"{regex!r} is not a regular expression: {error}.") from error
    return tuple(patterns)


def _parse_usage(value: object) -> Usage:
    counts = _check_mapping(value, keys=_USAGE_KEYS, label="`usage`")
    for key, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ValueError(f"`usage` {key} must be a whole number of tokens, not {count!r}.")
    return Usage(requests=1, **counts)  # type: ignore[arg-type]  # the loop above has checked every value


def _find_pattern(pattern: str | re.Pattern[str], message: str) -> tuple[int, int] | None:
    if isinstance(pattern, str):
        start = message.find(pattern)
        return None if start < 0 else (start, start + len(pattern))
    match = pattern.search(message)
    return match.span() if match else None


def _quote(pattern: str | re.Pattern[str]) -> str:
    return repr(pattern) if isinstance(pattern, str) else f"a match of {pattern.pattern!r}"


def _shorten(message: str) -> str:
    if len(message) <= _MAX_EXCERPT_CHARS:
        return message
    half = _MAX_EXCERPT_CHARS // 2
    return f"{message[:half]}\n… {len(message) - 2 * half} characters …\n{message[-half:]}"


def _excerpt(message: str, start: int, end: int) -> str:
    margin = _MAX_EXCERPT_CHARS // 4
    end = min(end, start + _MAX_EXCERPT_CHARS)
    before = "…" if start > margin else ""
    after = "…" if end + margin < len(message) else ""
    return f"{before}{message[max(0, start - margin) : end + margin]}{after}"
