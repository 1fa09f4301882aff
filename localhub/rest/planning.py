"""Issue types, issue fields and sub-issues.

GitHub lists an organisation's fields for the permission "Issue Fields" of the organisation; its description of an App's
permissions has no name for it, so here it is `issue_fields`.
"""

from __future__ import annotations

from localhub.api.auth import HubError, not_accessible, or_404
from localhub.api.routing import Call, Response, Routes, listed
from localhub.operations import planning
from localhub.state.model import Issue
from localhub.views import threads as threads_views

routes = Routes()
REPO = "/repos/{owner}/{repo}"
ISSUE = REPO + "/issues/{issue_number}"


@routes.on("GET", REPO + "/issue-types", allow="metadata:read")
def list_types(call: Call) -> Response:
    """The types of the repository's issues; 404 for a person's repository, which has none."""
    types = or_404(call.site.store.types_of(call.repo) or None)
    return Response(body=[threads_views.issue_type(each) for each in types])


@routes.on("GET", "/orgs/{org}/issue-fields")
def list_fields(call: Call) -> Response:
    """The fields of an organisation's issues."""
    org = call.params["org"]
    account = call.site.store.user(org)
    if account is None or account.type != "Organization":
        raise HubError(404, "Not Found")
    viewer = call.viewer
    if viewer.installation is not None:
        own = viewer.installation.account.lower() == org.lower()
        if not own or viewer.permissions.get("issue_fields") not in {"read", "write"}:
            raise not_accessible()
    else:
        _ = call.user
    return Response(body=[threads_views.issue_field(field) for field in call.site.store.fields_of(org)])


@routes.on("GET", ISSUE + "/issue-field-values", allow="issues:read")
def list_field_values(call: Call) -> Response:
    """The fields of an issue that are set."""
    return listed(call, threads_views.field_values(call.site, _issue(call)), lambda value: value)


@routes.on("POST", ISSUE + "/issue-field-values", allow="issues:write", role="triage", takes="issue_field_values")
def add_field_values(call: Call) -> Response:
    """Set fields of an issue; others keep their values."""
    values: dict[int, object] = {}
    for entry in call.body.get("issue_field_values") or ():
        number = entry.get("field_id") if isinstance(entry, dict) else None
        if not isinstance(number, int) or "value" not in entry:
            raise HubError(422, "Invalid request.\n\nField values need `field_id` and `value`.")
        values[number] = entry["value"]
    changed = planning.set_fields(call.site, _issue(call), values)
    return Response(body=threads_views.field_values(call.site, changed))


@routes.on("GET", ISSUE + "/sub_issues", allow="issues:read")
def list_sub_issues(call: Call) -> Response:
    """The sub-issues of an issue."""
    store = call.site.store
    found = store.sub_issues_of(_issue(call))
    return listed(call, found, lambda child: threads_views.issue(call.site, store.repos[child.repo_id], child))


@routes.on("POST", ISSUE + "/sub_issues", allow="issues:write", role="triage", takes="replace_parent sub_issue_id")
def add_sub_issue(call: Call) -> Response:
    """Make an issue of the same owner a sub-issue; the answer is the sub-issue."""
    number, store = call.body.get("sub_issue_id"), call.site.store
    if number is None:
        raise HubError(422, 'Invalid request.\n\n"sub_issue_id" wasn\'t supplied.')
    child = or_404(store.issues.get(number))
    repo = store.repos[child.repo_id]
    if repo.owner != call.repo.owner:
        raise HubError(422, "The sub-issue must belong to the same repository owner as the parent issue.")
    planning.add_sub_issue(call.site, _issue(call), child, call.user, replaces=bool(call.body.get("replace_parent")))
    return Response(status=201, body=threads_views.issue(call.site, repo, store.issues[child.id]))


def _issue(call: Call) -> Issue:
    issue = call.issue()
    if issue.pull is not None:
        raise HubError(404, "Not Found")
    return issue
