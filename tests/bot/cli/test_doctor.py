"""The doctor on machines and settings that are well, and on ones that are not."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from rich.console import Console

from bot.cli import doctor
from bot.cli.app import EVENTS, PERMISSIONS, AppEvent, AppPermission, describe, find_missing
from bot.cli.doctor import Finding, examine, examine_app
from bot.events.triggers import router
from bot.git.blobs import open_blobs
from bot.github.app import Attempt
from bot.queue.store import JobStore
from bot.settings.load import survey
from bot.settings.models import Settings
from localhub import LocalHub
from tests import s3
from tests.containers import StandIn
from tests.forked import completed
from tests.model_server import Fails, ModelServer
from tests.postgres import PASSWORD, postgres_server, postgres_url
from tests.stage import build
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

SECRET = "0123456789abcdef-0123456789abcdef"


@pytest.fixture
def environ(hub: LocalHub, tmp_path: Path) -> dict[str, str]:
    app, _ = build(hub)
    hub.set_webhook(app, "http://127.0.0.1:9/webhook", SECRET)
    key, script = tmp_path / "app.pem", tmp_path / "script.yaml"
    key.touch(mode=0o600)
    key.write_text(app.private_key_pem)
    script.write_text("- reply: hello\n")
    return {
        "PATH": os.environ["PATH"],
        "CODEPILOT_WEBHOOK_SECRET": SECRET,
        "CODEPILOT_APP_ID": str(app.id),
        "CODEPILOT_PRIVATE_KEY_FILE": str(key),
        "CODEPILOT_API_URL": hub.api_url,
        "CODEPILOT_SERVER_URL": hub.url,
        "CODEPILOT_PROVIDER": "scripted",
        "CODEPILOT_MODEL": str(script),
        "CODEPILOT_DATA_DIR": str(tmp_path / "data"),
        "CODEPILOT_ALLOW_ROOT": "yes",
    }


async def _found(environ: dict[str, str], *, online: bool = False) -> dict[str, Finding]:
    return {each.name: each for each in await examine(survey(environ), online=online)}


def settings_of(place: Path, **variables: str) -> Settings:
    """The settings of a data directory; names without `CODEPILOT_`."""
    named = {f"CODEPILOT_{name}": value for name, value in variables.items()}
    return survey({"CODEPILOT_DATA_DIR": str(place), **named}).settings


async def test_a_machine_on_which_the_bot_could_work_has_nothing_bad(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    found = await _found(environ)
    assert [name for name, each in found.items() if each.verdict not in {"good", "warning"}] == ["deliveries"]
    assert found["deliveries"].verdict == "skipped"
    assert found["webhook"].summary == "http://127.0.0.1:9/webhook"
    assert found["installations"].summary == "1 account"
    assert found["sandbox"].summary == "bubblewrap works"
    assert found["GitHub App"].summary == "signed in as codepilot"
    assert found["clock"].summary == "agrees with GitHub's"
    assert list((tmp_path / "data").iterdir()) == [], "it leaves nothing"


async def test_without_any_settings_everything_else_is_looked_at_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await _found({"CODEPILOT_SANDBOX": "chroot", "CODEPILOT_MAX_STEP": "1"})
    assert found["settings"].verdict == "bad"
    assert found["sandbox"].verdict == "good"
    assert {name for name, each in found.items() if each.verdict == "skipped"} == {
        "database",
        "webhook secret",
        "GitHub App",
        "clock",
        "model",
    }


async def test_deliveries_that_nobody_took_are_told(environ: dict[str, str], hub: LocalHub) -> None:
    repo = hub.repo("mona/calc")
    hub.comment(
        repo, hub.open_issue(repo, author="mona", title="It breaks").number, author="mona", body="/codepilot fix"
    )
    await eventually(lambda: all(each.status != "pending" for each in hub.deliveries))
    found = {each.name: each for each in await examine_app(survey(environ))}
    assert set(found) == {"GitHub App", "clock", "webhook", "deliveries", "installations"}
    assert found["deliveries"].verdict == "bad"
    assert "2 not accepted in the last 24 hours; the last: issue_comment, no answer" in found["deliveries"].summary


async def test_an_app_installed_before_the_first_start_of_its_server_is_well(
    environ: dict[str, str], hub: LocalHub
) -> None:
    other = hub.add_repo("mona/other", owner="mona")
    hub.install(hub.app(int(environ["CODEPILOT_APP_ID"])), other)
    await eventually(lambda: any(each.status.startswith("failed to connect") for each in hub.deliveries))
    findings = await examine(survey(environ), online=False)
    assert [each for each in findings if each.verdict == "bad"] == []
    assert {each.name: each.verdict for each in findings}["deliveries"] == "skipped"


async def test_an_app_that_is_not_named_cannot_be_checked(environ: dict[str, str]) -> None:
    del environ["CODEPILOT_APP_ID"]
    assert [(each.name, each.verdict) for each in await examine_app(survey(environ))] == [("settings", "bad")]


async def test_a_wrong_key_is_told_apart_from_a_missing_one(
    environ: dict[str, str], hub: LocalHub, tmp_path: Path
) -> None:
    other = hub.add_app("other", webhook_secret="x" * 20)
    (tmp_path / "app.pem").write_text(other.private_key_pem)
    finding = (await _found(environ))["GitHub App"]
    assert finding.verdict == "bad"
    assert "401" in finding.summary
    assert "CODEPILOT_PRIVATE_KEY_FILE" in finding.fix
    (tmp_path / "app.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    finding = (await _found(environ))["GitHub App"]
    assert (finding.verdict, "401" in finding.summary) == ("bad", False)
    assert "private key" in finding.summary


async def test_an_app_that_may_not_write_is_said(environ: dict[str, str], hub: LocalHub, tmp_path: Path) -> None:
    app = hub.add_app("reader", webhook_secret="x" * 20, permissions={"metadata": "read", "contents": "read"})
    (tmp_path / "app.pem").write_text(app.private_key_pem)
    finding = (await _found({**environ, "CODEPILOT_APP_ID": str(app.id)}))["GitHub App"]
    assert finding.verdict == "bad"
    for each in (
        "missing Contents: read and write (the bot",
        "; Issues: read and write (",
        "; Checks: read and write (",
    ):
        assert each in finding.summary, each


@pytest.mark.slow
async def test_a_github_that_is_not_there_is_said(environ: dict[str, str]) -> None:
    found = await _found({**environ, "CODEPILOT_API_URL": "http://127.0.0.1:9"})
    app = found["GitHub App"]
    assert app.verdict == "bad"
    assert "Connection refused" in app.summary
    assert "Max retries" not in app.summary
    assert "CODEPILOT_API_URL" in app.fix
    assert found["clock"].verdict == "skipped"


async def test_a_sandbox_that_does_not_work_is_said_with_what_fixes_it(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = await _found(environ)
    assert found["sandbox"].verdict == "bad"
    assert "bubblewrap" in found["sandbox"].fix
    assert found["git"].verdict == "bad"


async def test_a_network_that_the_sandbox_cannot_keep_is_said_with_what_fixes_it(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await _found(environ))["network"].summary.startswith("no network; ")
    found = (await _found({**environ, "CODEPILOT_NETWORK": "a.example"}))["network"].summary
    assert found.startswith("network: a.example; ")
    container = StandIn.at(tmp_path / "engine").sandbox()
    monkeypatch.setattr(doctor, "pick_sandbox", lambda *_: container)
    finding = (await _found({**environ, "CODEPILOT_NETWORK": "a.example"}))["network"]
    assert (finding.verdict, "docker" in finding.summary) == ("bad", True)
    assert "CODEPILOT_NETWORK=off" in finding.fix


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "full"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", place], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # a failure may leave files open in it


async def test_a_disk_without_room_is_bad(environ: dict[str, str], full_disk: Path) -> None:
    found = await _found({**environ, "CODEPILOT_DATA_DIR": str(full_disk)})
    assert found["disk"].verdict == "bad"
    assert found["database"].verdict == "bad"


@pytest.mark.parametrize("content", ["no database", ""])
def test_a_file_that_is_no_database_is_said_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_text(content)
    finding = doctor.check_database(settings_of(tmp_path))
    assert finding.verdict == ("bad" if content else "good")
    if content:
        assert path.read_text() == content


def test_a_database_of_a_newer_version_is_said(tmp_path: Path) -> None:
    store = JobStore(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    store.run_sync(lambda tx: tx.rows.execute(sa.text("UPDATE alembic_version SET version_num = '9999'")))
    store.close_sync()
    finding = doctor.check_database(settings_of(tmp_path))
    assert finding.verdict == "bad"
    assert "newer version" in finding.fix


def test_a_database_that_can_be_made_is_made_on_trial(tmp_path: Path) -> None:
    assert doctor.check_database(settings_of(tmp_path)).verdict == "good"
    assert list(tmp_path.iterdir()) == []


def test_the_database_that_is_set_is_looked_at_and_left_as_it_is(tmp_path: Path, postgres_url: str) -> None:
    assert doctor.check_database(settings_of(tmp_path, DATABASE_URL=postgres_url)).verdict == "good"
    with psycopg.connect(postgres_url) as connection:
        count = "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        assert connection.execute(count).fetchone() == (0,)
    JobStore(postgres_url).close_sync()
    assert doctor.check_database(settings_of(tmp_path, DATABASE_URL=postgres_url)).verdict == "good"
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    finding = doctor.check_database(settings_of(tmp_path, DATABASE_URL=postgres_url))
    assert finding.verdict == "bad"
    assert "newer version" in finding.fix
    elsewhere = tmp_path / "elsewhere.sqlite"
    assert doctor.check_database(settings_of(tmp_path, DATABASE_URL=f"sqlite:///{elsewhere}")).verdict == "good"
    missing = tmp_path / "missing" / "jobs.sqlite"
    assert doctor.check_database(settings_of(tmp_path, DATABASE_URL=f"sqlite:///{missing}")).verdict == "bad"
    assert list(tmp_path.iterdir()) == []


async def test_a_database_that_refuses_us_is_said_without_its_password(
    environ: dict[str, str], postgres_url: str
) -> None:
    wrong = "wr0ng-battery-staple"
    environ["CODEPILOT_DATABASE_URL"] = postgres_url.replace(PASSWORD, wrong)
    finding = (await _found(environ))["database"]
    assert finding.verdict == "bad"
    assert "password authentication failed" in finding.fix
    assert wrong not in finding.summary + finding.fix


async def test_the_blob_store_that_is_set_is_tried_and_nothing_stays(environ: dict[str, str], tmp_path: Path) -> None:
    assert (await _found(environ))["blob store"].verdict == "good"
    (tmp_path / "blobs").mkdir(mode=0o700)
    in_directory = {**environ, "CODEPILOT_STORAGE_URL": (tmp_path / "blobs").as_uri()}
    assert (await _found(in_directory))["blob store"].verdict == "good"
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    with s3.running() as server:
        access = {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": s3.KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        }
        bucket = {**environ, **access, "CODEPILOT_STORAGE_URL": f"s3://{s3.BUCKET}/bot"}
        assert (await _found(bucket))["blob store"].verdict == "good"
        assert not list(open_blobs(f"s3://{s3.BUCKET}/bot", server.access).list("doctor"))
        missing = (await _found({**bucket, "CODEPILOT_STORAGE_URL": "s3://no-such-bucket"}))["blob store"]
    assert (missing.verdict, "NoSuchBucket" in missing.fix) == ("bad", True)
    assert s3.KEY not in missing.summary + missing.fix


def test_machines_that_share_a_database_and_no_files_are_warned_of(tmp_path: Path) -> None:
    finding = doctor.check_blob_store(settings_of(tmp_path, DATABASE_URL="postgresql://bot@db.example/bot"))
    assert finding.verdict == "warning"
    assert "CODEPILOT_STORAGE_URL" in finding.fix


async def test_what_is_set_wrong_is_not_replaced_by_its_default(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    environ |= {"CODEPILOT_API_URL": "http://github.example", "CODEPILOT_DATABASE_URL": "mysql://bot@db.example/bot"}
    found = await _found({**environ, "CODEPILOT_STORAGE_URL": "ftp://files.example"})
    skipped = {name for name, each in found.items() if each.verdict == "skipped"}
    assert skipped == {"database", "blob store", "GitHub App", "clock"}


def test_githubs_own_address_needs_no_setting(environ: dict[str, str]) -> None:
    del environ["CODEPILOT_API_URL"], environ["CODEPILOT_SERVER_URL"]
    surveyed = survey(environ)
    assert (surveyed.settings.api_url, surveyed.invalid_fields) == ("https://api.github.com", frozenset())


def test_an_installation_without_the_services_packages_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bot.queue.store", None)
    finding = doctor.check_database(settings_of(tmp_path))
    assert finding.verdict == "bad"
    assert "codepilot-bot[service]" in finding.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_places_of_another_user_are_said_like_any_other(tmp_path: Path) -> None:
    assert doctor.check_database(settings_of(tmp_path)).verdict == "good"  # everything is loaded
    with tempfile.TemporaryDirectory() as directory:  # is its owner's alone
        place = Path(directory)
        os.setresuid(54321, 54321, 0)
        try:
            found = [*doctor.check_data_directory(place), *doctor.check_data_directory(place / "data")]
            found += [doctor.check_database(settings_of(place)), doctor.check_database(settings_of(place / "data"))]
        finally:
            os.setresuid(0, 0, 0)
    assert [each.verdict for each in found if each.name == "data directory"] == ["bad", "bad"]
    assert [each.verdict for each in found if each.name == "database"] == ["bad", "skipped"]


def test_a_data_directory_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    [finding] = doctor.check_data_directory(tmp_path / "data")
    assert finding.verdict == "bad"
    assert "CODEPILOT_DATA_DIR" in finding.fix


def test_root_is_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctor.check_user(allow_root=False).verdict == "bad"
    assert doctor.check_user(allow_root=True).verdict == "good"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert doctor.check_user(allow_root=False).verdict == "good"


async def test_the_model_is_asked_only_when_wanted(environ: dict[str, str]) -> None:
    async with ModelServer(["yes"]) as server:
        asked = {
            **environ,
            "CODEPILOT_PROVIDER": "openai",
            "CODEPILOT_BASE_URL": server.url_openai,
            "CODEPILOT_MODEL": "tiny",
            "CODEPILOT_API_KEY": "sk-0123456789abcdef",
        }
        assert "not tested" in (await _found(asked))["model"].summary
        assert server.requests == []
        assert (await _found(asked, online=True))["model"].summary == "openai tiny answers"
        assert len(server.requests) == 1


async def test_a_model_that_refuses_our_key_is_said_without_the_key(environ: dict[str, str]) -> None:
    key = "sk-0123456789abcdef"
    async with ModelServer([Fails(401, "invalid_api_key", f"Incorrect API key provided: {key}")]) as server:
        asked = {**environ, "CODEPILOT_PROVIDER": "openai", "CODEPILOT_BASE_URL": server.url_openai}
        finding = (await _found({**asked, "CODEPILOT_MODEL": "tiny", "CODEPILOT_API_KEY": key}, online=True))["model"]
    assert finding.verdict == "bad"
    assert key not in finding.summary + finding.fix
    assert "CODEPILOT_API_KEY" in finding.fix


CODEPILOT = Path(sys.executable).parent / "codepilot"


@pytest.mark.slow
def test_the_command_prints_lines_or_json_and_its_exit_code_tells(environ: dict[str, str], tmp_path: Path) -> None:
    alone = {name: value for name, value in environ.items() if "APP_ID" not in name}
    done = completed(["doctor"], env=alone, at=tmp_path)
    assert done.returncode == 1
    assert "failed   settings         CODEPILOT_APP_ID is not set\n" in done.stdout
    assert "The bot would not work here: 1 of" in done.stdout
    told = completed(["doctor", "--json"], env=alone, at=tmp_path)
    assert told.returncode == 1
    assert json.loads(told.stdout)["could_work"] is False
    assert SECRET not in done.stdout + told.stdout


@pytest.mark.slow
async def test_the_exit_code_is_0_when_the_bot_could_work(environ: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        CODEPILOT, "doctor", env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b""), said.decode()
    assert b"The bot would work here: " in said


NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
GIB = 1024**3
ALL = {each.name: each.level for each in PERMISSIONS}
HEARD = tuple(each.name for each in EVENTS)


def attempt(guid: str, status: int, *, hours: float = 1.0, event: str = "issue_comment") -> Attempt:
    return Attempt(id=1, guid=guid, event=event, at=NOW.timestamp() - hours * 3600, status=status)


def installed(status: int, *, guid: str = "i", hours: float = 2.0) -> Attempt:
    return attempt(guid, status, hours=hours, event="installation")


def delivered(*attempts: Attempt) -> Finding:
    return doctor.judge_deliveries(attempts, NOW.timestamp())


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (doctor.judge_webhook("https://bot.example.com/webhook", checks_certificate=True), "good", "/webhook"),
        (doctor.judge_webhook("https://bot.example.com/", checks_certificate=True), "warning", "listens at the path"),
        (doctor.judge_webhook("https://bot.example.com/webhook", checks_certificate=False), "warning", "certificate"),
        (doctor.judge_webhook("", checks_certificate=True), "bad", "no command reaches the bot"),
        (delivered(), "skipped", "none in the last 24 hours"),
        (delivered(attempt("a", 500, hours=30)), "skipped", "none"),
        (delivered(attempt("b", 202), attempt("a", 200)), "good", "2 in the last 24 hours, all accepted"),
        (delivered(attempt("a", 202), attempt("a", 502)), "good", "1 in the last 24 hours"),
        (delivered(attempt("b", 202), attempt("a", 502)), "warning", "1 not accepted"),
        (delivered(attempt("b", 401), attempt("a", 202)), "bad", "issue_comment, answered 401, 22 November 11:00"),
        (delivered(attempt("b", 0)), "bad", "no answer"),
        (delivered(installed(0), attempt("p", 0, event="ping")), "skipped", "except when the App was set up"),
        (delivered(attempt("b", 202), installed(404)), "good", "1 in the last 24 hours, all accepted"),
        (delivered(installed(502), attempt("b", 202, hours=3)), "bad", "installation, answered 502"),
        (delivered(installed(502), installed(502)), "bad", "installation, answered 502"),
        (delivered(installed(401)), "bad", "installation, answered 401"),
        (doctor.judge_installations(2, "bot"), "good", "2 accounts"),
        (doctor.judge_installations(0, "bot"), "warning", "none"),
        (doctor.judge_installations(2, "bot", suspended=1), "warning", "2 accounts, 1 of them suspended"),
        (doctor.judge_git("git version 2.39.5"), "good", "2.39.5"),
        (doctor.judge_git("git version 2.17.1 (Apple Git-1)"), "bad", "2.17.1"),
        (doctor.judge_git(""), "bad", "not found"),
        (doctor.judge_disk("disk", "/data", 50 * GIB, 10**7), "good", "50.0 GiB, 10,000,000 files"),
        (doctor.judge_disk("disk", "/data", 50 * GIB, None), "good", "50.0 GiB free at /data"),
        (doctor.judge_disk("disk", "/data", 3 * GIB, 10**7), "warning", "3.0 GiB"),
        (doctor.judge_disk("disk", "/data", 50 * GIB, 100_000), "warning", "100,000 files"),
        (doctor.judge_disk("disk", "/data", GIB // 2, 10**7), "bad", "0.5 GiB"),
        (doctor.judge_disk("disk", "/data", 50 * GIB, 0), "bad", "0 files"),
        (doctor.judge_clock(NOW, NOW + timedelta(seconds=1)), "good", "agrees"),
        (doctor.judge_clock(NOW, NOW - timedelta(seconds=10)), "warning", "10 s ahead"),
        (doctor.judge_clock(NOW, NOW + timedelta(minutes=5)), "bad", "300 s behind"),
        (doctor.judge_clock(NOW, None), "skipped", "not asked"),
        (doctor.judge_webhook_secret("0123456789abcdef" * 4), "good", "64 characters"),
        (doctor.judge_webhook_secret("0123456789abcdefg"), "warning", "17 characters"),
        (doctor.judge_webhook_secret("abababababababababababababababababab"), "bad", "guessed"),
        (doctor.judge_app("bot", ALL, (*HEARD, "push")), "good", "signed in as bot"),
        (doctor.judge_app("bot", {**ALL, "contents": "admin"}, HEARD), "good", "signed in as bot"),
        (
            doctor.judge_app("bot", {**ALL, "contents": "read"}, HEARD),
            "bad",
            "missing Contents: read and write (the bot can",
        ),
        (doctor.judge_app("bot", {**ALL, "issues": "read"}, ()), "bad", "missing Issues: read and write"),
        (doctor.judge_terminals(4096, 10), "good", "10 of 4096"),
        (doctor.judge_terminals(100, 99), "bad", "99 of 100"),
        (doctor.judge_terminals(None, None), "skipped", "does not report"),
        (doctor.judge_directory("/data", 0o40700, 1000, 1000), "good", "/data"),
        (doctor.judge_directory("/data", 0o40755, 1000, 1000), "warning", "open to other users"),
        (doctor.judge_directory("/data", 0o40700, 0, 1000), "bad", "belongs to user 0"),
    ],
    ids=lambda value: f"{value.name}-{value.summary}" if isinstance(value, Finding) else "",
)
def test_a_finding_says_what_is_there_and_what_it_means(finding: Finding, verdict: str, words: str) -> None:
    assert finding.verdict == verdict
    assert words in finding.summary
    assert bool(finding.fix) == (verdict in {"bad", "warning"})


@pytest.mark.parametrize("lost", [*PERMISSIONS, *EVENTS], ids=describe)
def test_each_thing_that_the_app_lacks_is_named_with_what_goes_wrong_without(lost: AppPermission | AppEvent) -> None:
    permissions = {
        name: level for name, level in ALL.items() if not (isinstance(lost, AppPermission) and lost.name == name)
    }
    events = [name for name in HEARD if not (isinstance(lost, AppEvent) and lost.name == name)]
    finding = doctor.judge_app("bot", permissions, events)
    assert finding.verdict == {"needed": "bad", "wanted": "warning", "optional": "good"}[lost.weight]
    assert finding.summary == f"signed in as bot, missing {describe(lost)} ({lost.without})"
    assert find_missing(permissions, events) == (lost,)


def test_every_event_that_is_listened_to_is_asked_for() -> None:
    assert {*HEARD, "installation", "installation_repositories"} == set(router.actions)


def test_nothing_of_a_secret_is_shown() -> None:
    finding = doctor.judge_webhook_secret("hunter2-hunter2-hunter2")
    assert "hunter" not in finding.summary + finding.fix


def test_a_delivery_that_was_refused_is_told_with_what_to_change() -> None:
    assert "CODEPILOT_WEBHOOK_SECRET" in delivered(attempt("a", 401)).fix
    assert "/webhook" in delivered(attempt("a", 404)).fix
    assert "log" in delivered(attempt("a", 500)).fix


FIX = f"Make room.\n\nsudo rm --recursive /var/cache/{'a-long-name' * 8}"
FOUND = [
    doctor.good("git", "2.39.5"),
    doctor.warning("disk", "3.0 GiB free", FIX),
    doctor.skip("clock", "GitHub was not asked"),
]


def _shown(found: list[doctor.Finding]) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    doctor.show(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_warning_keeps_nobody_from_working_and_a_failure_does() -> None:
    assert doctor.can_work(FOUND)
    assert "would work here: 1 of 3 checks passed, 1 with a warning." in doctor.as_lines(FOUND)
    failed = [*FOUND, doctor.bad("user", "root", "Use another.")]
    assert not doctor.can_work(failed)
    assert "would not work here: 1 of 4 checks failed, 1 with a warning." in doctor.as_lines(failed)


def test_lines_are_aligned_and_end_with_what_fixes_it() -> None:
    lines = doctor.as_lines(FOUND).splitlines()
    assert lines[:3] == [
        "ok       git    2.39.5",
        "warning  disk   3.0 GiB free",
        "skipped  clock  GitHub was not asked",
    ]
    assert lines[4:6] == ["disk: 3.0 GiB free", "  Make room."]


def test_the_table_keeps_commands_whole() -> None:
    shown = _shown(FOUND)
    assert FIX.splitlines()[-1] in shown
    assert "\x1b[32mok" in shown


def test_what_a_finding_says_is_no_markup() -> None:
    assert "[red]x[/red]" in _shown([doctor.bad("git", "[red]x[/red]", "[bold]y")])


def test_json_has_everything() -> None:
    told = json.loads(doctor.as_json(FOUND))
    assert told["could_work"] is True
    assert told["findings"][1] == {"name": "disk", "verdict": "warning", "found": "3.0 GiB free", "fix": FIX}
