"""Plans from an outcome and a change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent_runtime import Outcome, Policy, Status
from bot.domain.commands import Undo
from bot.domain.job import Origin
from bot.git.change import Change, FileChange
from bot.permissions.levels import Grant
from bot.publishing.checks import Check, Rerun, Verdict
from bot.publishing.commit_format import CONVENTIONAL, CommitFormat
from bot.publishing.plan import CommitTarget, Publication, explain_end, plan_publication, plan_undo, withhold
from bot.publishing.screening import Objection
from bot.publishing.status_view import Progress
from tests.builders import a_job
from tests.changes import BASE, a_change, a_file
from tests.publishing_world import cause_of, reason_of

LARGE = "The change is large: review it in parts."


_VERIFIED = Progress(checks=(Check(command="pytest -q", exit_code=0, seconds=1),))


def a_grant(publish: str = "new_branch", sha: str = BASE) -> Grant:
    return Grant(policy=Policy(), publish=publish, bound_to_sha=sha)  # type: ignore[arg-type] # one of three words


_PLAIN = CommitFormat()


def planned(
    change: Change | None = None,
    *,
    summary: str = "Fixed the off-by-one in `add`. It fixes #9.",
    status: Status = Status.FINISHED,
    grant: Grant | None = None,
    kind: str = "issue",
    origin: str = "comment",
    head_branch: str | None = None,
    approved: frozenset[str] = frozenset(),
    keep_unfinished: bool = False,
    run_url: str = "",
    progress: Progress = _VERIFIED,
    verdict: Verdict = Verdict.VERIFIED,
    commit_format: CommitFormat = _PLAIN,
) -> Publication:
    return plan_publication(
        replace(a_job(kind=kind), origin=Origin(kind=origin, id=900)),  # type: ignore[arg-type] # one of its words
        grant or a_grant(),
        Outcome(status=status, summary=summary),
        a_change(a_file()) if change is None else change,
        CommitTarget(
            base_branch="main",
            head_branch=head_branch,
            server="https://github.example",
            run_url=run_url,
            keep_unfinished=keep_unfinished,
            commit_format=commit_format,
        ),
        approved=approved,
        progress=progress,
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("status", "text", "reason", "remedy"),
    [
        (
            Status.FAILED,
            "A service did not accept the API key (HTTP 401). Check ANTHROPIC_API_KEY.",
            "A service did not accept the API key (HTTP 401).",
            "Check ANTHROPIC_API_KEY. Then give the same command again.",
        ),
        (
            Status.FORMAT_ERRORS,
            "3 replies were cut off. Try again, or choose another model.",
            "3 replies were cut off.",
            "Try again, or choose another model.",
        ),
        (Status.FAILED, "It broke.", "It broke.", "Ask the operator to read the bot's log, then give the same command"),
        (Status.TIMEOUT, "Too long. Check it.", "Too long. Check it.", "Try again with a narrower goal"),
    ],
)
def test_the_advice_for_a_run_that_failed_names_its_cause(status: Status, text: str, reason: str, remedy: str) -> None:
    shown = explain_end(Outcome(status=status, reason=text))
    assert shown[0] == reason
    assert shown[1].startswith(remedy)


def test_commits_and_pull_requests_have_a_title_in_the_repositorys_format() -> None:
    conventional = CommitFormat(title=CONVENTIONAL)
    publication = planned(summary="Fixed the sum.", commit_format=conventional)
    assert publication.commit is not None
    assert publication.pull_request is not None
    assert publication.commit.title == publication.pull_request.title == "fix: the sum"
    unfinished = planned(status=Status.STOPPED, keep_unfinished=True, commit_format=conventional).commit
    assert unfinished is not None
    assert unfinished.title == "chore: keep unfinished work on issue 7"


def test_an_issue_gets_a_branch_a_commit_and_a_pull_request() -> None:
    publication = planned()
    commit, pull = publication.commit, publication.pull_request
    assert commit is not None
    assert pull is not None
    assert (commit.branch, commit.expected_head, commit.create_branch) == ("codepilot/issue-7-j1", BASE, True)
    assert commit.title == "Fix the off-by-one in add"
    assert "Codepilot job j1, issue 7." in commit.body
    assert commit.body.endswith("\n\nCo-authored-by: hubot-owner <20+hubot-owner@users.noreply.github.com>")
    assert (pull.base, pull.title, pull.draft) == ("main", "Fix the off-by-one in add", False)
    assert "It fixes `#9`." in pull.body
    assert pull.body.count("Fixes #7") == 1


def test_a_pull_request_gets_a_commit_on_its_own_branch() -> None:
    publication = planned(grant=a_grant("pull_branch"), kind="pull", head_branch="topic")
    assert publication.commit is not None
    assert (publication.commit.branch, publication.commit.create_branch) == ("topic", False)
    assert publication.pull_request is None


def test_nothing_changed_means_nothing_is_sent() -> None:
    assert planned(a_change()) == Publication(commit=None, pull_request=None)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.FINISHED])
def test_an_unfinished_run_publishes_nothing_and_says_so(status: Status) -> None:
    publication = planned(status=status)
    assert publication.commit is None
    assert cause_of(publication) == "unfinished"


@pytest.mark.parametrize("status", [s for s in Status if s not in {Status.FINISHED, Status.PAUSED}])
@pytest.mark.parametrize(("publish", "kind"), [("new_branch", "issue"), ("pull_branch", "pull")])
def test_unfinished_work_goes_to_a_branch_of_its_own_without_a_pull_request(
    status: Status, publish: str, kind: str
) -> None:
    publication = planned(status=status, grant=a_grant(publish), kind=kind, head_branch="topic", keep_unfinished=True)
    commit = publication.commit
    assert commit is not None
    assert (commit.branch, commit.create_branch) == (f"codepilot/{kind}-7-j1-wip", True)
    assert commit.title == f"Keep unfinished work on {kind} 7"
    assert publication.pull_request is None
    assert cause_of(publication) == "unfinished"
    assert f"`{commit.branch}`" in reason_of(publication)


def test_a_run_that_waits_keeps_its_work_to_itself() -> None:
    assert planned(status=Status.PAUSED, keep_unfinished=True).commit is None


def test_unfinished_work_on_protected_files_is_not_even_sent_to_a_branch_of_its_own() -> None:
    files = a_change(a_file(".github/workflows/ci.yml"))
    assert planned(files, status=Status.STOPPED, keep_unfinished=True).commit is None


def test_the_commit_names_the_page_of_its_run() -> None:
    commit = planned(run_url="https://github.example/octo/calc/runs/5").commit
    assert commit is not None
    assert "\nhttps://github.example/octo/calc/runs/5\n\nThe agent's checks passed.\n\nCo-authored-by: " in commit.body


@pytest.mark.parametrize("publish", ["nothing", "review"])
def test_a_reading_grant_publishes_nothing(publish: str) -> None:
    assert cause_of(planned(grant=a_grant(publish))) == "read-only"


def test_a_grant_for_another_commit_is_void() -> None:
    publication = planned(grant=a_grant(sha="9" * 40))
    assert publication.commit is None
    assert cause_of(publication) == "other-commit"


def blocked(change: Change) -> dict[str, tuple[str, ...]]:
    """Return the objections to a change, all named in the comment."""
    publication = planned(change)
    assert publication.commit is None
    assert cause_of(publication) == "needs-approval"
    assert all(f"`{path}`" in reason_of(publication) for each in publication.blocked for path in each.files)
    return {each.cause: each.files for each in publication.blocked}


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        ".github/actions/setup/index.js",
        "action.yml",
        "tools/thing/action.yaml",
        "CODEOWNERS",
        ".github/CODEOWNERS",
        "docs/codeowners",
        ".github/codepilot.yml",
        "web/package-lock.json",
        "uv.lock",
    ],
)
def test_protected_files_require_approval(path: str) -> None:
    assert blocked(a_change(a_file(path), a_file("ok.py"))) == {"protected": (path,)}


def test_an_approved_change_is_published_as_a_draft_with_a_note() -> None:
    change = a_change(a_file("action.yml"))
    (blocked,) = planned(change).blocked
    assert (blocked.cause, blocked.files) == ("protected", ("action.yml",))
    publication = planned(change, approved=frozenset({change.tree_sha}))
    assert publication.pull_request is not None
    assert publication.pull_request.draft
    assert "Approved by a person. It changes files that require a person's approval: `action.yml`." in str(
        publication.pull_request.body
    )
    assert not publication.blocked


def test_a_withheld_publication_lists_all_reasons() -> None:
    whole = planned()
    assert whole.commit is not None
    denied = withhold(whole, "denied", "@mona said no.")
    assert (denied.commit, denied.pull_request, cause_of(denied)) == (None, None, "denied")
    twice = withhold(planned(a_change(a_file("action.yml"))), "denied", "@mona said no.")
    assert cause_of(twice) == "denied"
    assert "`action.yml`" in reason_of(twice)
    assert reason_of(twice).endswith("@mona said no.")


def test_an_approval_is_for_the_exact_tree() -> None:
    publication = planned(a_change(a_file("action.yml")), approved=frozenset({"3" * 40}))
    assert publication.commit is None
    assert publication.blocked


@pytest.mark.parametrize("path", ["infra/main.tf", "INFRA/a/b", "deep/secrets.env"])
def test_a_repository_protects_more_files(path: str) -> None:
    grant = replace(a_grant(), protected=("infra/**", "*.env"))
    (blocked,) = planned(a_change(a_file(path), a_file("ok.py")), grant=grant).blocked
    assert blocked.files == (path,)
    assert planned(a_change(a_file("ok.py")), grant=grant).commit is not None


@pytest.mark.parametrize("path", ["src/action.py", "docs/workflows/ci.yml", "reaction.yml", "docs/dependabot.yml"])
def test_files_with_similar_names_do_not(path: str) -> None:
    assert planned(a_change(a_file(path))).commit is not None


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../../x", b"../.git/config", b"../.."])
def test_links_that_lead_out_are_withheld(target: bytes) -> None:
    link = a_file("docs/link", target, status="added", old_mode="", new_mode="120000")
    assert blocked(a_change(link)) == {"escapes": ("docs/link",)}


def test_links_that_stay_inside_are_published() -> None:
    link = a_file("docs/link", b"../README.md", status="added", old_mode="", new_mode="120000")
    assert planned(a_change(link)).commit is not None


def links(before: Mapping[str, str], **now: str) -> Change:
    """A change that adds the links `now` to a tree with those of before; `_` in a name stands for `/`."""
    new = {path.replace("_", "/"): target for path, target in now.items()}
    files = (a_file(path, os.fsencode(to), status="added", old_mode="", new_mode="120000") for path, to in new.items())
    return replace(a_change(*files), links={**before, **new})


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({"b": "deep/er"}, {"c": "b/../../../x"}, "c"),
        ({}, {"a": "b/../x", "b": "deep/.."}, "a"),
        ({}, {"a": "b/../../x", "b": "deep/er/est"}, ""),
        ({}, {"a": "docs/b/../../x", "docs_b": ".."}, "a"),
        ({}, {"a": "b", "b": "c", "c": "../x"}, "abc"),
        ({"old": "a/../../x"}, {"a": "."}, "a"),
        ({"old": "../x", "older": "a/b"}, {"a": "."}, ""),
        ({"b": "/etc"}, {"a": "b/passwd"}, "a"),
        ({"b": "."}, {"a": "b/.GIT/config"}, "a"),
    ],
)
def test_links_are_followed_through_the_links_of_the_tree(
    before: Mapping[str, str], now: dict[str, str], named: str
) -> None:
    change = links(before, **now)
    if named:
        assert blocked(change) == {"escapes": tuple(named)}
    else:
        assert planned(change).commit is not None


@pytest.mark.parametrize("now", [{"a": "a"}, {"a": "b", "b": "a/x"}, {"a": "a/../a/.."}])
def test_links_that_lead_nowhere_are_published(now: dict[str, str]) -> None:
    assert planned(links({}, **now)).commit is not None


def test_a_link_replaced_by_a_directory_counts_for_the_links_through_it() -> None:
    removed = a_file("l", None, old_mode="120000", status="deleted")
    change = replace(a_change(removed, a_file("l/x", status="added")), links={"c": "l/../../x"})
    assert blocked(change) == {"escapes": ("l",)}


def test_too_many_links_to_follow_are_withheld() -> None:
    many = {f"n{number}": "x/../" * 800 for number in range(1_000)}
    assert blocked(links(many, a=".")) == {"escapes": ("a",)}


def test_submodules_are_withheld() -> None:
    assert blocked(a_change(a_file("lib", None, old_mode="160000"))) == {"submodule": ("lib",)}
    assert blocked(a_change(a_file(".gitmodules"))) == {"submodule": (".gitmodules",)}


def test_large_and_unusual_changes_are_flagged() -> None:
    files = [a_file(f"f{n}") for n in range(101)]
    files += [a_file("logo.png", b"\0", binary=True), a_file("run.sh", new_mode="100755")]
    pull = planned(a_change(*files)).pull_request
    assert pull is not None
    assert pull.draft
    assert "Binary: `logo.png`." in pull.body
    assert "Made executable: `run.sh`." in pull.body
    into_a_pull = planned(a_change(*files), grant=a_grant("pull_branch"), kind="pull", head_branch="topic")
    assert into_a_pull.notes == ("Binary: `logo.png`.", "Made executable: `run.sh`.", LARGE)


@pytest.mark.parametrize(
    ("file", "doubted"),
    [
        (a_file("src/app.py"), False),
        (a_file("tests/test_new.py", removed=0), False),
        (a_file("src/contest.py"), False),
        (a_file("tests/test_app.py"), True),
        (a_file("pkg/app_test.go"), True),
        (a_file("src/app.spec.ts", None), True),
        (a_file("test.js"), True),
        (a_file("src/AppTest.java"), True),
    ],
    ids=lambda value: getattr(value, "path", ""),
)
def test_a_fix_that_removes_lines_of_tests_is_a_draft_with_a_note(file: FileChange, *, doubted: bool) -> None:
    proven = replace(_VERIFIED, rerun=Rerun(command="pytest", before=1, after=0))
    publication = planned(a_change(file), origin="ci", progress=proven)
    assert publication.pull_request is not None
    assert publication.pull_request.draft is doubted
    said = f"**Review the tests first:** the change removes lines from `{file.path}`"
    assert [said in publication.pull_request.body, any(said in each for each in publication.notes)] == [doubted] * 2
    elsewhere = planned(
        origin="ci", progress=replace(_VERIFIED, rerun=Rerun(command="mypy", after=0, is_unrelated=True))
    )
    assert elsewhere.pull_request is not None
    assert elsewhere.pull_request.draft
    asked = planned(a_change(file)).pull_request
    assert asked is not None
    assert not asked.draft


@pytest.mark.parametrize(("file", "other"), [(a_file("tests/test_app.py"), False), (a_file("src/app.py"), True)])
def test_a_weak_proof_commits_nothing_to_the_branch_of_a_person(file: FileChange, *, other: bool) -> None:
    weak = replace(_VERIFIED, rerun=Rerun(command="pytest", before=1, after=0, is_unrelated=other))
    publication = plan_publication(
        replace(a_job(kind="pull"), origin=Origin(kind="ci", id=5)),
        a_grant("pull_branch"),
        Outcome(status=Status.FINISHED, summary="Fixed."),
        a_change(file),
        CommitTarget(base_branch="main", head_branch="topic", server="https://github.example"),
        progress=weak,
        verdict=Verdict.VERIFIED,
    )
    assert (publication.commit, publication.pull_request) == (None, None)
    assert cause_of(publication) == "weak-proof"


def test_a_fix_of_red_ci_is_not_published_without_the_files_it_was_proven_with() -> None:
    proven = replace(_VERIFIED, rerun=Rerun(command="pytest -q", before=1, after=0))
    job = replace(a_job(kind="pull"), origin=Origin(kind="ci", id=5))

    def sent(*left_out: Objection) -> Publication:
        return plan_publication(
            job,
            a_grant("pull_branch"),
            Outcome(status=Status.FINISHED, summary="Fixed."),
            a_change(a_file()),
            CommitTarget(base_branch="main", head_branch="topic", server="https://github.example"),
            exclusions=left_out,
            progress=proven,
            verdict=Verdict.VERIFIED,
        )

    assert sent().commit is not None
    partly = sent(Objection(cause="protected", files=("Cargo.lock",)))
    assert partly.commit is None
    assert cause_of(partly) == "unproven"
    assert "`Cargo.lock`" in reason_of(partly)


def test_a_fix_of_red_ci_says_which_of_its_files_set_the_check() -> None:
    proven = replace(_VERIFIED, rerun=Rerun(command="pytest -q", before=1, after=0))
    notes = planned(
        a_change(a_file(), a_file("Makefile"), a_file("a/conftest.py", removed=0)), progress=proven, origin="ci"
    ).notes
    assert "It changes checks or their settings: `Makefile`, `a/conftest.py`." in notes[1]
    assert len(planned(a_change(a_file("src/calc.py")), progress=proven, origin="ci").notes) == 1


def undone(change: Change | None = None, publish: str = "pull_branch") -> Publication:
    return plan_undo(
        a_job(command=Undo()),
        a_grant(publish),
        a_change(a_file(".github/workflows/ci.yml")) if change is None else change,
        branch="topic",
        sha="5" * 40,
        title='Fix "add" for @hubot, see #9' + " and more" * 10,
    )


def test_an_undo_is_a_new_commit_that_names_the_one_it_takes_back() -> None:
    commit = undone().commit
    assert commit is not None
    assert (commit.branch, commit.create_branch, commit.expected_head) == ("topic", False, BASE)
    assert commit.title.startswith("Revert \"Fix 'add' for hubot, see and more")
    assert commit.title.endswith('…"')
    assert len(commit.title) <= 72
    assert commit.body.startswith(f"This reverts commit {'5' * 40}.\n\nCodepilot job j1")


def test_an_undo_that_may_not_or_need_not_be_sent_says_so() -> None:
    assert cause_of(undone(publish="nothing")) == "read-only"
    assert cause_of(undone(a_change())) == "no-reversal"
