"""What surrounds the runs of an evaluation: options, limits, faults and interruptions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_runtime import Replied, StepStarted, Usage
from bot.__main__ import cli
from bot.domain.errors import ConfigError
from bot.evaluation import run as run_module
from bot.evaluation.bundle import unpack_bundle
from bot.evaluation.results import read_results
from bot.evaluation.run import CostLimit, RunOptions, run_evaluation
from bot.evaluation.suite import read_suite, write_task
from bot.evaluation.trial import (
    EvalConfig,
    EvaluationError,
    Meter,
    Trial,
    TrialEnd,
    prepare_source,
    read_configs,
)
from bot.git.process import Git
from bot.server import process
from tests.evaluation_suites import FARES, SLUGS, make_suite
from tests.waiting import eventually

RunTrial = Callable[[Trial, Meter], Awaitable[TrialEnd]]


def configure(folder: Path, **texts: str) -> tuple[EvalConfig, ...]:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return read_configs([folder / f"{name}.yaml" for name in texts], toolchains=(), environ={})


SCRIPTED = "provider: scripted\nmodel: '{task}.yaml'\n"


def spend(meter: Meter, usd: float) -> None:
    meter.record(StepStarted(step=1, max_steps=9))
    meter.record(Replied(step=1, text="", usage=Usage(requests=1, input_tokens=7, cost_usd=usd)))


def replace_trials(monkeypatch: pytest.MonkeyPatch, work: RunTrial) -> None:
    """Let `work` stand for the runs of the bot."""

    async def run_trial(
        trial: Trial, suite: Git, name: str, directory: Path, *, meter: Meter, provider: object
    ) -> TrialEnd:
        return await work(trial, meter)

    monkeypatch.setattr(run_module, "run_trial", run_trial)


def finish(trial: Trial, meter: Meter) -> TrialEnd:
    result = trial.end(status="done", cost_usd=meter.total.cost_usd)
    return TrialEnd(result=result, repository=Path("/nothing"), base="")


async def test_a_fault_is_a_result_and_its_run_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, said, faults = await make_suite(FARES, tmp_path), list[str](), ["disk full"]

    async def work(trial: Trial, meter: Meter) -> TrialEnd:
        spend(meter, 0.5)
        if trial.task.id.startswith("12") and faults:
            raise OSError(faults.pop())
        return finish(trial, meter)

    replace_trials(monkeypatch, work)
    configs, options = configure(tmp_path, one=SCRIPTED), RunOptions(suite=suite, results=tmp_path / "r")
    failed, ended = await run_evaluation(options, configs, said.append)
    assert (failed.status, failed.error, failed.solved, failed.cost_usd) == ("error", "disk full", None, 0.5)
    assert (ended.status, ended.solved) == ("done", False)
    repeated, _ = await run_evaluation(options, configs, said.append)
    assert (repeated.status, repeated.error) == ("done", "")
    assert read_results(tmp_path / "r") == (repeated, ended)
    assert len(said) == 3
    assert "12-half-cents  one  #1  error, $0.50, 0 s: disk full" in said


async def test_an_interruption_keeps_what_is_finished_and_counts_what_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, said = await make_suite(FARES, tmp_path), list[str]()

    async def work(trial: Trial, meter: Meter) -> TrialEnd:
        spend(meter, 0.5)
        if trial.task.id.startswith("31"):
            await asyncio.Event().wait()
        return finish(trial, meter)

    replace_trials(monkeypatch, work)
    configs, options = configure(tmp_path, one=SCRIPTED), RunOptions(suite=suite, results=tmp_path / "r", max_usd=1.2)
    task = asyncio.create_task(run_evaluation(options, configs, said.append))
    await eventually(lambda: said)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended, interrupted = read_results(tmp_path / "r")
    assert (ended.status, interrupted.status, interrupted.cost_usd) == ("done", "error", 0.5)
    limits = list[float | None]()

    async def note_limit(trial: Trial, meter: Meter) -> TrialEnd:
        limits.append(trial.config.agent.max_cost_usd)
        return finish(trial, meter)

    replace_trials(monkeypatch, note_limit)
    await run_evaluation(options, configs, said.append)
    assert limits == [pytest.approx(0.2)]


async def test_budgets_of_runs_under_way_count_as_spent_until_they_end() -> None:
    limit = CostLimit(10.0, 3.0)
    assert await limit.reserve(4.0) == 4.0
    waiting = asyncio.create_task(limit.reserve(4.0))  # 3 are left, and perhaps more when the first run ends
    await asyncio.sleep(0)
    assert not waiting.done()
    await limit.settle(4.0, 1.0)
    assert await waiting == 4.0
    await limit.settle(4.0, None)  # of an unknown price
    assert await limit.reserve(4.0) == 2.0
    await limit.settle(2.0, 2.5)
    assert await limit.reserve(4.0) == 0.0
    assert await CostLimit(0.8, 0.1 + 0.7).reserve(None) == 0.0
    assert await CostLimit(0.3, 0.1 * 3 - 1e-9).reserve(None) == 0.0
    assert await CostLimit(None, 3.0).reserve(None) is None


async def test_budgets_that_do_not_add_up_exactly_stop_no_run() -> None:
    limit = CostLimit(1.0, 0.0)
    for budget in (0.1, 0.2):
        assert await limit.reserve(budget) == budget
    for budget in (0.1, 0.2):
        await limit.settle(budget, 0.0)
    assert await asyncio.wait_for(limit.reserve(5.0), 5) == 1.0


async def test_jobs_are_reduced_for_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, said, running, most = await make_suite(FARES, tmp_path), list[str](), [0], [0]

    async def work(trial: Trial, meter: Meter) -> TrialEnd:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1
        return finish(trial, meter)

    replace_trials(monkeypatch, work)
    monkeypatch.setattr(run_module, "available_memory", lambda: 5 * 1024**3)
    configs = configure(tmp_path, one=f"{SCRIPTED}sandbox_limits: memory=2GiB\n")
    await run_evaluation(RunOptions(suite=suite, results=tmp_path / "r", repeat=4, jobs=4), configs, said.append)
    assert most == [2]
    assert said[0].startswith("Runs in parallel: 2, not 4, for lack of memory. Each may use 2.0 GiB")


async def test_options_that_fit_no_task_are_refused(tmp_path: Path) -> None:
    path, said = await make_suite(SLUGS, tmp_path), list[str]()
    configs, options = configure(tmp_path, one=SCRIPTED), RunOptions(suite=path, results=tmp_path / "r", tasks=("8-*",))
    with pytest.raises(EvaluationError, match=r"has no task 8-\*"):
        await run_evaluation(options, configs, said.append)
    [task] = read_suite(path).tasks
    write_task(path, task.model_copy(update={"validated": None}))
    with pytest.raises(EvaluationError, match="has no validated task"):
        await run_evaluation(RunOptions(suite=path, results=tmp_path / "r"), configs, said.append)
    hint = f"codepilot eval validate {path}"
    assert said == [f"1 of 1 tasks are skipped, because they are not validated, or were edited since: {hint}"]
    write_task(path, task, hidden=b"other tests")
    with pytest.raises(EvaluationError, match="has no validated task"):
        await run_evaluation(replace(options, tasks=()), configs, said.append)
    assert said[0] == said[1]


async def test_a_run_has_no_object_of_another_task_or_of_the_solution(tmp_path: Path) -> None:
    path = await make_suite(FARES, tmp_path)
    store = await unpack_bundle(path, tmp_path / "store.git")
    [config] = configure(tmp_path, one=SCRIPTED)
    for task in read_suite(path).tasks:
        source = tmp_path / f"{task.id}.git"
        trial = Trial(task=task, issue="", config=config, attempt=1)
        assert await prepare_source(trial, store, source) == await Git(git_dir=source).text("rev-parse", "main")
        git = Git(git_dir=source)
        every = (await git.text("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")).split()
        reachable = (await git.text("rev-list", "--objects", "--no-object-names", "--all")).split()
        assert set(every) == set(reachable)
        assert (await git.text("for-each-ref", "--format=%(refname)")) == "refs/heads/main"
        contents = await git.text("log", "-p", "--all", "--format=%B")
        later = [change for change in FARES.changes if change.id >= task.id]
        for change in later:
            assert change.added[0].rpartition("::")[2] not in contents
            assert change.after not in contents
        assert (await git.text("rev-list", "--count", "main")) == "2"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("modl: x", "`modl`: unknown key. Did you mean 'model'?"),
        ("anthropic_api_key: sk-1", "`anthropic_api_key`: unknown key"),
        ("level: read-only", "`level`: at `read-only` no task can be solved"),
        ("approvals: maybe", "`approvals`: "),
        ("budget_usd: 0", "`budget_usd`: "),
        ("name: a/b", "`name`: "),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        configure(tmp_path, one=f"provider: scripted\nmodel: x\n{text}\n")
    assert problem in str(caught.value)


def test_a_configuration_overrides_the_environment_and_gets_only_its_own_key(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("provider: openai\nmodel: tiny\nbase_url: http://127.0.0.1:1/v1\nlevel: auto\n")
    (tmp_path / "usual.yaml").write_text("budget_usd: 2\n")
    environ = {
        "CODEPILOT_MODEL": "gpt-x",
        "CODEPILOT_PROVIDER": "openai",
        "OPENAI_API_KEY": "k",
        "CODEPILOT_LEVEL": "ask",
    }
    paths = [tmp_path / "own.yaml", tmp_path / "usual.yaml"]
    own, usual = read_configs(paths, toolchains=(), environ=environ)
    assert (own.agent.model, own.agent.level, own.agent.api_key) == ("tiny", "auto", None)
    assert (usual.name, usual.agent.model, usual.agent.level, usual.agent.max_cost_usd) == ("usual", "gpt-x", "ask", 2)
    assert usual.agent.api_key is not None
    with pytest.raises(ConfigError, match="usual: OPENAI_API_KEY"):
        read_configs(paths, toolchains=(), environ={**environ, "OPENAI_API_KEY": ""})
    (tmp_path / "twin.yaml").write_text("name: own\n")
    with pytest.raises(EvaluationError, match="another configuration is named own"):
        read_configs([paths[0], tmp_path / "twin.yaml"], toolchains=(), environ=environ)


def test_the_command_runs_continues_and_names_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, faults = asyncio.run(make_suite(SLUGS, tmp_path)), ["the model\x1b[2J is gone"]
    (tmp_path / "one.yaml").write_text(f"{SCRIPTED}level: auto\n")

    async def work(trial: Trial, meter: Meter) -> TrialEnd:
        if faults:
            raise OSError(faults.pop())
        return finish(trial, meter)

    replace_trials(monkeypatch, work)
    allowed, signals = list[bool](), list[int]()
    monkeypatch.setattr(signal, "signal", lambda number, _: signals.append(number))
    monkeypatch.setattr(process, "protect_process", lambda *, allow_root: allowed.append(allow_root))
    command = ["eval", "run", str(suite), "--config", str(tmp_path / "one.yaml"), "--results", str(tmp_path / "r")]
    failed = CliRunner().invoke(cli, command, env={"CODEPILOT_ALLOW_ROOT": "yes"})
    assert (failed.exit_code, allowed) == (1, [True])
    assert "7-outer-spaces  one  #1  error, $0.00, 0 s: the model\\x1b[2J is gone" in failed.output
    done = CliRunner().invoke(cli, [*command, "--task", "7-*"])
    assert (done.exit_code, allowed) == (0, [True, False])
    assert signal.SIGTERM in signals
    assert f"codepilot eval report {suite} --results {tmp_path / 'r'}" in done.output
