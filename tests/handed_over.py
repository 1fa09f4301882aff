"""A thread in which each comment starts a workflow run of its own, on a machine of its own."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.action.step import work_step
from bot.domain.job import JobState
from bot.events.delivery import IgnoredDelivery
from bot.jobs.handover import SESSION_FILE
from bot.settings.load import load_action
from localhub import LocalHub, Repo, User
from tests.stage import build

SESSION_KEY = "acceptance-session-key-0123456789abcdef"


@dataclass(slots=True, kw_only=True)
class Handed:
    """What a test works with.

    Attributes:
        script: what the model says in the next run.
        sealed: what each run has kept, by its number.
    """

    hub: LocalHub
    repo: Repo
    runner: User
    number: int
    directory: Path
    payloads: dict[str, Mapping[str, Any]]
    runs: int = 0
    sealed: dict[int, bytes] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, str]:
        """What the last run's step has given out, each on one line."""
        written = (self.directory / f"run-{self.runs}" / "outputs").read_text(encoding="utf-8")
        return {name: value for name, _, value in re.findall(r"^([a-z-]+)<<(.*)\n(.*)\n\2$", written, re.MULTILINE)}

    @property
    def status(self) -> str:
        """The status comment."""
        return self.hub.comments(self.repo, self.number)[1].body

    @property
    def last(self) -> str:
        """The newest comment."""
        return self.hub.comments(self.repo, self.number)[-1].body

    @property
    def name(self) -> str:
        """What the thread's artifact is called."""
        return f"codepilot-session-{self.number}"

    def request_id(self) -> str:
        """The request that the comment shows."""
        return self.status.partition("/codepilot approve ")[2].split()[0].strip("`")

    async def say(
        self,
        body: str,
        *replies: str | Mapping[str, str],
        author: str = "mona",
        keep: bool = True,
        hours: int | None = None,
        **variables: str,
    ) -> JobState | IgnoredDelivery:
        """Comment, and have a workflow run on that with a token and a disk of its own.

        Args:
            body: the comment.
            replies: the model's.
            author: whose.
            keep: whether what the run wants kept becomes an artifact.
            hours: for which a request waits.
            variables: beside what every run has.
        """
        self.hub.comment(self.repo, self.number, author=author, body=body)
        self.runs += 1
        place = self.directory / f"run-{self.runs}"
        place.mkdir()
        (place / "event.json").write_text(json.dumps(self.payloads["issue_comment"]))
        script = [{"reply": each} if isinstance(each, str) else each for each in replies]
        (place / "script.yaml").write_text(json.dumps(script or [{"reply": "Nothing."}]))
        usual = {
            "GITHUB_TOKEN": self._token(),
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_EVENT_NAME": "issue_comment",
            "GITHUB_REPOSITORY": self.repo.full_name,
            "GITHUB_RUN_ID": str(40 + self.runs),
            "GITHUB_API_URL": self.hub.api_url,
            "GITHUB_SERVER_URL": self.hub.url,
            "GITHUB_STEP_SUMMARY": str(place / "summary"),
            "GITHUB_OUTPUT": str(place / "outputs"),
            "CODEPILOT_PROVIDER": "scripted",
            "CODEPILOT_MODEL": str(place / "script.yaml"),
            "CODEPILOT_DATA_DIR": str(place / "data"),
            "CODEPILOT_NETWORK": "pypi.org",
            "CODEPILOT_APPROVALS": "artifact",
            "CODEPILOT_SESSION_KEY": SESSION_KEY,
        }
        settings = load_action({**usual, **variables})
        if hours is not None:
            settings = replace(settings, agent=replace(settings.agent, approval_hours=hours))
        end = await work_step(settings)
        if end.session_file is not None:
            self.sealed[self.runs] = end.session_file.read_bytes()
            if keep:
                self.keep(self.sealed[self.runs])
        return end.ended

    def _token(self) -> str:
        """GitHub gives each run a token of its own, and takes the one before back."""
        token = f"ghs_{secrets.token_hex(18)}"
        self.hub._site.store.users.put(replace(self.runner, token=token))
        return token

    def keep(self, sealed: bytes, *, file: str = SESSION_FILE, fork: Repo | None = None, days: int = 90) -> None:
        """Have a run keep an artifact of the thread's name."""
        self.hub.keep_artifact(self.repo, self.name, {file: sealed}, run_id=40 + self.runs, fork=fork, days=days)


def handed(hub: LocalHub, directory: Path, *, pull: bool = False) -> Handed:
    """A fresh repository with the bug, and an issue, or a pull request from its branch `topic`."""
    payloads: dict[str, Mapping[str, Any]] = {}
    _, repo = build(hub)
    runner = hub.add_user("github-actions[bot]", kind="Bot")
    hub.add_collaborator(repo, runner.login, "write")
    hub.observe(on_delivery=payloads.__setitem__)
    if pull:
        hub.commit(repo, {"topic.txt": "A topic.\n"}, message="Add a topic", author="mona", branch="topic")
        issue = hub.open_pull(repo, author="mona", head="topic", title="Add a topic", body="As discussed.")
    else:
        issue = hub.open_issue(repo, author="mona", title="Adding is off by one")
    return Handed(hub=hub, repo=repo, runner=runner, number=issue.number, directory=directory, payloads=payloads)
