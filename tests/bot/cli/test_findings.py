from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.cli import doctor
from bot.cli.app import EVENTS, PERMISSIONS, AppEvent, AppPermission, describe, find_missing
from bot.cli.doctor import DeliveryAttempt, Finding
from bot.events.triggers import TRIGGERS

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
GIB = 1024**3
ALL = {each.name: each.level for each in PERMISSIONS}
HEARD = tuple(each.name for each in EVENTS)


def attempt(guid: str, status: int, *, hours: float = 1.0) -> DeliveryAttempt:
    return DeliveryAttempt(guid=guid, event="issue_comment", at=NOW.timestamp() - hours * 3600, status=status)


def delivered(*attempts: DeliveryAttempt) -> Finding:
    return doctor.deliveries(attempts, NOW.timestamp())


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (doctor.webhook("https://bot.example.com/webhook", checks_certificate=True), "good", "/webhook"),
        (doctor.webhook("https://bot.example.com/", checks_certificate=True), "warning", "listens at the path"),
        (doctor.webhook("https://bot.example.com/webhook", checks_certificate=False), "warning", "certificate"),
        (doctor.webhook("", checks_certificate=True), "bad", "no command reaches the bot"),
        (delivered(), "skipped", "none in the last 24 hours"),
        (delivered(attempt("a", 500, hours=30)), "skipped", "none"),
        (delivered(attempt("b", 202), attempt("a", 200)), "good", "2 in the last 24 hours, all accepted"),
        (delivered(attempt("a", 202), attempt("a", 502)), "good", "1 in the last 24 hours"),
        (delivered(attempt("b", 202), attempt("a", 502)), "warning", "1 not accepted"),
        (delivered(attempt("b", 401), attempt("a", 202)), "bad", "issue_comment, answered 401, 22 November 11:00"),
        (delivered(attempt("b", 0)), "bad", "no answer"),
        (doctor.installations(2, "bot"), "good", "2 accounts"),
        (doctor.installations(0, "bot"), "warning", "none"),
        (doctor.git("git version 2.39.5"), "good", "2.39.5"),
        (doctor.git("git version 2.17.1 (Apple Git-1)"), "bad", "2.17.1"),
        (doctor.git(""), "bad", "not found"),
        (doctor.disk("disk", "/data", 50 * GIB, 10**7), "good", "50.0 GiB, 10,000,000 files"),
        (doctor.disk("disk", "/data", 50 * GIB, None), "good", "50.0 GiB free at /data"),
        (doctor.disk("disk", "/data", 3 * GIB, 10**7), "warning", "3.0 GiB"),
        (doctor.disk("disk", "/data", 50 * GIB, 100_000), "warning", "100,000 files"),
        (doctor.disk("disk", "/data", GIB // 2, 10**7), "bad", "0.5 GiB"),
        (doctor.disk("disk", "/data", 50 * GIB, 0), "bad", "0 files"),
        (doctor.clock_findings(NOW, NOW + timedelta(seconds=1)), "good", "agrees"),
        (doctor.clock_findings(NOW, NOW - timedelta(seconds=10)), "warning", "10 s ahead"),
        (doctor.clock_findings(NOW, NOW + timedelta(minutes=5)), "bad", "300 s behind"),
        (doctor.clock_findings(NOW, None), "skipped", "not asked"),
        (doctor.webhook_secret("0123456789abcdef" * 4), "good", "64 characters"),
        (doctor.webhook_secret("0123456789abcdefg"), "warning", "17 characters"),
        (doctor.webhook_secret("abababababababababababababababababab"), "bad", "guessed"),
        (doctor.app("bot", ALL, (*HEARD, "push")), "good", "signed in as bot"),
        (doctor.app("bot", {**ALL, "contents": "admin"}, HEARD), "good", "signed in as bot"),
        (
            doctor.app("bot", {**ALL, "contents": "read"}, HEARD),
            "bad",
            "missing Contents: read and write (the bot can",
        ),
        (doctor.app("bot", {**ALL, "issues": "read"}, ()), "bad", "missing Issues: read and write"),
        (doctor.terminals(4096, 10), "good", "10 of 4096"),
        (doctor.terminals(100, 99), "bad", "99 of 100"),
        (doctor.terminals(None, None), "skipped", "does not report"),
        (doctor.directory("/data", 0o40700, 1000, 1000), "good", "/data"),
        (doctor.directory("/data", 0o40755, 1000, 1000), "warning", "open to other users"),
        (doctor.directory("/data", 0o40700, 0, 1000), "bad", "belongs to user 0"),
    ],
    ids=lambda value: f"{value.name}-{value.found}" if isinstance(value, Finding) else "",
)
def test_a_finding_says_what_is_there_and_what_it_means(finding: Finding, verdict: str, words: str) -> None:
    assert finding.verdict == verdict
    assert words in finding.found
    assert bool(finding.fix) == (verdict in {"bad", "warning"})


@pytest.mark.parametrize("lost", [*PERMISSIONS, *EVENTS], ids=describe)
def test_each_thing_that_the_app_lacks_is_named_with_what_goes_wrong_without(lost: AppPermission | AppEvent) -> None:
    permissions = {
        name: level for name, level in ALL.items() if not (isinstance(lost, AppPermission) and lost.name == name)
    }
    events = [name for name in HEARD if not (isinstance(lost, AppEvent) and lost.name == name)]
    finding = doctor.app("bot", permissions, events)
    assert finding.verdict == {"needed": "bad", "wanted": "warning", "optional": "good"}[lost.weight]
    assert finding.found == f"signed in as bot, missing {describe(lost)} ({lost.without})"
    assert find_missing(permissions, events) == (lost,)


def test_every_event_that_is_listened_to_is_asked_for() -> None:
    assert {*HEARD, "installation", "installation_repositories"} == set(TRIGGERS)


def test_nothing_of_a_secret_is_shown() -> None:
    finding = doctor.webhook_secret("hunter2-hunter2-hunter2")
    assert "hunter" not in finding.found + finding.fix


def test_a_delivery_that_was_refused_is_told_with_what_to_change() -> None:
    assert "CODEPILOT_WEBHOOK_SECRET" in delivered(attempt("a", 401)).fix
    assert "/webhook" in delivered(attempt("a", 404)).fix
    assert "log" in delivered(attempt("a", 500)).fix
