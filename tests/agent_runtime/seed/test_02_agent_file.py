"""§2: everything an agent is, in one YAML file whose paths are relative to the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime import Agent, AgentFile, AsyncRuntime, SettingsError, TrustRequest
from agent_runtime.agent.agent_file import IndexSettings
from tests.agent_runtime.seed.parts import Model, reply, write_agent_file

WHOLE = """\
agent:
  name: BackendEngineer
  role: Expert Python backend engineer.
  system_prompt: ./prompts/instructions.md
  model:
    provider: {provider}
    name: {model}
    api_key_env: MY_KEY
    temperature: 0.2
    max_tokens: 8096
    thinking:
      enabled: false
      budget_tokens: 8000
  runtime:
    work_dir: ./workspace
    max_steps: 30
    unsafe_mode: false
  memory:
    max_context_tokens: 120000
    global_summary_threshold: 0.9
    global_summary_max_tokens: 500
  tools:
    - name: write_file
      enabled: true
      config: {{require_permission: false}}
    - name: read_file
    - name: execute
      config: {{require_permission: true, max_output_chars: 10000}}
    - name: find
      enabled: false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "instructions.md").write_text("Prefer small functions.\n")
    return tmp_path


@pytest.mark.parametrize(
    ("provider", "model"),
    [("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-4o"), ("alibaba", "qwen-max")],
)
async def test_the_whole_file_works_with_each_provider(
    folder: Path, provider: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-made-up")
    (folder / "agent.yaml").write_text(WHOLE.format(provider=provider, model=model))
    async with AsyncRuntime(str(folder / "agent.yaml")) as runtime:
        assert runtime.agent.provider.model == model
        assert runtime.agent.work_dir == folder / "workspace"
        assert runtime.agent.policy.limits.max_steps == 30
        assert runtime.agent.instructions.strip() == "Prefer small functions."
        assert set(runtime.registry.names) == {"write_file", "read_file", "execute"}
        assert runtime.session.session_id == "backendengineer"


@pytest.mark.parametrize(
    ("name", "session_id"), [("Back End", "back-end"), ("Back  End ", "back--end-"), ("Back/End", "back/end")]
)
async def test_the_session_has_the_id_that_codepilot_0_9_gave_it(tmp_path: Path, name: str, session_id: str) -> None:
    async with AsyncRuntime(write_agent_file(tmp_path, reply(done="Yes."), name=name)) as runtime:
        assert runtime.session.session_id == session_id


async def test_what_the_file_says_reaches_the_model(tmp_path: Path) -> None:
    (tmp_path / "more.md").write_text("Answer in rhymes.\n")
    path = write_agent_file(tmp_path, reply(done="Yes."), system_prompt="more.md", role="a poet.")
    model = Model([reply(done="Yes.")])
    async with AsyncRuntime(replace(Agent.from_file(AgentFile.load(path)), provider=model)) as runtime:
        await runtime.run("Do it")
    assert "You are Code Pilot, a poet." in model.requests[0].system
    assert "Answer in rhymes." in model.requests[0].system


async def test_paths_are_relative_to_the_file_and_not_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_agent_file(tmp_path / "agents", reply('write_file("a.txt")', "here", done="Done."))
    monkeypatch.chdir(tmp_path)
    async with AsyncRuntime("agents/agent.yaml") as runtime:
        await runtime.run("Write")
    assert (tmp_path / "agents" / "workspace" / "a.txt").read_text() == "here\n"


async def test_tools_are_honoured_exactly_and_left_out_means_all(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, object], set[str]]] = [
        ({"tools": [{"name": "read_file"}, {"name": "find", "enabled": False}]}, {"read_file"}),
        ({"tools": []}, set()),
        (
            {},
            {
                "write_file", "read_file", "list_files", "execute", "read_output", "send_input", "terminate_terminal",
                "find", "ask_user", "archive_context", "reveal_context", "list_archived_context",
            },
        ),
    ]  # fmt: skip
    for number, (sections, names) in enumerate(cases):
        async with AsyncRuntime(write_agent_file(tmp_path / str(number), reply(done="."), **sections)) as runtime:
            assert set(runtime.registry.names) == names


def test_what_does_not_fit_is_refused_with_the_nearest_known_name(folder: Path) -> None:
    text = WHOLE.format(provider="antropic", model="m").replace("max_steps", "max_step").replace("execute", "exceute")
    (folder / "agent.yaml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        AgentFile.load(folder / "agent.yaml")
    for said in ("'anthropic'", "'max_steps'", "'execute'", "agent.yaml:"):
        assert said in str(refused.value)


def test_a_key_is_named_by_its_variable_and_a_missing_one_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    (folder / "agent.yaml").write_text(WHOLE.format(provider="anthropic", model="claude-sonnet-4-5"))
    with pytest.raises(SettingsError, match="MY_KEY is not set"):
        AsyncRuntime(folder / "agent.yaml")
    (folder / "agent.yaml").write_text(WHOLE.format(provider="openai", model="m").replace("MY_KEY", "sk-abc123"))
    with pytest.raises(SettingsError) as refused:
        AgentFile.load(folder / "agent.yaml")
    assert "sk-abc123" not in str(refused.value)


@pytest.mark.parametrize("unsafe", [False, True])
async def test_only_unsafe_mode_writes_outside_the_workspace(tmp_path: Path, unsafe: bool) -> None:  # noqa: FBT001 - a test's parameter
    outside = tmp_path / "outside.txt"
    path = write_agent_file(
        tmp_path / "agent",
        reply(f'write_file("{outside}")', "out", done="Out."),
        reply(done="Could not."),
        runtime={"work_dir": "workspace", "unsafe_mode": unsafe},
    )
    async with AsyncRuntime(path) as runtime:
        outcome = await runtime.run("Write outside")
    assert outside.exists() is unsafe
    # Below /tmp, which the tests' own directory may be, the write succeeds: it goes to the sandbox's own /tmp.
    assert str(outcome) == ("Out." if unsafe or outside.is_relative_to("/tmp") else "Could not.")  # noqa: S108


async def test_long_output_is_cut_where_the_file_says(tmp_path: Path) -> None:
    tools = [{"name": "execute", "config": {"max_output_chars": 400}}]
    path = write_agent_file(tmp_path, reply('execute("main", "seq 1 900")'), reply(done="Long."), tools=tools)
    async with AsyncRuntime(path) as runtime:
        await runtime.run("Count")
        [observed] = [m["content"] for m in runtime.messages[2:] if m["role"] == "user"]
    assert len(observed) < 600
    assert "characters left out" in observed
    assert "900" in observed


DOCUMENTED = Path(__file__).with_name("document.agent.yaml")
SEARCH = "agent: {name: A, model: {provider: scripted}, tools: [{name: semantic_search%s, config: {%s}}]%s}\n"


def test_the_document_s_own_file_is_read_and_one_notice_says_where_its_keys_belong(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / "agent.yaml"
    path.write_text(DOCUMENTED.read_text(encoding="utf-8"))
    files = [AgentFile.load(path) for _ in range(2)]
    assert files[0].index == IndexSettings(
        api_key_env="VOYAGE_API_KEY",
        model="voyage-code-3",
        base_url="https://api.voyageai.com/v1",
        max_results=5,
        timeout=60,
    )
    assert files[0].max_output_chars == {"execute": 10_000, "semantic_search": 8_000}
    service = files[1].embeddings({"VOYAGE_API_KEY": "k"})
    assert service is not None
    assert (service.api_key, service.most) == ("k", 5)
    with pytest.raises(SettingsError, match="VOYAGE_API_KEY is not set"):
        files[1].embeddings({})
    (notice,) = (record.getMessage() for record in caplog.records)
    assert notice.startswith(f"{path}:56: ")
    assert "definitions are sent to 'https://api.voyageai.com/v1'" in notice


def test_keys_of_semantic_search_mean_what_they_meant(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "agent.yaml"

    def index(config: str, more: str = "", sections: str = "") -> IndexSettings | None:
        path.write_text(SEARCH % (more, config, sections))
        return AgentFile.load(path).index

    usual, local = index("max_results: 7"), index("base_url: 'http://localhost:11434/v1', model: bge-m3")
    assert usual is not None
    assert (usual.api_key_env, usual.max_results) == ("VOYAGE_API_KEY", 7)
    assert local is not None
    assert (local.api_key_env, local.model) == (None, "bge-m3")
    caplog.clear()
    assert index("max_output_chars: 8000") is None
    assert index("max_results: 7", more=", enabled: false") is None
    assert not caplog.records
    with pytest.raises(SettingsError, match="`index` and the `config` of semantic_search"):
        index("max_results: 7", sections=", index: {}")
    path.write_text((SEARCH % ("", "timeout: 5", "")).replace("semantic_search", "execute"))
    with pytest.raises(SettingsError, match="`timeout` has no effect for execute; it is for semantic_search"):
        AgentFile.load(path)


def test_the_refusal_without_numpy_names_the_keys_of_semantic_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "agent.yaml"
    path.write_text(SEARCH % ("", "max_results: 7", ""))
    monkeypatch.setenv("VOYAGE_API_KEY", "pa-1")
    monkeypatch.setattr("agent_runtime.core.values.importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="or remove `index` or `config`"):
        AgentFile.load(path).embeddings()


def test_the_service_of_semantic_search_takes_effect_only_after_trust(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: TrustRequest) -> None:
        keys = [key.key for key in request.keys]
        assert "tools[8].config.api_key_env" in keys
        assert "tools[8].config.base_url" in keys
        raise SettingsError("no")

    (folder / "agent.yaml").write_text(DOCUMENTED.read_text(encoding="utf-8"))
    with pytest.raises(SettingsError, match=r"^no$"):
        AgentFile.load(folder / "agent.yaml", review=refuse)
    assert not caplog.records
