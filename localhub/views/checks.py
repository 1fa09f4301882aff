"""Check runs, commit statuses and webhook deliveries as GitHub's JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from localhub.git import plumbing as git
from localhub.state.model import CheckRun, CommitStatus, Repo, WebhookDelivery
from localhub.state.site import Json, Site, iso, iso_or_none, node_id
from localhub.views import accounts as account_views
from localhub.views import git as git_views
from localhub.views import threads as threads_views


def check_run(site: Site, repo: Repo, value: CheckRun) -> Json:
    """`check-run`."""
    url = site.api("repos", repo.owner, repo.name, "check-runs", value.id)
    page = site.html(repo.owner, repo.name, "runs", value.id)
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
    url = site.api("repos", repo.owner, repo.name, "check-suites", first.suite_id)
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
        "url": site.api("repos", repo.owner, repo.name, "statuses", value.sha),
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
    """`hook-delivery`, with what was sent and answered."""
    return delivery_item(value) | {
        "url": value.url,
        "request": {"headers": dict(value.request_headers), "payload": json.loads(value.body)},
        "response": {"headers": dict(value.response_headers), "payload": value.response_body},
    }
