"""The material that the agent is given."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_runtime import Policy, Task
from agent_runtime.terminals.output import OutputLogs
from bot.domain.commands import Ask, Fix, Work
from bot.domain.job import Job, Origin, Thread
from bot.git.compare import Comparison
from bot.git.errors import WorkspaceError
from bot.git.mirror import Blob, Source
from bot.github.client import GitHub
from bot.github.downloads import LogError, LogGoneError, PictureError, TooLargeError
from bot.github.types import CheckFacts, GitHubError, JobFacts, RunFacts
from bot.jobs import material
from bot.jobs.access import PhaseReader
from bot.jobs.admission import Assignment
from bot.jobs.material import FailedLogs, find_run_id, gather, select_lines
from bot.jobs.setup import RepoSettings
from bot.permissions.levels import Grant
from bot.permissions.repo_config import RepoConfig
from bot.prompt.brief import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    MAX_TOTAL_BYTES,
    Brief,
    LinkedFile,
    Material,
    Picture,
    PictureText,
)
from bot.queue.memory import InMemoryEngine
from tests.builders import a_comment, a_failed_check, a_job, in_a_review, on_lines
from tests.differences import new_file
from tests.job_contexts import RED_RUN, account, answering, context_of, snapshot
from tests.pictures import png

TEXT = "one\ntwo\x0c\u2028still two\nthree\n"
BOT, HEAD = 99, "a" * 40
SERVER = "https://github.com"
HERE = f"{SERVER}/octo/calc/blob/main"
DENIED = GitHubError("read it", 403, "Resource not accessible by integration", "Grant it.")
DOWN = GitHubError("read it", 502, "Bad gateway", "Later.")
RED = a_failed_check(summary="1 failed", html_url=f"{SERVER}/octo/calc/actions/runs/501/job/1")
BY_CI = Origin(kind="ci", id=501, name="CI", conclusion="failure")


@pytest.mark.parametrize(
    ("fragment", "place", "text"),
    [
        ("L3", "a.py lines 3-3", "three"),
        ("L2-L3", "a.py lines 2-3", "two\x0c\u2028still two\nthree"),
        ("L2-L99", "a.py lines 2-3", "two\x0c\u2028still two\nthree"),
        ("L4-L9", "a.py", TEXT),
        ("L3-L2", "a.py", TEXT),
        ("", "a.py", TEXT),
    ],
)
def test_lines_of_a_linked_file_are_those_that_read_file_numbers(fragment: str, place: str, text: str) -> None:
    assert select_lines("a.py", fragment, TEXT) == LinkedFile(place=place, text=text)


def _failing(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def fail(*_: object, **__: object) -> Any:  # noqa: ANN401 - never given back
        raise error

    return fail


async def _read(path: str) -> Blob | None:
    """The files of the commit, of which one is too large to be read."""
    if path == "big.bin":
        raise WorkspaceError("It is too long.", "Make it shorter.")
    content = {"a.py": TEXT.encode(), "d/b c.py": TEXT.encode(), "bytes": b"\xffx"}.get(path)
    return None if content is None else Blob(id="1", content=content)


async def _gathered(job: Job, command: Work | None = None, *, continues: int = 0, **github: Any) -> Material:  # noqa: ANN401 - calls of GitHub's
    """The material of a job; what it asks of GitHub beside `github` has nothing to say."""

    async def read(_: int, __: Source, path: str, *, limit: int) -> Blob | None:
        assert limit > 0
        return await _read(path)

    usual: dict[str, Any] = {
        "list_for_thread": answering(()),
        "list_line_comments": answering(()),
        "list_for_pull": answering(()),
        "list_failing": answering(()),
        "get": answering(RED_RUN),
        "jobs": answering(()),
        "find_last_success": answering(None),
    }
    every = SimpleNamespace(**{**usual, **github})
    client = SimpleNamespace(
        accounts=account(BOT), comments=every, reviews=every, checks=every, runs=every, redact_text=str
    )
    file, section = new_file("src/a.py", ["x"])
    comparison = Comparison(fork="b" * 40, head=HEAD, files=(file,))
    workspaces = SimpleNamespace(read=read, compare=answering(comparison), read_sections=answering((section,)))
    services = SimpleNamespace(workspaces=workspaces, server_url=SERVER, is_long_running=True, ca_file=None)
    context = context_of(InMemoryEngine(), job, github=client, services=services)
    begun = Assignment(
        command=command or Fix(),
        snapshot=snapshot(reader=PhaseReader(context.github), continues=continues),
        grant=Grant(policy=Policy(), publish="pull_branch", bound_to_sha=HEAD),
        settings=RepoSettings(config=RepoConfig(), base_sha="b" * 40),
        source=Source(url="/origin", token="", ref="refs/heads/main", sha=HEAD),
    )
    return await gather(context, begun)


async def test_what_the_bot_said_itself_is_told_apart() -> None:
    contents = await _gathered(
        a_job(kind="pull"),
        list_for_thread=answering((a_comment(1), a_comment(2, author_id=BOT))),
        list_line_comments=answering((on_lines(a_comment(3, author_id=BOT)),)),
        list_for_pull=answering((in_a_review(a_comment(4)),)),
    )
    assert [contents.is_own(each) for each in contents.comments] == [False, True]
    assert [contents.is_own(each) for each in contents.line_comments] == [True]
    assert [contents.is_own(each) for each in contents.reviews] == [False]
    assert "+++ b/src/a.py\n" in contents.difference.render(1_000)


async def test_an_issue_has_a_diff_and_checks_only_where_it_continues_in_a_pull_request() -> None:
    red = answering((RED.model_copy(update={"html_url": ""}),))
    alone = await _gathered(a_job(), list_failing=red)
    assert (alone.continues, alone.difference.files, alone.checks) == (False, (), ())
    further = await _gathered(a_job(), list_failing=red, continues=8)
    assert (further.continues, len(further.difference.files), len(further.checks)) == (True, 1, 1)


@pytest.mark.parametrize("origin", [BY_CI, Origin(kind="button", id=1)], ids=["by CI", "done again by a person"])
async def test_a_branch_has_no_thread_to_be_read_but_failing_checks(origin: Origin) -> None:
    job = replace(a_job(thread=Thread.of_branch("main")), origin=origin)
    contents = await _gathered(job, list_for_thread=_failing(AssertionError()), list_failing=answering((RED,)))
    assert len(contents.checks) == 1


@pytest.mark.parametrize(
    ("links", "places"),
    [
        (f"See {HERE}/a.py#L2-L3, please.", ["a.py lines 2-3"]),
        (f"[it]({HERE}/d/b%20c.py) and <{HERE}/a.py>", ["d/b c.py", "a.py"]),
        (f"{HERE}/a.py {HERE}/a.py?plain=1 {HERE}/a.py#L1 {HERE}/a.py#readme", ["a.py", "a.py lines 1-1"]),
        (f"{HERE}/gone.py {HERE}/big.bin {HERE}/a.py", ["a.py"]),
        (f"{SERVER}/octo/other/blob/main/a.py https://evil.example/octo/calc/blob/main/a.py", []),
        (" ".join([*(f"{HERE}/gone{number}" for number in range(5)), f"{HERE}/a.py"]), []),
        (f"{HERE}/ {HERE}", []),
    ],
    ids=["lines", "spelling", "once", "gone or too large", "elsewhere", "too many", "no file"],
)
async def test_files_that_the_description_links_to_are_read(links: str, places: list[str]) -> None:
    assert [each.place for each in (await _gathered(a_job(body=links))).files] == places


async def test_bytes_that_are_no_text_are_shown_as_far_as_they_are() -> None:
    [file] = (await _gathered(a_job(body=f"{HERE}/bytes"))).files
    assert file.text == "\ufffdx"


@pytest.mark.parametrize(("origin", "is_noted"), [(BY_CI, True), (a_job().origin, False)])
async def test_checks_that_may_not_be_read_are_said_only_where_they_began_the_job(
    origin: Origin, *, is_noted: bool
) -> None:
    contents = await _gathered(replace(a_job(kind="pull"), origin=origin), list_failing=_failing(DENIED))
    assert ("*Checks: read-only*" in contents.unread) is is_noted
    assert contents.checks == ()


@pytest.mark.parametrize("method", ["list_failing", "get", "jobs", "list_for_thread", "find_last_success"])
async def test_what_github_cannot_tell_for_a_moment_is_asked_again_later(method: str) -> None:
    with pytest.raises(GitHubError):
        await _gathered(replace(a_job(kind="pull"), origin=BY_CI), None, continues=0, **{method: _failing(DOWN)})


@pytest.mark.parametrize(
    ("command", "run", "has_run"),
    [
        (Fix(), RED_RUN, True),
        (Fix(), RED_RUN.model_copy(update={"head_sha": "c" * 40}), False),
        (Ask(goal="Why?"), RED_RUN, False),
    ],
    ids=["to be fixed", "of another commit", "asked about"],
)
async def test_a_fix_is_given_the_run_behind_a_failing_check_if_it_is_of_the_same_commit(
    command: Work, run: RunFacts, *, has_run: bool
) -> None:
    material = await _gathered(a_job(kind="pull"), command, list_failing=answering((RED,)), get=answering(run))
    assert (material.failed is not None) is has_run
    assert material.workflow == ("CI" if has_run else "")


async def test_a_run_that_is_gone_leaves_what_the_checks_say() -> None:
    gone = GitHubError("read it", 404, "Not Found", "Check it.")
    material = await _gathered(a_job(kind="pull"), list_failing=answering((RED,)), get=_failing(gone))
    assert (material.failed, len(material.checks)) == (None, 1)


async def test_a_plan_that_was_approved_goes_with_the_fix() -> None:
    assert (await _gathered(a_job(), Fix(plan="1. Do it."))).approved_plan == "1. Do it."


def check(html_url: str) -> CheckFacts:
    return a_failed_check(html_url=html_url)


def test_the_run_of_the_first_check_that_has_one_is_meant() -> None:
    checks = [check(""), check(f"{SERVER}/o/r/runs/7"), check(f"{SERVER}/o/r/actions/runs/12/job/34")]
    assert find_run_id(SERVER, "o/r", checks) == 12


@pytest.mark.parametrize(
    "address",
    [
        f"{SERVER}/o/other/actions/runs/12/job/34",
        f"{SERVER}/o/rx/actions/runs/12/job/34",
        "https://evil.example/o/r/actions/runs/12/job/34",
        f"https://evil.example/?{SERVER}/o/r/actions/runs/12/job/34",
        f"{SERVER}/o/r/actions/runs/{'9' * 30}/job/34",
        f"{SERVER}/o/r/actions/runs/12",
    ],
)
def test_other_addresses_name_no_run_of_this_repository(address: str) -> None:
    assert find_run_id(SERVER, "o/r", [check(address)]) == 0


LOG = b"2026-01-01T00:00:00.0000000Z ##[group]Run pytest\n2026-01-01T00:00:01.0000000Z ##[error]1 failed in %b\n"
GONE = GitHubError("read the log", 410, "Gone", "It was deleted.")
LOG_DENIED = GitHubError("read the log", 403, "Resource not accessible by integration", "Grant it.")
LOG_DOWN = GitHubError("read the log", 502, "Bad gateway", "Later.")


@dataclass(slots=True)
class _Logs:
    """Addresses of logs and their contents; an error in place of either is raised."""

    own: str | GitHubError = "own"
    archive: str | GitHubError = "zip"
    broken: dict[str, LogError] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    folders: set[Path] = field(default_factory=set)

    async def job_log_url(self, _: str, job_id: int) -> str:
        return self._address_or_error(self.own, f"{self.own} {job_id}")

    async def logs_url(self, *_: object) -> str:
        return self._address_or_error(self.archive, f"{self.archive}")

    def _address_or_error(self, answer: str | GitHubError, address: str) -> str:
        if isinstance(answer, GitHubError):
            raise answer
        return address

    async def save(self, address: str, file: Path, *, most: int, tail: int, seconds: float, **trust: object) -> None:
        assert 0 < seconds <= 60.0
        assert trust == {"plain": True, "ca_file": None}
        assert tail < most
        self.requests.append(address)
        self.folders.add(file.parent)
        if address in self.broken:
            raise self.broken[address]
        _write(address, file)


def _write(address: str, file: Path) -> None:
    if address == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("0_test (3.11).txt", LOG % b"zip")
    else:
        file.write_bytes(LOG % address.encode())


async def _read_log(logs: _Logs, monkeypatch: pytest.MonkeyPatch, *names: str) -> Sequence[str | LogError]:
    """The excerpts of some jobs, one after the other, or why there is none."""
    monkeypatch.setattr(material, "save_log", logs.save)
    github = cast("GitHub", SimpleNamespace(runs=logs))
    excerpts: list[str | LogError] = []
    async with FailedLogs(github, "octo/calc", 501, 1, plain=True).open() as opened:
        for number, name in enumerate(names):
            job = JobFacts(id=number, name=name, conclusion="failure", steps=(), labels=(), check_id=0, html_url="")
            try:
                excerpts.append((await opened.excerpt(job, ()))[0])
            except LogError as error:
                excerpts.append(error)
    return excerpts


async def test_a_job_has_its_own_log_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = _Logs()
    [text] = await _read_log(logs, monkeypatch, "test (3.11)")
    assert "1 failed in own 0" in str(text)
    [folder] = logs.folders
    assert not folder.exists()


async def test_the_folder_of_the_logs_survives_another_run_that_removes_leftovers() -> None:
    async with FailedLogs(cast("GitHub", SimpleNamespace()), "octo/calc", 501, 1, plain=True).open() as logs:
        os.utime(logs._folder, (0, 0))
        runtime_logs = OutputLogs()
        assert logs._folder.exists()
        runtime_logs.close()


async def test_logs_that_are_gone_are_read_from_one_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = _Logs(own=GONE)
    first, other = await _read_log(logs, monkeypatch, "test (3.11)", "another")
    assert "1 failed in zip" in str(first)
    assert isinstance(other, LogGoneError)
    assert logs.requests == ["zip"]


async def test_a_zip_file_that_is_too_large_is_not_fetched_twice_and_each_job_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = _Logs(own=GONE, broken={"zip": LogError("The log has 99 bytes; the limit is 9.")})
    first, second = await _read_log(logs, monkeypatch, "test (3.11)", "another")
    assert logs.requests == ["zip"]
    assert "the limit is 9" in str(first)
    assert "the limit is 9" in str(second)


async def test_a_zip_file_that_is_gone_too_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    excerpts = await _read_log(_Logs(own=GONE, archive=GONE), monkeypatch, "test (3.11)", "another")
    assert [type(each) for each in excerpts] == [LogGoneError, LogGoneError]


async def test_a_permission_that_is_missing_is_told_and_no_reason_to_look_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = _Logs(own=LOG_DENIED)
    [error] = await _read_log(logs, monkeypatch, "test (3.11)")
    assert "Grant it." in str(error)
    assert logs.requests == []


@pytest.mark.parametrize(
    "logs", [_Logs(own=LOG_DOWN), _Logs(own=GONE, archive=LOG_DOWN)], ids=["its own", "the zip file"]
)
async def test_github_that_is_silent_for_a_moment_is_asked_again_later(
    logs: _Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GitHubError):
        await _read_log(logs, monkeypatch, "test (3.11)")


async def test_many_slow_logs_take_no_longer_than_all_may_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_LOGS_SECONDS", 0.0)
    logs = _Logs()
    [error] = await _read_log(logs, monkeypatch, "test (3.11)")
    assert isinstance(error, LogError)
    assert logs.requests == []


DESCRIPTION = PictureText(kind="thread", id=0, name="issue #7 by @mona", text="")
COMMENT = PictureText(kind="comment", id=17, name="comment 17 by @eve", text="")


def _address(number: int) -> str:
    return f"{SERVER}/user-attachments/assets/{number:08}-0000-0000-0000-000000000000"


def _several(count: int, words: PictureText = DESCRIPTION, order: int = 0) -> list[Picture]:
    """Pictures in the order of their places."""
    places = [(order, number) for number in range(1, count + 1)]
    return [Picture(text=words, place=place, address=_address(100 * order + place[1])) for place in places]


@dataclass(slots=True)
class _GitHub:
    """Attachments, each small and there unless `content` has another for its number, and the texts that show them."""

    content: dict[int, bytes | Exception] = field(default_factory=dict)
    page: str | Exception = ""
    fetched: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    rendered_texts: list[int] = field(default_factory=list)

    async def render(self, _: str, __: int, ___: str, text_id: int) -> str:
        self.rendered_texts.append(text_id)
        if isinstance(self.page, Exception):
            raise self.page
        return self.page

    async def fetch(self, address: str, *, server_url: str, limit: int, seconds: float, **_trust: object) -> bytes:
        assert server_url == SERVER
        assert seconds > 0
        self.fetched.append(address)
        self.limits.append(limit)
        picture = self.content.get(int(address.split("/assets/")[1][:8]), png())
        if isinstance(picture, Exception):
            raise picture
        if len(picture) > limit:
            raise TooLargeError(f"it has more than {limit:,} bytes")
        return picture


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> _GitHub:
    made = _GitHub()
    monkeypatch.setattr(material, "fetch_picture", made.fetch)
    return made


async def _fetch_pictures(github: _GitHub, pictures: Sequence[Picture], *, sees: bool = True, on: bool = True) -> Task:
    services = SimpleNamespace(pictures=on, server_url=SERVER, ca_file=None)
    context = context_of(InMemoryEngine(), a_job(), github=SimpleNamespace(comments=github), services=services)
    brief = Brief(goal="Fix it.", quotes=(), notes=(), pictures=tuple(pictures))
    return await material.fetch_pictures(context, "octo/calc", brief, sees_images=sees)


def _noted(task: Task) -> str:
    return "\n".join(quote.text for quote in task.quotes)


async def test_what_github_shows_is_not_read_on_the_event_loop(
    github: _GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(address: str, _page: str, _server: str) -> str:
        threads.append(threading.current_thread())
        return address

    monkeypatch.setattr(material, "signed_address", noted)
    assert len((await _fetch_pictures(github, _several(2))).images) == 2
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_pictures_are_shown_in_the_order_in_which_they_are_read(github: _GitHub) -> None:
    task = await _fetch_pictures(github, [*_several(1, COMMENT, order=1), *_several(2)])
    assert [each.source for each in task.images] == [
        "issue #7 by @mona",
        "issue #7 by @mona, picture 2",
        "comment 17 by @eve",
    ]
    assert task.quotes == ()


async def test_each_text_is_rendered_once_even_where_github_fails_to(github: _GitHub) -> None:
    github.page = GitHubError("read a text", 502, "Bad gateway", "Later.")
    task = await _fetch_pictures(github, [*_several(3), *_several(1, COMMENT, order=1)])
    assert github.rendered_texts == [0, 17]
    assert len(task.images) == 4


async def test_a_private_picture_is_fetched_from_the_address_that_github_signed(github: _GitHub) -> None:
    github.page = f'<p><img src="{_address(1)}?jwt=abc"></p>'
    await _fetch_pictures(github, _several(2))
    assert github.fetched == [f"{_address(1)}?jwt=abc", _address(2)]


@pytest.mark.parametrize("address", ["https://evil.example/p.png", "http://169.254.169.254/", "", "file:///etc/passwd"])
async def test_nothing_is_asked_of_another_place_or_for_one_there(github: _GitHub, address: str) -> None:
    task = await _fetch_pictures(github, [Picture(text=DESCRIPTION, place=(0, 1), address=address)])
    assert (task.images, github.fetched, github.rendered_texts) == ((), [], [])
    assert "issue #7 by @mona" in _noted(task)


@pytest.mark.parametrize("wrong", [PictureError("it is gone"), b"<svg/>", b"", b"x" * (MAX_PICTURE_BYTES + 1)])
async def test_one_that_cannot_be_shown_is_noted_and_fails_no_other(github: _GitHub, wrong: bytes | Exception) -> None:
    github.content = {1: wrong}
    task = await _fetch_pictures(github, _several(2))
    assert [each.source for each in task.images] == ["issue #7 by @mona, picture 2"]
    assert "issue #7 by @mona" in _noted(task)


async def test_no_more_are_shown_than_a_task_has_room_for(github: _GitHub) -> None:
    task = await _fetch_pictures(github, _several(MAX_PICTURES + 3))
    assert len(task.images) == len(github.fetched) == MAX_PICTURES
    assert _noted(task).count("a picture of") == 3


async def test_a_thread_full_of_broken_pictures_costs_a_few_requests(github: _GitHub) -> None:
    github.content = {number: PictureError("it is gone") for number in range(1, 200)}
    task = await _fetch_pictures(github, _several(200))
    assert task.images == ()
    assert len(github.fetched) <= 2 * MAX_PICTURES
    assert len(_noted(task)) < 2_000


async def test_a_large_one_leaves_room_for_smaller_ones(github: _GitHub) -> None:
    large = png(padding=MAX_PICTURE_BYTES - 1_000)
    github.content = dict.fromkeys((1, 2, 3), large)
    task = await _fetch_pictures(github, _several(4))
    assert [each.source.rpartition(" ")[2] for each in task.images] == ["@mona", "2", "4"]
    assert github.limits[2] == MAX_TOTAL_BYTES - 2 * len(large)


async def test_those_that_there_is_no_time_for_are_not_asked_for(
    github: _GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "_PICTURES_SECONDS", 0.0)
    task = await _fetch_pictures(github, _several(2))
    assert (task.images, github.fetched) == ((), [])
    assert _noted(task).count("a picture of") == 2


@pytest.mark.parametrize(("sees", "on"), [(False, True), (True, False), (False, False)])
async def test_for_a_model_that_does_not_see_none_is_fetched(github: _GitHub, *, sees: bool, on: bool) -> None:
    task = await _fetch_pictures(github, _several(2), sees=sees, on=on)
    assert (task.images, github.fetched) == ((), [])
    assert _noted(task).count("a picture of") == 2


async def test_a_thread_without_pictures_is_told_as_it_is(github: _GitHub) -> None:
    task = await _fetch_pictures(github, [], sees=False)
    assert (task.images, task.quotes) == ((), ())
