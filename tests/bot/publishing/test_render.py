"""The status comment."""

from __future__ import annotations

from typing import Any

from agent_runtime import Usage
from bot.publishing.defuse import Allowed
from bot.publishing.marker import job_of, marker
from bot.publishing.render import Activity, Check, StatusView, duration, render_status
from tests.changes import a_file

KEY = b"a key of the bot's"
MARKER = marker("j1", 10, 7, key=KEY)
ALLOWED = Allowed(login="mona", number=7, server="https://github.example", repo="octo/calc")


def a_view(**changes: object) -> StatusView:
    values: dict[str, Any] = {"state": "working", "asked": "/codepilot fix", "allowed": ALLOWED, "seconds": 34}
    values.update({"job_id": "j1", "marker": MARKER} | changes)
    return StatusView(**values)


def test_a_working_comment_lists_what_is_being_done() -> None:
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


def test_a_finished_comment_has_words_changes_checks_and_cost() -> None:
    body = render_status(
        a_view(
            state="done",
            completion="Fixed it.",
            files=(a_file("src/a.py", added=10, removed=4), a_file("logo.png", binary=True, status="added")),
            checks=(
                Check(command="pytest -q", exit_code=0, seconds=1.2),
                Check(command="ruff", exit_code=1, seconds=61),
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
        "- `src/a.py` +10 −4\n"  # noqa: RUF001 - a true minus sign
        "- `logo.png` added, binary\n"
        "\n"
        "**Checks the agent ran**\n"
        "\n"
        "- ✅ `pytest -q` · passed · 1 s\n"
        "- ❌ `ruff` · exit code 1 · 1 min 1 s\n"
        "\n"
        "<sub>3 steps · 4,700 tokens, 75 % of the input cached · $0.12 · job `j1`</sub>\n"
        "\n"
        f"{MARKER}"
    )


def test_a_failure_says_why_and_what_to_do() -> None:
    body = render_status(a_view(state="failed", reason="The model could not be reached.", remedy="Ask again."))
    assert "### ❌ Failed" in body
    assert "The model could not be reached.\n\n**What to do:** Ask again." in body


def test_what_was_withheld_stays_inside_its_box() -> None:
    body = render_status(a_view(state="done", withheld="It changes `action.yml`.\n\nThe patch is kept."))
    assert "> **Not published.** It changes `action.yml`.\n> \n> The patch is kept.\n" in body


def test_a_warning_with_a_commands_output_stays_inside_its_box() -> None:
    body = render_status(a_view(state="done", warning="**The setup failed.**\n\n```\n@octocat\n# x\n```"))
    assert "> [!WARNING]\n> **The setup failed.**\n> \n> ```\n> @octocat\n> # x\n> ```\n" in body


def test_long_lists_fold() -> None:
    body = render_status(a_view(state="done", files=tuple(a_file(f"f{n}") for n in range(20))))
    assert "<details><summary>8 more files</summary>" in body


def test_spans_of_time_read_like_speech() -> None:
    assert [duration(s) for s in (0.2, 3, 61, 3900)] == ["0.2 s", "3 s", "1 min 1 s", "1 h 5 min"]


def test_a_marker_is_known_again_in_its_own_thread_only() -> None:
    assert job_of(f"text\n{MARKER}", 10, 7, key=KEY) == "j1"
    assert job_of(MARKER, 10, 8, key=KEY) is None
    assert job_of(MARKER, 11, 7, key=KEY) is None
    assert job_of(MARKER.replace("j1", "j2"), 10, 7, key=KEY) is None
    assert job_of(MARKER, 10, 7, key=b"another") is None
