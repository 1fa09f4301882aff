"""A conversation written down beforehand: the model's replies, and what must have been said before each. Pure.

The file is YAML, a list with one entry a reply:

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

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import get_args

from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.did_you_mean import did_you_mean
from agent_runtime.core.errors import ScriptError
from agent_runtime.core.outcome import Usage
from agent_runtime.providers.protocol import StopReason

_SHOWN_CHARS = 700
_KEYS = ("reply", "calls", "expect", "expect_not", "usage", "stop")
_USAGE_KEYS = tuple(field.name for field in fields(Usage) if field.name.endswith("tokens"))
_FLAGS = re.MULTILINE | re.DOTALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply, and what must hold before it is given.

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
        """What about the newest `message` is not as this reply expects; None when all is."""
        for wanted in self.expect:
            if _find(wanted, message) is None:
                return f"the newest message should hold {_show(wanted)} and does not. It reads:\n{_ends(message)}"
        for unwanted in self.expect_not:
            found = _find(unwanted, message)
            if found is not None:
                return f"the newest message should not hold {_show(unwanted)} and does:\n{_around(message, *found)}"
        return None


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
