"""Discussions of a repository and the comments on them, with the webhooks of each change."""

from __future__ import annotations

from dataclasses import replace

from localhub.api.auth import HubError
from localhub.operations import threads, webhooks
from localhub.state.model import Discussion, DiscussionCategory, DiscussionComment, Repo, User
from localhub.state.store import Json, Site, iso, node_id
from localhub.views import accounts as account_views
from localhub.views import threads as threads_views


def add_category(site: Site, repo: Repo, name: str) -> DiscussionCategory:
    """The category of this name, made if need be; the first one turns discussions on."""
    for known in site.store.categories_of(repo):
        if known.name == name:
            return known
    number, now = site.store.new_id(), site.now()
    return site.store.discussion_categories.put(
        DiscussionCategory(id=number, repo_id=repo.id, name=name, created_at=now)
    )


def open_discussion(
    site: Site, repo: Repo, category: DiscussionCategory, author: User, *, title: str, body: str
) -> Discussion:
    """Open a discussion under the next free number."""
    added = site.store.discussions.put(
        Discussion(
            id=site.store.new_id(),
            repo_id=repo.id,
            number=threads.next_number(site, repo),
            category_id=category.id,
            author_id=author.id,
            title=title,
            body=body,
            created_at=site.now(),
        )
    )
    webhooks.emit(site, "discussion", repo, author, {"action": "created", "discussion": show(site, repo, added)})
    return added


def comment(
    site: Site, discussion: Discussion, author: User, body: str, *, parent: DiscussionComment | None = None
) -> DiscussionComment:
    """Comment on a discussion, or answer such a comment.

    Raises:
        HubError: 403, it is locked.
    """
    if discussion.locked:
        raise HubError(403, "Discussion is locked.")
    repo = site.store.repos[discussion.repo_id]
    added = site.store.discussion_comments.put(
        DiscussionComment(
            id=site.store.new_id(),
            repo_id=repo.id,
            number=discussion.number,
            author_id=author.id,
            body=body,
            created_at=site.now(),
            parent_id=None if parent is None else parent.id,
        )
    )
    shown = {"discussion": show(site, repo, discussion), "comment": _show_comment(site, repo, added)}
    webhooks.emit(site, "discussion_comment", repo, author, {"action": "created", **shown})
    return added


def set_locked(site: Site, discussion: Discussion, sender: User, *, locked: bool) -> Discussion:
    """Lock or unlock a discussion."""
    changed, repo = replace(discussion, locked=locked), site.store.repos[discussion.repo_id]
    site.store.discussions.put(changed)
    action = "locked" if locked else "unlocked"
    webhooks.emit(site, "discussion", repo, sender, {"action": action, "discussion": show(site, repo, changed)})
    return changed


def page_of(site: Site, repo: Repo, number: int) -> str:
    """The address of a discussion's page."""
    return site.repo_html(repo, "discussions", number)


def show(site: Site, repo: Repo, value: Discussion) -> Json:
    """`discussion`, as events have it."""
    category = site.store.discussion_categories[value.category_id]
    url = site.repo_api(repo, "discussions", value.number)
    return {
        "id": value.id,
        "node_id": node_id("Discussion", value.id),
        "repository_url": site.repo_api(repo),
        "category": {
            "id": category.id,
            "node_id": node_id("DiscussionCategory", category.id),
            "repository_id": repo.id,
            "emoji": ":speech_balloon:",
            "name": category.name,
            "description": "",
            "created_at": iso(category.created_at),
            "updated_at": iso(category.created_at),
            "slug": slug(category),
            "is_answerable": False,
        },
        "answer_html_url": None,
        "answer_chosen_at": None,
        "answer_chosen_by": None,
        "html_url": page_of(site, repo, value.number),
        "number": value.number,
        "title": value.title,
        "user": account_views.user_by_id(site, value.author_id),
        "labels": [],
        "state": "locked" if value.locked else "open" if value.closed_at is None else "closed",
        "state_reason": None,
        "locked": value.locked,
        "comments": len(site.store.discussion_comments_of(value)),
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
        "author_association": account_views.association(site, repo, value.author_id),
        "active_lock_reason": None,
        "body": value.body,
        "reactions": _no_reactions(url),
        "timeline_url": f"{url}/timeline",
    }


def _show_comment(site: Site, repo: Repo, value: DiscussionComment) -> Json:
    discussion = next(each for each in site.store.discussions_of(repo) if each.number == value.number)
    return {
        "id": value.id,
        "node_id": node_id("DiscussionComment", value.id),
        "html_url": f"{page_of(site, repo, value.number)}#discussioncomment-{value.id}",
        "parent_id": value.parent_id,
        "child_comment_count": sum(each.parent_id == value.id for each in site.store.discussion_comments),
        "repository_url": repo.full_name,
        "discussion_id": discussion.id,
        "author_association": account_views.association(site, repo, value.author_id),
        "user": account_views.user_by_id(site, value.author_id),
        "created_at": iso(value.created_at),
        "updated_at": iso(value.created_at),
        "body": value.body,
        "reactions": _no_reactions(site.repo_api(repo, "discussions", value.number)),
    }


def _no_reactions(url: str) -> Json:
    return {"url": f"{url}/reactions", "total_count": 0} | dict.fromkeys(threads_views.REACTIONS, 0)


def slug(category: DiscussionCategory) -> str:
    """The name of a category in addresses."""
    return "-".join(category.name.lower().split())
