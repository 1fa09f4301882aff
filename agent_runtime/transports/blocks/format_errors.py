"""Describe a reply that breaks the protocol: in full for the model, in short for people. Pure."""

from __future__ import annotations

from agent_runtime.core.errors import FormatCode, FormatError
from agent_runtime.interpreter.source import CodeError
from agent_runtime.transports.blocks.payload_plan import Slot

_NOTHING_RAN = "Nothing in this reply was run."
_SHORTER = "Send a shorter reply: split the work over several steps, or write a large file in parts (mode='a')."
_LONGER_FENCE = "If the content itself shows fences, open its block with a longer fence (````) or with ~~~."


def empty() -> FormatError:
    """No text at all."""
    return FormatError(
        "empty",
        "The reply was empty. Act with a ```codepilot block, or finish with a ```completion block.",
    )


def cut_off(block: str, line: int) -> FormatError:
    """The length limit was reached in the middle of a block."""
    return FormatError(
        "truncated",
        f"The reply reached the length limit inside the {block} block that line {line} opens. {_NOTHING_RAN} "
        f"{_SHORTER}",
    )


def cut_in_fence(line: int) -> FormatError:
    """The length limit was reached in a fence line, so that nobody can tell what it was to be."""
    return FormatError(
        "truncated",
        f"The reply reached the length limit in the middle of the fence on line {line}. {_NOTHING_RAN} {_SHORTER}",
    )


def unclosed_control(line: int, why: str) -> FormatError:
    """The text ended inside a control block that is not complete as it stands."""
    return FormatError(
        "truncated",
        f"The reply ended inside the codepilot block that line {line} opens, and {why}. {_NOTHING_RAN} "
        "Send the whole reply again and close the block with a bare ``` line before anything else.",
    )


def unclosed_payload(line: int) -> FormatError:
    """The text ended inside a payload that cannot be shown to be whole."""
    return FormatError(
        "truncated",
        f"The reply ended inside the payload that line {line} opens, so its content may be incomplete. {_NOTHING_RAN} "
        f"Send the whole reply again and close the payload with a bare fence line. {_LONGER_FENCE}",
    )


def swallowed(block: str, line: int, word: str, at: int) -> FormatError:
    """A block was never closed, and a protocol block begins inside it."""
    return FormatError(
        "ambiguous",
        f"The {block} block that line {line} opens is never closed, so the ```{word} on line {at} counts as its "
        f"content. {_NOTHING_RAN} Close the {block} block with a bare fence line before line {at}. {_LONGER_FENCE}",
    )


def second_control(line: int, first: int) -> FormatError:
    """Two control blocks."""
    return FormatError(
        "multiple_control",
        f"Line {line} opens a second codepilot block; line {first} opened the first. {_NOTHING_RAN} "
        "Send one codepilot block with all the code of this step, or leave the second for the next step.",
    )


def after_completion(word: str, line: int, completion: int) -> FormatError:
    """A block follows the completion."""
    return FormatError(
        "completion_first",
        f"Line {line} opens a block (```{word}) after the completion block of line {completion}. {_NOTHING_RAN} "
        "The completion block comes once and last: move it below every other block, or leave it out.",
    )


def bad_control(opened: int, code: str, error: CodeError) -> FormatError:
    """The control code does not parse."""
    lines = code.split("\n")
    shown = ""
    place = f"the codepilot block that line {opened} opens"
    if error.line is not None and 1 <= error.line <= len(lines):
        place = f"line {error.line} of {place}"
        shown = f":\n    {lines[error.line - 1].strip()[:200]}\n"
    fence = next((number for number, line in enumerate(lines, 1) if line.lstrip(" ").startswith(("```", "~~~"))), None)
    advice = (
        "Correct it and send the whole reply again. A line that is only ``` closes the block, also inside a string: "
        "if the code needs such a line, open the block with ````codepilot and close it with ````."
        if fence is None
        else f"Line {opened + fence} is a fence line inside the block: the codepilot block must be closed with a bare "
        "``` line before the next block opens."
    )
    return FormatError(
        "control_syntax",
        f"Python syntax error in {place}: {error.reason}{shown or '. '}{_NOTHING_RAN} {advice}",
    )


def too_many_payloads(line: int, slots: tuple[Slot, ...]) -> FormatError:
    """More payloads than the calls take."""
    return FormatError(
        "payload_count",
        f"{_wanted(slots)}, and line {line} opens one more. {_NOTHING_RAN} Below a codepilot block that writes, every "
        f"fence but completion is a payload: leave out the others, or show them above it. {_LONGER_FENCE}",
    )


def missing_payloads(found: int, slots: tuple[Slot, ...], *, stop_reason: str) -> FormatError:
    """Fewer payloads than the calls take."""
    slot = slots[found]
    name = f" of {slot.path!r}" if slot.path is not None else ""
    cut = "The reply reached the length limit before all payloads were sent. " if stop_reason == "length" else ""
    return FormatError(
        "payload_count",
        f"{cut}{_wanted(slots)}, but the reply has {found}: the write{name} on line {slot.line} of the block lacks "
        f"one. {_NOTHING_RAN} Put one fenced block for each write below the codepilot block, in the order of calls.",
    )


def left_over(found: int, taken: int) -> FormatError:
    """The calls, when made, took fewer payloads than there are; for blocks whose count only the run could tell."""
    return FormatError(
        "payload_count",
        f"The codepilot block took {taken} of the {found} payloads below it; the rest was not written anywhere. Below "
        f"a codepilot block that writes, every fence but completion is a payload for one write. {_LONGER_FENCE}",
    )


def wrong_file(line: int, filename: str, number: int, slot: Slot) -> FormatError:
    """A payload names another file than its call."""
    return FormatError(
        "filename_mismatch",
        f"Payload {number} on line {line} says filename={filename}, but the call that takes it (line {slot.line} of "
        f"the codepilot block) writes {slot.path!r}. {_NOTHING_RAN} "
        "Put the payloads in the order of the calls, or leave filename= out.",
    )


def _wanted(slots: tuple[Slot, ...]) -> str:
    return f"The codepilot block takes {len(slots)} payload{'' if len(slots) == 1 else 's'}"


_BROKEN: dict[FormatCode, str] = {
    "truncated": "was cut off",
    "payload_count": "held more or fewer payloads than its calls need",
    "multiple_control": "held several control blocks",
    "completion_first": "ended the task before it acted",
    "control_syntax": "held a control block that is not valid Python",
    "ambiguous": "could be read in two ways",
    "filename_mismatch": "named other files than its calls",
    "empty": "neither acted nor ended the task",
}


def unreadable(code: FormatCode, count: int) -> str:
    """What a person is told; the model was told how to write it instead."""
    return (
        f"{count} replies of the model in a row did not have the expected form; the last one {_BROKEN[code]}. "
        "Try again, or choose another `model`."
    )
