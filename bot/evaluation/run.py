"""`codepilot eval run`: the bot on each task with each configuration, within limits on parallelism and cost.

A change is judged by the task's named tests, the hidden ones among them, in a fresh sandbox. Tests and their settings
are the task's own: what the change did to them does not count.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from agent_runtime import (
    BoundExceededError,
    Provider,
    RecordingProvider,
    ReplayProvider,
    pick_sandbox,
    run_bounded,
)
from bot.domain.errors import BotError
from bot.evaluation.bundle import PatchError, prepare_tree, unpack_bundle
from bot.evaluation.results import EvalResult, ResultsWriter, open_results
from bot.evaluation.suite import Suite, Task, read_suite
from bot.evaluation.trial import EvalConfig, EvaluationError, Meter, Trial, TrialEnd, run_trial
from bot.evaluation.validate import RunPlace, RunReport, fingerprint, read_pytest_settings, run_tests
from bot.git.filesystem import discard, run_thread
from bot.git.process import Git
from bot.permissions.repo_config import PATH
from bot.server.build import build_model, sandbox_settings
from bot.settings.load import bypass_proxies
from bot.settings.models import AgentSettings

log = logging.getLogger(__name__)

_DIFF = ("diff", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_TEST_FOLDERS = {"test", "tests"}
_OWN = re.compile(
    r"(?:^|/)(?:conftest\.py|\.?pytest\.(?:ini|toml)|(?:site|user)customize(?:/__init__)?\.(?:py|so))$"
    r"|\.(?:dist|egg)-info(?:/|$)|\.py[co]$",
    re.IGNORECASE,
)
"""Pytest's own files, metadata by which it finds plugins, modules that run before it, and code without a source."""
_MODULE = re.compile(r"(?P<folder>src/)?(?P<name>\w+)(?:/__init__)?\.(?:py|[\w.-]*so)")
_PYTEST = {"_pytest", "pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli"}
"""Modules of pytest, which new ones at the root, or in `src`, would replace; those of Python at the root, too."""
_SHARED = re.compile(r"(?:^|/)(?:pyproject\.toml|setup\.cfg|tox\.ini)$")
"""Files in which pytest has a section."""
_RUNNERS = {"makefile": "make", "gnumakefile": "make", "justfile": "just", "noxfile.py": "nox", "tox.ini": "tox"}
"""Files at the root with the commands of programs that start tests."""
_SEPARATORS = re.compile(r"[\s;&|()='\"]+")
_MAX_BYTES = 1024**2
_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `codepilot eval run`.

    Attributes:
        tasks: ids or patterns; empty for all.
        max_usd: limit of all runs in the results together; None for no limit.
        record: whether to record each run in the results.
        replay: recordings of an earlier evaluation, in place of the models.
    """

    suite: Path
    results: Path
    repeat: int = 1
    jobs: int = 1
    max_usd: float | None = None
    tasks: tuple[str, ...] = ()
    record: bool = False
    replay: Path | None = None


async def run_evaluation(
    options: RunOptions, configs: Sequence[EvalConfig], say: Callable[[str], None]
) -> tuple[EvalResult, ...]:
    """Run what has no result yet; return the results of all runs that were asked for.

    A run with an error is repeated. Cancelled, it keeps the results so far.

    Raises:
        EvaluationError: the options, or a configuration, do not fit the suite or the results.
        SuiteError: the suite cannot be read.
        ResultsError: the results cannot be read or written.
    """
    suite = await run_thread(read_suite, options.suite)
    tasks = await run_thread(_choose_tasks, suite, options.tasks, say)
    bypass_proxies("127.0.0.1")  # where the hubs are
    directory = Path(tempfile.mkdtemp(prefix="codepilot-eval-"))
    try:
        with open_results(options.results) as writer:
            for config in configs:
                writer.add_config(config.name, config.content)
            if options.max_usd is not None and any(result.cost_usd is None for result in writer.results):
                raise EvaluationError(
                    "The price of a model in the results is unknown, so --max-usd cannot hold; leave it out."
                )
            limit = CostLimit(options.max_usd, sum(result.cost_usd or 0.0 for result in writer.results))
            trials = [
                Trial(task=task, issue=await run_thread(suite.read_issue, task), config=config, attempt=attempt)
                for attempt, task, config in product(range(1, options.repeat + 1), tasks, configs)
            ]
            ended = {result.key for result in writer.results if result.status != "error"}
            store = await unpack_bundle(suite.path, directory / "suite.git")
            runner = _Runner(
                options=options,
                suite=suite,
                store=store,
                directory=directory,
                writer=writer,
                limit=limit,
                say=say,
            )
            try:
                await runner.run([trial for trial in trials if trial.key not in ended])
            except* BotError as errors:
                raise errors.exceptions[0] from None
            latest = {result.key: result for result in writer.results}
            return tuple(latest[trial.key] for trial in trials if trial.key in latest)
    finally:
        discard(directory)


def _choose_tasks(suite: Suite, patterns: Sequence[str], say: Callable[[str], None]) -> list[Task]:
    for pattern in patterns:
        if not any(fnmatchcase(task.id, pattern) for task in suite.tasks):
            raise EvaluationError(f"{suite.path} has no task {pattern}; its folders are the tasks.")
    chosen = [
        task for task in suite.tasks if not patterns or any(fnmatchcase(task.id, pattern) for pattern in patterns)
    ]
    tasks = [task for task in chosen if task.validated and task.validated.fingerprint == fingerprint(suite, task)]
    if len(tasks) < len(chosen):
        skipped = f"{len(chosen) - len(tasks)} of {len(chosen)} tasks are skipped"
        say(f"{skipped}, because they are not validated, or were edited since: codepilot eval validate {suite.path}")
    if not tasks:
        raise EvaluationError(f"{suite.path} has no validated task.")
    return tasks


class CostLimit:
    """The budget of all runs together. The budgets of runs under way count as spent."""

    def __init__(self, most: float | None, spent: float) -> None:
        self._most, self._spent, self._reserved = most, spent, 0.0
        self._changed = asyncio.Condition()

    async def reserve(self, most: float | None) -> float | None:
        """Return a run's budget: `most`, or all that is left if no run under way can return some; 0 if none."""
        if self._most is None:
            return most
        async with self._changed:
            while True:
                # Rounded, so that no run is started for what is left of adding up.
                rest = max(0.0, round(self._most - self._spent - self._reserved, 6))
                if (most is not None and most <= rest) or not self._reserved:
                    budget = rest if most is None else min(most, rest)
                    self._reserved += budget
                    return budget
                await self._changed.wait()

    async def settle(self, budget: float | None, cost: float | None) -> None:
        """Release a budget after a run; an unknown cost counts as the whole of it."""
        async with self._changed:
            self._reserved = round(self._reserved - (budget or 0.0), 6)  # 0.1 + 0.2 - 0.1 - 0.2 is not 0
            self._spent += (budget or 0.0) if cost is None else cost
            self._changed.notify_all()


@dataclass(slots=True, kw_only=True)
class _Runner:
    """Runs trials in parallel, each with a hub and a directory of its own."""

    options: RunOptions
    suite: Suite
    store: Git
    directory: Path
    writer: ResultsWriter
    limit: CostLimit
    say: Callable[[str], None]
    left_out: int = 0

    async def run(self, trials: Sequence[Trial]) -> None:
        pending = list(reversed(trials))

        async def work() -> None:
            while pending:
                await self._run_within_limit(pending.pop())

        # As many as fit into the memory by the limits of their sandboxes.
        need = max((trial.config.agent.sandbox_limits.memory_bytes for trial in trials), default=1)
        jobs = max(1, min(self.options.jobs, available_memory() // need))
        if jobs < self.options.jobs:
            self.say(
                f"Runs in parallel: {jobs}, not {self.options.jobs}, for lack of memory. Each may use "
                f"{need / 1024**3:.1f} GiB; a configuration with `sandbox_limits: memory=2GiB` needs less."
            )
        async with asyncio.TaskGroup() as group:
            for _ in range(min(jobs, len(trials))):
                group.create_task(work())
        if self.left_out:
            self.say(
                f"{self.left_out} of {len(trials)} runs were not started: the limit of "
                f"${self.options.max_usd:.2f} is reached. Give the same command with a higher --max-usd to continue."
            )

    async def _run_within_limit(self, trial: Trial) -> None:
        agent = trial.config.agent
        budget = await self.limit.reserve(agent.max_cost_usd)
        if budget == 0:
            self.left_out += 1
            return
        model = agent.model.replace("{task}", trial.task.id) if agent.provider == "scripted" else agent.model
        agent = replace(agent, max_cost_usd=budget, model=model)
        is_cut = budget != trial.config.agent.max_cost_usd
        trial = replace(trial, config=replace(trial.config, agent=agent), is_cut=is_cut)
        meter = Meter()
        try:
            result = await self._attempt(trial, meter)
        except asyncio.CancelledError:
            if meter.total.requests:  # its cost counts
                self.writer.append(trial.fail("The evaluation was interrupted.", meter))
            raise
        finally:
            await self.limit.settle(budget, meter.total.cost_usd)
        self.writer.append(result)
        self.say(result.sentence)

    async def _attempt(self, trial: Trial, meter: Meter) -> EvalResult:
        directory, replays = Path(tempfile.mkdtemp(prefix="run-", dir=self.directory)), list[ReplayProvider]()
        try:
            end = await run_trial(
                trial,
                self.store,
                self.suite.head.repository,
                directory,
                meter=meter,
                provider=self._model_factory(trial, replays),
            )
            return await self._judge(trial, end, directory)
        except Exception as error:  # one run must not end the others
            log.warning("the run %s has failed", trial.stem, exc_info=error)
            return trial.fail(str(error) or type(error).__name__, meter)
        finally:
            if differences := [text for replay in replays for text in replay.differences]:
                self.say(f"{trial.stem}: {len(differences)} requests are not as recorded. {differences[0]}")
            await run_thread(discard, directory)

    async def _judge(self, trial: Trial, end: TrialEnd, directory: Path) -> EvalResult:
        if not end.commit or end.result.error:
            return replace(end.result, solved=None if end.result.error else False)
        patch = f"{trial.stem}.patch"
        content = await read_change(end)
        await run_thread((self.writer.directory / "patches" / patch).write_bytes, content)
        result = replace(end.result, patch=patch, solved=False)
        if not end.has_pull:
            return result
        agent = replace(trial.config.agent, data_dir=directory / "bot")
        place = open_place(agent)
        hidden = await run_thread(self.suite.read_hidden, trial.task)
        judgement = await judge_change(
            end, trial.task, hidden, suite=self.store, place=place, tree=directory / "judged"
        )
        return replace(result, tests=judgement.tests, solved=judgement.solved)

    def _model_factory(self, trial: Trial, replays: list[ReplayProvider]) -> Callable[[], Provider] | None:
        """Return a factory that records, or replays and adds to `replays`.

        A run that waits for an approval makes a model for each of its parts.
        """
        options, agent, number = self.options, trial.config.agent, 0
        if not options.record and options.replay is None:
            return None
        secrets = [secret.get_secret_value() for secret in agent.secrets]
        folder = self.writer.directory / "recordings"

        def make() -> Provider:
            nonlocal number
            number += 1
            name = f"{trial.stem}.{number}.jsonl"
            if options.replay is not None:
                # Not strictly: the first message depends on how fast the machine is.
                replay = ReplayProvider(options.replay / name, strict=False, secrets=secrets)
                replays.append(replay)
                return replay
            folder.mkdir(exist_ok=True)
            (folder / name).unlink(missing_ok=True)  # of a run that failed or was interrupted
            return RecordingProvider(build_model(agent), folder / name, secrets=secrets)

        return make


def open_place(agent: AgentSettings) -> RunPlace:
    """Return the sandbox and the networks of the operator's settings."""
    return RunPlace(
        sandbox=pick_sandbox(agent.sandbox, sandbox_settings(agent)),
        setup_network=agent.network if agent.setup_network is None else agent.setup_network,
        network=agent.network,
        setup_seconds=agent.setup_seconds,
    )


def available_memory() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    tests: Mapping[str, bool]
    solved: bool


async def judge_change(
    end: TrialEnd, task: Task, hidden: bytes, *, suite: Git, place: RunPlace, tree: Path
) -> Judgement:
    """Run the named tests on the task's files with the change, in the new directory `tree`.

    Raises:
        SuiteError: the hidden tests do not apply to the task's base.
    """
    git, tests = Git(git_dir=end.repository), (*task.fail_to_pass, *task.pass_to_pass)
    counted = await list_counted_files(git, end, tests, command=task.test_command)
    change = b""
    if counted:
        change = await git.run(*_DIFF, end.base, end.commit, "--", *(b":(top,literal)" + name for name in counted))
    try:
        await prepare_tree(suite, task, tree, change=change, hidden=hidden)
        [report] = await run_tests(tree, task, place)
    except PatchError:  # without its tests the change fits nothing, such as a link in the place of their folder
        report = RunReport()
    passed = {test: report.tests.get(test, False) for test in tests}
    return Judgement(tests=passed, solved=bool(passed) and all(passed.values()))


async def read_change(end: TrialEnd) -> bytes:
    """Return the whole change as a patch, without the configuration's file."""
    exclusion = f":(top,exclude,literal){PATH}"
    return await Git(git_dir=end.repository).run(*_DIFF, end.base, end.commit, "--", ":(top)", exclusion)


async def list_counted_files(git: Git, end: TrialEnd, tests: Collection[str], *, command: str = "") -> list[bytes]:
    """Return the changed files that count; the tests' own files, and those that decide how they are run, do not."""
    files, folders = {test.partition("::")[0] for test in tests}, set()
    words = {word.removeprefix("./") for word in _SEPARATORS.split(command)}
    for parts in (file.split("/")[:-1] for file in files):
        depth = next((place for place, part in enumerate(parts, start=1) if part in _TEST_FOLDERS), 0)
        folders |= {"/".join(parts[:depth])} if depth else set()
    counted = []
    names = await git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", end.base, end.commit)
    for name in filter(None, names.split(b"\0")):
        path = name.decode("utf-8", "surrogateescape")
        parts = path.split("/")
        is_test = path in files or any("/".join(parts[:depth]) in folders for depth in range(1, len(parts) + 1))
        is_runner = path in words or _RUNNERS.get(path.lower()) in words
        if is_test or is_runner or path == PATH or _OWN.search(path) or await _is_shadow(git, end, path):
            continue
        if (
            _SHARED.search(path)
            and len({await _settings_of(git, commit, name) for commit in (end.base, end.commit)}) > 1
        ):
            continue
        counted.append(name)
    return counted


async def _is_shadow(git: Git, end: TrialEnd, path: str) -> bool:
    """Whether a new module replaces one of pytest or of Python for `python -m pytest`."""
    module = _MODULE.fullmatch(path)
    replaced = _PYTEST if module and module["folder"] else _PYTEST | sys.stdlib_module_names
    return module is not None and module["name"] in replaced and not await git.text("ls-tree", end.base, "--", path)


async def _settings_of(git: Git, commit: str, name: bytes) -> str:
    """Return pytest's settings in a file; one that is not there has none."""
    content = b""
    if (await git.run("ls-tree", "-z", commit, "--", b":(top,literal)" + name)).strip():
        content = await git.read_head(_MAX_BYTES + 1, "cat-file", "blob", commit.encode() + b":" + name)
    if len(content) > _MAX_BYTES:
        return f"too large in {commit}"
    try:
        return await run_bounded(
            read_pytest_settings, name.endswith(b".toml"), content, seconds=_SECONDS, task="Reading pytest's settings"
        )
    except (BoundExceededError, ValueError) as error:
        return f"unreadable in {commit}: {error}"
