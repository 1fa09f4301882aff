"""Check runs, with their limits and buttons; artifacts and logs of workflow runs."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from localhub import EndedJob
from localhub.api.auth import HubError
from tests.hub_client import installation_token
from tests.localhub.conftest import World, payloads_of, record_deliveries

R = "/repos/acme/widgets"
ARTIFACTS = f"{R}/actions/artifacts"
STOP = {"label": "Stop", "description": "Stop the run", "identifier": "stop"}
NOTE = {"path": "src/a.py", "start_line": 1, "end_line": 1, "annotation_level": "notice", "message": "Here"}


def run_on(world: World, **more: object) -> dict[str, Any]:
    """The body that creates a completed run on the default branch."""
    head = world.hub.branches(world.repo)["main"]
    return {"name": "codepilot", "head_sha": head, "conclusion": "action_required", **more}


def output(**more: object) -> dict[str, Any]:
    return {"title": "Done", "summary": "All well", **more}


async def test_a_pressed_button_reaches_the_runs_own_app_only(world: World) -> None:
    record_deliveries(world)
    other = world.hub.add_app("other", webhook_url="http://127.0.0.1:9/other", webhook_secret="s")
    world.hub.install(other, world.repo)
    body = run_on(world, external_id="job-7", actions=[STOP], output=output())
    await world.bot.ask("POST", f"{R}/check-runs", body)
    run = world.hub.check_runs(world.repo)[0]
    world.hub.press(run, "stop", by="eve")
    world.hub.rerun(run, by="mona")
    told = [each for each in world.hub.deliveries if each.action in {"requested_action", "rerequested"}]
    assert [each.app_id for each in told] == [world.app.id, world.app.id]
    pressed, again = payloads_of(world, "check_run")[-2:]
    assert (pressed["requested_action"], pressed["sender"]["login"]) == ({"identifier": "stop"}, "eve")
    assert (pressed["check_run"]["external_id"], again["check_run"]["external_id"]) == ("job-7", "job-7")
    assert (again["sender"]["login"], again["check_run"]["conclusion"]) == ("mona", "action_required")


async def test_buttons_are_there_once_the_run_is_completed(world: World) -> None:
    body = run_on(world, actions=[STOP])
    del body["conclusion"]
    await world.bot.ask("POST", f"{R}/check-runs", body)
    run = world.hub.check_runs(world.repo)[0]
    with pytest.raises(HubError, match="once it is completed"):
        world.hub.press(run, "stop", by="mona")
    with pytest.raises(HubError, match="only a completed"):
        world.hub.rerun(run, by="mona")
    await world.bot.ask("PATCH", f"{R}/check-runs/{run.id}", {"conclusion": "success"})
    world.hub.press(run, "stop", by="mona")
    with pytest.raises(HubError, match="no button 'go'"):
        world.hub.press(run, "go", by="mona")


@pytest.mark.parametrize(
    "more",
    [
        {"actions": [STOP] * 4},
        {"actions": [STOP | {"label": "x" * 21}]},
        {"actions": [STOP | {"description": "x" * 41}]},
        {"actions": [STOP | {"identifier": "x" * 21}]},
        {"actions": [{"label": "Stop"}]},
        {"output": output(annotations=[NOTE] * 51)},
        {"output": output(annotations=[NOTE | {"annotation_level": "bad"}])},
        {"output": output(annotations=[{"path": "a"}])},
        {"output": output(summary="x" * 65_536)},
        {"output": output(text="x" * 65_536)},
        {"conclusion": "splendid"},
    ],
)
async def test_what_is_too_much_for_github_is_refused(world: World, more: dict[str, Any]) -> None:
    refused = await world.bot.ask("POST", f"{R}/check-runs", run_on(world, **more))
    assert refused.status == 422
    assert not world.hub.check_runs(world.repo)


async def test_annotations_add_up_over_requests(world: World) -> None:
    full = output(text="x" * 65_535, annotations=[NOTE] * 50)
    made = (await world.bot.ask("POST", f"{R}/check-runs", run_on(world, output=full, actions=[STOP] * 3))).body
    await world.bot.ask("PATCH", f"{R}/check-runs/{made['id']}", {"output": output(annotations=[NOTE] * 20)})
    listed = await world.bot.ask("GET", f"{R}/check-runs/{made['id']}/annotations?per_page=100")
    assert len(listed.body) == 70
    found = await world.bot.ask("GET", f"{R}/commits/main/check-runs")
    assert found.body["check_runs"][0]["output"]["annotations_count"] == 70


async def test_only_an_app_with_the_permission_writes_checks(world: World) -> None:
    person = await world.owner.ask("POST", f"{R}/check-runs", run_on(world))
    assert (person.status, person.body["message"]) == (403, "You must authenticate via a GitHub App.")
    poor = world.hub.add_app("poor", permissions={"contents": "write", "issues": "write"})
    installation = world.hub.install(poor, world.repo)
    bot = world.nobody.with_token(await installation_token(world.nobody, poor, installation))
    refused = await bot.ask("POST", f"{R}/check-runs", run_on(world))
    assert (refused.status, refused.body["message"]) == (403, "Resource not accessible by integration")
    assert refused.headers["X-Accepted-GitHub-Permissions"] == "checks=write"
    spoken = await bot.ask("POST", f"{R}/issues", {"title": "It has no checks"})
    assert (spoken.status, spoken.headers["X-Accepted-GitHub-Permissions"]) == (201, "issues=write")


async def test_an_app_may_not_touch_the_run_of_another(world: World) -> None:
    made = (await world.bot.ask("POST", f"{R}/check-runs", run_on(world))).body
    other = world.hub.add_app("other")
    token = await installation_token(world.nobody, other, world.hub.install(other, world.repo))
    refused = await world.nobody.with_token(token).ask("PATCH", f"{R}/check-runs/{made['id']}", {"name": "mine"})
    assert refused.status == 403


async def test_artifacts_are_found_by_name_and_given_out_elsewhere(world: World) -> None:
    old = world.hub.keep_artifact(world.repo, "session", {"a.txt": b"old"}, run_id=7)
    new = world.hub.keep_artifact(world.repo, "session", {"a.txt": b"new"}, run_id=8)
    world.hub.keep_artifact(world.repo, "report", {"b.txt": b"1 failed"}, run_id=8)
    found = (await world.bot.ask("GET", f"{ARTIFACTS}?name=session")).body
    assert (found["total_count"], [each["id"] for each in found["artifacts"]]) == (2, [new.id, old.id])
    assert found["artifacts"][0]["digest"] == f"sha256:{hashlib.sha256(new.content).hexdigest()}"
    led = await world.bot.staying().ask("GET", f"{ARTIFACTS}/{new.id}/zip")
    assert (led.status, "localhost" in led.headers["Location"]) == (302, True)
    assert (await world.bot.ask("GET", f"{ARTIFACTS}/{new.id}/tar")).status == 404
    assert (await world.stranger.ask("DELETE", f"{ARTIFACTS}/{new.id}")).status == 403
    assert [each.id for each in world.hub.artifacts(world.repo)][:2] == [old.id, new.id]


async def test_an_expired_artifact_is_named_and_not_given_out(world: World) -> None:
    kept = world.hub.keep_artifact(world.repo, "session", {"a.txt": b"x"}, run_id=7, days=0)
    assert (await world.bot.ask("GET", f"{ARTIFACTS}/{kept.id}")).body["expired"] is True
    gone = await world.bot.ask("GET", f"{ARTIFACTS}/{kept.id}/zip")
    assert (gone.status, gone.body["message"]) == (410, "Artifact has expired")


async def test_a_part_of_a_log_says_which_part_it_is(world: World) -> None:
    sha = (await world.bot.ask("GET", "/repos/acme/widgets/commits/main")).body["sha"]
    for log in ("0123456789", ""):
        job = EndedJob(name="test", conclusion="failure", log=log)
        world.hub.workflow_run(
            world.repo, head_sha=sha, head_branch="main", conclusion="failure", actor="mona", jobs=[job]
        )
    jobs = [
        (await world.bot.ask("GET", f"/repos/acme/widgets/actions/runs/{run.id}/jobs")).body["jobs"][0]["id"]
        for run in world.hub.workflow_runs(world.repo)
    ]
    full, empty = [
        (await world.bot.staying().ask("GET", f"/repos/acme/widgets/actions/jobs/{job}/logs")).headers["Location"]
        for job in jobs
    ]
    for asked, body, told in (
        ("0-3", "0123", "bytes 0-3/10"),
        ("8-", "89", "bytes 8-9/10"),
        ("-3", "789", "bytes 7-9/10"),
    ):
        part = await world.nobody.ask("GET", full, Range=f"bytes={asked}")
        assert (part.status, part.body, part.headers["Content-Range"]) == (206, body, told)
    none = await world.nobody.ask("GET", empty, Range="bytes=-3")
    assert (none.status, none.headers["Content-Range"]) == (416, "bytes */0")
