"""The status comment."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent_runtime import Status, Usage
from bot.domain.job import Thread
from bot.github.types import ReviewDraft, ReviewNote
from bot.publishing.checks import Check
from bot.publishing.markdown import Allowlist, duration, is_harmless
from bot.publishing.markers import sign_marker, signed_job
from bot.publishing.outcome import ActionView, PendingView
from bot.publishing.render import (
    answer_commands,
    render_check,
    render_notice,
    render_reply,
    render_status,
    settings_to_inputs,
)
from bot.publishing.screening import PREVIEW_LIMIT
from bot.publishing.status_view import Activity, DeniedCall, StatusView
from tests.builders import a_job
from tests.changes import a_file
from tests.status_views import a_status_view

KEY = b"a key of the bot's"
MARKER = sign_marker("j1", 10, 7, key=KEY)
ALLOWED = Allowlist(login="mona", number=7, server="https://github.example", repo="octo/calc")


def a_view(**changes: object) -> StatusView:
    values: dict[str, Any] = {"state": "working", "allowed": ALLOWED, "seconds": 34, "marker": MARKER}
    return a_status_view(**{**values, **changes})


def test_a_working_comment_lists_the_activities() -> None:
    activities = (Activity(label="read src/a.py", state="done"), Activity(label="run `pytest`", state="doing"))
    assert render_status(a_view(activities=activities, sandbox="bubblewrap, no network")) == (
        "### 🛠️ Working on it · `/codepilot fix` for @mona · 34 s\n"
        "\n"
        "- [x] `read src/a.py`\n"
        "- [ ] `` run `pytest` ``\n"
        "\n"
        "<sub>sandbox: `bubblewrap, no network` · job `j1`</sub>\n"
        "\n"
        f"{MARKER}"
    )


def test_a_running_comment_shows_its_age_and_the_stop_command() -> None:
    told = a_view(at=1_700_000_000.0, stop="/codepilot stop")
    assert "<sub>updated 22:13 UTC · stop it with `/codepilot stop` · job `j1`</sub>" in render_status(told)
    assert "<sub>job `j1`</sub>" in render_status(a_view(state="done", at=told.at, stop=told.stop))


def test_a_denied_call_is_listed_with_the_setting_that_allows_it() -> None:
    pattern = "npm view left-pad"
    calls = (
        DeniedCall(tool="execute", request=pattern, reason="", setting="allow-commands", value=pattern),
        DeniedCall(tool="execute", request="curl x > y @team", reason="", setting="level", value="auto"),
        DeniedCall(tool="execute", request="curl x", reason="", setting="label", value="codepilot:auto"),
        DeniedCall(tool="execute", request="curl x", reason="", setting="label-off", value="codepilot:ask"),
        DeniedCall(tool="ask_user", request="Which colour?", reason=""),
    )
    body = render_status(a_view(state="done", completion="Fixed it.", denied=calls))
    assert (
        "**Denied, because nobody can approve calls in this run**\n\n- `npm view left-pad`. To allow it, add `npm "
        "view left-pad` to `allow` in `.github/codepilot.yml`, or to the action's input `allow-commands`.\n- `curl "
        "x > y @team`. To allow it, set `level: auto` in `.github/codepilot.yml`, or as the action's input if that "
        "file sets no level.\n- `curl x`. To allow it, set the label `codepilot:auto` and remove the one for a "
        "lower level.\n- `curl x`. To allow it, remove the label `codepilot:ask`, and set `level: auto` if it is "
        "not already set.\n- Not answered: `Which colour?`. Write the answer into your next command.\n"
    ) in body


def test_a_finished_comment_has_words_changes_checks_and_cost() -> None:
    body = render_status(
        a_view(
            state="done",
            completion="Fixed it.",
            files=(a_file("src/a.py", added=10, removed=4), a_file("logo.png", binary=True, status="added")),
            checks=(
                Check(command="pytest -q", exit_code=0, seconds=1.2),
                Check(command="ruff check", exit_code=1, seconds=61),
            ),
            commit_sha="abcdef0" + "0" * 33,
            commit_url="https://github.example/octo/calc/commit/abcdef0",
            pull_number=8,
            pull_url="https://github.example/octo/calc/pull/8",
            steps=3,
            usage=Usage(input_tokens=1000, cached_tokens=3000, output_tokens=700, cost_usd=0.123),
        )
    )
    assert body == (
        "### ✅ Done · `/codepilot fix` for @mona · 34 s\n"
        "\n"
        "Fixed it.\n"
        "\n"
        "**What changed** · [pull request #8](https://github.example/octo/calc/pull/8)"
        " · [commit `abcdef0`](https://github.example/octo/calc/commit/abcdef0)\n"
        "\n"
        "- `src/a.py` +10\u00a0\u22124\n"
        "- `logo.png` added, binary\n"
        "\n"
        "**Checks the agent ran**\n"
        "\n"
        "| | Check | Result | Time |\n"
        "|---|---|---|---|\n"
        "| ✅ | `pytest -q` | passed | 1 s |\n"
        "| ❌ | `ruff check` | exit code 1 | 1 min 1 s |\n"
        "\n"
        "<sub>3 steps · 4,700 tokens, 75 % of the input cached · $0.12 · job `j1`</sub>\n"
        "\n"
        f"{MARKER}"
    )


def test_a_failure_shows_reason_and_remedy() -> None:
    body = render_status(a_view(state="failed", reason="The model could not be reached.", remedy="Ask again."))
    assert "### ❌ Failed" in body
    assert "The model could not be reached.\n\n**How to fix it:** Ask again." in body


def test_a_withheld_reason_stays_inside_its_box() -> None:
    body = render_status(a_view(state="done", withheld="It changes `action.yml`.\n\nThe patch is kept."))
    assert "> **Not published.** It changes `action.yml`.\n> \n> The patch is kept.\n" in body


def test_a_warning_with_a_commands_output_stays_inside_its_box() -> None:
    body = render_status(a_view(state="done", warning="**The setup failed.**\n\n```\n@octocat\n# x\n```"))
    assert "> [!WARNING]\n> **The setup failed.**\n> \n> ```\n> @octocat\n> # x\n> ```\n" in body


def test_a_pending_call_shows_its_preview_and_answers() -> None:
    pending = PendingView(
        kind="permission",
        request_id="7f3a91c0",
        trigger="/codepilot",
        reason="`make deploy` is on no list of commands that need no asking.",
        preview="make deploy",
        language="bash",
        expires="25 November 2026, 05:00 UTC",
    )
    assert render_status(a_view(state="waiting", pending=pending, level="ask")) == (
        "### ✋ Waiting for you · `/codepilot fix` for @mona · 34 s\n"
        "\n"
        "**This requires your approval.** `make deploy` is on no list of commands that need no asking.\n"
        "\n"
        "```bash\nmake deploy\n```\n"
        "\n"
        "Answer with one of these until 25 November 2026, 05:00 UTC:\n"
        "\n"
        "```\n/codepilot approve 7f3a91c0\n```\n"
        "\n"
        "```\n/codepilot deny 7f3a91c0\n```\n"
        "\n"
        "<sub>permission: `ask` · job `j1`</sub>\n"
        "\n"
        f"{MARKER}"
    )


def test_requests_that_begin_alike_are_answered_by_different_lines() -> None:
    shown = [
        answer_commands(PendingView(kind="publication", request_id=each, trigger="/codepilot"))
        for each in ("7f3a91c0", "7f3a91c1")
    ]
    assert set(shown[0]).isdisjoint(shown[1])


def test_a_question_is_answered_in_words() -> None:
    pending = PendingView(kind="question", request_id="7f3a91c0", trigger="/codepilot", reason="Which one, @hubot?")
    body = render_status(a_view(state="waiting", pending=pending))
    assert "**A question.** Which one, `@hubot`?" in body
    assert "```\n/codepilot continue <your answer>\n```" in body
    assert "approve" not in body


@pytest.mark.parametrize(
    ("login", "takes_replies", "lead"),
    [
        (
            "mona",
            True,
            "Reply here until X, or write this line. A reply by anybody but @mona has to quote the question.",
        ),
        ("", True, "Reply here until X, or write this line. A reply has to quote the question."),
        ("mona", False, "Answer until X:"),
    ],
)
def test_a_question_says_who_may_reply_where_replies_are_read(login: str, takes_replies: bool, lead: str) -> None:  # noqa: FBT001
    pending = replace(PENDING, kind="question", expires="X", takes_replies=takes_replies)
    allowed = replace(ALLOWED, login=login)
    assert f"\n\n{lead}\n\n" in render_status(a_view(state="waiting", pending=pending, allowed=allowed))


@given(st.lists(st.sampled_from(["```", "````", "~~~", "/codepilot approve", "@hubot", "+x", "-y", ""]), max_size=9))
def test_no_preview_leaves_its_block(lines: list[str]) -> None:
    text = "\n".join(lines)
    pending = PendingView(
        kind="publication", request_id="7f3a91c0", trigger="/codepilot", preview=text, language="diff"
    )
    view = a_view(state="waiting", pending=pending)
    notice = render_notice("It waits", ALLOWED, url="", marker=MARKER, view=view)
    for body in (render_status(view), notice):
        fences = [token for token in MarkdownIt("commonmark").parse(body) if token.type == "fence"]
        assert len(fences) == 2 + bool(text.strip("\n"))
        assert fences[-2].content == "/codepilot approve 7f3a91c0\n"
        own = map(re.escape, (MARKER, "<sub>", "</sub>", "<details><summary>The request</summary>", "</details>"))
        assert is_harmless(re.sub("|".join(own), "", body), ALLOWED)


def test_a_notice_has_the_request_and_the_lines_to_answer_it_with() -> None:
    pending = PendingView(
        kind="permission",
        request_id="7f3a91c0",
        trigger="/codepilot",
        reason="`make deploy` is on no list.",
        preview="make deploy",
        language="bash",
    )
    view = a_view(state="waiting", pending=pending)
    assert render_notice("It waits", ALLOWED, url="", marker=MARKER, view=view) == (
        "@mona It waits.\n"
        "\n"
        "<details><summary>The request</summary>\n"
        "\n"
        "**This requires your approval.** `make deploy` is on no list.\n"
        "\n"
        "```bash\nmake deploy\n```\n"
        "\n"
        "</details>\n"
        "\n"
        "Answer with one of these:\n"
        "\n"
        "```\n/codepilot approve 7f3a91c0\n```\n"
        "\n"
        "```\n/codepilot deny 7f3a91c0\n```\n"
        "\n"
        f"{MARKER}"
    )


def test_a_notice_of_a_long_request_links_its_parts_and_fits() -> None:
    urls = ("https://github.example/octo/calc/issues/7#issuecomment-1", "https://github.example/octo/calc/issues/7#2")
    pending = PendingView(kind="publication", request_id="7f3a91c0", trigger="/codepilot", part_urls=urls)
    notice = render_notice("It waits", ALLOWED, url="", marker=MARKER, view=a_view(state="waiting", pending=pending))
    assert f"[part 1]({urls[0]}) · [part 2]({urls[1]})" in notice
    longest = replace(pending, part_urls=(), preview="x" * (PREVIEW_LIMIT - 10), reason="z" * 6_000)
    notice = render_notice("It waits", ALLOWED, url="", marker=MARKER, view=a_view(state="waiting", pending=longest))
    assert notice.endswith(f"```\n/codepilot deny 7f3a91c0\n```\n\n{MARKER}")


def test_a_notice_of_a_plan_has_the_plan() -> None:
    pending = PendingView(kind="plan", request_id="7f3a91c0", trigger="/codepilot")
    view = a_view(state="waiting", pending=pending, completion="1. Add a test.")
    assert "1. Add a test.\n\n**This is a plan." in render_notice("It waits", ALLOWED, url="", marker=MARKER, view=view)


def test_a_long_preview_is_cut_and_keeps_its_answers() -> None:
    pending = PendingView(kind="plan", request_id="7f3a91c0", trigger="/codepilot", preview="+x\n" * 50_000)
    body = render_status(a_view(state="waiting", pending=pending))
    assert len(body) < 8_000
    assert "… truncated:" in body
    assert "/codepilot deny 7f3a91c0" in body


def test_important_notes_are_in_alert_boxes() -> None:
    body = render_status(
        a_view(
            state="stopped",
            withheld="Because.",
            dry_run_note="A commit `Fix` on the new branch `b`.",
            patch_note="As a patch, for 30 days.",
            ci_note="Close and reopen the pull request to begin them.",
            notes=("`--budget 9` was cut to the operator's 5 dollars.", "The label `x` is void:\nthe head moved."),
            run_url="https://github.example/octo/calc/runs/5",
            wip_url="https://github.example/octo/calc/compare/a...b",
        )
    )
    assert " · 34 s · [run](https://github.example/octo/calc/runs/5)\n" in body
    assert "> [!WARNING]\n> **Not published.** Because.\n" in body
    assert "> [!NOTE]\n> **Dry run: nothing was published.** A commit `Fix` on the new branch `b`.\n" in body
    assert "> [!NOTE]\n> **Kept.** As a patch, for 30 days.\n" in body
    assert "> **Checks will not start automatically.** Close and reopen the pull request to begin them.\n" in body
    assert "[unfinished work](https://github.example/octo/calc/compare/a...b)" in body
    assert "- The label `x` is void:\n  the head moved.\n" in body


def test_unpublished_files_are_titled_not_published() -> None:
    files = (a_file("a.py"),)
    assert "**Changed, not published**\n\n- `a.py`" in render_status(a_view(state="done", files=files, withheld="No."))
    assert "**What changed**\n\n- `a.py`" in render_status(a_view(state="done", files=files))


def test_a_short_answer_names_its_job_and_is_harmless() -> None:
    body = render_reply("🚫 Only for @hubot.", ALLOWED, job_id="j1", marker=MARKER)
    assert body == f"🚫 Only for `@hubot`.\n\n<sub>for @mona · job `j1`</sub>\n\n{MARKER}"
    assert render_reply("Yes.", ALLOWED, job_id="j1") == "Yes.\n\n<sub>for @mona · job `j1`</sub>"


def test_long_lists_fold() -> None:
    body = render_status(a_view(state="done", files=tuple(a_file(f"f{n}") for n in range(20))))
    assert "<details><summary>8 more files</summary>" in body


def test_spans_of_time_read_like_speech() -> None:
    assert [duration(s) for s in (0.2, 3, 61, 3900)] == ["0.2 s", "3 s", "1 min 1 s", "1 h 5 min"]


def test_a_marker_is_valid_in_its_own_thread_only() -> None:
    assert signed_job(f"text\n{MARKER}", 10, 7, key=KEY) == "j1"
    assert signed_job(MARKER, 10, 8, key=KEY) is None
    assert signed_job(MARKER, 11, 7, key=KEY) is None
    assert signed_job(MARKER.replace("j1", "j2"), 10, 7, key=KEY) is None
    assert signed_job(MARKER, 10, 7, key=b"another") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ask the operator to raise `CODEPILOT_MAX_STEPS`.", "ask the operator to raise the input `max-steps`."),
        ("can raise the limit (`CODEPILOT_CAPS=user=…`).", "can raise the limit (`caps: user=…`)."),
        ("set CODEPILOT_SANDBOX=bubblewrap, or", "set `sandbox: bubblewrap`, or"),
        ("raise CODEPILOT_FETCH_MB", "raise the input `fetch-mb`"),
        ("Check ANTHROPIC_API_KEY.", "Check the input `anthropic-api-key`."),
        ("`CODEPILOT_` begins their names", "`CODEPILOT_` begins their names"),
        ("Ask the operator to read the bot's log, then", "Read the log of this workflow run, then"),
    ],
)
def test_a_setting_is_called_as_the_input_is(text: str, told: str) -> None:
    assert settings_to_inputs(text) == told


MARK = "<!-- codepilot:job=j1 sig=00 -->"
SHA = "a" * 40
PENDING = PendingView(kind="permission", request_id="7f3a9b0c1d2e3f4a", trigger="/codepilot")


def view(state: str, **changes: object) -> StatusView:
    return a_status_view(state, marker=MARK, seconds=1.0, **changes)


@pytest.mark.parametrize(
    ("state", "kind", "status", "conclusion", "buttons"),
    [
        ("queued", "pull", "queued", None, ["stop"]),
        ("working", "pull", "in_progress", None, ["stop"]),
        ("done", "pull", "completed", "success", []),
        ("stopped", "pull", "completed", "cancelled", ["retry"]),
        ("failed", "pull", "completed", "failure", ["retry"]),
        ("refused", "pull", "completed", "skipped", []),
        ("done", "issue", "completed", "success", []),
        ("stopped", "issue", "completed", "neutral", ["retry"]),
        ("failed", "issue", "completed", "neutral", ["retry"]),
    ],
)
def test_a_state_in_githubs_words_with_the_buttons_that_fit(
    state: str, kind: str, status: str, conclusion: str | None, buttons: list[str]
) -> None:
    draft = render_check(view(state), job=a_job(kind=kind), head_sha=SHA)
    assert (draft.status, draft.conclusion) == (status, conclusion)
    assert [button.identifier for button in draft.buttons] == buttons


@pytest.mark.parametrize(("kind", "conclusion"), [("pull", "action_required"), ("issue", "neutral")])
def test_a_run_that_waits_is_complete_to_github_so_that_its_buttons_show(kind: str, conclusion: str) -> None:
    draft = render_check(view("waiting", pending=PENDING), job=a_job(kind=kind), head_sha=SHA)
    assert (draft.status, draft.conclusion) == ("completed", conclusion)
    names = [button.identifier for button in draft.buttons]
    assert names == ["approve 7f3a9b0c", "deny 7f3a9b0c", "stop"]


def test_a_question_has_no_button_for_yes() -> None:
    asked = replace(PENDING, kind="question")
    draft = render_check(view("waiting", pending=asked), job=a_job(), head_sha=SHA)
    assert [button.identifier for button in draft.buttons] == ["stop"]


@pytest.mark.parametrize(("kind", "conclusion"), [("pull", "timed_out"), ("issue", "neutral")])
def test_a_time_limit_has_its_own_word(kind: str, conclusion: str) -> None:
    draft = render_check(view("failed", status=Status.TIMEOUT), job=a_job(kind=kind), head_sha=SHA)
    assert draft.conclusion == conclusion


def test_work_that_was_withheld_is_not_green() -> None:
    draft = render_check(view("done", withheld="It changes workflows."), job=a_job(kind="pull"), head_sha=SHA)
    assert draft.conclusion == "neutral"


def test_it_names_its_job_and_thread_for_the_buttons() -> None:
    draft = render_check(view("waiting", pending=PENDING), job=a_job(kind="pull"), head_sha=SHA)
    assert draft.external_id == "j1:pull:7:7f3a9b0c1d2e3f4a"
    assert render_check(view("working"), job=a_job(), head_sha=SHA).external_id == "j1:issue:7:-"
    on_branch = a_job(thread=Thread.of_branch("release/2"))
    assert render_check(view("working"), job=on_branch, head_sha=SHA).external_id == "j1:branch:release/2:-"
    assert (draft.name, draft.head_sha) == ("Codepilot fix", SHA)
    assert render_check(view("working"), job=a_job(), head_sha=SHA).name == "Codepilot fix #7"


def test_the_summary_is_the_comment_without_its_mark() -> None:
    draft = render_check(view("done", completion="Fixed it."), job=a_job(), head_sha=SHA)
    assert "Fixed it." in draft.summary
    assert MARK not in draft.summary
    assert draft.title == "Done: /codepilot fix"
    red = render_check(view("done", failed_check="CI"), job=a_job(), head_sha=SHA)
    assert red.title == "Done: Started by CI: CI failed"


def test_the_patch_is_attached() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-```\n+~~~\n"
    draft = render_check(view("done", patch=patch), job=a_job(), head_sha=SHA)
    assert draft.text == f"### The patch\n\n````diff\n{patch}````"
    assert not render_check(view("done"), job=a_job(), head_sha=SHA).text


@pytest.mark.parametrize("patch", ["+line\n" * 20_000, "+" + "`" * 200_000, "x" * 70_000, "+" + "`" * 65_400])
def test_a_patch_that_does_not_fit_is_cut_with_a_word_about_the_whole(patch: str) -> None:
    draft = render_check(view("done", patch=patch), job=a_job(), head_sha=SHA)
    assert len(draft.text) <= 65_535
    assert draft.text.endswith(f"{len(patch):,} characters. The bot keeps it under job `j1`._")


@pytest.mark.parametrize("patch", ["+\udcff\n", "+\x1b[31mred\n", "+\u202e\n"])
def test_invisible_characters_are_removed_from_a_patch_with_a_note(patch: str) -> None:
    draft = render_check(view("done", patch=patch), job=a_job(), head_sha=SHA)
    assert draft.text.encode()
    assert draft.text.endswith("_Shown without invisible characters. The bot keeps the patch under job `j1`._")


def test_the_line_ends_of_a_patch_stay() -> None:
    assert "-a\r\n+b\r\n c" in render_check(view("done", patch="-a\r\n+b\r\n c\n"), job=a_job(), head_sha=SHA).text


def test_failed_commands_and_the_notes_of_a_review_are_annotations() -> None:
    checks = (
        Check(command="ruff check", exit_code=0, seconds=1),
        Check(command="pytest -q", exit_code=1, seconds=3),
        Check(command="sleep 9", exit_code=None, seconds=9),
    )
    review = ReviewDraft(
        commit_sha=SHA,
        body="",
        notes=(
            ReviewNote(path="a.py", start_line=3, line=5, body="Off by one."),
            ReviewNote(path="a.py", line=9, body="Why remove it?", side="LEFT"),
        ),
    )
    draft = render_check(view("done", checks=checks, review=review), job=a_job(kind="pull"), head_sha=SHA)
    assert [(each.path, each.start_line, each.end_line, each.level, each.message) for each in draft.annotations] == [
        (".github", 1, 1, "failure", "Ended with exit code 1 after 3 s."),
        (".github", 1, 1, "failure", "Did not finish within 9 s."),
        ("a.py", 3, 5, "notice", "Off by one."),
    ]
    # GitHub only adds annotations, so they are not sent while more may come.
    assert render_check(view("working", checks=checks, review=review), job=a_job(), head_sha=SHA).annotations == ()


def test_no_more_of_a_patch_is_read_than_could_be_shown() -> None:
    patch = "\u200b" * 300_000 + "\n+the end\n"
    text = render_check(view("done", patch="+a\n" + patch), job=a_job(), head_sha=SHA).text
    assert "+the end" not in text
    assert "_Shown without invisible characters. Truncated: the whole patch has 300,013 characters." in text


@pytest.mark.parametrize(("state", "sign"), [("failed", "❌"), ("stopped", "⏹️"), ("done", "⚠️")])
def test_a_missing_action_does_not_soften_the_headline(state: str, sign: str) -> None:
    missing = (ActionView(number=1, sentence="Close #7", state="refused"),)
    assert render_status(a_view(state=state, actions=missing)).startswith(
        f"### {sign} {state.title()}; 1 of 1 action not"
    )
