"""Threat 53: what a job was allowed by is asked again before its work is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs import access
from localhub import LocalHub, Repo
from tests.stage import FIX, FIXED_CALC, WAIT_FOR_GO, acting, staged
from tests.waiting import eventually


def _rename(hub: LocalHub, repo: Repo, name: str) -> None:
    repos = hub._site.store.repos
    repos.put(replace(repos[repo.id], name=name))


def _set_private(hub: LocalHub, repo: Repo, *, private: bool) -> None:
    repos = hub._site.store.repos
    repos.put(replace(repos[repo.id], private=private))


async def test_a_name_that_was_given_to_another_repository_is_left_alone(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The acknowledgement may have asked just before; then GitHub refuses the token there, with another reason.
    monkeypatch.setattr(access, "FRESH_SECONDS", -1.0)
    async with staged(hub, tmp_path, held=True) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.job_of(command)
        other = hub.add_repo("mona/another", owner="mona", files={"a.txt": "another\n"})
        _rename(hub, stage.repo, "moved")
        _rename(hub, other, "calc")
        hub.install(stage.app, other)
        theirs = hub.open_issue(other, author="mona", title="Not about this")
        assert theirs.number == issue.number
        stage.open_for_work.set()
        end = await stage.end_of(command)
        assert end.state is JobState.FAILED
        assert "no longer the repository" in end.reason
        assert stage.providers == []
        assert hub.comments(other, theirs.number) == []
        assert set(hub.branches(other)) == {"main"}


async def test_a_repository_made_public_before_the_run_is_refused(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the acknowledgement asked moments ago would do for the run, too.
    monkeypatch.setattr(access, "FRESH_SECONDS", -1.0)
    async with staged(hub, tmp_path, held=True) as stage:
        _set_private(hub, stage.repo, private=True)
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        await stage.job_of(command)
        _set_private(hub, stage.repo, private=False)
        stage.open_for_work.set()
        end = await stage.end_of(command)
        assert end.state is JobState.REFUSED
        assert "is public now" in end.status
        assert stage.providers == []


async def test_facts_are_checked_again_before_publishing(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX]) as stage:
        _set_private(hub, stage.repo, private=True)
        command = stage.say(stage.issue().number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.at_work()
        _set_private(hub, stage.repo, private=False)
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert end.state is JobState.DONE
        assert "Not published" in end.status
        assert "is public now" in end.status
        assert f"{job_id}.patch" in end.status
        assert stage.nothing_published()
        assert stage.pulls() == []
        assert (stage.data / "patches" / f"{job_id}.patch").is_file()


async def test_work_on_an_issue_that_is_closed_meanwhile_is_stopped_and_kept(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(f'write_file("calc.py")\n{WAIT_FOR_GO}', FIXED_CALC)]) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        job_id = await stage.job_of(command)
        await stage.at_work()
        await eventually(lambda: (stage.files_of(job_id) / "calc.py").read_text() == FIXED_CALC)
        hub.close(stage.repo, issue.number, by="mona")
        end = await stage.end_of(command)
        assert end.state is JobState.STOPPED
        assert "The thread was closed." in end.status
        assert "This issue is closed. Reopen it and try again." in end.status
        assert stage.nothing_published()
        assert stage.pulls() == []
        assert "+    return a + b" in (stage.data / "patches" / f"{job_id}.patch").read_text(encoding="utf-8")


async def test_revoked_access_prevents_publication(hub: LocalHub, tmp_path: Path) -> None:
    async with staged(hub, tmp_path, [acting(WAIT_FOR_GO), FIX]) as stage:
        writer = hub.add_user("writer").login
        hub.add_collaborator(stage.repo, writer, "write")
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix", author=writer)
        job_id = await stage.job_of(command)
        await stage.at_work()
        hub.add_collaborator(stage.repo, writer, "read")
        await stage.let_go(job_id)
        end = await stage.end_of(command)
        assert "Only people with write access" in end.status
        assert stage.nothing_published()
