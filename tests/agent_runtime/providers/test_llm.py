"""The provider `llm` with models that a real plugin registers."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import llm
import pytest
from llm.parts import StreamEvent
from llm.plugins import pm
from pydantic import Field
from typing_extensions import override

from agent_runtime import Agent, AsyncRuntime, SandboxSettings, Status, pick_sandbox
from agent_runtime.core.errors import ModelRejectedError, ModelUnreachableError, SettingsError
from agent_runtime.core.values import Image, Usage
from agent_runtime.providers.catalog import provider_for
from agent_runtime.providers.models import ModelOptions
from agent_runtime.providers.protocol import ReplyStart, TextChunk, tool_calling
from tests.agent_runtime.image_files import gif, picture
from tests.agent_runtime.providers.conversations import KEY, Collected, Naps, collect, conversation
from tests.agent_runtime.providers.test_calls_on_the_wire import TOOL, requests_of
from tests.agent_runtime.providers.test_calls_on_the_wire import conversation as with_calls
from tests.model_server import Fails, ModelServer, Says
from tests.waiting import eventually

PIECES = ["Look", "ing", ".\n", "```codepilot\n", "x()\n```"]


class Settings(llm.Options):
    temperature: float | None = Field(default=None)


class Parrot(llm.KeyModel):
    """A synchronous model, which reads the history from earlier responses."""

    model_id = "parrot"
    needs_key = "parrot"
    key_env_var = "PARROT_KEY"
    can_stream = True
    Options = Settings  # type: ignore[assignment]  # how plugins declare theirs

    def __init__(self) -> None:
        self.prompts: list[dict[str, Any]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.ended = threading.Event()

    @override
    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
        key: str | None,
    ) -> Iterator[str]:
        assert conversation is not None
        history = [
            (past.prompt.prompt, past.text()) for past in conversation.responses if isinstance(past, llm.Response)
        ]
        self.prompts.append(
            {
                "key": key,
                "history": history,
                "prompt": prompt.prompt,
                "system": prompt.system,
                "stream": stream,
                "temperature": getattr(prompt.options, "temperature", None),
                "thread": threading.current_thread().name,
            }
        )
        try:
            for piece in PIECES:
                yield piece
                self.go_on.wait()
            response.set_usage(input=120, output=7)
        finally:
            self.ended.set()


class Owl(Parrot):
    """A model that accepts images except GIF."""

    model_id = "owl"
    attachment_types = frozenset({"image/png", "image/jpeg", "audio/wav"})

    @override
    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
        key: str | None,
    ) -> Iterator[str]:
        assert conversation is not None
        past = [each for each in conversation.responses if isinstance(each, llm.Response)]
        parts = [[type(part).__name__ for part in message.parts] for message in prompt.messages]
        attachments = [[*each.attachments] for each in past]
        assert attachments == [[*each.prompt.attachments] for each in past]
        told = [each.prompt.prompt for each in past] + [prompt.prompt]
        self.prompts.append({"parts": parts, "attachments": [*attachments, [*prompt.attachments]], "told": told})
        yield "Hoo."


class AsyncParrot(llm.AsyncModel):
    """An async model, which reads the history as messages."""

    model_id = "parrot-async"
    can_stream = True

    def __init__(self) -> None:
        self.prompts: list[list[tuple[str, str]]] = []
        self.fault: Exception | None = None
        self.closed = False

    @override
    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None,
    ) -> AsyncGenerator[str]:
        self.prompts.append(
            [(message.role, str(getattr(message.parts[0], "text", None))) for message in prompt.messages]
        )
        try:
            for piece in PIECES:
                if self.fault is not None:
                    raise self.fault
                yield piece
            response.set_usage(input=50, output=5)
        finally:
            self.closed = True


class Crow(Parrot):
    """A model with tool calls, streamed or, as in older plugins, complete at the end."""

    model_id = "crow"
    supports_tools = True
    arguments = '{"a": "é"}'
    is_old = False

    @override
    def execute(  # type: ignore[override] # plugins may give events in place of text
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
        key: str | None,
    ) -> Iterator[str | StreamEvent]:
        assert conversation is not None
        parts = [(message.role, [part.to_dict() for part in message.parts]) for message in prompt.messages]
        past = [each for each in conversation.responses if isinstance(each, llm.Response)]
        self.prompts.append(
            {
                "parts": parts,
                "tools": [(tool.name, tool.input_schema) for tool in prompt.tools if isinstance(tool, llm.Tool)],
                "past": [[(call.name, call.arguments) for call in each.tool_calls()] for each in past],
                "results": [
                    [(result.name, result.output) for result in each]
                    for each in [*(each.prompt.tool_results for each in past), prompt.tool_results]
                ],
            }
        )
        if not self.is_old:
            for number in range(2):
                yield StreamEvent(type="tool_call_name", chunk="find", tool_call_id=f"c{number}")
                yield StreamEvent(type="tool_call_args", chunk=self.arguments[:4], tool_call_id=f"c{number}")
                yield StreamEvent(type="tool_call_args", chunk=self.arguments[4:], tool_call_id=f"c{number}")
        for number in range(2):
            call = llm.ToolCall(name="find", arguments=json.loads(self.arguments), tool_call_id=f"c{number}")
            response.add_tool_call(call)
        response.set_usage(input=120, output=7)


class SyncTwin(Parrot):
    model_id = "parrot-async"


class Plugin:
    def __init__(self) -> None:
        self.parrot, self.twin, self.parrot_async = Parrot(), SyncTwin(), AsyncParrot()
        self.owl, self.crow = Owl(), Crow()

    @llm.hookimpl
    def register_models(self, register: Callable[..., None]) -> None:
        register(self.parrot, aliases=("polly",))
        register(self.twin, self.parrot_async)
        register(self.owl)
        register(self.crow)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plugin]:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("PARROT_KEY", "from-the-environment")
    made = Plugin()
    pm.register(made, name="tests-parrot")
    yield made
    pm.unregister(name="tests-parrot")


async def ask(
    model: str,
    key: str | None = None,
    steps: int = 3,
    temperature: float | None = None,
    images: tuple[Image, ...] = (),
) -> Collected:
    options = ModelOptions(retry=Naps().retry(), temperature=temperature)
    provider = provider_for("llm", model=model, api_key=key, options=options)
    try:
        return await collect(provider.reply(conversation(steps, status="Step 3.", images=images)))
    finally:
        await provider.close()


async def test_a_model_without_async_answers_from_a_thread_with_the_whole_history(plugin: Plugin) -> None:
    reply = await ask("polly", temperature=0.5)
    heard = plugin.parrot.prompts[0]
    assert reply.text == "".join(PIECES)
    assert heard["history"] == [
        ("Fix the bug.", "Step 1.\n```codepilot\nfind('x')\n```\n"),
        ("Result 1: é 🐛", "Step 2.\n```codepilot\nfind('x')\n```\n"),
    ]
    assert (heard["prompt"], heard["system"]) == ("Result 2: é 🐛\n\nStep 3.", "You repair programs.")
    assert (heard["key"], heard["temperature"], heard["stream"]) == ("from-the-environment", 0.5, True)
    assert heard["thread"].startswith("llm")


async def test_an_async_model_is_called_async_and_reads_the_history_as_messages(plugin: Plugin) -> None:
    reply = await ask("parrot-async")
    assert reply.text == "".join(PIECES)
    assert [role for role, _ in plugin.parrot_async.prompts[0]] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert plugin.parrot_async.prompts[0][-1] == ("user", "Result 2: é 🐛\n\nStep 3.")
    assert not plugin.twin.prompts


@pytest.mark.parametrize(("model", "sent", "received"), [("parrot", 120, 7), ("parrot-async", 50, 5)])
async def test_usage_is_the_plugins_count_with_unknown_cost(
    plugin: Plugin, model: str, sent: int, received: int
) -> None:
    reply = await ask(model)
    assert reply.end is not None
    assert reply.end.usage == Usage(requests=1, input_tokens=sent, output_tokens=received, cost_usd=None)


async def test_a_key_that_is_given_goes_before_the_one_llm_would_find(plugin: Plugin) -> None:
    await ask("parrot", key=KEY)
    assert plugin.parrot.prompts[0]["key"] == KEY


async def test_a_missing_key_is_reported_with_llms_own_remedy(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARROT_KEY")
    with pytest.raises(ModelRejectedError, match=r"llm keys set parrot"):
        await ask("parrot")


def test_an_unknown_model_is_refused_with_the_nearest_one(plugin: Plugin) -> None:
    with pytest.raises(SettingsError, match=r"'parot'.*'parrot'\?.*llm install"):
        provider_for("llm", model="parot")


def test_the_default_model_is_the_one_llm_is_set_to(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "default_model.txt").write_text("polly")
    assert provider_for("llm").model == "parrot"


def test_an_address_is_refused_because_plugins_know_theirs(plugin: Plugin) -> None:
    with pytest.raises(SettingsError, match="does not support base_url"):
        provider_for("llm", model="parrot", base_url="https://models.example.com/v1")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_runtime.providers.llm.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"install codepilot-bot\[llm\]"):
        provider_for("llm", model="parrot")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ConnectionResetError("gone"), ModelUnreachableError),
        (TimeoutError("slow"), ModelUnreachableError),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), ModelUnreachableError),
        (ValueError(f"the key {KEY} is odd"), ModelRejectedError),
        (llm.ModelError(f"the key {KEY} is odd"), ModelRejectedError),
        (KeyError("choices"), ModelRejectedError),
    ],
)
async def test_an_error_of_a_plugin_is_judged_and_never_shows_the_key(
    plugin: Plugin, fault: Exception, error: type[Exception]
) -> None:
    plugin.parrot_async.fault = fault
    with pytest.raises(error, match="parrot-async") as caught:
        await ask("parrot-async", key=KEY)
    assert KEY not in str(caught.value)
    assert len(plugin.parrot_async.prompts) == (3 if error is ModelUnreachableError else 1)


async def test_an_error_of_our_own_is_not_blamed_on_the_plugin(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_place: object) -> str:
        raise TypeError("a fault of ours")

    monkeypatch.setattr("agent_runtime.providers.protocol.BlockJoiner.join", broken)
    with pytest.raises(TypeError, match="a fault of ours"):
        await ask("polly", key=KEY)


async def test_leaving_early_closes_an_async_models_stream(plugin: Plugin) -> None:
    provider = provider_for("llm", model="parrot-async")
    async with aclosing(provider.reply(conversation())) as chunks:
        assert isinstance(await anext(chunks), ReplyStart)
        assert isinstance(await anext(chunks), TextChunk)
    assert plugin.parrot_async.closed


async def test_leaving_early_does_not_wait_for_a_model_in_a_thread(plugin: Plugin) -> None:
    parrot = plugin.parrot
    parrot.go_on.clear()
    provider = provider_for("llm", model="parrot")
    asking = asyncio.create_task(collect(provider.reply(conversation())))
    await eventually(lambda: parrot.prompts)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not parrot.ended.is_set()
    parrot.go_on.set()
    await eventually(parrot.ended.is_set)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_plugin_that_ships_with_llm_works_over_a_real_socket(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with ModelServer(replies=["Hello.", Fails(401, "invalid_api_key", "no")]) as server:
        text = f"- model_id: mine\n  model_name: mine\n  api_base: {server.url_openai}\n"
        (tmp_path / "extra-openai-models.yaml").write_text(text)
        assert (await ask("mine", key=KEY, steps=2)).text == "Hello."
        with pytest.raises(ModelRejectedError, match="HTTP 401"):
            await ask("mine", key=KEY)
    gc.collect()  # the plugin leaves its connections open; better told here than in some other test
    roles = [message["role"] for message in server.requests[0].json["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_whole_run_by_tool_calls_with_a_plugin_that_ships_with_llm(plugin: Plugin, tmp_path: Path) -> None:
    wrote = ("c1", "write_file", '{"path": "b.txt", "content": "new\\n"}')
    finish = ("c2", "finish", '{"summary": "Written."}')
    (tmp_path / "work").mkdir()
    async with ModelServer(replies=[Says("", calls=(wrote,)), Says("", calls=(finish,))]) as server:
        told = f"- model_id: mine\n  model_name: mine\n  supports_tools: true\n  api_base: {server.url_openai}\n"
        (tmp_path / "extra-openai-models.yaml").write_text(told)
        provider = provider_for("llm", model="mine", api_key=KEY, options=ModelOptions(retry=Naps().retry()))
        sandbox = pick_sandbox("auto", SandboxSettings())
        agent = Agent(provider=provider, work_dir=tmp_path / "work", sandbox=sandbox, chat=False, transport="tools")
        async with AsyncRuntime(agent) as runtime:
            outcome = await runtime.run("Write b.txt")
    gc.collect()
    assert (outcome.status, outcome.summary, outcome.usage.requests) == (Status.FINISHED, "Written.", 2)
    assert (tmp_path / "work" / "b.txt").read_text() == "new\n"
    answers = [each for each in server.requests[1].json["messages"] if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in answers] == ["c1"]


@pytest.mark.parametrize("steps", [1, 3])
async def test_images_are_attachments_of_their_message_new_or_old(plugin: Plugin, steps: int) -> None:
    images = (picture("a"), picture("b", shade=9))
    await ask("owl", steps=steps, images=images)
    (heard,) = plugin.owl.prompts
    first, *others = heard["attachments"]
    assert [(each.type, each.content) for each in first] == [
        ("image/png", base64.b64decode(image.data)) for image in images
    ]
    assert not any(others)
    assert heard["parts"][1] == ["TextPart", "AttachmentPart", "AttachmentPart"]
    assert heard["told"][0].startswith("Fix the bug.")


async def test_in_place_of_an_image_that_the_model_does_not_take_stands_a_note(plugin: Plugin) -> None:
    await ask("owl", images=(Image.of("a", gif()), picture("b")))
    (heard,) = plugin.owl.prompts
    assert heard["told"][0] == "Fix the bug.\n\n[Image 1 is not shown: the model takes no image/gif.]"
    assert [each.type for each in heard["attachments"][0]] == ["image/png"]


@pytest.mark.parametrize(
    ("model", "said", "seeing"),
    [
        ("owl", None, True),
        ("owl", True, True),
        ("owl", False, False),
        ("parrot", None, False),
        ("parrot", False, False),
    ],
)
def test_a_model_sees_when_its_plugin_says_so_unless_it_is_not_to(
    plugin: Plugin, model: str, *, said: bool | None, seeing: bool
) -> None:
    assert provider_for("llm", model=model, options=ModelOptions(images=said)).sees_images is seeing


def test_saying_that_a_model_sees_whose_plugin_says_no_is_refused(plugin: Plugin) -> None:
    with pytest.raises(SettingsError, match="says that 'parrot' takes no images, so `images` cannot be true"):
        provider_for("llm", model="parrot", options=ModelOptions(images=True))


async def ask_with_tools(steps: int) -> Collected:
    provider = provider_for("llm", model="crow", options=ModelOptions(retry=Naps().retry()))
    try:
        return await collect(provider.reply(with_calls(steps)))
    finally:
        await provider.close()


@pytest.mark.parametrize("is_old", [False, True])
async def test_calls_are_read_from_plugins_of_either_age(plugin: Plugin, *, is_old: bool) -> None:
    plugin.crow.is_old = is_old
    reply = await ask_with_tools(0)
    assert [(each.id, each.name, each.arguments) for each in requests_of(reply)] == [
        ("c0", "find", '{"a": "é"}'),
        ("c1", "find", '{"a": "é"}'),
    ]
    assert reply.end is not None
    assert reply.end.usage.output_tokens == 7


async def test_arguments_that_a_plugin_cannot_parse_are_passed_on(plugin: Plugin) -> None:
    plugin.crow.arguments = '{"a": '
    reply = await ask_with_tools(0)
    assert [each.arguments for each in requests_of(reply)] == ['{"a": '] * 2
    assert reply.end is not None


async def test_calls_and_answers_are_sent_as_messages_and_as_earlier_responses(plugin: Plugin) -> None:
    await ask_with_tools(2)
    [heard] = plugin.crow.prompts
    assert heard["tools"] == [("find", dict(TOOL.parameters))]
    roles = [(role, [part["type"] for part in parts]) for role, parts in heard["parts"]]
    assert roles == [
        ("system", ["text"]),
        ("user", ["text"]),
        ("assistant", ["text", "tool_call", "tool_call"]),
        ("tool", ["tool_result", "tool_result"]),
        ("assistant", ["tool_call", "tool_call"]),
        ("tool", ["tool_result", "tool_result"]),
        ("user", ["text"]),
    ]
    assert heard["past"] == [[("find", {"a": "x"})] * 2] * 2
    answered = [[("find", f"Result c{step}_{n}") for n in range(2)] for step in (1, 2)]
    assert heard["results"] == [[], *answered]


def test_a_model_calls_tools_by_default_if_its_plugin_says_so(plugin: Plugin) -> None:
    for model, told in (("crow", "preferred"), ("polly", "unsupported")):
        assert tool_calling(provider_for("llm", model=model)) == told
