"""Threat 22: a stranger's text is never a template, and no branch has a name that a shell or a URL could misread."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.domain.commands import is_safe_branch
from bot.permissions.levels import Grant
from bot.publishing.markdown import Allowlist
from bot.publishing.outcome import PendingView
from bot.publishing.plan import CommitTarget, plan_publication
from bot.publishing.render import render_reply, render_status
from tests.builders import a_job, task_for
from tests.changes import BASE, a_change, a_file
from tests.origin import git
from tests.status_views import a_status_view

TEMPLATES = ["${{ secrets.TOKEN }}", "{{ 7 * 7 }}", "{% for x in y %}", "{# gone #}", "$(id)", "{job.id}", "%(id)s"]
ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_template_is_shown_literally(text: str) -> None:
    pending = PendingView(kind="permission", request_id="7f3a91c0", trigger="/codepilot", reason=text, preview=text)
    view = a_status_view(
        state="waiting",
        command=f"/codepilot {text}",
        allowed=ALLOWED,
        job_id="j1",
        marker="",
        seconds=1,
        completion=text,
        pending=pending,
        notes=(text,),
        withheld=text,
    )
    assert render_status(view).count(text) == 6
    assert text in render_reply(text, ALLOWED, job_id="j1")
    assert text in task_for(a_job(title=text)).quotes[0].text


@pytest.mark.parametrize("text", [*TEMPLATES, "; rm -rf .", "../../main", "-f", "\nmain"])
def test_a_branch_of_ours_holds_nothing_of_a_title_or_of_the_models_words(text: str) -> None:
    grant = Grant(policy=Policy(), publish="new_branch", bound_to_sha=BASE)
    publication = plan_publication(
        a_job(title=text, body=text),
        grant,
        Outcome(status=Status.FINISHED, summary=text),
        a_change(a_file()),
        CommitTarget(base_branch="main", server="https://github.example"),
    )
    assert publication.commit is not None
    assert publication.commit.branch == "codepilot/issue-7-j1"
    assert "\n" not in publication.commit.title


@pytest.mark.parametrize(
    "name",
    [
        *(
            "-f",
            "--upload-pack=x",
            "a..b",
            "a b",
            "${{ x }}",
            "a\nb",
            "",
            "a" * 245,
            "ä" * 123,
            "a~1",
            "a^",
            "a:b",
            "a?",
        ),
        *(
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "a\\b",
            "@",
            "a@{1}",
            ".a",
            "a/.b",
            "a/",
            "/a",
            "a//b",
            "a.",
            "a.lock",
            "a.lock/b",
            "\ud800",
        ),
    ],
)
def test_a_branch_with_a_name_that_git_does_not_take_is_not_handled(name: str) -> None:
    assert not is_safe_branch(name)


@pytest.mark.parametrize(
    "name", ["feature/add-1.2_x", "ü", "🐛", "fix(x)", "$(id)", "`id`", "a;b", "100%", "a&b", "it's"]
)
def test_a_branch_of_any_name_that_git_takes_is_handled(name: str) -> None:
    assert is_safe_branch(name)
    git(Path(), "check-ref-format", "--branch", name)
