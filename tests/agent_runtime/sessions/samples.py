"""One event of each kind, with values that are hard to keep; and any events, for property tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from hypothesis import strategies as st

from agent_runtime.core.events import (
    Archived,
    BaselineTaken,
    ChildRecorded,
    ChildResult,
    Ended,
    Imported,
    InstructionsShown,
    MessageInjected,
    Observed,
    Parked,
    Paused,
    Recorded,
    Recovered,
    Replied,
    ReplyBroken,
    Resumed,
    Revealed,
    ServedTool,
    Shrunk,
    Started,
    Summarised,
    ToolReturned,
    ToolsListed,
)
from agent_runtime.core.values import (
    Image,
    MediaType,
    Outcome,
    PendingCall,
    Quote,
    Status,
    Task,
    ToolAnswer,
    ToolRequest,
    Usage,
)

_USAGE = Usage(requests=1, input_tokens=2, cached_tokens=3, cache_write_tokens=4, output_tokens=5, cost_usd=0.25)
_PENDING = PendingCall(
    request_id="0a1b2c3d",
    kind="permission",
    tool="execute",
    args={"command": "rm -r build", "nested": [1, {"deep": None}]},
    reason="a rule asks",
    preview="$ rm -r build",
    workspace="5ca1ab1e",
)

SAMPLES: tuple[Recorded, ...] = (
    InstructionsShown(paths=("docs/AGENTS.md",), incomplete=("b\udc80.md",), nonce="0a1b", text="Mind\0 the tabs."),
    Started(
        task=Task(goal="mend it", quotes=(Quote(source="issue #1", text="broken\0"),)),
        opening="mend it\u2028now",
        run_id="r1",
    ),
    Replied(step=1, text="half a character: \ud83d", usage=_USAGE),
    ToolReturned(
        number=1,
        tool="find",
        args={"pattern": "é\r\n", "big": 2**63, "none": None},
        value=[True, 1.5, {"a": []}],
        text="found",
        ok=True,
        seconds=0.125,
        label="find é",
    ),
    Observed(step=1, text="a name that is no UTF-8: \udcff\x85", ok=False),
    MessageInjected(step=2, text="and hurry"),
    Imported(role="assistant", text=""),
    Paused(pending=_PENDING, state="opaque", signature="ab" * 32),
    Resumed(request_id="0a1b2c3d", approved=False, note="no"),
    Recovered(text="the process died"),
    Archived(task=1, summary="done"),
    Revealed(task=1),
    Shrunk(tasks=(1, 2), outputs=(7,), reason="it pays"),
    Summarised(upto=3, text="so far", usage=_USAGE),
    Ended(outcome=Outcome(status=Status.PAUSED, pending=_PENDING, steps=2, usage=_USAGE, seconds=1.5)),
    Ended(outcome=Outcome(status=Status.FINISHED, summary="done", usage=Usage(cost_usd=None))),
    Started(
        task=Task(goal="look", images=(Image(source="issue #1", media_type="image/png", data="iVBORw0KGgo="),)),
        opening="look at it",
        run_id="r2",
        facts=("HEAD: 1234",),
    ),
    ReplyBroken(reason="no answer in time", usage=_USAGE),
    Parked(reason="HTTP 503", retry_after=60.0, seconds=2.5, files={"a.txt": "0a", "b.txt": None}, terminals=("main",)),
    Replied(
        step=2,
        text="",
        usage=_USAGE,
        requests=(ToolRequest(id="c1", name="find", arguments='{"pattern": "é'),),
        reasoning='{"model": "m"}',
    ),
    Observed(
        step=2,
        text="",
        ok=False,
        answers=(
            ToolAnswer(
                id="c1", text="no JSON", ok=False, images=(Image(source="a", media_type="image/png", data="aGk="),)
            ),
        ),
    ),
    ChildRecorded(task="t1", event=ChildRecorded(task="t2", event=Replied(step=1, text="found", usage=_USAGE))),
    ChildResult(task="t1", changes=("modified: found.txt",), diff="+found\udcff"),
    ToolsListed(
        server="docs",
        tools=(ServedTool(name="docs_find", served_as="find", description="Find.", parameters={"type": "object"}),),
    ),
    BaselineTaken(failures={"tests/test_a.py::test_b[é]": "5ca1ab1e", "tests/test_a.py::test_c": ""}),
)

_text = st.text(st.characters(exclude_categories=()), max_size=20)
_int = st.integers(min_value=-(2**63), max_value=2**64)
_float = st.floats(allow_nan=False)
_plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _int | _float | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_arguments = st.dictionaries(_text, _plain, max_size=3)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": _text,
    "int": _int,
    "float": _float,
    "bool": st.booleans(),
    "str | None": st.none() | _text,
    "float | None": st.none() | _float,
    "int | None": st.none() | _int,
    "tuple[int, ...]": st.lists(_int, max_size=3).map(tuple),
    "Plain": _plain,
    "dict[str, Plain]": _arguments,
    "dict[str, Plain] | None": st.none() | _arguments,
    "dict[str, str | None]": st.dictionaries(_text, st.none() | _text, max_size=3),
    "Role": st.sampled_from(["user", "assistant"]),
    "PendingKind": st.sampled_from(["permission", "question"]),
    "Status": st.sampled_from(Status),
    "MediaType": st.sampled_from(get_args(MediaType)),
}


def _any(kind: type[Any]) -> st.SearchStrategy[Any]:
    unknown = {field.type for field in fields(kind)} - _BY_TYPE.keys()
    assert not unknown, f"{kind.__name__} has fields of the types {unknown}: teach sessions/codec.py and this table"
    return st.builds(kind, **{field.name: _BY_TYPE[str(field.type)] for field in fields(kind)})


_BY_TYPE["dict[str, str]"] = st.dictionaries(_text, _text, max_size=2)
_BY_TYPE["tuple[str, ...]"] = st.lists(_text, max_size=2).map(tuple)
_BY_TYPE["tuple[Quote, ...]"] = st.lists(_any(Quote), max_size=2).map(tuple)
_BY_TYPE["tuple[Image, ...]"] = st.lists(_any(Image), max_size=2).map(tuple)
_BY_TYPE["tuple[ToolRequest, ...]"] = st.lists(_any(ToolRequest), max_size=2).map(tuple)
_BY_TYPE["tuple[ToolAnswer, ...]"] = st.lists(_any(ToolAnswer), max_size=2).map(tuple)
_BY_TYPE["tuple[ServedTool, ...]"] = st.lists(_any(ServedTool), max_size=2).map(tuple)
_BY_TYPE["Recorded"] = st.sampled_from(SAMPLES)
_BY_TYPE["Task"] = _any(Task)
_BY_TYPE["Usage"] = _any(Usage)
_BY_TYPE["PendingCall"] = _any(PendingCall)
_BY_TYPE["PendingCall | None"] = st.none() | _any(PendingCall)
_BY_TYPE["Outcome"] = _any(Outcome)


def any_event() -> st.SearchStrategy[Recorded]:
    """An event of any kind with any content."""
    return st.one_of(*map(_any, get_args(Recorded)))
