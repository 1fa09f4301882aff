"""Artifacts of workflow runs: found by name, led to another address, gone in the end."""

from __future__ import annotations

import hashlib

from localhub import EndedJob
from tests.localhub.conftest import World

A = "/repos/acme/widgets/actions/artifacts"


async def test_artifacts_are_found_by_name_and_given_out_elsewhere(world: World) -> None:
    old = world.hub.keep_artifact(world.repo, "session", {"a.txt": b"old"}, run_id=7)
    new = world.hub.keep_artifact(world.repo, "session", {"a.txt": b"new"}, run_id=8)
    world.hub.keep_artifact(world.repo, "report", {"b.txt": b"1 failed"}, run_id=8)
    found = (await world.bot.ask("GET", f"{A}?name=session")).body
    assert (found["total_count"], [each["id"] for each in found["artifacts"]]) == (2, [new.id, old.id])
    assert found["artifacts"][0]["digest"] == f"sha256:{hashlib.sha256(new.content).hexdigest()}"
    led = await world.bot.staying().ask("GET", f"{A}/{new.id}/zip")
    assert (led.status, "localhost" in led.headers["Location"]) == (302, True)
    assert (await world.bot.ask("GET", f"{A}/{new.id}/tar")).status == 404
    assert (await world.stranger.ask("DELETE", f"{A}/{new.id}")).status == 403
    assert [each.id for each in world.hub.artifacts(world.repo)][:2] == [old.id, new.id]


async def test_an_expired_artifact_is_named_and_not_given_out(world: World) -> None:
    kept = world.hub.keep_artifact(world.repo, "session", {"a.txt": b"x"}, run_id=7, days=0)
    assert (await world.bot.ask("GET", f"{A}/{kept.id}")).body["expired"] is True
    gone = await world.bot.ask("GET", f"{A}/{kept.id}/zip")
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
