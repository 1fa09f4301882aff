"""A hub with repositories to fix, the commands given there, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.bench_delivery import SECRET
from localhub import App, Exchange, LocalHub, Repo
from tests.origin import git

_UNDER_WAY = ("Working on it", "Waiting its turn")
_BUG, _RIGHT = "def add(a, b):\n    return a + b + 1\n", "def add(a, b):\n    return a + b\n"
_FILES = {"calc.py": _BUG, "check.sh": "sleep 0.1; grep -qx '    return a + b' calc.py\n"}
LOOK = 'Looking.\n```codepilot\nexecute("main", "sleep 0.3; cat calc.py")\n```\n'
FIX = f"""Fixing.
```codepilot
write_file("calc.py")
execute("main", "sh check.sh", check=True)
```
```python
{_RIGHT}```
```completion
Fixed.
```
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command and its thread."""

    repo: Repo
    number: int


@dataclass(slots=True, kw_only=True)
class World:
    """The hub and the commands.

    Attributes:
        hub: the hub.
        app: the bot's App there.
        repos: each of an account, and so an installation, of its own.
        tasks: all commands.
        requests: how many requests the hub has answered.
    """

    hub: LocalHub
    app: App
    repos: Sequence[Repo]
    tasks: list[Task] = field(default_factory=list)
    requests: int = 0
    _open: list[Task] = field(default_factory=list)

    @classmethod
    def on(cls, hub: LocalHub, owners: int) -> World:
        """Make the repositories on a hub."""
        app = hub.add_app("codepilot", webhook_secret=SECRET, events=["issue_comment"])
        repos = []
        for number in range(owners):
            hub.add_user(f"mona{number}")
            repos.append(hub.add_repo(f"mona{number}/calc", owner=f"mona{number}", files=_FILES))
            hub.install(app, repos[-1])
        world = cls(hub=hub, app=app, repos=repos)
        hub.observe(on_exchange=world._served)
        return world

    def ask(self) -> None:
        """Give a command in an issue of its own."""
        repo = self.repos[len(self.tasks) % len(self.repos)]
        issue = self.hub.open_issue(repo, author=repo.owner, title=f"It is wrong {len(self.tasks)}")
        self.hub.comment(repo, issue.number, author=repo.owner, body="/codepilot fix")
        task = Task(repo=repo, number=issue.number)
        self.tasks.append(task)
        self._open.append(task)

    def under_way(self) -> int:
        """Count the commands without a final comment."""
        self._open = [task for task in self._open if not _has_last_words(self._bot_comments(task))]
        return len(self._open)

    def is_over(self) -> bool:
        """Whether every command has its last word, and every check run its end."""
        return not self.under_way() and all(
            run.status == "completed" for repo in self.repos for run in self.hub.check_runs(repo)
        )

    def listen_at(self, address: str) -> None:
        """Have deliveries sent there."""
        self.hub.set_webhook(self.app, address, SECRET)

    def redeliver(self) -> int:
        """Redeliver every unaccepted delivery; return their number."""
        attempts = [each for each in self.hub.deliveries if each.event == "issue_comment"]
        taken = {each.guid for each in attempts if each.status == "pending" or 0 < each.status_code < 500}
        unheard = {each.guid for each in attempts} - taken
        for guid in sorted(unheard):
            self.hub.redeliver(guid)
        return len(unheard)

    def faults(self) -> list[str]:
        """List the faults in the results of commands."""
        runs = {(repo.id, run.id): run for repo in self.repos for run in self.hub.check_runs(repo)}
        named = Counter((repo_id, run.name) for (repo_id, _), run in runs.items())
        faults = [f"check run {run.name} is {run.status}" for run in runs.values() if run.status != "completed"]
        for task in self.tasks:
            said, place = self._bot_comments(task), f"{task.repo.full_name}#{task.number}"
            branches = [
                each for each in self.hub.branches(task.repo) if each.startswith(f"codepilot/issue-{task.number}-")
            ]
            pulls = [each for each in self.hub.issues(task.repo) if each.pull and each.pull.head_ref in branches]
            commits = [int(git(task.repo.path, "rev-list", "--count", f"main..{each}")) for each in branches]
            counts = {
                "comments": len(said),
                "branches": len(branches),
                "commits": sum(commits),
                "pull requests": len(pulls),
                "check runs": named[task.repo.id, f"Codepilot fix #{task.number}"],
            }
            words = " | ".join(said)[:300]
            faults += [f"{place}: {count} {what}: {words}" for what, count in counts.items() if count != 1]
            if not any("Done" in body for body in said):
                faults.append(f"{place}: did not end as done: {words}")
        return faults

    def _bot_comments(self, task: Task) -> list[str]:
        """List the bot's comments about a task."""
        return [each.body for each in self.hub.comments(task.repo, task.number) if each.author_id == self.app.bot.id]

    def _served(self, _: Exchange) -> None:
        self.requests += 1


def _has_last_words(comments: Sequence[str]) -> bool:
    return bool(comments) and not any(state in body for body in comments for state in _UNDER_WAY)
