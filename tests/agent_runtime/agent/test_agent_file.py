"""Agent files: what each field becomes, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime.agent.agent_file import AgentFile, ModelSettings
from agent_runtime.agent.delegation import Delegation, Persona
from agent_runtime.context.transcript import MemorySettings
from agent_runtime.core.errors import SettingsError
from agent_runtime.policy.policy import Rule
from agent_runtime.providers.models import ModelOptions, Thinking
from agent_runtime.providers.retry import BRIEF_RETRY, FallbackProvider, RetryPolicy

# The example of the document that first described agent files, without the tool that is not offered yet.
SEED = """\
agent:
  name: "BackendEngineer"
  role: "Expert Python backend engineer specialising in FastAPI and PostgreSQL."
  system_prompt: "./prompts/instructions.md"
  model:
    provider: "alibaba"             # "anthropic" | "openai" | "alibaba"
    name: "qwen-max"
    api_key_env: "DASHSCOPE_API_KEY"
    temperature: 0.2
    max_tokens: 8096
    thinking:                       # Anthropic only: extended reasoning
      enabled: false
      budget_tokens: 8000
  runtime:
    work_dir: "./workspace"         # where the agent reads/writes files
    max_steps: 30                   # hard cap on agentic steps per run()
    unsafe_mode: false              # true = allow writes outside work_dir
  memory:
    max_context_tokens: 100000
    global_summary_threshold: 0.8
    global_summary_max_tokens: 400
  tools:
    - name: "write_file"
      enabled: true
      config:
        require_permission: false   # true = ask user before every file write
    - name: "read_file"
      enabled: true
    - name: "execute"
      enabled: true
      config:
        require_permission: true    # true = ask user before every shell command
        max_output_chars: 10000     # truncate long command output
    - name: "read_output"
      enabled: false
    - name: "ask_user"
"""

LEAST = "agent:\n  name: A\n  model:\n    provider: scripted\n"


DELEGATION = """\
  delegation:
    at_once: 2
    share: 0.25
    personas:
      - name: reader
        system_prompt: Change nothing.
        tools: [read_file, find]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "agent.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def seed(tmp_path: Path) -> AgentFile:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "instructions.md").write_text("Use type hints.\n", encoding="utf-8")
    return AgentFile.load(write(tmp_path, SEED))


def test_paths_are_relative_to_the_file_wherever_one_stands(
    seed: AgentFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seed.work_dir == tmp_path / "workspace"
    assert seed.instructions == "Use type hints.\n"
    monkeypatch.chdir(tmp_path / "prompts")
    assert AgentFile.load("../agent.yaml").work_dir == tmp_path / "workspace"


def test_each_field_of_the_seed_keeps_its_meaning(seed: AgentFile) -> None:
    assert (seed.name, seed.role.split()[0]) == ("BackendEngineer", "Expert")
    assert (seed.model.provider, seed.model.name, seed.model.key_variable) == (
        "alibaba",
        "qwen-max",
        "DASHSCOPE_API_KEY",
    )
    assert seed.model.options == ModelOptions(
        temperature=0.2, max_tokens=8096, thinking=Thinking(enabled=False, budget_tokens=8000)
    )
    assert seed.limits.max_steps == 30
    assert not seed.unsafe_mode
    assert seed.memory == MemorySettings(
        max_context_tokens=100_000, global_summary_threshold=0.8, global_summary_max_tokens=400
    )
    assert seed.tools == ("write_file", "read_file", "execute", "ask_user")
    assert seed.max_output_chars == {"execute": 10_000}
    assert [(rule.decision, rule.tool) for rule in seed.policy().rules] == [("ask", "execute")]


def test_omitted_keys_have_their_defaults(tmp_path: Path) -> None:
    agent = AgentFile.load(write(tmp_path, LEAST))
    assert agent.tools is None
    assert agent.rules == ()
    assert agent.memory == MemorySettings()
    assert agent.model.options == ModelOptions()
    assert agent.work_dir == tmp_path
    assert (agent.limits.max_steps, agent.limits.max_cost_usd, agent.limits.max_tokens) == (20, None, None)
    assert (agent.sandbox, agent.instructions, agent.fallback) == ("auto", "", ())


def test_an_empty_list_of_tools_means_none(tmp_path: Path) -> None:
    assert AgentFile.load(write(tmp_path, f"{LEAST}  tools: []\n")).tools == ()


def test_a_system_prompt_may_be_the_text_itself(tmp_path: Path) -> None:
    agent = AgentFile.load(write(tmp_path, f"{LEAST}  system_prompt: |\n    Read notes.md\n    first.\n"))
    assert agent.instructions == "Read notes.md\nfirst.\n"


def test_bounds_of_a_run_are_taken_over(tmp_path: Path) -> None:
    sandbox = "sandbox: docker, docker_image: a@b"
    text = f"{LEAST}  runtime: {{max_cost_usd: 2, max_tokens: 500000, max_seconds: 60.5, {sandbox}}}\n"
    agent = AgentFile.load(write(tmp_path, text))
    limits = agent.policy().limits
    assert (limits.max_cost_usd, limits.max_tokens, limits.max_seconds) == (2.0, 500_000, 60.5)
    assert (agent.sandbox, agent.docker_image) == ("docker", "a@b")


@pytest.mark.parametrize("outage_seconds", [None, 0, 300, 900])
def test_waits_for_a_model_that_is_down_are_up_to_the_file_and_then_to_the_caller(
    tmp_path: Path, outage_seconds: int | None
) -> None:
    key = "" if outage_seconds is None else f"  runtime: {{outage_seconds: {outage_seconds}}}\n"
    path = write(tmp_path, LEAST + key)
    for waits in (True, False):
        agent = AgentFile.load(path, waits=waits)
        is_brief = not (waits if outage_seconds is None else outage_seconds)
        assert agent.limits.outage_seconds == (0 if is_brief else outage_seconds or 300)
        assert agent.model.options.retry == (BRIEF_RETRY if is_brief else RetryPolicy())


def test_permissions_precede_require_permission_so_that_they_make_exceptions(tmp_path: Path) -> None:
    text = f"""{LEAST}
  tools: [{{name: execute, config: {{require_permission: true}}}}]
  permissions:
    - {{allow: execute, commands: ["pytest *"]}}
    - {{deny: "*", paths: ["secrets/**"], reason: they are secret}}
"""
    assert AgentFile.load(write(tmp_path, text)).policy().rules == (
        Rule(decision="allow", tool="execute", commands=("pytest *",)),
        Rule(decision="deny", tool="*", paths=("secrets/**",), reason="they are secret"),
        Rule(decision="ask", tool="execute", reason="the agent file asks before every execute"),
    )


def test_all_errors_are_reported_at_once_with_line_and_key_and_remedy(tmp_path: Path) -> None:
    text = """\
agent:
  name: 4
  rolle: x
  model:
    provider: antropic
    temprature: 0.2
    temperature: yes
    max_tokens: "80"
  runtime:
    max_steps: 0
    sandbox: chroot
  tools:
    - name: exceute
    - enabled: true
  permissions:
    - {allow: execute, deny: execute}
"""
    with pytest.raises(SettingsError) as refused:
        AgentFile.load(write(tmp_path, text))
    told = [line.removeprefix(f"{tmp_path}/agent.yaml:") for line in str(refused.value).splitlines()]
    assert [line.partition(" Known:")[0] for line in told] == [
        "2: `agent.name`: must be text, but is a number.",
        "3: `agent.rolle`: unknown key. Did you mean 'role'?",
        "5: `agent.model.provider`: there is no provider 'antropic'. Did you mean 'anthropic'?",
        "6: `agent.model.temprature`: unknown key. Did you mean 'temperature'?",
        "7: `agent.model.temperature`: must be a number, but is true or false.",
        "8: `agent.model.max_tokens`: must be a whole number, but is text.",
        "10: `agent.runtime.max_steps`: must be at least 1.",
        "11: `agent.runtime.sandbox`: must be one of 'auto', 'bubblewrap', 'docker' or 'local'.",
        "13: `agent.tools[0].name`: there is no tool 'exceute'. Did you mean 'execute'?",
        "14: `agent.tools[1].name`: must be set.",
        "16: `agent.permissions[0]`: write exactly one of `allow`, `ask` and `deny`.",
    ]


def test_a_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "agent: {name: A, role: B, model: {provider: anthropic}, runtime: {work_dir: new/workspace}}",
        encoding="utf-8",
    )
    assert AgentFile.load(tmp_path / "agent.yaml").work_dir == tmp_path / "new" / "workspace"
    assert (tmp_path / "new" / "workspace").is_dir()


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ("  tools: [{name: find}, {name: find}]", r"find is listed more than once; keep one entry"),
        ("  memory: {global_summary_threshold: 7}", r":5: memory\.global_summary_threshold is 7"),
        ("  system_prompt: nowhere.md", r":5: .*nowhere\.md: cannot be read \(No such file"),
        ("  runtime: {work_dir: agent.yaml}", r":5: `work_dir`: .*agent.yaml is no directory and cannot be made"),
        ("    thinking: {enabled: true, budget_tokens: 9000}\n    max_tokens: 4096", r"max_tokens"),
        ("    fallback: [{provider: nobody}]", r":5: `agent\.model\.fallback\[0\]\.provider`: there is no provider"),
        ("  permissions: [{ask: writefile}]", r":5: .*Did you mean 'write_file'\?"),
        ("  runtime: {max_cost_usd: .inf}", r"must be a finite number"),
        ("  runtime: []", r"`agent\.runtime`: must be a mapping of keys to values, but is a list"),
        ("  role:", r"`agent\.role`: must be text, but is empty"),
        ('  system_prompt: "a\\0.md"', r":5: .*no file can have this name"),
        # Keys below which all is commented out would mean the very opposite of what they say.
        ("  tools:\n    # - name: find", r":5: `agent\.tools`: has no value; .* remove the key"),
        ("  permissions: [{allow: execute, commands: }]", r"`agent\.permissions\[0\]\.commands`: has no value"),
        ("  permissions: [{allow: execute, commands: []}]", r"commands`: must not be empty; .* remove the key"),
        ("  permissions: [{deny: find, paths: []}]", r"paths`: must not be empty"),
        # Rules that would never hold, though somebody believes them to.
        ("  permissions: [{deny: execute, paths: [a]}]", r"`paths` has no effect for execute, which takes no files"),
        (
            "  permissions: [{ask: write_file, commands: [rm]}]",
            r"`commands` has no effect for write_file; it is for",
        ),
    ],
)
def test_an_invalid_combination_is_rejected_with_its_line(tmp_path: Path, added: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        AgentFile.load(write(tmp_path, f"{LEAST}{added}\n"))


@pytest.mark.parametrize("text", ["", "name: A\n", "- agent\n", "agent: []\n"])
def test_a_file_that_describes_no_agent_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"agent\.yaml:1: "):
        AgentFile.load(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: cannot be read \(No such file"):
        AgentFile.load(tmp_path / "nowhere.yaml")
    (tmp_path / "agent.yaml").write_bytes("name: ä".encode("latin-1"))
    with pytest.raises(SettingsError, match="is not UTF-8"):
        AgentFile.load(tmp_path / "agent.yaml")


@pytest.mark.parametrize(
    "key", ["sk-ant-api03-AbC", "AKIA1234567890ABCDEFGHIJKLMNOP", "d41d8cd98f00b204e9800998ecf8427e", "$KEY", "K=v"]
)
def test_a_key_in_the_file_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    text = f"agent:\n  name: A\n  model: {{provider: openai, api_key_env: '{key}'}}\n"
    with pytest.raises(SettingsError, match="must be the name of an environment variable") as refused:
        AgentFile.load(write(tmp_path, text))
    assert key not in str(refused.value)


def test_a_key_is_looked_up_by_the_name_that_the_file_gives(tmp_path: Path) -> None:
    text = "agent:\n  name: A\n  model:\n    provider: openai\n    api_key_env: MY_KEY\n"
    model = AgentFile.load(write(tmp_path, text)).model
    assert model.api_key({"MY_KEY": " sk-1 ", "OPENAI_API_KEY": "sk-2"}) == "sk-1"
    with pytest.raises(SettingsError, match=r"agent\.yaml:5: .* the environment variable MY_KEY is not set\. Set it"):
        model.api_key({"MY_KEY": "", "OPENAI_API_KEY": "sk-2"})


def test_a_server_of_ones_own_is_not_sent_the_key_of_the_service(tmp_path: Path) -> None:
    text = "agent:\n  name: A\n  model: {provider: openai, name: m, base_url: 'http://127.0.0.1:1/v1'}\n"
    assert AgentFile.load(write(tmp_path, text)).model.api_key({"OPENAI_API_KEY": "sk-2"}) is None


async def test_models_that_stand_in_make_a_chain_that_loses_no_time_on_the_first(tmp_path: Path) -> None:
    text = """\
agent:
  name: A
  model:
    provider: anthropic
    name: one
    fallback:
      - {provider: openai, name: two}
"""
    agent = AgentFile.load(write(tmp_path, text))
    with pytest.raises(SettingsError, match=r"agent\.yaml:7: the provider `openai` needs a key"):
        agent.provider({"ANTHROPIC_API_KEY": "sk-1"})
    provider = agent.provider({"ANTHROPIC_API_KEY": "sk-1", "OPENAI_API_KEY": "sk-2"})
    assert isinstance(provider, FallbackProvider)
    assert provider.model == "one"
    await provider.close()


def test_the_built_in_agent_asks_the_model_whose_key_is_there(tmp_path: Path) -> None:
    model = ModelSettings.from_environment({"OPENAI_API_KEY": "sk-2"})
    agent = AgentFile.built_in(tmp_path, model=model)
    assert (agent.model.provider, agent.work_dir, agent.tools) == ("openai", tmp_path, None)
    with pytest.raises(SettingsError, match=r"No model: set .*ANTHROPIC_API_KEY"):
        ModelSettings.from_environment({})
    with pytest.raises(SettingsError, match="Did you mean 'anthropic'"):
        ModelSettings.for_provider("antropic")


@pytest.mark.parametrize(("key", "said"), [("", None), (", images: true", True), (", images: false", False)])
def test_support_for_images_can_be_configured(tmp_path: Path, key: str, *, said: bool | None) -> None:
    text = f"agent:\n  name: A\n  model: {{provider: openai, name: mine, base_url: 'http://127.0.0.1:1/v1'{key}}}\n"
    model = AgentFile.load(write(tmp_path, text)).model
    assert model.options.images is said
    assert model.create_provider({}).sees_images is bool(said)


def test_tasks_are_delegated_only_where_the_file_says_so(tmp_path: Path) -> None:
    assert AgentFile.load(write(tmp_path, LEAST)).delegation is None
    found = AgentFile.load(write(tmp_path, LEAST + DELEGATION)).delegation
    reader = Persona(name="reader", instructions="Change nothing.", tools=("read_file", "find"))
    assert found == Delegation(at_once=2, share=0.25, personas=(reader,))
    listed = "  tools:\n    - name: delegate\n    - name: collect\n"
    assert AgentFile.load(write(tmp_path, LEAST + listed)).delegation == Delegation()


def test_a_section_about_delegation_that_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"agent\.yaml:6: `agent\.delegation\.max_task`: unknown key"):
        AgentFile.load(write(tmp_path, LEAST + "  delegation:\n    max_task: 3\n"))
    with pytest.raises(SettingsError, match="`tools` does not list `delegate`"):
        AgentFile.load(write(tmp_path, LEAST + "  tools:\n    - name: find\n" + DELEGATION))
    twice = DELEGATION + "      - name: reader\n"
    with pytest.raises(SettingsError, match="the persona 'reader' is given twice"):
        AgentFile.load(write(tmp_path, LEAST + twice))
