"""Mine tasks from a repository's history: changes with tests, and the text of their issue, pull request or commit."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from github import Auth, Github, GithubException
from github.Repository import Repository

from bot.cli.app import raise_github_errors
from bot.domain.difference import TEST_PATH
from bot.evaluation import suite as suites
from bot.evaluation.bundle import add_base, unpack_bundle, write_bundle
from bot.evaluation.leaks import find_leaks
from bot.evaluation.suite import Refusal, SuiteError, SuiteHead, Task
from bot.git.diff import DiffEntry, parse_entries
from bot.git.errors import GitError
from bot.permissions.repo_config import MAX_BYTES, PATH, RepoConfigError, parse_config
from bot.prompt.sanitize import clean_line

if TYPE_CHECKING:
    import git

TEST_COMMAND = "python -m pytest -q"
_MAX_COMMITS = 200_000
_GIT_SECONDS = 120
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "protocol.allow": "never",
    "core.bigFileThreshold": "4m",
}
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_SETTINGS.values())},
}
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index", "--no-relative")
_OTHER_PATH = re.compile(
    r"(?:^|/)(?:docs?|\.github|changelog\.d|newsfragments)/|\.(?:md|rst|txt|adoc|lock|sum)$"
    r"|(?:^|/)(?:LICEN[CS]E|AUTHORS|CHANGE[^/]*|NEWS[^/]*|package(?:-lock)?\.json|pnpm-lock\.yaml|Cargo\.toml|go\.mod"
    r"|Gemfile|Pipfile|pyproject\.toml|setup\.cfg|requirements[^/]*|\.pre-commit-config\.yaml|\.gitignore)$"
)
"""Documents, lists of dependencies, and files for CI: a change of these alone is no task."""
_MERGED_PULL = re.compile(r"Merge pull request #(\d{1,9}) from \S+")
_SQUASHED = re.compile(r"(.*\S)\s+\(#(\d{1,9})\)")
_SYNCS = re.compile(r"Merge (?:branch '(?:main|master|develop|trunk)'|remote-tracking branch|tag )|Revert \"")
_FIXES = re.compile(r"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s{1,5}#(\d{1,9})\b", re.IGNORECASE)
_ORIGIN = re.compile(r"github\.com[:/]([\w.-]{1,100}/[\w.-]{1,100}?)(?:\.git)?/?")
_MIN_WORDS = 4
_MAX_LINKED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MineOptions:
    """The bounds of a mining, and the commands of its tasks; `setup` is by default that of the repository's file."""

    revision: str = "HEAD"
    since: str = ""
    limit: int = 20
    max_files: int = 20
    max_lines: int = 400
    test_command: str = TEST_COMMAND
    setup: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MineResult:
    """The result of a mining; changes without tests are no candidates."""

    tasks: tuple[Task, ...]
    refusals: tuple[Refusal, ...]
    scanned: int
    without_tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A task that is not written yet, and the tree of its base commit."""

    task: Task
    issue: str
    hidden: bytes
    reference: bytes
    tree: str
    at: int = 1_700_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskText:
    """The text of a change, and the numbers of its pull request."""

    title: str
    body: str
    link: str = ""
    numbers: tuple[int, ...] = ()


class RefusedError(Exception):
    """A change that is no task; the text is the reason."""


class Clone:
    """A user's own clone, read by GitPython without the user's configuration, hooks and network."""

    def __init__(self, path: Path) -> None:
        try:
            import git  # noqa: PLC0415 - starts two processes when it is imported
        except ImportError as error:
            raise SuiteError(f"GitPython or git is missing ({error}); install git and codepilot-bot[demo]") from error
        self._error = git.GitError
        try:
            self.repo = git.Repo(path)
        except git.GitError as error:
            raise SuiteError(f"{path} is not a git repository; clone it first: git clone URL {path}") from error
        self.repo.git.update_environment(**_ENVIRONMENT)
        self.objects = Path(self.repo.common_dir).absolute() / "objects"
        if self.read("rev-parse", "--show-object-format").strip() != b"sha1":
            raise SuiteError(f"{path}: repositories with SHA-256 are not supported.")

    def read(self, *args: str) -> bytes:
        command = [self.repo.git.GIT_PYTHON_GIT_EXECUTABLE, *args]
        try:
            return self.repo.git.execute(
                command, stdout_as_string=False, strip_newline_in_stdout=False, kill_after_timeout=_GIT_SECONDS
            )
        except self._error as error:
            reason = clean_line(str(getattr(error, "stderr", "") or error)[-300:], limit=300)
            raise SuiteError(f"{self.repo.git_dir}: git {args[0]}: {reason}") from error

    def resolve(self, revision: str) -> str:
        """Return the id of a commit or another object."""
        return self.read("rev-parse", "--verify", "--end-of-options", revision).decode().strip()

    def read_commits(self, options: MineOptions) -> Iterator[git.Commit]:
        """Read commits of the first parents, newest first."""
        dates: dict[str, Any] = {"since": options.since} if options.since else {}
        try:
            head = self.resolve(f"{options.revision}^{{commit}}")
        except SuiteError as error:
            raise SuiteError(f"{self.repo.git_dir} has no commit {clean_line(options.revision, limit=100)}") from error
        try:
            yield from self.repo.iter_commits(head, first_parent=True, max_count=_MAX_COMMITS, **dates)
        except self._error as error:
            raise SuiteError(f"{self.repo.git_dir}: the history cannot be read: {error}"[:500]) from error

    @property
    def name(self) -> str:
        """OWNER/NAME by the remote `origin`; empty for another server than github.com."""
        try:
            match = _ORIGIN.search(self.read("config", "--get", "remote.origin.url").decode(errors="replace").strip())
        except SuiteError:
            return ""
        return match[1] if match else ""


def read_pull_text(repo: Repository, number: int, message: str, before: int) -> TaskText | None:
    """Read the issue that a pull request closes, or the pull request; None without one.

    An issue that is newer than the change may tell it, and is left out.
    """
    with raise_github_errors(f"read #{number}"):
        try:
            pull = repo.get_pull(number)
        except GithubException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        for issue_number in dict.fromkeys(_FIXES.findall(f"{pull.body}\n{message}")[:_MAX_LINKED]):
            issue = repo.get_issue(int(issue_number))
            if issue.pull_request is None and issue.created_at.timestamp() < before:
                return TaskText(title=issue.title, body=issue.body or "", link=issue.html_url, numbers=(number,))
        return TaskText(title=pull.title, body=pull.body or "", link=pull.html_url, numbers=(number,))


def read_message(message: str) -> TaskText:
    """Read the message of a commit, a merge or a squashed pull request."""
    subject, _, body = message.strip().partition("\n")
    numbers: tuple[int, ...] = ()
    if match := _MERGED_PULL.match(subject):
        subject, _, body = body.strip().partition("\n")
        numbers = (int(match[1]),)
    elif match := _SQUASHED.fullmatch(subject[:1_000]):
        subject, numbers = match[1], (int(match[2]),)
    return TaskText(title=subject, body=body.strip(), numbers=numbers)


async def mine(
    repository: Path, suite: Path, options: MineOptions, *, name: str = "", token: str = "", api_url: str
) -> MineResult:
    """Add the tasks of a clone's history to a suite, which is created if it is missing.

    Args:
        token: for the texts of pull requests and issues; without it, commit messages are the texts.

    Raises:
        GitHubError: GitHub does not answer.
        SuiteError: the clone or the suite cannot be read.
    """

    def collect() -> tuple[list[Candidate], MineResult, Path, SuiteHead]:
        present = read_tasks(suite)
        mined, ids = {task.solution_commit for task in present}, {task.id for task in present}
        candidates, refusals, scanned, without_tests = list[Candidate](), list[Refusal](), 0, 0
        clone = Clone(repository)
        with clone.repo:
            full_name = name or clone.name
            if token and not full_name:
                raise SuiteError("The clone has no remote `origin` at github.com; name the repository: OWNER/NAME")
            auth = Auth.Token(token) if token else None
            github = Github(auth=auth, base_url=api_url, retry=None, timeout=30, lazy=True)
            miner = _Miner(clone, options, github.get_repo(full_name) if token else None)
            for commit in clone.read_commits(options):
                if len(candidates) >= options.limit:
                    break
                scanned += 1
                if commit.hexsha in mined:
                    continue
                try:
                    candidate = miner.read_candidate(commit, ids)
                    if candidate is None:
                        without_tests += 1
                    else:
                        candidates.append(candidate)
                        ids.add(candidate.task.id)
                    continue
                except RefusedError as error:
                    reason = str(error)
                except (LookupError, ValueError, SuiteError) as error:  # e.g. an encoding that does not exist
                    reason = f"it cannot be read: {clean_line(str(error), limit=300)}"
                refusals.append(Refusal(id=commit.hexsha[:12], stage="mine", commit=commit.hexsha, reason=reason))
            head = SuiteHead(
                repository=full_name or clean_line(repository.absolute().name, limit=100) or "repository",
                commit=clone.resolve(f"{options.revision}^{{commit}}"),
                date=f"{datetime.now(UTC):%Y-%m-%d}",
            )
        tasks = tuple(candidate.task for candidate in candidates)
        result = MineResult(tasks=tasks, refusals=tuple(refusals), scanned=scanned, without_tests=without_tests)
        return candidates, result, clone.objects, head

    candidates, result, objects, head = await asyncio.to_thread(collect)
    await store_candidates(suite, head, candidates, objects)
    suites.write_refusals(suite, "mine", result.refusals)
    return result


def read_tasks(suite: Path) -> tuple[Task, ...]:
    """Read the tasks of a suite that may not exist."""
    return suites.read_suite(suite).tasks if (suite / suites.SUITE_FILE).exists() else ()


async def store_candidates(suite: Path, head: SuiteHead, candidates: Sequence[Candidate], objects: Path) -> None:
    """Write new tasks and their base commits into a suite."""
    suites.write_suite(suite, head)
    with tempfile.TemporaryDirectory(prefix="codepilot-eval-") as folder:
        store = await unpack_bundle(suite, Path(folder) / "store.git", objects=[objects])
        try:
            for candidate in candidates:
                await add_base(store, candidate.task, candidate.tree, at=candidate.at)
            if candidates:
                await write_bundle(store, suite)
        except GitError as error:
            reason = clean_line(error.stderr[-300:], limit=300)
            raise SuiteError(
                f"The files of the base commits cannot be read; is the clone complete? {reason}"
            ) from error
    for item in candidates:
        suites.write_task(suite, item.task, issue=item.issue, hidden=item.hidden, reference=item.reference)


class _Miner:
    def __init__(self, clone: Clone, options: MineOptions, github: Repository | None) -> None:
        self._clone, self._options, self._github = clone, options, github
        self._commits = sorted(clone.read("rev-list", "--all", f"--max-count={_MAX_COMMITS}").decode().split())

    def read_candidate(self, commit: git.Commit, ids: Collection[str]) -> Candidate | None:
        """Read the task of a commit, with an id of its own; None unless it changes tests and source files.

        Raises:
            RefusedError: the change is no task.
        """
        if not commit.parents:
            return None
        base, clone = commit.parents[0], self._clone
        formats = ("-r", "-z", "--raw", "--numstat", "--abbrev=40", *_DIFF[:4])
        tests, source, other = list[DiffEntry](), list[DiffEntry](), list[DiffEntry]()
        for entry in parse_entries(clone.read("diff-tree", *formats, base.hexsha, commit.hexsha)):
            path = os.fsdecode(entry.path)
            (tests if TEST_PATH.search(path) else other if _OTHER_PATH.search(path) else source).append(entry)
        if not tests or not source:
            return None
        message = str(commit.message)
        self._check_change(message, tests, [*source, *other])
        text = read_message(message)
        if self._github is not None and text.numbers:
            text = read_pull_text(self._github, text.numbers[0], message, commit.committed_date) or text
        hidden, reference = (
            clone.read("diff", *_DIFF, base.hexsha, commit.hexsha, "--", *(os.fsdecode(entry.path) for entry in group))
            for group in (tests, [*source, *other])
        )
        old = [clone.read("cat-file", "blob", entry.old_blob) for entry in source if entry.old_mode]
        leaks = find_leaks(reference, hidden, old, numbers=text.numbers, commits=self._commits)
        title = clean_line(leaks.cut_references(text.title), limit=300)
        body = leaks.cut(text.body[: suites.MAX_ISSUE_CHARS // 2])
        if code := leaks.find_code(title):
            raise RefusedError(f"its title has code of the change: {clean_line(code, limit=100)}")
        if len(f"{title} {body}".split()) < _MIN_WORDS:
            raise RefusedError("its text has too few words for a task")
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower())[:40].strip("-")
        task_id = f"{text.numbers[0] if text.numbers else commit.hexsha[:10]}-{slug}".rstrip("-")
        task = Task(
            id=task_id if task_id not in ids else f"{task_id}-{commit.hexsha[:10]}",
            title=title,
            link=clean_line(text.link, limit=500),
            base_commit=base.hexsha,
            solution_commit=commit.hexsha,
            setup=self._read_setup(base.hexsha) if self._options.setup is None else self._options.setup,
            test_command=self._options.test_command,
        )
        return Candidate(
            task=task,
            issue=f"{body}\n" if body else "",
            hidden=hidden,
            reference=reference,
            tree=base.tree.hexsha,
            at=max(0, base.committed_date),
        )

    def _check_change(self, message: str, tests: Sequence[DiffEntry], other: Sequence[DiffEntry]) -> None:
        entries, options = [*tests, *other], self._options
        lines = sum(entry.added + entry.removed for entry in other)
        links = {"120000", "160000"}
        for is_refused, reason in (
            (_SYNCS.match(message), "it merges another branch, or reverts a change"),
            (len(entries) > options.max_files, f"it changes {len(entries)} files; the limit is {options.max_files}"),
            (lines > options.max_lines, f"it changes {lines} lines beside its tests; the limit is {options.max_lines}"),
            (any(links & {entry.old_mode, entry.new_mode} for entry in entries), "it changes a link or a submodule"),
            (any(entry.binary for entry in other), "it changes a binary file"),
            (sum(entry.added for entry in tests) > 10 * options.max_lines, "its tests have too many lines"),
            (not any(entry.added or entry.binary for entry in tests), "it adds no test"),
        ):
            if is_refused:
                raise RefusedError(reason)

    def _read_setup(self, commit: str) -> tuple[str, ...]:
        try:
            return tuple(parse_config(self._clone.read("cat-file", "blob", f"{commit}:{PATH}")[: MAX_BYTES + 1]).setup)
        except (SuiteError, RepoConfigError):  # no file, or one for another version
            return ()
