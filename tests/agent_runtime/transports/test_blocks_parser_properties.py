from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.core.errors import FormatError
from agent_runtime.core.text import FenceScanner
from agent_runtime.transports.blocks_parser import parse
from tests.agent_runtime.transports.test_blocks_parser import outcome, outcome_of

thorough = settings(max_examples=200, deadline=None)

PIECES = (
    "```", "````", "~~~", "`", "~", " ", "    ", "\n", "\r\n", "\r", "\t", "\ufeff", "> ", "x", "print(1)", "(",
    "codepilot", "completion", "python", "md", " filename=a.py", " filename=b.py", 'write_file("a.py")\n', "Done.",
    "```codepilot\n", "```completion\n", "```md\n", "\n```\n", "~~~\n", "'''", "for x in y: write_file(x)\n",
)  # fmt: skip
noise = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
plain_line = st.text(st.sampled_from("ab> -`~\t.é"), max_size=8).filter(
    lambda line: line.lstrip(" ")[:1] not in ("`", "~")
)
plain = st.lists(plain_line, max_size=4).map(lambda lines: "".join(f"{line}\n" for line in lines))
inner = st.lists(
    st.sampled_from(
        [
            "```sh\nmake\n```\n",
            "```codepilot\nx(\n```\n",
            "````md\n```\n````\n",
            "~~~md\nx\n~~~\n",
            "a\n",
            "\n",
            "  x \n",
        ]
    )
    | plain,
    max_size=4,
).map("".join)
wild = st.lists(st.sampled_from(["```sh\n", "```\n", "~~~~\n", "```completion\n", "x\n", "\n"]), max_size=5).map(
    "".join
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, str]:
    """A body, and an opening and closing fence that hold it."""
    fence, body = draw(
        st.tuples(st.sampled_from(["```", "````", "~~~"]), inner) | st.tuples(st.sampled_from(["`````"]), wild)
    )
    return fence, body


@st.composite
def replies(draw: st.DrawFn) -> tuple[str, int, list[str], str | None]:
    """A well-formed reply: its text, its writes, its payloads and its completion."""
    bodies = draw(st.lists(blocks(), max_size=3))
    writes = "".join(f"write_file('f{number}')\n" for number in range(len(bodies)))
    text = draw(plain) + "```codepilot\nprint(1)\n" + writes + "```\n"
    for number, (fence, body) in enumerate(bodies):
        name = draw(st.sampled_from(["", f" filename=f{number}", f' filename="./f{number}"']))
        text += draw(plain) + f"{fence}text{name}\n{body}{fence}\n"
    completion = draw(st.none() | blocks())
    if completion is not None:
        fence, body = completion
        text += f"{fence}completion\n{body}{fence}\n"
    return text, len(bodies), [body for _, body in bodies], None if completion is None else completion[1]


@thorough
@given(noise, st.sampled_from(["stop", "length"]), st.data())
def test_chunk_boundaries_do_not_change_the_value(text: str, stop: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    whole = outcome(text, stop)
    assert outcome(text, stop, *cuts) == whole
    assert outcome_of(list(text), stop) == whole


@thorough
@given(noise)
def test_the_scanner_loses_and_invents_nothing(text: str) -> None:
    scanner = FenceScanner()
    tokens = [token for char in text for token in scanner.feed(char)] + scanner.close()
    kept = "".join(token if isinstance(token, str) else token.text for token in tokens)
    assert kept == text.removeprefix("\ufeff").replace("\r\n", "\n")


@thorough
@given(replies())
def test_a_well_formed_reply_is_parsed_into_its_parts(made: tuple[str, int, list[str], str | None]) -> None:
    text, writes, bodies, completion = made
    reply = parse(text)
    assert reply.exact_payloads == writes
    assert [payload.text for payload in reply.payloads] == bodies
    assert (reply.completion is None) == (completion is None)
    assert (reply.completion or "").strip() == (completion or "").strip()


@thorough
@given(replies())
def test_line_ends_do_not_matter(made: tuple[str, int, list[str], str | None]) -> None:
    text = made[0]
    assert outcome(text.replace("\n", "\r\n"), "stop") == outcome(text, "stop")


@thorough
@given(replies(), st.data())
def test_a_reply_cut_anywhere_writes_whole_files_or_nothing(
    made: tuple[str, int, list[str], str | None], data: st.DataObject
) -> None:
    text, _, bodies, _ = made
    cut = text[: data.draw(st.integers(0, len(text)))]
    ended_by_itself = ["stop"] if cut.endswith("\n") else []  # A model that means to stop there has closed its fence.
    for stop in ["length", *ended_by_itself]:
        try:
            reply = parse(cut, stop)
        except FormatError:
            continue
        if reply.exact_payloads:
            assert [payload.text for payload in reply.payloads] == bodies


@thorough
@given(noise)
def test_live_text_equals_the_text_of_the_value(text: str) -> None:
    events, *rest = outcome(text, "stop")
    if len(rest) > 1:
        return
    assert isinstance(events, list)
    reply = parse(text)
    shown = "".join(event.text for event in events if event.completion)
    assert shown.strip() == (reply.completion or "").strip()
    if reply.control is None:
        assert "".join(event.text for event in events if not event.completion).strip() == reply.prose.strip()
