"""Check runs: our own, and those that went wrong."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from bot.github import parsing, parsing_talk
from bot.github.drafts import ANNOTATION_LIMIT, CHECK_TEXT_LIMIT, TITLE_LIMIT, Annotation, CheckDraft
from bot.github.errors import GitHubError
from bot.github.facts import CheckFacts, RedCheck, RunFacts
from bot.github.reading import Reading

log = logging.getLogger(__name__)

ANNOTATIONS_A_REQUEST = 50
"""https://docs.github.com/rest/checks/runs#update-a-check-run"""

_RED = frozenset({"failure", "timed_out", "startup_failure"})
_RED_STATUS = frozenset({"failure", "error"})
_NO_VERDICT = frozenset({"cancelled", "skipped", "stale", "neutral", "action_required"})
_RED_READ = 20
_ANNOTATIONS_READ = 50


class Checks(Reading):
    """What stands beside a commit."""

    async def create_check(self, repo: str, draft: CheckDraft) -> CheckFacts:
        """Make a check run, or find the one that an earlier try made."""
        what, path = f"make a check run in {repo}", f"/repos/{repo}/check-runs"
        body = self._check(draft) | {"head_sha": draft.head_sha, "external_id": draft.external_id}
        try:
            made = parsing_talk.check(await self._connection.json(what, "POST", path, body))
        except GitHubError as error:
            # The answer was lost, but the check run may be there: look before asking a second time.
            if not error.may_be_done:
                raise
            made = await self.find_check(repo, draft) or replace(
                parsing_talk.check(await self._connection.json(what, "POST", path, body)), again=True
            )
        return await self._annotate(repo, made, draft) if draft.annotations else made

    async def update_check(self, repo: str, check_id: int, draft: CheckDraft) -> CheckFacts:
        """Make a check run of ours say what `draft` says; only annotations that it does not have yet are sent."""
        what, path = f"update a check run in {repo}", f"/repos/{repo}/check-runs/{check_id}"
        body = self._check(draft) | {"external_id": draft.external_id}
        made = parsing_talk.check(await self._connection.json(what, "PATCH", path, body))
        return await self._annotate(repo, made, draft) if draft.annotations else made

    async def find_check(self, repo: str, draft: CheckDraft) -> CheckFacts | None:
        """The check run that an earlier try made of a draft."""
        found = await self.find_checks(repo, draft)
        return found[0] if found else None

    async def find_checks(self, repo: str, draft: CheckDraft) -> tuple[CheckFacts, ...]:
        """The check runs that earlier tries made of a draft; known by the job in its external id, and by its App."""
        query: dict[str, Any] = {"check_name": draft.name, "filter": "all"}
        if (app_id := (await self.me()).app_id) is not None:
            query["app_id"] = app_id
        job = draft.external_id.rpartition(":")[0]
        path = f"/repos/{repo}/commits/{draft.head_sha}/check-runs"
        entries = self._entries(f"look for a check run in {repo}", path, query, within="check_runs")
        return tuple(
            [
                parsing_talk.check(each)
                async for each in entries
                if str(each.get("external_id") or "").rpartition(":")[0] == job
            ]
        )

    async def failing_checks(self, repo: str, sha: str) -> tuple[RedCheck, ...]:
        """What is red about a commit: other Apps' check runs with their first annotations, and commit statuses.

        Statuses need a permission of their own; without it the check runs are all.
        """
        ours, commit = (await self.me()).app_id, f"/repos/{repo}/commits/{sha}"
        what = f"read the checks of {sha[:10]} of {repo}"
        red: list[RedCheck] = []
        async for each in self._entries(what, f"{commit}/check-runs", {"filter": "latest"}, within="check_runs"):
            theirs = ours is None or (each.get("app") or {}).get("id") != ours
            if theirs and each.get("conclusion") in _RED and len(red) < _RED_READ:
                red.append(parsing_talk.red_check(each, await self._annotations(repo, each)))
        try:
            what = f"read the statuses of {sha[:10]} of {repo}"
            answer = await self._read(what, f"{commit}/status", {"per_page": 100})
        except GitHubError as error:
            if error.passing:
                raise
            log.warning("%s", error)
            return tuple(red)
        statuses = [each for each in answer.get("statuses", ()) if each.get("state") in _RED_STATUS]
        return (*red, *map(parsing_talk.red_status, statuses[:_RED_READ]))

    async def run_facts(self, repo: str, run_id: int) -> RunFacts:
        """A workflow run."""
        return parsing.run(await self._read(f"read a workflow run of {repo}", f"/repos/{repo}/actions/runs/{run_id}"))

    async def red_on_base(self, repo: str, run: RunFacts, branch: str) -> RunFacts | None:
        """The run of the same workflow that fails on the base branch, too; None when it passes there, or never ran.

        Args:
            repo: `owner/name`.
            run: the one that went red.
            branch: the base branch. Its newest run with a verdict counts; runs of a fork's branch of the same name
                do not.
        """
        home = (await self.repo_facts(repo)).id
        path = f"/repos/{repo}/actions/workflows/{run.workflow_id}/runs"
        query = {"branch": branch, "status": "completed"}
        async for each in self._entries(f"read the runs of a workflow of {repo}", path, query, within="workflow_runs"):
            base = parsing.run(each)
            if base.head_repo_id == home and base.head_branch == branch and base.conclusion not in _NO_VERDICT:
                return base if base.conclusion in _RED else None
        return None

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
            answer = await self._connection.json(f"annotate in {repo}", "PATCH", path, body, repeat=False)
            check = parsing_talk.check(answer)
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
        return self._redact(text)[:limit]

    async def _annotations(self, repo: str, check: Mapping[str, Any]) -> list[Any]:
        if not (check.get("output") or {}).get("annotations_count"):
            return []
        path = f"/repos/{repo}/check-runs/{check['id']}/annotations"
        return list(await self._read(f"read annotations in {repo}", path, {"per_page": _ANNOTATIONS_READ}))
