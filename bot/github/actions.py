"""The actions that a repository declares: changes of issues, pull requests and discussions, and starts of workflows.

Each changes an object of the repository in its arguments. `Comments.create` comments on a thread, and
`Threads.remove_label` removes a label. GitHub silently drops a change that the token may not make: an error here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from bot.github import graphql, types
from bot.github.connection import GitHubConnection

StateList = Literal["milestones", "categories", "types", "fields"]
Reason = Literal["completed", "not_planned", "duplicate"]
_MOST = 100
"""Newest objects of a list, such as those in which an earlier attempt's is sought: one request."""
_DROPPED = "Check that the token may change it, and that the value still exists."


_Nodes = BeforeValidator(lambda nodes: [*filter(None, nodes or ())])
"""A list in a GraphQL answer, of which the whole and each entry may be null."""


class _IssueFacts(types.ThreadFacts):
    """An issue or pull request after a change."""

    id: int
    assignees: types.People = ()
    milestone: types.Text = Field(default="", validation_alias=AliasPath("milestone", "title"))
    type: types.Text = Field(default="", validation_alias=AliasPath("type", "name"))


class _Entry(types.Facts):
    """A label, milestone, issue type or category."""

    id: int | str = ""
    name: str = Field(validation_alias=AliasChoices("name", "title"))
    number: int = 0
    is_enabled: bool = True


class _Lists(types.Facts):
    id: str
    milestones: Annotated[tuple[_Entry, ...], _Nodes] = Field(
        default=(), validation_alias=AliasPath("milestones", "nodes")
    )
    categories: Annotated[tuple[_Entry, ...], _Nodes] = Field(
        default=(), validation_alias=AliasPath("categories", "nodes")
    )


class _Accounts(types.Facts):
    people: Annotated[types.People, _Nodes] = Field(default=(), validation_alias="nodes")

    def include(self, login: str) -> bool:
        return login.lower() in {account.login.lower() for account in self.people}


class _Rule(types.Facts):
    type: str


class _Branch(types.Facts):
    rules: Annotated[tuple[_Rule, ...], _Nodes] = Field(default=(), validation_alias=AliasPath("rules", "nodes"))
    update_rule: dict[str, Any] | None = Field(default=None, validation_alias="refUpdateRule")

    @property
    def is_protected(self) -> bool:
        """Whether a rule limits its changes; patterns for names and messages do not."""
        return self.update_rule is not None or any(not rule.type.endswith("_PATTERN") for rule in self.rules)


class _Discussions(types.Facts):
    """Discussions, or comments on one, newest last."""

    entries: Annotated[tuple[types.DiscussionFacts, ...], _Nodes] = Field(
        default=(),
        validation_alias=AliasChoices(AliasPath("discussions", "nodes"), AliasPath("discussion", "comments", "nodes")),
    )

    def find(self, author_id: int, mark: str) -> types.DiscussionFacts | None:
        entries = [entry for entry in self.entries if entry.author.id == author_id and mark in entry.body]
        return entries[-1] if entries else None


class _Created(types.Facts):
    entry: types.DiscussionFacts = Field(validation_alias=AliasChoices("discussion", "comment"))


class _PullDraft(types.Facts):
    id: str
    draft: bool = Field(validation_alias="isDraft")


class DispatchedRun(types.Facts):
    """A run that a `workflow_dispatch` started; the id is 0 where GitHub does not return it."""

    id: int = Field(default=0, validation_alias="workflow_run_id")
    html_url: types.Text = ""


@dataclass(frozen=True, slots=True)
class Actions:
    connection: GitHubConnection
    redact: Callable[[str], str] = field(repr=False)

    async def read_state(
        self,
        repo: str,
        *,
        numbers: Collection[int] = (),
        discussions: Collection[int] = (),
        labels: Collection[str] = (),
        logins: Collection[str] = (),
        branches: Collection[str] = (),
        lists: Collection[StateList] = (),
    ) -> types.RepoState:
        """Read the objects that actions name: at most one request for discussions, for each list, and for the rest.

        A list or discussion that the token may not read is absent.
        """
        nodes, facts = await self._read_objects(
            repo,
            {"thread": numbers, "label": labels, "login": logins, "branch": branches},
            ["milestones"] if "milestones" in lists else [],
        )
        discussion_nodes, category_facts = dict[str, dict[Any, Any]](), facts
        if discussions or "categories" in lists:
            try:
                wanted = ["categories"] if "categories" in lists else []
                discussion_nodes, category_facts = await self._read_objects(repo, {"discussion": discussions}, wanted)
            except types.GitHubError as error:
                if error.is_transient:
                    raise
        action = f"read the state of {repo}"
        label_facts = types.parse(dict[str, _Entry], action, nodes["label"])
        accounts = types.parse(dict[str, _Accounts], action, nodes["login"])
        rules = types.parse(dict[str, _Branch], action, nodes["branch"])
        return types.RepoState(
            threads=types.parse(dict[int, types.TargetFacts], action, nodes["thread"]),
            discussions=types.parse(dict[int, types.DiscussionFacts], action, discussion_nodes.get("discussion", {})),
            labels=frozenset(label.name for label in label_facts.values()),
            milestones=tuple(milestone.name for milestone in facts.milestones),
            categories=tuple(category.name for category in category_facts.categories),
            types=await self._types(repo) if "types" in lists else (),
            fields=await self._fields(repo) if "fields" in lists else (),
            assignable=frozenset(login for login, people in accounts.items() if people.include(login)),
            branches={name: branch.is_protected for name, branch in rules.items()},
        )

    async def _read_objects(
        self, repo: str, objects: Mapping[str, Collection[Any]], lists: Collection[str]
    ) -> tuple[dict[str, dict[Any, Any]], _Lists]:
        """Return the existing ones of some objects by kind and name, and whole lists."""
        action = f"read the state of {repo}"
        names = {kind: [*dict.fromkeys(values)] for kind, values in objects.items()}
        variables = {
            f"{kind}{index}": f"refs/heads/{name}" if kind == "branch" else name
            for kind, values in names.items()
            for index, name in enumerate(values)
        }
        query = graphql.state_query({kind: len(values) for kind, values in names.items()}, lists)
        data = await self._query(action, repo, query, variables)
        nodes = {
            kind: {name: entry for index, name in enumerate(values) if (entry := data.get(f"{kind}{index}"))}
            for kind, values in names.items()
        }
        return nodes, types.parse(_Lists, action, data)

    async def list_labels(self, repo: str) -> tuple[types.LabelFacts, ...]:
        action, path = f"read the labels of {repo}", f"/repos/{repo}/labels"
        entries = self.connection.entries(types.LabelFacts, action, path, limit=_MOST)
        return tuple([entry async for entry in entries])

    async def list_open_issues(self, repo: str) -> tuple[types.ThreadFacts, ...]:
        """Return the newest open issues, without pull requests."""
        action, path = f"read the issues of {repo}", f"/repos/{repo}/issues"
        entries = self.connection.entries(types.ThreadFacts, action, path, {"state": "open"}, limit=_MOST)
        return tuple([entry async for entry in entries if entry.kind == "issue"])

    async def add_labels(self, repo: str, number: int, names: Collection[str]) -> None:
        """Add labels; GitHub creates one that does not exist."""
        action, path = f"add labels to {repo}#{number}", f"/repos/{repo}/issues/{number}/labels"
        await self.connection.request(action, "POST", path, {"labels": [*names]}, repeat=True)

    async def set_type(self, repo: str, number: int, name: str) -> None:
        action = f"set the type of {repo}#{number}"
        issue = await self._change(action, repo, number, {"type": name})
        _check_change(action, success=issue.type.lower() == name.lower())

    async def set_assignees(self, repo: str, number: int, logins: Collection[str]) -> None:
        """Replace the assignees."""
        action = f"assign {repo}#{number}"
        issue = await self._change(action, repo, number, {"assignees": [*logins]})
        assignees = {account.login.lower() for account in issue.assignees}
        _check_change(action, success={login.lower() for login in logins} <= assignees)

    async def set_milestone(self, repo: str, number: int, title: str) -> None:
        action, path = f"set the milestone of {repo}#{number}", f"/repos/{repo}/milestones"
        milestones = self.connection.entries(_Entry, action, path, limit=_MOST)
        numbers = [entry.number async for entry in milestones if entry.name == title]
        if not numbers:
            raise _absent(action, f"there is no open milestone {title!r}")
        issue = await self._change(action, repo, number, {"milestone": numbers[0]})
        _check_change(action, success=issue.milestone == title)

    async def set_fields(self, repo: str, number: int, values: Mapping[str, str]) -> None:
        """Set fields of an issue by name; other fields keep their values.

        https://docs.github.com/rest/issues/issue-field-values
        """
        action = f"set fields of {repo}#{number}"
        known = {entry.name: entry for entry in await self._fields(repo)}
        if unknown := [name for name in values if name not in known]:
            raise _absent(action, f"there is no field {unknown[0]!r}")
        fields = [
            {"field_id": known[name].id, "value": known[name].parse_value(value)} for name, value in values.items()
        ]
        path, body = f"/repos/{repo}/issues/{number}/issue-field-values", {"issue_field_values": fields}
        await self.connection.request(action, "POST", path, body, repeat=True)

    async def close(self, repo: str, number: int, reason: Reason | None, *, duplicate_of: int = 0) -> None:
        """Close an issue with a reason, or a pull request without one."""
        action, change = f"close {repo}#{number}", dict[str, object](state="closed")
        if reason is not None:
            change["state_reason"] = reason
        if reason == "duplicate" and duplicate_of:
            change["duplicate_issue_id"] = await self._issue_id(repo, duplicate_of)
        issue = await self._change(action, repo, number, change)
        _check_change(action, success=issue.state == "closed")

    async def reopen(self, repo: str, number: int) -> None:
        action = f"reopen {repo}#{number}"
        issue = await self._change(action, repo, number, {"state": "open"})
        _check_change(action, success=issue.state == "open")

    async def update_body(self, repo: str, number: int, body: str) -> None:
        """Replace the description of an issue or pull request."""
        await self._change(f"describe {repo}#{number}", repo, number, {"body": self.redact(body)})

    async def create_issue(self, repo: str, *, title: str, body: str, labels: Collection[str] = ()) -> types.PullLink:
        """Open an issue. Not retried: call `find_issue` first."""
        issue = {"title": self.redact(title), "body": self.redact(body), "labels": [*labels]}
        action, path = f"open an issue in {repo}", f"/repos/{repo}/issues"
        return await self.connection.json(types.PullLink, action, "POST", path, issue)

    async def find_issue(self, repo: str, author: types.BotIdentity, mark: str) -> types.PullLink | None:
        """Return the author's newest issue whose body contains `mark`."""
        action, path = f"look for our issues in {repo}", f"/repos/{repo}/issues"
        query = {"creator": author.login, "state": "all"}
        async for issue in self.connection.entries(types.ThreadFacts, action, path, query, limit=_MOST):
            if issue.kind == "issue" and issue.author.id == author.id and mark in issue.body:
                return types.PullLink(number=issue.number, html_url=issue.html_url)
        return None

    async def add_sub_issue(self, repo: str, parent: int, number: int) -> None:
        """Make an issue a sub-issue, unless it is one of this parent already."""
        action, path = f"make {repo}#{number} a sub-issue of #{parent}", f"/repos/{repo}/issues/{parent}/sub_issues"
        child = await self._issue_id(repo, number)
        children = self.connection.entries(_IssueFacts, action, path, limit=_MOST)
        if child not in [issue.id async for issue in children]:
            await self.connection.request(action, "POST", path, {"sub_issue_id": child})

    async def request_reviewers(self, repo: str, number: int, names: Collection[str]) -> None:
        """Request reviews from accounts, and from teams by `organisation/team`."""
        action, path = f"request reviews of {repo}#{number}", f"/repos/{repo}/pulls/{number}/requested_reviewers"
        teams = [name.partition("/")[2] for name in names if "/" in name]
        body = {"reviewers": [name for name in names if "/" not in name]} | ({"team_reviewers": teams} if teams else {})
        await self.connection.request(action, "POST", path, body, repeat=True)

    async def set_draft(self, repo: str, number: int, *, draft: bool) -> None:
        """Convert a pull request to a draft, or mark it ready for review."""
        action = f"{'convert' if draft else 'mark'} {repo}#{number} {'to a draft' if draft else 'ready for review'}"
        data = (await self._query(action, repo, graphql.PULL_ID, {"number": number})).get("pullRequest")
        if data is None:
            raise types.thread_not_found(repo, number)
        pull = types.parse(_PullDraft, action, data)
        if pull.draft != draft:
            query, needs = (
                (graphql.DRAFT, "convertPullRequestToDraft")
                if draft
                else (graphql.READY, "markPullRequestReadyForReview")
            )
            await self.connection.graphql(action, query, {"id": pull.id}, needs=needs)

    async def start_workflow(
        self, repo: str, workflow: str, *, branch: str, inputs: Mapping[str, str]
    ) -> DispatchedRun:
        """Start a workflow by its file's name. Not retried: call `find_dispatched_run` first.

        https://docs.github.com/rest/actions/workflows#create-a-workflow-dispatch-event
        """
        action, path = f"start {workflow} of {repo}", f"/repos/{repo}/actions/workflows/{quote(workflow, safe='')}"
        body = {"ref": branch, "inputs": {name: self.redact(value) for name, value in inputs.items()}}
        url, details = f"{path}/dispatches", {"return_run_details": True}
        try:
            answer = await self.connection.request(action, "POST", url, body | details)
        except types.GitHubError as error:  # an older GitHub Enterprise Server
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or "return_run_details" not in error.message:
                raise
            answer = await self.connection.request(action, "POST", url, body)
        return types.parse(DispatchedRun, action, answer.data or {})

    async def find_dispatched_run(
        self,
        repo: str,
        workflow: str,
        *,
        branch: str,
        author: types.BotIdentity,
        since: datetime,
        earlier_urls: Collection[str] = (),
    ) -> DispatchedRun | None:
        """Return the first run that the author started since a moment, except for those at `earlier_urls`."""
        action, path = (
            f"read the runs of {workflow} of {repo}",
            f"/repos/{repo}/actions/workflows/{quote(workflow, safe='')}",
        )
        query = {
            "event": "workflow_dispatch",
            "branch": branch,
            "actor": author.login,
            "created": f">={since.strftime('%Y-%m-%dT%H:%M:%SZ')}",
        }
        runs = self.connection.entries(
            types.RunFacts, action, f"{path}/runs", query, within="workflow_runs", limit=_MOST
        )
        first = min(
            [run async for run in runs if run.html_url not in earlier_urls], key=lambda run: run.id, default=None
        )
        return None if first is None else DispatchedRun(id=first.id, html_url=first.html_url)

    async def create_discussion(self, repo: str, *, category: str, title: str, body: str) -> types.DiscussionFacts:
        """Open a discussion. Not retried: call `find_discussion` first."""
        action = f"open a discussion in {repo}"
        data = await self._query(action, repo, graphql.state_query({}, ["categories"]), {})
        lists = types.parse(_Lists, action, data)
        categories = {entry.name.lower(): entry.id for entry in lists.categories}
        if category.lower() not in categories:
            raise _absent(action, f"there is no category {category!r}")
        new = {
            "repositoryId": lists.id,
            "categoryId": categories[category.lower()],
            "title": self.redact(title),
            "body": self.redact(body),
        }
        return await self._create(action, graphql.NEW_DISCUSSION, new, needs="createDiscussion")

    async def find_discussion(self, repo: str, author_id: int, mark: str) -> types.DiscussionFacts | None:
        """Return the author's newest discussion whose body contains `mark`."""
        action = f"look for our discussions in {repo}"
        data = await self._query(action, repo, graphql.DISCUSSIONS, {})
        return types.parse(_Discussions, action, data).find(author_id, mark)

    async def comment_discussion(self, repo: str, number: int, body: str) -> types.DiscussionFacts:
        """Comment on a discussion. Not retried: call `find_discussion_comment` first."""
        action = f"comment on discussion {repo}#{number}"
        query = graphql.state_query({"discussion": 1}, [])
        data = (await self._query(action, repo, query, {"discussion0": number})).get("discussion0")
        if data is None:
            raise _absent(action, "there is no such discussion")
        discussion = types.parse(types.DiscussionFacts, action, data)
        new = {"discussionId": discussion.node_id, "body": self.redact(body)}
        return await self._create(action, graphql.NEW_DISCUSSION_COMMENT, new, needs="addDiscussionComment")

    async def find_discussion_comment(
        self, repo: str, number: int, author_id: int, mark: str
    ) -> types.DiscussionFacts | None:
        """Return the author's newest comment on a discussion that contains `mark`."""
        action = f"read the comments of discussion {repo}#{number}"
        data = await self._query(action, repo, graphql.DISCUSSION_COMMENTS, {"number": number})
        return types.parse(_Discussions, action, data).find(author_id, mark)

    async def _change(self, action: str, repo: str, number: int, change: Mapping[str, object]) -> _IssueFacts:
        path = f"/repos/{repo}/issues/{number}"
        return await self.connection.json(_IssueFacts, action, "PATCH", path, change)

    async def _issue_id(self, repo: str, number: int) -> int:
        path = f"/repos/{repo}/issues/{number}"
        return (await self.connection.read(_IssueFacts, f"read {repo}#{number}", path)).id

    async def _types(self, repo: str) -> tuple[str, ...]:
        entries = await self._list(_Entry, f"read the issue types of {repo}", f"/repos/{repo}/issue-types")
        return tuple(entry.name for entry in entries if entry.is_enabled)

    async def _fields(self, repo: str) -> tuple[types.IssueField, ...]:
        owner = repo.partition("/")[0]
        return await self._list(types.IssueField, f"read the issue fields of {owner}", f"/orgs/{owner}/issue-fields")

    async def _list(self, shape: type[types.Shape], action: str, path: str) -> tuple[types.Shape, ...]:
        """Return a short list; nothing if the token cannot read it, or it belongs to a person's account."""
        try:
            listed = await self.connection.read(list[Any], action, path)
        except types.GitHubError as error:
            if error.is_transient:
                raise
            return ()
        return tuple(types.parse(shape, action, entry) for entry in listed)

    async def _query(self, action: str, repo: str, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        owner, _, name = repo.partition("/")
        answer = await self.connection.graphql(
            action, query, {"owner": owner, "name": name, **variables}, needs="repository", writes=False
        )
        return types.parse(dict[str, Any], action, answer["repository"])

    async def _create(self, action: str, query: str, new: Mapping[str, object], *, needs: str) -> types.DiscussionFacts:
        answer = await self.connection.graphql(action, query, {"new": new}, needs=needs, repeat=False)
        return types.parse(_Created, action, answer[needs]).entry


def _check_change(action: str, *, success: bool) -> None:
    if not success:
        raise types.ChangeDroppedError(action, HTTPStatus.OK, "the change was not made", _DROPPED)


def _absent(action: str, message: str) -> types.GitHubError:
    return types.GitHubError(action, HTTPStatus.NOT_FOUND, message, types.remedy_for(HTTPStatus.NOT_FOUND, message))
