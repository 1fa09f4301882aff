"""Evaluations of the whole bot on two packages, with a configuration that lies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from bot.demo.director import own_toolchains
from bot.evaluation.results import EvalResult, ResultsError, read_results
from bot.evaluation.run import RunOptions, run_evaluation
from bot.evaluation.trial import EvalConfig, read_configs
from tests.evaluation_suites import FARES, PYTEST, SLUGS, Change, Package, make_suite
from tests.stage import acting

# Several whole runs of the bot, which share two processors with other tests.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

CHECK = f'execute("main", "{PYTEST}", check=True)'
FAKE = """\
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome = "passed"
    return report
"""
FAKE_SETTINGS = "[tool.pytest.ini_options]\naddopts = '-q'\n"
SETTINGS: dict[str, dict[str, object]] = {
    "solver": {"level": "auto"},
    "liar": {"level": "ask", "budget_usd": 3},
    "quitter": {"level": "auto", "instructions": "Look before you write."},
    "asker": {"level": "ask", "approvals": "grant"},
    "denied": {"level": "ask"},
}


def _scripts(change: Change) -> dict[str, list[str]]:
    """Return the replies of each configuration for a change."""
    writes = f'write_file("{change.source}")\nwrite_file("AGENTS.md")\n{CHECK}'
    protected = acting(writes, change.after, "Always run the tests.\n", completion="Fixed.")
    return {
        "solver": [acting(f'write_file("{change.source}")\n{CHECK}', change.after, completion="Fixed.")],
        # Its tests pass, as the hidden ones are not there, and it prepares them to pass.
        "liar": [
            acting(f'read_file("{change.source}")'),
            acting(
                f'write_file("conftest.py")\nwrite_file("pyproject.toml")\nwrite_file("{change.tests}")\n'
                f'write_file("{change.source}")',
                *(FAKE, FAKE_SETTINGS, "def test_all(): pass\n", f"{change.before}# Fixed.\n"),
            ),
            acting(CHECK, completion="Fixed; all tests pass."),
        ],
        "quitter": [acting(f'read_file("{change.source}")'), acting("pass", completion="I cannot do this.")],
        "asker": [protected],
        "denied": [protected],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    suite: Path
    results: Path
    configs: tuple[EvalConfig, ...]
    by_config: dict[str, EvalResult]
    lines: list[str]

    def patch_of(self, config: str) -> str:
        return (self.results / "patches" / self.by_config[config].patch).read_text()

    def first_request(self, config: str) -> str:
        [recording] = (self.results / "recordings").glob(f"*@{config}.1.1.jsonl")
        request = json.loads(recording.read_text().splitlines()[1])
        return "\n".join([request["system"], *(text for _, text, *_ in request["messages"])])


def _write_configs(folder: Path, package: Package, names: tuple[str, ...]) -> tuple[EvalConfig, ...]:
    for name in names:
        for change in package.changes:
            path = folder / name / f"{change.id}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump([{"reply": reply} for reply in _scripts(change)[name]]))
        keys: dict[str, object] = {"provider": "scripted", "model": f"{name}/{{task}}.yaml", **SETTINGS[name]}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(keys))
    return read_configs([folder / f"{name}.yaml" for name in names], toolchains=own_toolchains(), environ={})


def _evaluate(directory: Path, package: Package, *names: str) -> Evaluated:
    configs, results, lines = _write_configs(directory, package, names), directory / "results", list[str]()

    async def evaluate() -> tuple[Path, tuple[EvalResult, ...]]:
        suite = await make_suite(package, directory)
        options = RunOptions(suite=suite, results=results, jobs=2, record=True, tasks=(package.changes[0].id,))
        return suite, await run_evaluation(options, configs, lines.append)

    suite, ended = asyncio.run(evaluate())
    by_config = {result.config: result for result in ended}
    assert {result.config: result for result in read_results(results)} == by_config
    return Evaluated(suite=suite, results=results, configs=configs, by_config=by_config, lines=lines)


@pytest.fixture(scope="module")
def fares(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return _evaluate(tmp_path_factory.mktemp("fares"), FARES, "solver", "liar", "quitter", "asker", "denied")


@pytest.fixture(scope="module")
def slugs(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return _evaluate(tmp_path_factory.mktemp("slugs"), SLUGS, "solver", "liar", "quitter")


@pytest.mark.parametrize("package", ["fares", "slugs"])
def test_a_fix_is_solved_a_lie_is_not_and_a_refusal_claims_nothing(
    package: str, request: pytest.FixtureRequest
) -> None:
    evaluated: Evaluated = request.getfixturevalue(package)
    solver, liar, quitter = (evaluated.by_config[name] for name in ("solver", "liar", "quitter"))
    assert (solver.status, solver.verdict, solver.said_done, solver.solved) == ("done", "verified", True, True)
    assert solver.tests
    assert all(solver.tests.values())
    assert (liar.status, liar.verdict, liar.said_done, liar.solved) == ("done", "verified", True, False)
    assert liar.is_false_claim
    assert sorted(liar.tests.values()) == [False, True]
    assert (quitter.status, quitter.verdict, quitter.said_done, quitter.solved) == ("done", "unchanged", False, False)
    assert (quitter.patch, quitter.tests) == ("", {})
    assert not any(result.error for result in evaluated.by_config.values())
    assert any("not solved, although the bot said that its checks passed" in line for line in evaluated.lines)


def test_requests_are_denied_or_granted_by_configuration(fares: Evaluated) -> None:
    asker, denied = fares.by_config["asker"], fares.by_config["denied"]
    assert (asker.status, asker.approvals, asker.solved) == ("done", 1, True)
    assert "AGENTS.md" in fares.patch_of("asker")
    assert (denied.status, denied.approvals, denied.solved) == ("done", 1, True)
    assert "AGENTS.md" not in fares.patch_of("denied")
    assert (denied.verdict, denied.said_done) == ("unverified", False)  # no check passed without the file
    assert "Nobody can be asked" in fares.first_request("denied")
    assert "Nobody can be asked" not in fares.first_request("asker")


def test_the_agent_gets_the_issue_and_nothing_of_the_tests_or_the_reference(fares: Evaluated, slugs: Evaluated) -> None:
    for evaluated, [change] in ((fares, FARES.changes[:1]), (slugs, SLUGS.changes)):
        request = evaluated.first_request("solver")
        assert change.issue in request
        assert change.added[0].rpartition("::")[2] not in request
    # The configuration's instructions replace those of the repository, and its level the repository's.
    assert "British" in slugs.first_request("solver")
    assert "Look before you write." in slugs.first_request("quitter")
    assert "British" not in slugs.first_request("quitter")
    for result in slugs.by_config.values():
        assert ".github/codepilot.yml" not in (slugs.patch_of(result.config) if result.patch else "")


def test_tokens_are_counted_by_phase(fares: Evaluated) -> None:
    assert list(fares.by_config["solver"].tokens) == ["first"]
    liar, quitter = fares.by_config["liar"], fares.by_config["quitter"]
    assert (list(liar.tokens), liar.requests) == (["first", "write", "check"], 3)
    assert (list(quitter.tokens), quitter.requests) == (["first", "read"], 2)
    assert all(tokens.output for tokens in liar.tokens.values())
    assert liar.tokens["check"].cached > 0


async def test_a_replay_continues_after_a_kill_and_has_the_same_results(fares: Evaluated, tmp_path: Path) -> None:
    names = ("liar", "quitter")
    configs = [config for config in fares.configs if config.name in names]
    liar, quitter = (fares.by_config[name] for name in names)
    (tmp_path / "configs").mkdir()
    lines = [
        line for line in (fares.results / "results.jsonl").read_text().splitlines() if '"config":"quitter"' in line
    ]
    (tmp_path / "results.jsonl").write_text(f"{lines[0]}\n{lines[0][:-30]}")
    said = list[str]()
    options = RunOptions(suite=fares.suite, results=tmp_path, replay=fares.results / "recordings", tasks=("12-*",))
    replayed = await run_evaluation(options, configs, said.append)
    assert [line.split("  ")[1] for line in said if "  #1  " in line] == ["liar"]  # the other one is finished
    assert [replace(result, seconds=0.0) for result in replayed] == [
        replace(result, seconds=0.0) for result in (liar, quitter)
    ]
    assert (tmp_path / "patches" / liar.patch).read_text() == fares.patch_of("liar")
    [changed, _] = [replace(config, content=b"level: auto") for config in configs]
    with pytest.raises(ResultsError, match="The configuration liar has changed since its results"):
        await run_evaluation(options, [changed], said.append)


async def test_a_run_ends_at_the_limit_of_the_cost_and_none_is_started_after_it(
    fares: Evaluated, tmp_path: Path
) -> None:
    [config] = [config for config in fares.configs if config.name == "quitter"]
    recordings, said = tmp_path / "recordings", list[str]()
    recordings.mkdir()
    [recording] = (fares.results / "recordings").glob("*@quitter.1.1.jsonl")
    (recordings / recording.name).write_text(recording.read_text().replace('"cost_usd": 0.0', '"cost_usd": 0.3'))
    options = RunOptions(
        suite=fares.suite, results=tmp_path / "r", replay=recordings, tasks=("12-*",), repeat=3, jobs=2, max_usd=0.2
    )
    [result] = await run_evaluation(options, [config], said.append)
    assert (result.status, result.solved, result.cost_usd, result.requests) == ("error", None, 0.3, 1)
    assert result.error == "The cost limit of the evaluation ended this run."
    assert said[-1].startswith("2 of 3 runs were not started: the limit of $0.20 is reached.")
    assert await run_evaluation(options, [config], said.append) == (result,)  # what was spent before counts
    assert said[-1].startswith("3 of 3 runs were not started")
