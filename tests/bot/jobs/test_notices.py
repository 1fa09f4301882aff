"""Who asked is told once, in a comment of its own, what an edit would tell nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.job import JobState
from bot.jobs import status
from bot.jobs.context import Ending
from bot.jobs.status import notice_of
from bot.permissions.repo_config import Notify
from bot.publishing.markdown import Allowed
from bot.publishing.render import render_notice
from bot.publishing.view import StatusView
from localhub import LocalHub
from tests.stage import FILES, FIX, staged

_ALLOWED = Allowed(login="mona", number=7, server="https://github.example", repo="mona/calc")
_BOTH: tuple[Notify, ...] = ("waiting", "done")
_URL = "https://github.example/mona/calc/issues/7#issuecomment-1"


def ending(state: JobState, *, seconds: float = 500.0, login: str = "mona", request_id: str = "") -> Ending:
    view = StatusView(
        state="done",
        asked="/codepilot fix",
        allowed=replace(_ALLOWED, login=login),
        job_id="j",
        marker="<!-- m -->",
        seconds=seconds,
    )
    return Ending(state=state, view=view, request_id=request_id, until=1_700_000_000.0)


@pytest.mark.parametrize(
    ("given", "wanted", "told"),
    [
        (ending(JobState.DONE), _BOTH, "`/codepilot fix` has finished after 8 min 20 s"),
        (ending(JobState.FAILED), _BOTH, "`/codepilot fix` has failed after 8 min 20 s"),
        (ending(JobState.DONE, seconds=119), _BOTH, ""),
        (ending(JobState.DONE), ("waiting",), ""),
        (ending(JobState.STOPPED), _BOTH, ""),
        (ending(JobState.DONE, login=""), _BOTH, ""),
        (ending(JobState.WAITING, request_id="abcd"), _BOTH, "is waiting for an answer until 14 November, 22:13 UTC"),
        (ending(JobState.WAITING, request_id="abcd"), ("done",), ""),
        (ending(JobState.WAITING), _BOTH, ""),
        (Ending(state=JobState.DONE), _BOTH, ""),
    ],
)
def test_what_takes_long_or_needs_a_person_is_told(given: Ending, wanted: tuple[Notify, ...], told: str) -> None:
    said = notice_of(given, wanted)
    assert (told in said) if told else (said == "")


def test_a_notice_mentions_the_asker_and_nobody_else() -> None:
    body = render_notice("`x` and @eve have finished", _ALLOWED, url=_URL, marker="<!-- codepilot:job=a sig=b -->")
    assert body == f"@mona `x` and `@eve` have finished ([status]({_URL})).\n\n<!-- codepilot:job=a sig=b -->"


@pytest.mark.parametrize(("file", "count"), [("", 1), ("notify: never\n", 0), ("notify: waiting\n", 0)])
async def test_the_repository_says_whether_its_people_are_told(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, count: int
) -> None:
    monkeypatch.setattr(status, "LONG_SECONDS", 0.0)
    files = {**FILES, ".github/codepilot.yml": file} if file else FILES
    async with staged(hub, tmp_path, [FIX], files=files) as stage:
        issue = stage.issue()
        end = await stage.ask(issue.number, "/codepilot fix")
        assert end.state is JobState.DONE
        told = stage.notices(issue.number)
        assert [each.startswith("@mona `/codepilot fix` has finished after ") for each in told] == [True] * count
