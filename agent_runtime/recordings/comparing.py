"""Find the requests of a recording that today's code would make differently. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_runtime.context.transcript import Transcript
from agent_runtime.core.calls import ToolRequest
from agent_runtime.core.errors import FormatError, ScriptError, SessionError
from agent_runtime.core.events import Ended, Observed, Recorded, Replied, Summarised
from agent_runtime.providers.protocol import ReplyEnd, ReplyStart, Request, StopReason, TextChunk, ToolSchema
from agent_runtime.providers.tape import EVENT, Answered, Entry, Note, Tape, TapedRequest, differences, shows_images
from agent_runtime.sessions.codec import decode

_FORMAT_ERROR = "[Format error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison found.

    Attributes:
        requests: how many were compared.
        summaries: requests for a summary, which are not: what is summarised, and when, hangs on the provider's cache.
        differences: each difference once, in the order in which they appear, as text with a unified diff.
    """

    requests: int
    summaries: int
    differences: tuple[str, ...]


def compare(
    tape: Tape,
    *,
    system: str,
    tools: tuple[ToolSchema, ...] = (),
    read: Callable[[str, StopReason, Sequence[ToolRequest]], object],
    max_entry_chars: int | None = None,
) -> Comparison:
    """Make every request of a recording again, and compare.

    The replies are the recorded ones, and so is what the tools answered: nothing is run. The system prompt and the
    rendering of the log are today's, and each reply is read by today's grammar. The status is not compared: clock and
    terminals are in no event. Requests of child runs are left out, because only their parent's agent is recorded.

    Args:
        tape: the recording; its events are notes of the kind `event`.
        system: the system prompt of today for the agent that was recorded.
        tools: the tools as they are declared to the service today.
        read: reads the replies of one run, in order, as `TransportLeg.read` does.
        max_entry_chars: the most that one event may tell, as the agent's window allows.

    Raises:
        ScriptError: the recording holds no events, or one that cannot be read.
    """
    events: list[Recorded] = []
    transcript = Transcript(max_entry_chars=max_entry_chars, sees_images=shows_images(tape), calls_tools=bool(tools))
    found: dict[str, None] = {}
    of_children = {each.number for each in tape.entries if isinstance(each, TapedRequest) and each.request.child}
    entries = [each for each in tape.entries if isinstance(each, Note) or each.number not in of_children]
    compared = summaries = 0
    for index, entry in enumerate(entries):
        following = entries[index + 1 :]
        match entry:
            case Note(kind=kind) if kind == EVENT:
                events.append(_event(entry))
            case TapedRequest(number=number, request=recorded):
                if _is_for_summary(recorded, following):
                    summaries += 1
                    continue
                compared += 1
                today = replace(recorded, system=system, messages=transcript.messages(events), tools=tools)
                for told in differences(recorded, today):
                    found.setdefault(told, None)
            case Answered(number=number):
                text, requests, stop = _said(entry, following)
                if stop is not None and _was_understood(following):
                    try:
                        read(text, stop, requests)
                    except FormatError as error:
                        refused = f"reply {number} was accepted, and would be rejected now ({error.code}):\n{error}"
                        found.setdefault(refused, None)
            case _:
                pass
    if not events:
        raise ScriptError("The recording contains no events, so there is nothing to compare; record with `Recorder`.")
    return Comparison(requests=compared, summaries=summaries, differences=tuple(found))


def events_of(tape: Tape) -> list[Recorded]:
    """The events of the session, in order.

    Raises:
        ScriptError: one of them cannot be read.
    """
    return [_event(entry) for entry in tape.entries if isinstance(entry, Note) and entry.kind == EVENT]


def _event(note: Note) -> Recorded:
    try:
        return decode(json.dumps(note.value).encode())
    except (ValueError, SessionError) as error:
        raise ScriptError(f"The recording contains an event that cannot be read: {error}.") from error


def _is_for_summary(request: Request, following: Sequence[Entry]) -> bool:
    """Whether what came of a request is a summary, by the first event that tells of a reply.

    A request that broke off, or met an outage, was made again.
    """
    for entry in following:
        if isinstance(entry, TapedRequest) and entry.request != request:
            return False
        if isinstance(entry, Note) and entry.kind == EVENT:
            event = _event(entry)
            if isinstance(event, Summarised | Replied | Ended):
                return isinstance(event, Summarised)
    return False


def _said(answer: Answered, following: Sequence[Entry]) -> tuple[str, tuple[ToolRequest, ...], StopReason | None]:
    """The text and the calls of the attempt that counted, and why it ended; None when it broke off."""
    text, stop = "", None
    for chunk in answer.chunks:
        if isinstance(chunk, ReplyStart):
            text = ""
        elif isinstance(chunk, TextChunk):
            text += chunk.text
        elif isinstance(chunk, ReplyEnd):
            stop = chunk.stop
    events = (_event(entry) for entry in following if isinstance(entry, Note) and entry.kind == EVENT)
    requests = next((event.requests for event in events if isinstance(event, Replied)), ())
    return text, requests, stop


def _was_understood(following: Sequence[Entry]) -> bool:
    """Whether the step after a reply ran, by what was recorded next."""
    for entry in following:
        if isinstance(entry, TapedRequest):
            return False
        if isinstance(entry, Note) and entry.kind == EVENT:
            match _event(entry):
                case Observed(text=text):
                    return not text.startswith(_FORMAT_ERROR)
                case Ended():
                    return True
                case _:
                    pass
    return False
