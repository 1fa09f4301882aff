"""Check runs, commit statuses, webhook deliveries, and the runs of workflows as GitHub's JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from localhub.git import plumbing as git
from localhub.state.model import (
    Artifact,
    CheckRun,
    CommitStatus,
    Repo,
    WebhookDelivery,
    Workflow,
    WorkflowJob,
    WorkflowRun,
)
from localhub.state.store import Json, Site, iso, iso_or_none, node_id
from localhub.views import accounts as account_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views


def check_run(site: Site, repo: Repo, value: CheckRun) -> Json:
    """`check-run`."""
    url = site.repo_api(repo, "check-runs", value.id)
    page = site.repo_html(repo, "runs", value.id)
    return {
        "id": value.id,
        "node_id": node_id("CheckRun", value.id),
        "name": value.name,
        "head_sha": value.head_sha,
        "external_id": value.external_id,
        "url": url,
        "html_url": page,
        "details_url": value.details_url or page,
        "status": value.status,
        "conclusion": value.conclusion,
        "started_at": iso(value.started_at),
        "completed_at": iso_or_none(value.completed_at),
        "output": {
            "title": value.title,
            "summary": value.summary,
            "text": value.text,
            "annotations_count": len(value.annotations),
            "annotations_url": f"{url}/annotations",
        },
        "check_suite": {"id": value.suite_id},
        "app": account_views.app_by_id(site, value.app_id),
        "pull_requests": threads_views.pulls_at(site, repo, value.head_sha),
    }


def branch_at(site: Site, repo: Repo, sha: str) -> str | None:
    """The branch of the repository that stands at a commit; for a fork's there is none."""
    return next((name for name, head in site.store.heads.get(repo.id, {}).items() if head == sha), None)


# The worst conclusion of its check runs is the suite's.
_WORST_FIRST = ("action_required", "timed_out", "failure", "cancelled", "success", "neutral", "skipped")


def check_suite(site: Site, repo: Repo, runs: Sequence[CheckRun]) -> Json:
    """`check-suite`, from all of its check runs."""
    first = runs[0]
    done = all(run.status == "completed" for run in runs)
    conclusions = {run.conclusion for run in runs}
    url = site.repo_api(repo, "check-suites", first.suite_id)
    return {
        "id": first.suite_id,
        "node_id": node_id("CheckSuite", first.suite_id),
        "head_branch": branch_at(site, repo, first.head_sha),
        "head_sha": first.head_sha,
        "status": "completed" if done else first.status if len(runs) == 1 else "in_progress",
        "conclusion": next((each for each in _WORST_FIRST if each in conclusions), None) if done else None,
        "url": url,
        "before": None,
        "after": first.head_sha,
        "pull_requests": threads_views.pulls_at(site, repo, first.head_sha),
        "app": account_views.app_by_id(site, first.app_id),
        "repository": account_views.simple_repository(site, repo),
        "created_at": iso(min(run.started_at for run in runs)),
        "updated_at": iso(max(run.completed_at or run.started_at for run in runs)),
        "head_commit": git_views.simple_commit(git.commit(repo.path, first.head_sha)),
        "latest_check_runs_count": len(runs),
        "check_runs_url": f"{url}/check-runs",
    }


def status(site: Site, repo: Repo, value: CommitStatus) -> Json:
    """`status`."""
    creator = account_views.user_by_id(site, value.creator_id)
    return simple_status(site, repo, value) | {"creator": creator}


def simple_status(site: Site, repo: Repo, value: CommitStatus) -> Json:
    """`simple-commit-status`."""
    return {
        "id": value.id,
        "node_id": node_id("CommitStatus", value.id),
        "url": site.repo_api(repo, "statuses", value.sha),
        "avatar_url": f"{site.html('avatars', value.creator_id)}.svg",
        "state": value.state,
        "context": value.context,
        "description": value.description,
        "target_url": value.target_url,
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
    }


def delivery_item(value: WebhookDelivery) -> Json:
    """`hook-delivery-item`."""
    return {
        "id": value.id,
        "guid": value.guid,
        "delivered_at": iso(value.delivered_at),
        "redelivery": value.redelivery,
        "duration": round(value.duration, 3),
        "status": value.status,
        "status_code": value.status_code,
        "event": value.event,
        "action": value.action,
        "installation_id": value.installation_id,
        "repository_id": value.repository_id,
        "throttled_at": None,
    }


def delivery(value: WebhookDelivery) -> Json:
    """`hook-delivery`, with request and response."""
    return delivery_item(value) | {
        "url": value.url,
        "request": {"headers": dict(value.request_headers), "payload": json.loads(value.body)},
        "response": {"headers": dict(value.response_headers), "payload": value.response_body},
    }


def workflow(site: Site, repo: Repo, value: Workflow) -> Json:
    """`workflow`."""
    page = site.repo_html(repo)
    return {
        "id": value.id,
        "node_id": node_id("Workflow", value.id),
        "name": value.name,
        "path": value.path,
        "state": "active",
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
        "url": site.repo_api(repo, "actions", "workflows", value.id),
        "html_url": f"{page}/blob/{repo.default_branch}/{value.path}",
        "badge_url": f"{page}/workflows/{value.name}/badge.svg",
    }


def _conclusion(value: WorkflowRun, attempt: int) -> str | None:
    """The conclusion of an attempt; None while it is queued."""
    return (*value.earlier, None if value.is_queued else value.conclusion)[attempt - 1]


def run_payload(site: Site, repo: Repo, value: WorkflowRun, *, attempt: int | None = None) -> Json:
    """A run as events tell it, at its newest attempt or at an earlier one."""
    number = attempt or value.attempt
    conclusion = _conclusion(value, number)
    named, home = site.store.workflows[value.workflow_id], site.store.repos[value.head_repo_id]
    url = site.repo_api(repo, "actions", "runs", value.id)
    head = git.commit(home.path, value.head_sha)
    when = iso(value.created_at)
    return {
        "id": value.id,
        "name": named.name,
        "node_id": node_id("WorkflowRun", value.id),
        "check_suite_id": value.suite_id,
        "check_suite_node_id": node_id("CheckSuite", value.suite_id),
        "head_branch": value.head_branch,
        "head_sha": value.head_sha,
        "path": named.path,
        "run_number": value.run_number,
        "run_attempt": number,
        "referenced_workflows": [],
        "event": value.event,
        "status": "queued" if conclusion is None else "completed",
        "conclusion": conclusion,
        "workflow_id": named.id,
        "url": url,
        **{f"{name}_url": f"{url}/{name}" for name in ("jobs", "logs", "artifacts", "cancel", "rerun")},
        "html_url": site.repo_html(repo, "actions", "runs", value.id),
        "pull_requests": threads_views.pulls_at(site, repo, value.head_sha),
        "created_at": when,
        "updated_at": when,
        "run_started_at": when,
        "actor": account_views.user_by_id(site, value.actor_id),
        "triggering_actor": account_views.user_by_id(site, value.triggering_actor_id),
        "check_suite_url": site.repo_api(repo, "check-suites", value.suite_id),
        "previous_attempt_url": f"{url}/attempts/{number - 1}" if number > 1 else None,
        "workflow_url": site.repo_api(repo, "actions", "workflows", named.id),
        "head_commit": git_views.simple_commit(head),
        "repository": account_views.simple_repository(site, repo),
        "head_repository": account_views.simple_repository(site, home),
        "display_title": head.message.partition("\n")[0],
    }


def artifact(site: Site, repo: Repo, value: Artifact) -> Json:
    """`artifact`."""
    url = site.repo_api(repo, "actions", "artifacts", value.id)
    return {
        "id": value.id,
        "node_id": node_id("Artifact", value.id),
        "name": value.name,
        "size_in_bytes": len(value.content),
        "url": url,
        "archive_download_url": f"{url}/zip",
        "expired": value.expires_at <= site.now(),
        "digest": f"sha256:{hashlib.sha256(value.content).hexdigest()}",
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
        "expires_at": iso(value.expires_at),
        "workflow_run": {"id": value.run_id, "repository_id": repo.id, "head_repository_id": value.head_repo_id},
    }


def job(site: Site, repo: Repo, value: WorkflowJob) -> Json:
    """`job`."""
    run_of = site.store.workflow_runs[value.run_id]
    when = iso(value.created_at)
    done = {"status": "completed", "started_at": when, "completed_at": when}
    return {
        "id": value.id,
        "run_id": value.run_id,
        "workflow_name": site.store.workflows[run_of.workflow_id].name,
        "head_branch": run_of.head_branch,
        "run_url": site.repo_api(repo, "actions", "runs", value.run_id),
        "run_attempt": value.attempt,
        "node_id": node_id("WorkflowJob", value.id),
        "head_sha": run_of.head_sha,
        "url": site.repo_api(repo, "actions", "jobs", value.id),
        "html_url": site.repo_html(repo, "actions", "runs", value.run_id, "job", value.id),
        "conclusion": value.conclusion,
        "created_at": when,
        **done,
        "name": value.name,
        "steps": [
            {"name": step.name, "conclusion": step.conclusion, "number": number, **done}
            for number, step in enumerate(value.steps, 1)
        ],
        "check_run_url": site.repo_api(repo, "check-runs", value.id),
        "labels": ["ubuntu-latest"],
        "runner_id": 1,
        "runner_name": "localhub",
        "runner_group_id": 1,
        "runner_group_name": "Default",
    }


def run(site: Site, repo: Repo, value: WorkflowRun, *, attempt: int | None = None) -> Json:
    """`workflow-run`."""
    return run_payload(site, repo, value, attempt=attempt) | {"head_repository_id": value.head_repo_id}
