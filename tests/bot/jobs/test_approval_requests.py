"""What a person is asked before a change is published, and how the request is shown."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from bot.git.change import Change
from bot.jobs.context import JobContext
from bot.jobs.delivery import pending_view, publication_request
from bot.publishing.plan import Publication
from bot.publishing.screening import Objection, ShownChange
from bot.queue.memory import InMemoryEngine
from bot.queue.records import Waiting, WaitKind
from tests.builders import a_job
from tests.changes import BASE, TREE, a_change, a_file
from tests.job_contexts import answering, context_of

WORKFLOW = ".github/workflows/ci.yml"
DAY_SECONDS = 86_400.0
TWICE = (Objection(cause="protected", files=("uv.lock",)), Objection(cause="escapes", files=("uv.lock",)))


def _context(*, may_write_workflows: bool | None = True) -> JobContext:
    github = SimpleNamespace(
        tokens=SimpleNamespace(may_write_workflows=answering(may_write_workflows)),
        redacted=lambda text: text.replace("hunter2", "[redacted]"),
    )
    services = SimpleNamespace(bounds=SimpleNamespace(approval_seconds=DAY_SECONDS))
    return context_of(InMemoryEngine(), a_job(), github=github, services=services)


async def _asked(
    change: Change, *blocked: Objection, context: JobContext | None = None, spells: bool = False
) -> Waiting:
    publication = Publication(commit=None, pull_request=None, blocked=blocked)
    shown = ShownChange(diff="diff --git a/x b/x", spells=spells)
    return await publication_request(context or _context(), publication, change, shown)


async def test_a_request_is_bound_to_the_commit_and_to_the_very_tree_that_is_shown() -> None:
    before = time.time()
    asked = await _asked(a_change(a_file("uv.lock")), *TWICE)
    assert (asked.kind, asked.bound_to, asked.tree_sha, asked.preview) == (
        "publication",
        BASE,
        TREE,
        "diff --git a/x b/x",
    )
    assert before + DAY_SECONDS <= asked.until <= time.time() + DAY_SECONDS


async def test_two_requests_for_the_same_change_have_ids_of_their_own() -> None:
    change = a_change(a_file("uv.lock"))
    assert (await _asked(change, *TWICE)).request_id != (await _asked(change, *TWICE)).request_id


@pytest.mark.parametrize(("others", "told"), [(0, False), (2, True)])
async def test_files_that_need_no_approval_are_counted_each_once(others: int, *, told: bool) -> None:
    files = [a_file("uv.lock"), *(a_file(f"{number}.py") for number in range(others))]
    reason = (await _asked(a_change(*files), *TWICE)).reason
    assert (f"require no approval: {others}" in reason) is told


async def test_that_characters_are_escaped_is_said_only_where_they_are() -> None:
    change = a_change(a_file("uv.lock"))
    plain, spelled = await _asked(change, *TWICE), await _asked(change, *TWICE, spells=True)
    assert "U+202E" in spelled.reason
    assert "U+202E" not in plain.reason


@pytest.mark.parametrize(
    ("path", "may", "warned"),
    [(WORKFLOW, False, True), (WORKFLOW, True, False), (WORKFLOW, None, False), ("uv.lock", False, False)],
)
async def test_a_permission_that_is_known_to_be_missing_is_named_before_anybody_approves(
    path: str, *, may: bool | None, warned: bool
) -> None:
    objection = Objection(cause="protected", files=(path,))
    asked = await _asked(a_change(a_file(path)), objection, context=_context(may_write_workflows=may))
    assert ("Workflows: read and write" in asked.reason) is warned


@pytest.mark.parametrize(
    ("kind", "preview", "language"),
    [
        ("permission", "npm view left-pad", "bash"),
        ("permission", "--- a/x\n+++ b/x\n", "diff"),
        ("permission", "diff --git a/x b/x\n", "diff"),
        ("publication", "", "diff"),
        ("question", "", ""),
        ("plan", "", ""),
    ],
)
def test_a_preview_is_coloured_as_what_it_is(kind: WaitKind, preview: str, language: str) -> None:
    asked = Waiting(kind=kind, request_id="7f3a", reason="", preview=preview, bound_to=BASE, until=0.0)
    assert pending_view(_context(), asked).language == language


def test_the_end_of_the_time_is_shown_and_a_secret_in_the_reason_is_not() -> None:
    until = datetime(2026, 11, 5, 4, 3, tzinfo=UTC).timestamp()
    asked = Waiting(
        kind="question",
        request_id="7f3a",
        reason="Is it hunter2?",
        preview="",
        bound_to=BASE,
        until=until,
        like=("x *",),
    )
    shown = pending_view(_context(), asked)
    assert (shown.expires, shown.reason, shown.like) == ("5 November 2026, 04:03 UTC", "Is it [redacted]?", ("x *",))
