from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from agent_runtime.agent.agent import ClockAndRandom
from agent_runtime.context.conversation import (
    Candidate,
    Prospect,
    RequestForecast,
    ResultTracker,
    cache_prices,
    plan_shrinking,
    read_reply,
)
from agent_runtime.context.transcript import (
    MemorySettings,
    estimate,
    estimate_message,
    estimate_savings,
    list_tasks,
    render_messages,
    render_original,
)
from agent_runtime.core.errors import ContextOverflowError, ModelError, ModelUnreachableError
from agent_runtime.core.events import Archived, Recorded, ReplyBroken, Shrunk, Summarised
from agent_runtime.core.values import IMAGE_TOKENS, Usage
from agent_runtime.policy.policy import RunLimits
from agent_runtime.providers.protocol import (
    CallChunk,
    Chunk,
    Message,
    ReplyEnd,
    ReplyFault,
    ReplyStart,
    Request,
    TextChunk,
)
from agent_runtime.run.hooks import HookSystem
from agent_runtime.run.run import PatientProvider
from agent_runtime.run.state import RunState
from tests.agent_runtime.context.logs import Model, Talk, observed, replied, returned, started, task_of, words
from tests.agent_runtime.image_files import picture

SMALL = MemorySettings(max_context_tokens=8_000, global_summary_max_tokens=200)
SUMMARY = "Alpha was done in src/a.py; all of its tests pass now. Nothing is open."
OLD = task_of("alpha", 12, chars=2_000)
NOW: list[Recorded] = [started("beta"), replied("b1"), observed("beta one")]


async def test_a_request_is_system_history_and_status() -> None:
    talk = Talk(log=[*NOW])
    request = await talk.ask("step 2")
    assert (request.system, request.status) == ("You are an agent.", "step 2")
    assert request.messages == render_messages(NOW)


async def test_nothing_is_recorded_while_there_is_room() -> None:
    talk = Talk(log=[*OLD, *NOW])
    for step in range(20):
        await talk.ask()
        talk.add(replied(f"r{step}"), observed(words(400)))
    assert len(talk.session.events) == len(OLD) + len(NOW) + 40


async def test_the_estimate_follows_what_the_provider_counts() -> None:
    talk = Talk(log=[*OLD, *NOW])
    await talk.conversation.request("now")
    before = talk.conversation.tokens
    talk.conversation.record_usage(Usage(requests=1, input_tokens=2 * before, output_tokens=50))
    assert talk.conversation.tokens == pytest.approx(2 * before, rel=0.05)
    talk.add(replied(words(4_000)))
    assert talk.conversation.tokens > 2 * before + 100


async def test_past_the_threshold_the_oldest_part_is_summarised_from_the_same_prefix() -> None:
    talk = Talk(log=[*OLD], memory=SMALL, model=Model([SUMMARY]))
    talk.add(*task_of("more", 6, chars=3_000), *NOW)
    before = render_messages(talk.session.events)
    request = await talk.conversation.request("now")
    [summarised] = talk.recorded(Summarised)
    assert isinstance(summarised, Summarised)
    assert (summarised.text, summarised.usage) == (SUMMARY, talk.model.usage)
    [asked] = talk.model.requests
    assert asked.system == request.system
    assert asked.messages == before[: len(asked.messages)]
    assert "[CONTEXT LIMIT]" in asked.status
    assert re.search("at most [23][0-9]{2} tokens", asked.status)
    assert request.messages[0].text.startswith(f"[GLOBAL SUMMARY]\n{SUMMARY}")
    assert request.messages[-1].text == "beta one"
    assert talk.conversation.tokens < SMALL.threshold_tokens


async def test_findings_of_a_long_conversation_survive_its_summary() -> None:
    finding = "- src/module_{0}.py:{0}: `function_{0}` returns None where its caller wants {0}\n"
    findings = "".join(map(finding.format, range(60)))
    talk = Talk(model=Model([findings]))
    talk.add(started("beta"))
    while talk.conversation.tokens < talk.memory.threshold_tokens:
        talk.add(replied("b"), observed(words(20_000)))
    await talk.conversation.request("now")
    [summarised] = talk.recorded(Summarised)
    assert isinstance(summarised, Summarised)
    assert summarised.text == findings.strip()


async def test_a_full_window_is_emptied_far_enough_to_last() -> None:
    talk = Talk(log=[started("beta")], model=Model([SUMMARY] * 100))
    for step in range(60):
        await talk.ask()
        talk.add(replied(f"step {step}"), observed(words(20_000, f"{step}:")))
    assert len(talk.recorded(Summarised)) == len(talk.recorded(Shrunk)) + len(talk.recorded(Summarised)) == 3


async def test_a_long_run_breaks_its_cache_once_when_the_window_is_full() -> None:
    talk = Talk(log=[started("beta")], model=Model([SUMMARY], name="claude-sonnet-5-5"))
    for step in range(60):
        await talk.ask()
        talk.add(replied(f"step {step}"), observed(words(8_000, f"{step}:")))
    assert len(talk.recorded(Shrunk)) + len(talk.recorded(Summarised)) <= 1


async def test_the_whole_conversation_is_sent_for_the_summary_when_it_fits() -> None:
    talk = Talk(memory=SMALL, model=Model([SUMMARY]))
    talk.add(started("beta"))
    while talk.conversation.tokens < SMALL.threshold_tokens:
        talk.add(replied("b"), observed("all kinds of words " * 20))
    before = render_messages(talk.session.events)
    await talk.conversation.request("now")
    assert talk.model.requests[0].messages == before


async def test_within_a_task_its_opening_and_last_steps_stay() -> None:
    talk = Talk(log=[started("beta", "[Task 1]\nbeta")], memory=SMALL, model=Model([SUMMARY]))
    for step in range(1, 40):
        talk.add(replied(f"step {step}"), observed(words(900, f"{step}:")))
    request = await talk.conversation.request("now")
    assert request.messages[0].text == f"[GLOBAL SUMMARY]\n{SUMMARY}\n\n[Task 1]\nbeta"
    assert request.messages[-2:] == render_messages(talk.session.events[:-1])[-2:]
    assert len(request.messages) > 3


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(ModelUnreachableError("the service is down"), id="the service fails"),
        pytest.param(ContextOverflowError("too long"), id="too long even for that"),
        pytest.param("", id="an empty reply"),
        pytest.param('```codepilot\nexecute("main", "ls one two three four five six")\n```\n', id="it acts instead"),
    ],
)
async def test_a_model_that_writes_no_summary_does_not_break_the_run(reply: str | ModelError) -> None:
    talk = Talk(log=[*OLD, *OLD, *NOW], memory=SMALL, model=Model([reply]))
    request = await talk.conversation.request("now")
    assert "Task 1: alpha -> finished: Done." in request.messages[0].text
    assert talk.conversation.tokens < SMALL.threshold_tokens


class Acts(Model):
    """A service whose model calls a tool, and says why."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        async for chunk in super().reply(request):
            if isinstance(chunk, ReplyEnd):
                yield CallChunk(index=0, id="c0", name="execute", arguments="{}")
            yield chunk


LONG = "In src/a.py the function f returns None where its caller wants a number, see the test. " * 5


@pytest.mark.parametrize(
    ("model", "reply"),
    [(Acts, "{}"), (Model, '{}\n```codepilot\nexecute("main", "pytest -q")\n```\n')],
    ids=["a native call", "a control block"],
)
async def test_words_beside_an_act_are_no_summary_unless_they_are_many(model: type[Model], reply: str) -> None:
    for said, summary in (("Let me look at the failing test first.", ""), (LONG, LONG.strip())):
        talk = Talk(log=[*OLD, *OLD, *NOW], memory=SMALL, model=model([reply.format(said)]))
        request = await talk.conversation.request("now")
        assert request.messages[0].text.startswith(f"[GLOBAL SUMMARY]\n{summary or '(From the record'}")


async def test_it_summarises_again_and_again_and_always_gets_somewhere() -> None:
    talk = Talk(log=[started("beta")], memory=SMALL, model=Model([SUMMARY] * 100))
    for step in range(300):
        await talk.ask()
        assert talk.conversation.tokens < SMALL.max_context_tokens
        talk.add(replied(f"step {step}"), observed(words(3_000, f"{step}:")))
    ends = [event.upto for event in talk.recorded(Summarised) if isinstance(event, Summarised)]
    assert 10 < len(ends) < 100
    assert ends == sorted(set(ends))


async def test_what_cannot_get_shorter_is_sent_as_it_is() -> None:
    huge = started("beta", "all kinds of words " * 10_000)
    talk = Talk(log=[huge], memory=SMALL, model=Model())
    request = await talk.conversation.request("now")
    assert talk.model.requests == []
    assert len(request.messages[0].text) <= SMALL.max_context_tokens
    assert "characters left out" in request.messages[0].text


@pytest.mark.parametrize("overflows", [True, False], ids=["said to be too long", "far beyond its window"])
async def test_nothing_goes_that_the_model_was_not_shown_for_a_summary(*, overflows: bool) -> None:
    talk = Talk(memory=MemorySettings() if overflows else SMALL, model=Model([SUMMARY] * 100))
    talk.add(started("beta"))
    for step in range(40):
        talk.add(replied(f"<step {step}>"), observed(words(4_000, f"<shown {step}>")))
    if overflows:
        before = talk.conversation.tokens
        assert await talk.conversation.shorten()
        assert talk.conversation.tokens < before / 2
    request = await talk.conversation.request("now")
    assert talk.conversation.tokens < talk.memory.threshold_tokens
    told = "\n".join(message.text for each in (*talk.model.requests, request) for message in each.messages)
    lost = [step for step in range(40) if f"<step {step}>" not in told or f"<shown {step}>" not in told]
    assert lost == []


async def test_a_provider_that_says_too_long_can_be_asked_again_with_less() -> None:
    talk = Talk(log=[*OLD, *OLD, *NOW], model=Model([SUMMARY] * 2))
    before = talk.conversation.tokens
    assert await talk.conversation.shorten()
    assert talk.conversation.tokens < before / 2
    assert not await Talk(log=[*NOW]).conversation.shorten()


async def test_archived_tasks_wait_while_the_cache_is_warm_and_go_when_it_is_cold() -> None:
    talk = Talk(log=[*task_of("alpha", 2, chars=900), *task_of("beta", 8, chars=4_000), started("gamma")])
    await talk.ask()
    talk.add(replied("archive"), Archived(task=1, summary="Alpha works."), observed())
    first = await talk.ask()
    assert talk.recorded(Shrunk) == []
    talk.clock.now += 301
    talk.add(replied("on"), observed())
    second = await talk.ask()
    [shrunk] = talk.recorded(Shrunk)
    assert isinstance(shrunk, Shrunk)
    assert shrunk.tasks == (1,)
    assert not first.messages[0].text.startswith("[ARCHIVED TASK 1]")
    assert second.messages[0].text.startswith("[ARCHIVED TASK 1]\nAlpha works.")


async def test_another_model_knows_nothing_of_the_cache() -> None:
    talk = Talk(log=[*task_of("alpha", 2, chars=900), *task_of("beta", 8, chars=4_000), started("gamma")])
    await talk.ask()
    talk.add(replied("archive"), Archived(task=1, summary="Alpha works."), observed())
    talk.model.name = "second-of-the-chain"
    await talk.ask()
    assert len(talk.recorded(Shrunk)) == 1


async def test_a_large_archived_task_goes_at_once() -> None:
    talk = Talk(log=[*task_of("alpha", 15, chars=6_000), started("beta")])
    await talk.ask()
    talk.add(replied("archive"), Archived(task=1, summary="Alpha works."), observed())
    await talk.ask()
    assert len(talk.recorded(Shrunk)) == 1


async def test_before_a_summary_all_that_waits_is_applied() -> None:
    log: list[Recorded] = [
        *task_of("alpha", 12, chars=2_000),
        started("beta"),
        Archived(task=1, summary="Alpha works."),
        *NOW[1:],
    ]
    talk = Talk(log=log, memory=SMALL, model=Model())
    request = await talk.conversation.request("now")
    assert talk.recorded(Summarised) == []
    assert request.messages[0].text == "[ARCHIVED TASK 1]\nAlpha works.\n\n[Task] beta"


async def test_when_nothing_can_be_summarised_what_can_be_left_out_is() -> None:
    text = f"[terminal:main:cmd1] $ make\n{words(4_000)}\n[status: running]"
    whole = f"[terminal:main:cmd1] $ make\n{words(4_000)}\n[status: completed]"
    log: list[Recorded] = [
        started("beta", words(60_000)),
        replied("b1"),
        returned("execute", text, output=""),
        observed(text),
        replied("b2 " + words(60_000)),
        returned("read_output", whole, output=""),
        observed(whole),
        replied("b3 " + words(60_000)),
        observed(words(60_000)),
    ]
    talk = Talk(log=log, memory=SMALL, model=Model([SUMMARY]))
    await talk.ask()
    assert len(talk.recorded(Shrunk)) + len(talk.recorded(Summarised)) == 1
    before = len(talk.session.events)
    await talk.ask()
    assert len(talk.session.events) == before


async def test_requests_extend_each_other_except_where_the_log_says_otherwise() -> None:
    talk = Talk(log=[started("beta")], memory=SMALL, model=Model([SUMMARY] * 100))
    requests: list[tuple[int, Request]] = []
    for step in range(60):
        requests.append((len(talk.session.events), await talk.ask()))
        text = f"[terminal:main:cmd1] $ make\n{words(900)}"
        talk.add(replied(f"step {step}"), returned("execute", text, output=words(900)), observed(text))
    for (begun, earlier), (ended, later) in itertools.pairwise(requests):
        changed = any(isinstance(event, Shrunk | Summarised) for event in talk.session.events[begun : ended + 2])
        assert changed or later.messages[: len(earlier.messages)] == earlier.messages


async def test_a_new_conversation_on_the_same_log_tells_the_same() -> None:
    talk = Talk(log=[started("beta")], memory=SMALL, model=Model([SUMMARY] * 100))
    for step in range(60):
        request = await talk.ask()
        again = Talk(log=[*talk.session.events], memory=SMALL)
        assert (await again.conversation.request("now")).messages == request.messages
        talk.add(replied(f"step {step}"), observed(words(2_000, f"{step}:")))


class Twice(Model):
    """A service whose first attempt breaks off."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        yield ReplyStart(attempt=1)
        yield TextChunk(text="half of")
        yield ReplyFault(reason="it broke", billed=True, wait=1.0)
        async for chunk in super().reply(request):
            yield chunk


class Mute(Model):
    """A provider that breaks its contract: its reply never ends."""

    @override
    async def reply(self, request: Request) -> AsyncGenerator[Chunk, None]:
        yield ReplyStart(attempt=1)


ASKED = Request(system="s", messages=(Message(role="user", text="u"),))


async def test_what_a_broken_attempt_said_is_void() -> None:
    text, usage = await read_reply(Twice(["all of it"]), ASKED)
    assert (text, usage.requests) == ("all of it", 1)


async def test_a_summary_that_broke_off_is_charged_by_an_estimate() -> None:
    talk = Talk(log=[*OLD], memory=SMALL, model=Twice([SUMMARY]))
    talk.add(*task_of("more", 6, chars=3_000), *NOW)
    state, spent = RunState(talk.session, HookSystem()), talk.conversation.estimate_usage
    talk.conversation.provider = PatientProvider(
        talk.model, state, limits=RunLimits(outage_seconds=0.0), clock_and_random=ClockAndRandom(), spent=spent
    )
    await talk.conversation.request("now")
    [broken] = talk.recorded(ReplyBroken)
    assert isinstance(broken, ReplyBroken)
    assert broken.usage.input_tokens > SMALL.max_context_tokens / 2
    assert broken.usage.output_tokens == estimate("half of")


async def test_a_reply_without_an_end_is_the_services_failure() -> None:
    with pytest.raises(ModelUnreachableError, match="test-model: the provider ended a reply without a ReplyEnd"):
        await read_reply(Mute(), ASKED)


@pytest.mark.parametrize(("model", "prices"), [("claude-sonnet-5-5", (0.05, 1.25)), ("nobody-knows", (0.1, 1.25))])
def test_prices_are_multiples_of_a_plain_token(model: str, prices: tuple[float, float]) -> None:
    assert cache_prices(model) == pytest.approx(prices)


def looked(*, seeing: bool) -> Talk:
    return Talk(log=[started("look", images=(picture(), picture()))], model=Model([SUMMARY] * 9, sees_images=seeing))


async def test_a_model_that_sees_is_shown_the_images_in_every_request_and_they_count() -> None:
    seeing, blind = looked(seeing=True), looked(seeing=False)
    for talk in (seeing, blind):
        for step in range(3):
            (opening, *_) = (await talk.ask()).messages
            assert len(opening.images) == (2 if talk is seeing else 0)
            talk.add(replied(f"step {step}"), observed("seen"))
    assert seeing.conversation.tokens - blind.conversation.tokens == pytest.approx(2 * IMAGE_TOKENS, abs=20)


async def test_images_that_no_longer_fit_go_with_what_the_summary_tells() -> None:
    images = tuple(picture(str(number)) for number in range(4))
    log = [started("look", images=images), replied("I see."), *task_of("next", 3, chars=2_000)]
    talk = Talk(log=log, model=Model([SUMMARY], sees_images=True), memory=MemorySettings(max_context_tokens=20_000))
    request = await talk.ask()
    assert talk.recorded(Summarised)
    assert not any(message.images for message in request.messages)
    (asked,) = talk.model.requests
    assert estimate(asked.system) + sum(map(estimate_message, asked.messages)) <= 20_000


async def test_what_archiving_saves_counts_the_images() -> None:
    log: list[Recorded] = [started("look", images=(picture(),)), replied("I see."), started("next")]
    (first, _) = list_tasks(log)
    assert estimate_savings(log, first) == pytest.approx(IMAGE_TOKENS, abs=10)
    assert "[The images are not shown here.]" in render_original(log, first, max_chars=1_000)


def command(output: str, *, number: int = 1, tool: str = "execute", terminal: str = "main") -> list[Recorded]:
    """A step that shows what a terminal showed."""
    text = f"[terminal:{terminal}:cmd{number}] $ make\n{output}\n[status: completed | 0.1 s]"
    return [replied(), returned(tool, text, output=output), observed(text)]


FIRST = "".join(f"compiling {n}\n" for n in range(100))
SECOND = "".join(f"linking {n}\n" for n in range(100))


def superseded(log: list[Recorded]) -> list[int]:
    """The answer for a log that grows, which is that for the whole log."""
    growing, whole = ResultTracker(), ResultTracker()
    for end in range(len(log) + 1):
        growing.update(log[:end])
    whole.update(log)
    assert growing.superseded() == whole.superseded()
    return whole.superseded()


def test_pieces_of_output_are_superseded_by_the_whole() -> None:
    log = [started(), *command(FIRST), *command(SECOND, tool="read_output")]
    assert superseded(log) == []
    assert superseded([*log, *command(FIRST + SECOND, tool="read_output")]) == [3, 6]


def test_output_so_long_that_only_head_and_tail_are_shown_is_superseded_too() -> None:
    early = f"{FIRST * 4}[… 90,000 characters left out …]\n{SECOND * 4}"
    late = f"{FIRST * 4}[… 99,000 characters left out …]\n{SECOND * 4}done\n"
    [reply, call, seen] = command(early)
    clipped = returned("execute", f"{call.text[:5_000]}\n[9 characters left out]\n{call.text[-5_000:]}")  # type: ignore[union-attr] # it is a ToolReturned
    assert superseded([started(), reply, clipped, seen, *command(late, tool="read_output")]) == [3]


def test_another_command_or_another_terminal_supersedes_nothing() -> None:
    log = [started(), *command(FIRST)]
    assert superseded([*log, *command(FIRST, number=2)]) == []
    assert superseded([*log, *command(FIRST, terminal="server")]) == []


def test_output_that_the_whole_does_not_show_is_kept() -> None:
    log = [started(), *command(FIRST), *command(FIRST[:500] + "[... left out ...]" + SECOND, tool="read_output")]
    assert superseded(log) == []


def test_a_step_that_showed_other_things_as_well_is_kept() -> None:
    [reply, call, seen] = command(FIRST)
    mixed = [reply, call, observed(f"{seen.text}\n\n{'a file' * 300}")]  # type: ignore[union-attr] # it is an Observed
    assert superseded([started(), *mixed, *command(FIRST + SECOND, tool="read_output")]) == []


def test_a_result_that_the_code_kept_for_itself_supersedes_nothing() -> None:
    [reply, call, _] = command(FIRST + SECOND, tool="read_output")
    assert superseded([started(), *command(FIRST), reply, call, observed("ok")]) == []


def test_small_results_do_not_matter() -> None:
    assert superseded([started(), *command("ok"), *command("ok and more", tool="read_output")]) == []


def test_large_results_are_far_behind_after_many_replies() -> None:
    results = ResultTracker()
    log: list[Recorded] = [started(), *command(FIRST), replied(), observed("small"), *[replied()] * 18]
    results.update(log)
    assert results.far_behind() == []
    results.update([*log, replied()])
    assert results.far_behind() == [3]


def test_what_was_left_out_or_summarised_is_no_candidate_again() -> None:
    log = [started(), *command(FIRST), *command(FIRST + SECOND, tool="read_output"), *command(SECOND, number=2)]
    assert superseded([*log, Shrunk(outputs=(3,))]) == []
    assert superseded([*log, Summarised(upto=4, text="s", usage=Usage())]) == []


def test_a_log_that_was_emptied_begins_anew() -> None:
    results = ResultTracker()
    results.update([started(), *command(FIRST), *command(FIRST + SECOND, tool="read_output")])
    results.update([started()])
    assert results.superseded() == []


def prospect(
    total: int, cached: int, requests: int, *, read: float = 0.1, write: float = 1.25, growth: int = 0
) -> Prospect:
    return Prospect(total=total, cached=cached, requests=requests, read=read, write=write, growth=growth)


def output(position: int, *, before: int, saves: int, again: float = 0.0) -> Candidate:
    return Candidate(before=before, saves=saves, again=again, output=position)


@pytest.mark.parametrize(
    ("before", "saves", "at", "shrinks"),
    [
        # D removed with S behind them pay after S*(write - read)/(D*read) more requests:
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 14), False, id="10,000 behind: 14.4 requests are needed"),
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 15), True, id="10,000 behind: 15 are more than that"),
        pytest.param(2_000, 8_000, prospect(20_000, 0, 1), True, id="a cold cache loses nothing"),
        pytest.param(11_500, 8_000, prospect(20_000, 20_000, 1), True, id="little behind it"),
        pytest.param(2_000, 100, prospect(20_000, 20_000, 30), False, id="little to save"),
        pytest.param(12_000, 8_000, prospect(20_000, 12_000, 1), True, id="behind what is cached"),
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 14, read=0.05), False, id="reads cost next to nothing"),
        pytest.param(2_000, 8_000, prospect(20_000, 20_000, 1, read=1, write=1), True, id="no cache at all"),
        pytest.param(2_000, -10, prospect(20_000, 0, 30), False, id="longer than what it replaces"),
    ],
)
def test_one_candidate(before: int, saves: int, at: Prospect, *, shrinks: bool) -> None:
    assert (plan_shrinking([output(7, before=before, saves=saves)], at) is not None) is shrinks


def test_what_will_be_asked_for_again_is_kept_for_longer() -> None:
    at = prospect(20_000, 20_000, 15)
    assert plan_shrinking([output(7, before=2_000, saves=8_000, again=0.5)], at) is None
    assert plan_shrinking([output(7, before=2_000, saves=8_000, again=0.5)], prospect(20_000, 20_000, 60)) is not None


@pytest.mark.parametrize(
    ("growth", "shrinks"),
    [(0, True), (100, True), (1_000, False), pytest.param(4_000, False, id="two steps later there is as much again")],
)
def test_it_foresees_that_as_much_piles_up_again(growth: int, *, shrinks: bool) -> None:
    shrunk = plan_shrinking([output(7, before=2_000, saves=8_000)], prospect(20_000, 20_000, 60, growth=growth))
    assert (shrunk is not None) is shrinks


def test_a_cold_cache_lets_go_however_fast_it_piles_up_again() -> None:
    assert plan_shrinking([output(7, before=2_000, saves=8_000)], prospect(20_000, 0, 60, growth=50_000)) is not None


def test_what_stands_behind_the_change_goes_with_it() -> None:
    small = output(9, before=15_000, saves=300)
    at = prospect(20_000, 20_000, 15)
    assert plan_shrinking([small], at) is None
    shrunk = plan_shrinking([small, output(7, before=2_000, saves=8_000)], at)
    assert shrunk is not None
    assert shrunk.outputs == (7, 9)
    assert "8,300 tokens less" in shrunk.reason


def test_what_stands_far_in_front_waits() -> None:
    early = Candidate(before=500, saves=300, task=1)
    shrunk = plan_shrinking([early, output(9, before=100_000, saves=9_000)], prospect(112_000, 112_000, 10))
    assert shrunk is not None
    assert (shrunk.tasks, shrunk.outputs) == ((), (9,))


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Candidate], Prospect]:
    """A request made of stretches, some of which could go."""
    stretches = draw(st.lists(st.tuples(st.integers(1, 20_000), st.integers(-50, 20_000)), max_size=12))
    candidates, before = [], 1_000
    for number, (kept, saves) in enumerate(stretches):
        again = draw(st.floats(0, 1))
        candidates.append(Candidate(before=before, saves=saves, again=again, output=number))
        before += kept + max(0, saves)
    write = draw(st.floats(1, 2))
    at = prospect(
        before, draw(st.integers(0, before)), draw(st.integers(1, 60)), read=draw(st.floats(0.01, 1)), write=write
    )
    return draw(st.permutations(candidates)), at


def cost_of(chosen: list[Candidate], at: Prospect) -> float:
    """The cost by the model, written anew: tokens of this request by where they stand, then those to come."""
    first = min((each.before for each in chosen), default=at.total)
    removed = sum(each.saves for each in chosen)
    warm = min(at.cached, first)
    this = warm * at.read + (at.total - removed - warm) * at.write
    later = (at.requests - 1) * (at.total - removed) * at.read
    return this + later + sum(each.again * each.saves * at.write for each in chosen)


def chosen_by(shrunk: Shrunk, candidates: list[Candidate]) -> list[Candidate]:
    return [each for each in candidates if each.output in shrunk.outputs]


@given(situations())
def test_it_never_shrinks_when_that_costs_more(situation: tuple[list[Candidate], Prospect]) -> None:
    candidates, at = situation
    shrunk = plan_shrinking(candidates, at)
    if shrunk is not None:
        assert shrunk.outputs
        assert cost_of(chosen_by(shrunk, candidates), at) < cost_of([], at) + 1e-6


@given(situations())
def test_no_single_change_and_no_other_batch_from_one_place_on_is_cheaper(
    situation: tuple[list[Candidate], Prospect],
) -> None:
    candidates, at = situation
    shrunk = plan_shrinking(candidates, at)
    best = cost_of(chosen_by(shrunk, candidates) if shrunk else [], at)
    useful = [each for each in candidates if each.saves > 0]
    for place in useful:
        batch = [each for each in useful if each.before >= place.before]
        assert best <= cost_of([place], at) + 1e-6
        assert best <= cost_of(batch, at) + 1e-6


@given(situations())
def test_a_cold_cache_lets_everything_go_that_is_not_sure_to_come_back(
    situation: tuple[list[Candidate], Prospect],
) -> None:
    candidates, at = situation
    cold = prospect(at.total, 0, at.requests, read=at.read, write=at.write)
    shrunk = plan_shrinking(candidates, cold)
    free = {each.output for each in candidates if each.saves > 0 and each.again == 0}
    assert free <= set(shrunk.outputs if shrunk else ())


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([], 8, id="nothing is known"),
        pytest.param([0], 8, id="a first run begins"),
        pytest.param([3], 5, id="a first run is under way"),
        pytest.param([12], 12, id="a run that is long is half way through"),
        pytest.param([28], 2, id="the limit is near"),
        pytest.param([40], 1, id="past it"),
        pytest.param([4, 6, 2], 3, id="like the runs before"),
    ],
)
def test_how_many_requests_are_expected(runs: list[int], expected: int) -> None:
    log: list[Recorded] = []
    for count in runs:
        log += [started(), *[replied()] * count]
    pace = RequestForecast()
    for end in range(len(log) + 1):
        pace.update(log[:end])
    assert pace.forecast(30) == expected
