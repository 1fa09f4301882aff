"""The plan around issues: their types, fields and sub-issues, with the webhooks of each change.

Types and fields belong to an organisation, and people set them up on its settings pages, which the hub does not have.
GitHub's description has no webhook for a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from localhub.api.auth import HubError, invalid
from localhub.operations import threads, webhooks
from localhub.state.model import FieldValue, Issue, IssueField, IssueType, Repo, User
from localhub.state.store import Json, Site
from localhub.views import accounts as account_views
from localhub.views import threads as threads_views

MOST_SUB_ISSUES = 100


def find_type(site: Site, repo: Repo, name: str) -> IssueType:
    """The issue type of a name.

    Raises:
        HubError: 422, there is none.
    """
    found = next((each for each in site.store.types_of(repo) if each.name.lower() == name.lower()), None)
    if found is None:
        raise invalid("Issue", "type", "invalid")
    return found


def set_type(site: Site, issue: Issue, sender: User, new: IssueType | None) -> Issue:
    """Give an issue a type, or none; one event for the type that came or went."""
    number = None if new is None else new.id
    if issue.type_id == number:
        return issue
    old = None if issue.type_id is None else site.store.issue_types[issue.type_id]
    issue = site.store.issues.put(replace(issue, type_id=number, updated_at=site.now()))
    for action, changed in (("untyped", old if new is None else None), ("typed", new)):
        if changed is not None:
            threads.announce(site, issue, sender, action, {"type": threads_views.issue_type(changed)})
    return issue


def set_fields(site: Site, issue: Issue, values: Mapping[int, object]) -> Issue:
    """Set fields by their ids; others keep their values.

    Raises:
        HubError: 422, there is no such field, or it does not take the value.
    """
    owner = site.store.repos[issue.repo_id].owner
    known = {field.id: field for field in site.store.fields_of(owner)}
    fields: dict[int, FieldValue] = dict(issue.fields)
    for number, value in values.items():
        if number not in known:
            raise HubError(422, f"Issue field {number} does not exist.")
        fields[number] = _field_value(known[number], value)
    return site.store.issues.put(replace(issue, fields=tuple(fields.items()), updated_at=site.now()))


def _field_value(field: IssueField, value: object) -> FieldValue:
    names, kind = {name for _, name in field.options}, field.data_type
    if kind == "number" and isinstance(value, int | float):
        return value
    if kind == "multi_select" and isinstance(value, list) and names.issuperset(value):
        return tuple(value)
    if isinstance(value, str) and (kind in {"text", "date"} or (kind == "single_select" and value in names)):
        return value
    raise HubError(422, f"{value!r} is no value of the field {field.name}.")


def add_sub_issue(site: Site, parent: Issue, child: Issue, sender: User, *, replaces: bool = False) -> None:
    """Make an issue a sub-issue of another.

    Raises:
        HubError: 422; it has a parent, is one itself, or the parent has too many.
    """
    if child.pull is not None or parent.pull is not None or child.id in {parent.id, parent.parent_id}:
        raise HubError(422, "An error occurred while adding the sub-issue to the parent issue.")
    if child.parent_id is not None and not (replaces and child.parent_id != parent.id):
        raise HubError(
            422,
            "An error occurred while adding the sub-issue to the parent issue. "
            "Issue may not contain duplicate sub-issues and Sub issue may only have one parent",
        )
    if len(site.store.sub_issues_of(parent)) >= MOST_SUB_ISSUES:
        raise HubError(422, "Parent cannot have more than 100 sub-issues")
    child = site.store.issues.put(replace(child, parent_id=parent.id, updated_at=site.now()))
    homes = {issue.id: site.store.repos[issue.repo_id] for issue in (parent, child)}
    payload: Json = {
        "sub_issue_id": child.id,
        "sub_issue": threads_views.issue(site, homes[child.id], child),
        "parent_issue_id": parent.id,
        "parent_issue": threads_views.issue(site, homes[parent.id], parent),
    }
    for action, subject, other, name in (
        ("sub_issue_added", parent, child, "sub_issue_repo"),
        ("parent_issue_added", child, parent, "parent_issue_repo"),
    ):
        beside = {name: account_views.repository(site, homes[other.id])}
        webhooks.emit(site, "sub_issues", homes[subject.id], sender, {"action": action, **payload, **beside})
