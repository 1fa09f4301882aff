"""A thread's history as GitHub's JSON."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from localhub.state.model import Comment, IssueEvent, PullRequestReview, Repo
from localhub.state.site import Json, Site, iso, node_id
from localhub.views import accounts as account_views
from localhub.views import reviews as reviews_views
from localhub.views import threads as threads_views

Entry: TypeAlias = IssueEvent | Comment | PullRequestReview
"""What a timeline is made of."""


def event(site: Site, repo: Repo, value: IssueEvent) -> Json:
    """`issue-event-for-issue`."""
    app = site.store.app_of(site.store.users[value.actor_id])
    shown: Json = {
        "id": value.id,
        "node_id": node_id("IssueEvent", value.id),
        "url": site.api("repos", repo.owner, repo.name, "issues", "events", value.id),
        "actor": account_views.user_by_id(site, value.actor_id),
        "event": value.event,
        "commit_id": None,
        "commit_url": None,
        "created_at": iso(value.created_at),
        "performed_via_github_app": None if app is None else account_views.integration(site, app),
    }
    if value.label is not None:
        shown["label"] = {"name": value.label.name, "color": value.label.color}
    if value.assignee_id is not None:
        shown["assignee"] = account_views.user_by_id(site, value.assignee_id)
        shown["assigner"] = shown["actor"]
    if value.renamed is not None:
        shown["rename"] = {"from": value.renamed[0], "to": value.renamed[1]}
    if value.event == "locked":
        shown["lock_reason"] = None
    return shown


def moment(value: Entry) -> tuple[datetime, int]:
    """What a timeline is sorted by."""
    return (value.submitted_at if isinstance(value, PullRequestReview) else value.created_at), value.id


def timeline_entry(site: Site, repo: Repo, value: Entry) -> Json:
    """`timeline-issue-events`: what was said stands among the events, and an assignment does not name the assigner."""
    if isinstance(value, Comment):
        said = threads_views.comment(site, repo, value)
        return said | {"event": "commented", "actor": said["user"]}
    if isinstance(value, PullRequestReview):
        return reviews_views.told_review(site, repo, value) | {"event": "reviewed"}
    shown = event(site, repo, value)
    shown.pop("assigner", None)
    return shown
