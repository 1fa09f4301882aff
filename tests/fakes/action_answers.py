"""The REST answers about changes of issues, plans and started workflows; only with the fields that the client reads."""

from __future__ import annotations

from typing import Any

from bot.github.types import Answer
from localhub.api.auth import HubError, invalid, not_accessible, not_found, or_404
from localhub.api.routing import check_length
from localhub.operations.workflow_files import FOLDER, read_dispatch
from tests.fakes.answers import issue_json
from tests.fakes.routing import Json, Request, route
from tests.fakes.site import FakeField, FakeThread

_READ, _WRITE = "issues|pull_requests:read", "issues|pull_requests:write"


@route("GET", "labels", _READ)
def list_labels(request: Request) -> list[Json]:
    names = sorted(request.repo.labels.values())
    return request.page(names, lambda name: {"name": name, "description": ""})


@route("POST", "issues/{}/labels", _WRITE)
def add_labels(request: Request, number: str) -> list[Json]:
    thread = request.thread(number)
    names = dict.fromkeys([*thread.labels, *(request.repo.labels.get(n.lower(), n) for n in request.body["labels"])])
    request.site.label(request.repo, thread.number, *names, by=request.app.bot.login)
    return [{"name": name} for name in thread.labels]


@route("PATCH", "issues/{}", _WRITE)
def edit_issue(request: Request, number: str) -> Json:
    thread, body, site = request.thread(number), request.body, request.site
    check_length(body.get("body") or "", "Issue", "body")
    if "type" in body and body["type"] not in {None, *site.types.get(request.repo.owner, ())}:
        raise invalid("Issue", "type", "invalid")
    people = [_find_account(request, login) for login in body.get("assignees", ())]
    if "body" in body:
        site.edit_thread(request.repo, thread.number, by=request.app.bot.login, body=body["body"])
    thread.assignees = people if "assignees" in body else thread.assignees
    thread.type = body.get("type", thread.type) or ""
    if "milestone" in body:
        thread.milestone = request.repo.milestones[body["milestone"] - 1]
    if "state" in body and body["state"] != thread.state:
        thread.state, closed = body["state"], body["state"] == "closed"
        reason = (body.get("state_reason") or "completed") if closed else "reopened"
        thread.state_reason = None if thread.pull else reason
        thread.duplicate_of = body.get("duplicate_issue_id", 0) if closed else 0
    return issue_json(request, thread)


def _find_account(request: Request, login: str) -> int:
    account = request.site.find_user(login)
    if account is None:
        raise HubError(422, f"There is no user {login} here.")
    return account.id


@route("GET", "milestones", _READ)
def list_milestones(request: Request) -> list[Json]:
    return request.page([*enumerate(request.repo.milestones, 1)], lambda row: {"number": row[0], "title": row[1]})


@route("GET", "issue-types", "metadata:read")
def list_types(request: Request) -> list[Json]:
    return [{"name": name} for name in or_404(request.site.types.get(request.repo.owner))]


@route("GET", "orgs/{}/issue-fields")
def list_fields(request: Request, owner: str) -> list[Json]:
    account = request.site.find_user(owner)
    if account is None or account.type != "Organization":
        raise not_found()
    if request.app.permissions.get("issue_fields") not in {"read", "write"}:
        raise not_accessible()
    return [
        {
            "id": field.id,
            "name": field.name,
            "data_type": field.data_type,
            "options": [{"id": number, "name": name} for number, name in field.options],
        }
        for field in request.site.fields.get(owner, ())
    ]


@route("POST", "issues/{}/issue-field-values", "issues:write")
def set_fields(request: Request, number: str) -> list[Json]:
    thread = request.thread(number)
    fields = {field.id: field for field in request.site.fields.get(request.repo.owner, ())}
    if thread.pull is not None:
        raise not_found()
    for entry in request.body["issue_field_values"]:
        thread.fields[fields[entry["field_id"]].name] = _field_value(fields[entry["field_id"]], entry["value"])
    return []


def _field_value(field: FakeField, value: Any) -> Any:  # noqa: ANN401 - of any type
    names = {name for _, name in field.options}
    kinds = {"number": int | float, "multi_select": list}
    fits = isinstance(value, kinds.get(field.data_type, str))
    chosen = value if isinstance(value, list) else [value]
    if not fits or (names and not names.issuperset(chosen)):
        raise HubError(422, f"{value!r} is no value of the field {field.name}.")
    return value


def _issue(request: Request, number: str) -> FakeThread:
    thread = request.thread(number)
    if thread.pull is not None:
        raise not_found()
    return thread


@route("GET", "issues/{}/sub_issues", "issues:read")
def list_sub_issues(request: Request, number: str) -> list[Json]:
    children = request.site.sub_issues(request.repo, _issue(request, number).number)
    return request.page(children, lambda thread: issue_json(request, thread))


@route("POST", "issues/{}/sub_issues", "issues:write")
def add_sub_issue(request: Request, number: str) -> Answer:
    parent, wanted = _issue(request, number), request.body["sub_issue_id"]
    child = next(thread for thread in request.repo.threads.values() if thread.id == wanted)
    message = "An error occurred while adding the sub-issue to the parent issue."
    if child.pull is not None or child is parent or parent.parent == child.number:
        raise HubError(422, message)
    if child.parent:
        more = "Issue may not contain duplicate sub-issues and Sub issue may only have one parent"
        raise HubError(422, f"{message} {more}")
    child.parent = parent.number
    return Answer(status=201, headers={}, data=issue_json(request, child))


@route("POST", "pulls/{}/requested_reviewers", "pull_requests:write")
def request_reviewers(request: Request, number: str) -> Json:
    thread, pull = request.pull(number)
    people = [_find_account(request, login) for login in request.body["reviewers"]]
    if thread.author_id in people:
        raise HubError(422, "Review cannot be requested from pull request author.")
    if not set(people) <= request.repo.roles.keys():
        raise HubError(
            422,
            "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not "
            "a collaborator of the repository.",
        )
    pull.reviewers = [*dict.fromkeys([*pull.reviewers, *people])]
    return {}


@route("POST", "actions/workflows/{}/dispatches", "actions:write")
def dispatch_workflow(request: Request, name: str) -> Json:
    ref, inputs, path = request.body["ref"], request.body["inputs"], f"{FOLDER}/{name}"
    head = request.repo.head(ref)
    if head is None:
        raise HubError(422, f"No ref found for: {ref}")
    title, known = read_dispatch(or_404(head.tree.get(path)).content.decode())
    if known is None:
        raise HubError(422, "Workflow does not have 'workflow_dispatch' trigger")
    if unexpected := [given for given in inputs if given not in known]:
        raise HubError(422, f"Unexpected inputs provided: {unexpected}")
    if missing := [wanted for wanted, required in known.items() if required and wanted not in inputs]:
        raise HubError(422, f"Required input '{missing[0]}' not provided")
    run = request.site.workflow_run(
        request.repo,
        head_sha=head.sha,
        head_branch=ref,
        conclusion="",
        actor=request.app.bot.login,
        workflow=title or path,
        path=path,
        event="workflow_dispatch",
    )
    run.is_queued, run.inputs = True, dict(inputs)
    return {"workflow_run_id": run.id, "html_url": request.html("actions", "runs", run.id)}
