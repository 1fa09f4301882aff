"""The client's declared actions where GitHub differs from the hub: changes that it drops, and older servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bot.github.actions import Actions
from bot.github.client import GitHub
from bot.github.types import ChangeDroppedError, GitHubError, IssueField
from localhub import LocalHub
from tests.bot.github.test_hostile_answers import scripted_server

_ISSUE = {"number": 1, "id": 9, "state": "open", "title": "It breaks", "html_url": "https://github.com/o/r/issues/1"}


@pytest.mark.parametrize(
    "change",
    [
        lambda actions: actions.set_type("o/r", 1, "Bug"),
        lambda actions: actions.set_assignees("o/r", 1, ["mona"]),
        lambda actions: actions.close("o/r", 1, "completed"),
    ],
)
async def test_a_change_that_github_drops_silently_is_a_definite_error(
    change: Callable[[Actions], Awaitable[None]],
) -> None:
    async with scripted_server((200, _ISSUE, {})) as server, server.connection() as connection:
        with pytest.raises(ChangeDroppedError, match="the change was not made") as error:
            await change(Actions(connection, str))
    assert error.value.certainty == "definite"


async def test_an_older_server_that_refuses_the_wish_for_details_starts_the_workflow_without_it() -> None:
    refusal = {"message": 'Invalid request. "return_run_details" is not a permitted key.'}
    async with scripted_server((422, refusal, {}), (204, "", {})) as server, server.connection() as connection:
        run = await Actions(connection, str).start_workflow("o/r", "ci.yml", branch="main", inputs={})
    assert (run.id, len(server.requests)) == (0, 2)


async def test_another_refusal_of_a_workflow_is_not_repeated() -> None:
    refusal = {"message": "Workflow does not have 'workflow_dispatch' trigger"}
    async with scripted_server((422, refusal, {})) as server, server.connection() as connection:
        with pytest.raises(GitHubError, match="trigger"):
            await Actions(connection, str).start_workflow("o/r", "ci.yml", branch="main", inputs={})
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("create", "reads"),
    [
        (lambda actions: actions.create_issue("o/r", title="x", body="y"), ()),
        (lambda actions: actions.start_workflow("o/r", "ci.yml", branch="main", inputs={}), ()),
        (lambda actions: actions.add_sub_issue("o/r", 1, 2), ((200, _ISSUE, {}), (200, [], {}))),
    ],
)
async def test_a_creation_is_not_repeated_after_a_server_error(
    create: Callable[[Actions], Awaitable[object]], reads: tuple[tuple[int, object, dict[str, str]], ...]
) -> None:
    async with scripted_server(*reads, (502, {}, {})) as server, server.connection() as connection:
        with pytest.raises(GitHubError):
            await create(Actions(connection, str))
    assert [request[:4] for request in server.requests] == [*("GET " for _ in reads), "POST"]


async def test_the_requests_about_types_and_fields_are_as_github_describes_them(hub: LocalHub) -> None:
    token = hub.add_user("mona").token
    repo = hub.add_repo("acme/calc", owner="mona", files={"a.txt": "1\n"})
    hub.open_issue(repo, author="mona", title="It breaks")
    hub.add_issue_type("acme", "Bug")
    hub.add_issue_field("acme", "Size", "number")
    hub.add_issue_field("acme", "Areas", "multi_select", options=["API"])
    async with GitHub.for_token(token, hub.api_url, redact=str, seconds_between_writes=0) as github:
        await github.actions.set_type("acme/calc", 1, "Bug")
        await github.actions.set_fields("acme/calc", 1, {"Size": "3", "Areas": "API"})
        state = await github.actions.read_state("acme/calc", numbers=[1], lists=["types", "fields"])
    assert (state.types, [field.name for field in state.fields]) == (("Bug",), ["Size", "Areas"])
    assert [value for _, value in hub.issue(repo, 1).fields] == [3, ("API",)]


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        ("number", "3", 3),
        ("number", "-1.5", -1.5),
        ("number", "9" * 400, "9" * 400),
        ("number", "nan", "nan"),
        ("multi_select", "API", ["API"]),
        ("text", "3", "3"),
    ],
)
def test_a_fields_value_has_the_form_of_its_type(data_type: str, text: str, value: object) -> None:
    assert IssueField(id=1, name="Size", data_type=data_type).parse_value(text) == value
