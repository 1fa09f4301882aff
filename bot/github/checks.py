"""Check runs: our own, and those that went wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bot.github import parsing
from bot.github.accounts import Accounts
from bot.github.connection import GitHubConnection
from bot.github.drafts import ANNOTATION_LIMIT, CHECK_TEXT_LIMIT, TITLE_LIMIT, Annotation, CheckDraft
from bot.github.errors import GitHubError
from bot.github.models import CheckFacts, RedCheck
from bot.intake.red_checks import FAILED

log = logging.getLogger(__name__)

ANNOTATIONS_A_REQUEST = 50
"""https://docs.github.com/rest/checks/runs#update-a-check-run"""

_RED_STATUS = frozenset({"failure", "error"})
_RED_READ = 20
_ANNOTATIONS_READ = 50


@dataclass(frozen=True, slots=True)
class Checks:
    """Check runs and commit statuses."""

    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)
    accounts: Accounts

    async def create(self, repo: str, draft: CheckDraft) -> CheckFacts:
        """Make a check run. Not repeated on a server error: look with `find` first, then call again."""
        what, path = f"create a check run in {repo}", f"/repos/{repo}/check-runs"
        body = self._check(draft) | {"head_sha": draft.head_sha, "external_id": draft.external_id}
        made = parsing.check(await self.connection.json(what, "POST", path, body))
        return await self._annotate(repo, made, draft) if draft.annotations else made

    async def update(self, repo: str, check_id: int, draft: CheckDraft) -> CheckFacts:
        """Make a check run of ours say what `draft` says; only annotations that it does not have yet are sent."""
        what, path = f"update a check run in {repo}", f"/repos/{repo}/check-runs/{check_id}"
        body = self._check(draft) | {"external_id": draft.external_id}
        made = parsing.check(await self.connection.json(what, "PATCH", path, body))
        return await self._annotate(repo, made, draft) if draft.annotations else made

    async def find(self, repo: str, draft: CheckDraft) -> tuple[CheckFacts, ...]:
        """The check runs that earlier tries made of a draft; known by the job in its external id, and by its App."""
        query: dict[str, Any] = {"check_name": draft.name, "filter": "all"}
        if (app_id := (await self.accounts.me()).app_id) is not None:
            query["app_id"] = app_id
        job = draft.external_id.rpartition(":")[0]
        path = f"/repos/{repo}/commits/{draft.head_sha}/check-runs"
        entries = self.connection.entries(f"look for a check run in {repo}", path, query, within="check_runs")
        return tuple(
            [
                parsing.check(each)
                async for each in entries
                if str(each.get("external_id") or "").rpartition(":")[0] == job
            ]
        )

    async def failing(self, repo: str, sha: str) -> tuple[RedCheck, ...]:
        """What is red about a commit: other Apps' check runs with their first annotations, and commit statuses.

        Statuses need a permission of their own; without it the check runs are all.
        """
        ours, commit = (await self.accounts.me()).app_id, f"/repos/{repo}/commits/{sha}"
        what = f"read the checks of {sha[:10]} of {repo}"
        red: list[RedCheck] = []
        async for each in self.connection.entries(
            what, f"{commit}/check-runs", {"filter": "latest"}, within="check_runs"
        ):
            theirs = ours is None or (each.get("app") or {}).get("id") != ours
            if theirs and each.get("conclusion") in FAILED and len(red) < _RED_READ:
                annotated = bool((each.get("output") or {}).get("annotations_count"))
                said = await self.annotations(repo, int(each["id"]), _ANNOTATIONS_READ) if annotated else ()
                red.append(parsing.red_check(each, said))
        try:
            what = f"read the statuses of {sha[:10]} of {repo}"
            answer = await self.connection.read(what, f"{commit}/status", {"per_page": 100})
        except GitHubError as error:
            if error.passing:
                raise
            log.warning("%s", error)
            return tuple(red)
        statuses = [each for each in answer.get("statuses", ()) if each.get("state") in _RED_STATUS]
        return (*red, *map(parsing.red_status, statuses[:_RED_READ]))

    async def annotations(self, repo: str, check_id: int, most: int) -> tuple[Annotation, ...]:
        """The first annotations of a check run; a workflow's job is one."""
        path = f"/repos/{repo}/check-runs/{check_id}/annotations"
        found = await self.connection.read(f"read annotations in {repo}", path, {"per_page": most})
        return tuple(map(parsing.annotation, found))

    def _check(self, draft: CheckDraft) -> dict[str, Any]:
        output = {
            "title": self._fit(draft.title, TITLE_LIMIT),
            "summary": self._fit(draft.summary, CHECK_TEXT_LIMIT),
        }
        if draft.text:
            output["text"] = self._fit(draft.text, CHECK_TEXT_LIMIT)
        body: dict[str, Any] = {"name": draft.name, "status": draft.status, "output": output}
        body["actions"] = [asdict(button) for button in draft.buttons]
        return body if draft.conclusion is None else body | {"conclusion": draft.conclusion}

    async def _annotate(self, repo: str, check: CheckFacts, draft: CheckDraft) -> CheckFacts:
        """Add what is missing, fifty at a time. Not repeated on a server error: the next call counts what arrived."""
        path = f"/repos/{repo}/check-runs/{check.id}"
        output = self._check(draft)["output"]
        for start in range(check.annotations, len(draft.annotations), ANNOTATIONS_A_REQUEST):
            batch = [self._annotation(each) for each in draft.annotations[start : start + ANNOTATIONS_A_REQUEST]]
            body = {"output": output | {"annotations": batch}}
            answer = await self.connection.json(f"annotate in {repo}", "PATCH", path, body, repeat=False)
            check = parsing.check(answer)
        return check

    def _annotation(self, each: Annotation) -> dict[str, Any]:
        said = {
            "path": each.path,
            "start_line": each.start_line,
            "end_line": each.end_line,
            "annotation_level": each.level,
            "message": self._fit(each.message, ANNOTATION_LIMIT),
        }
        return said | {"title": self._fit(each.title, TITLE_LIMIT)} if each.title else said

    def _fit(self, text: str, limit: int) -> str:
        # What stands for a secret may be longer than the secret.
        return self.redact(text)[:limit]
