"""Reactions as GitHub's JSON."""

from __future__ import annotations

from localhub.state.model import Comment, Issue, Reaction, ReviewComment
from localhub.state.site import Json, Site, iso, node_id
from localhub.views import accounts as account_views

REACTIONS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")


def reaction(site: Site, value: Reaction) -> Json:
    """`reaction`."""
    return {
        "id": value.id,
        "node_id": node_id("Reaction", value.id),
        "user": account_views.user_by_id(site, value.user_id),
        "content": value.content,
        "created_at": iso(value.created_at),
    }


def rollup(site: Site, url: str, subject: Issue | Comment | ReviewComment) -> Json:
    """`reaction-rollup`: how many of each."""
    given = [reaction.content for reaction in site.store.reactions_to(subject)]
    return {"url": f"{url}/reactions", "total_count": len(given)} | {name: given.count(name) for name in REACTIONS}
