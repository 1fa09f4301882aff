"""Each call of the client with GitHub's answers changed at each place: only deliberate errors leave it.

The calls and the answers are those of the contract of `FakeGitHub`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from typing_extensions import override

from bot.domain.errors import BotError
from bot.github.app import (
    AppAccess,
    OAuthClient,
    list_installation_ids,
    open_deliveries,
    read_app_usage,
    register_app,
)
from bot.github.auth import AppIdentity, InstallationAuth
from bot.github.client import GitHub
from bot.github.connection import AppSession, GitHubConnection
from bot.github.types import Answer, GitHubError
from localhub.api.auth import HubError
from tests.contracts.fake_worlds import FakeWorld
from tests.contracts.test_fake_github import _SCENARIOS

_GONE = object()
_ODD: tuple[object, ...] = (
    _GONE,
    None,
    [],
    {},
    [None],
    [[]],
    {"a": None},
    "",
    "x",
    "x==",
    -1,
    1e300,
    float("nan"),
    10**400,
    True,
    "\ud800",
    "a\0b",
)


@dataclass(slots=True)
class RecordedCall:
    """A call of the client, and the answers to its requests."""

    part: str
    method: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    answers: list[Answer] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.part}.{self.method}"

    @property
    def shape(self) -> str:
        """The call with the forms of its answers; calls of the same shape are tried once."""
        return f"{self.name} {[(answer.status, sorted(_shape(answer.data))) for answer in self.answers]}"


class _Recorder:
    def __init__(self, part: object, name: str, begin: Callable[[RecordedCall], None]) -> None:
        self._part, self._name, self._begin = part, name, begin

    def __getattr__(self, method: str) -> Callable[..., Any]:
        target = getattr(self._part, method)

        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any method
            self._begin(RecordedCall(self._name, method, arguments, options))
            return target(*arguments, **options)

        return call


async def record_calls(run: Callable[[FakeWorld], Awaitable[None]]) -> list[RecordedCall]:
    calls: list[RecordedCall] = []
    world = FakeWorld("octo")
    connection: Any = world.github._connection
    perform = connection._perform

    def record(*request: object) -> Answer:
        try:
            answer: Answer = perform(*request)
        except HubError as error:
            calls[-1].answers.append(Answer(status=error.status, headers=error.headers, data=error.body()))
            raise
        # The site's own objects change later.
        calls[-1].answers.append(Answer(status=answer.status, headers=answer.headers, data=_copy(answer.data)))
        return answer

    connection._perform = record
    for name in GitHub.__init__.__code__.co_names:
        if hasattr(world.github, name) and not name.startswith("_"):
            setattr(world.github, name, _Recorder(getattr(world.github, name), name, calls.append))
    await run(world)
    return [call for call in calls if call.answers]


class ReplayConnection(GitHubConnection):
    """A connection with a fixed sequence of answers, then only 404."""

    def __init__(self, answers: list[Answer]) -> None:
        session = AppSession(0.0).for_installation(1)
        app = AppIdentity(1, "")
        auth = InstallationAuth(app=app, installation_id=1, tokens=session.tokens, on_mint=lambda _token: None)
        super().__init__(auth, "http://github.test", session=session, max_wait_seconds=0)
        self._answers = answers

    @override
    async def token(self, *, as_app: bool = False) -> tuple[str, str]:
        return "token", "t"

    @override
    async def exchange(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        answer = self._answers.pop(0) if self._answers else Answer(status=404, headers={}, data={})
        content = b"" if answer.data is None else json.dumps(answer.data).encode()
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, content


async def replay(call: RecordedCall, answers: list[Answer]) -> None:
    github = GitHub(ReplayConnection([*answers]), redact=str)
    await getattr(getattr(github, call.part), call.method)(*call.arguments, **call.options)


def _copy(data: Any) -> Any:  # noqa: ANN401 - JSON
    return json.loads(json.dumps(data))


def _shape(data: object, place: str = "") -> set[str]:
    if isinstance(data, dict):
        return {entry for key, value in data.items() for entry in _shape(value, f"{place}.{key}")} or {f"{place}{{}}"}
    if isinstance(data, list):
        return {entry for value in data for entry in _shape(value, f"{place}[]")} or {f"{place}[]"}
    return {f"{place} {type(data).__name__}"}


def _places(data: object) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the values, one for the entries of a list."""
    yield ()
    entries = data.items() if isinstance(data, dict) else enumerate(data[:1]) if isinstance(data, list) else ()
    for key, value in entries:
        for place in _places(value):
            yield (key, *place)


def _changed(data: Any, place: tuple[Any, ...], value: object) -> Any:  # noqa: ANN401 - JSON
    if not place:
        return None if value is _GONE else value
    changed = data.copy()
    if len(place) == 1 and value is _GONE:
        del changed[place[0]]
    else:
        changed[place[0]] = _changed(data[place[0]], place[1:], value)
    return changed


def _variants(answers: list[Answer], tried: set[object]) -> Iterator[list[Answer]]:
    """Yield the answers with one of them changed at one place; each place and kind of value once."""
    for index, answer in enumerate(answers):
        for place in _places(answer.data):
            key = (index, answer.status, tuple(0 if isinstance(part, int) else part for part in place))
            if answer.data is None or key in tried:
                continue
            tried.add(key)
            for odd in _ODD:
                changed = Answer(status=answer.status, headers=answer.headers, data=_changed(answer.data, place, odd))
                yield [*answers[:index], changed, *answers[index + 1 :]]


async def _try(name: str, answers: list[Answer], call: Callable[[], Awaitable[object]]) -> bool:
    """Make a call; return whether it had a result."""
    try:
        await call()
    except BotError:
        return False
    except Exception as error:
        error.add_note(f"{name} with {answers}")
        raise
    return True


async def test_no_odd_answer_to_a_job_is_a_bare_exception() -> None:
    tried: dict[str, set[object]] = {}
    shapes, results = set[str](), Counter[bool]()
    for run in _SCENARIOS:
        for call in await record_calls(run):
            if call.shape not in shapes:
                shapes.add(call.shape)
                for answers in _variants(call.answers, tried.setdefault(call.name, set())):
                    results[await _try(call.name, answers, partial(replay, call, answers))] += 1
    assert len(tried) > 50
    assert min(results.values()) > 2_000


async def _read_deliveries(access: AppAccess) -> None:
    async with open_deliveries(access) as deliveries:
        _ = [attempt async for attempt in deliveries.attempts()]


_ATTEMPTS = [{"id": 1, "guid": "g", "event": "push", "delivered_at": "2026-01-01T00:00:00Z", "status_code": 200}]
_INSTALLATIONS = [{"id": 1, "permissions": {"contents": "read"}, "events": ["push"], "suspended_at": None}]
_REGISTERED = {
    "id": 1,
    "slug": "bot",
    "owner": {"login": "mona"},
    "html_url": "u",
    "pem": "p",
    "webhook_secret": None,
    "client_id": "c",
    "client_secret": "s",
}
_ACCESS = AppAccess(app_id=1, private_key="", api_url="http://github.test")
_OAUTH = OAuthClient(client_id="c", client_secret="s", server_url="http://github.test", api_url="http://github.test")
_APP_CALLS: dict[str, tuple[Callable[[], Awaitable[object]], tuple[object, ...]]] = {
    "read_app_usage": (
        lambda: read_app_usage(_ACCESS),
        ({"url": "u", "insecure_ssl": "0"}, _ATTEMPTS, _INSTALLATIONS),
    ),
    "list_installation_ids": (lambda: list_installation_ids(_ACCESS), (_INSTALLATIONS,)),
    "open_deliveries": (lambda: _read_deliveries(_ACCESS), (_ATTEMPTS,)),
    "register_app": (lambda: register_app("code", "http://github.test"), (_REGISTERED,)),
    "OAuthClient.exchange": (lambda: _OAUTH.exchange("code", "verifier"), ({"access_token": "t"},)),
    "OAuthClient.login": (lambda: _OAUTH.login("t"), ({"id": 1, "login": "mona"},)),
    "OAuthClient.repositories": (
        lambda: _OAUTH.repositories("t"),
        ({"installations": _INSTALLATIONS}, {"repositories": [{"id": 1}]}),
    ),
}


@pytest.mark.parametrize("name", _APP_CALLS)
async def test_no_odd_answer_to_the_app_is_a_bare_exception(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, data = _APP_CALLS[name]
    script: list[Answer] = []

    async def exchange(*_request: object) -> tuple[int, dict[str, str], bytes]:
        return await ReplayConnection(script).exchange("", "", {}, b"")

    monkeypatch.setattr(GitHubConnection, "exchange", exchange)
    monkeypatch.setattr(GitHubConnection, "token", ReplayConnection.token)
    monkeypatch.setattr("bot.github.connection._FIRST_PAUSE_SECONDS", 0.0)
    for status in (200, 403):
        expected = [Answer(status=status, headers={}, data=answer) for answer in data]
        for answers in _variants(expected, set()):
            script[:] = answers
            await _try(name, answers, call)


_ISSUE = {"number": 1, "state": "open", "title": "t", "html_url": "u", "user": {"id": 1, "login": "mona"}}
_PULL = _ISSUE | {"head": {"ref": "topic", "sha": "a"}, "base": {"ref": "main", "sha": "b", "repo": {"id": 1}}}
_FILE = {"name": "a", "sha": "s", "size": 1, "type": "file", "encoding": "base64"}


@pytest.mark.parametrize(
    ("call", "status", "data", "message"),
    [
        (lambda github: github.threads.get("o/r", 1), 200, [], "read o/r#1; GitHub answered 200: "),
        (lambda github: github.threads.get("o/r", 1), 200, _ISSUE | {"state": []}, "read o/r#1; GitHub answered 200: "),
        (lambda github: github.comments.list_for_thread("o/r", 1), 200, [None], "read the comments of o/r#1; "),
        (lambda github: github.pulls.get("o/r", 1), 200, _PULL | {"head": None}, "read pull request o/r#1; "),
        (lambda github: github.repos.get("o/r"), 403, {"message": ["busy"]}, "read o/r; GitHub answered 403: "),
        (lambda github: github.repos.read_file("o/r", "a"), 200, _FILE | {"content": "x"}, "read a of o/r; "),
    ],
)
async def test_the_error_names_the_request(
    call: Callable[[GitHub], Awaitable[object]], status: int, data: object, message: str
) -> None:
    with pytest.raises(GitHubError, match=f"Could not {message}"):
        await call(GitHub(ReplayConnection([Answer(status=status, headers={}, data=data)] * 2), redact=str))


@pytest.mark.parametrize("labels", [None, [None], [], {}])
async def test_odd_labels_are_none(labels: object) -> None:
    github = GitHub(ReplayConnection([Answer(status=200, headers={}, data=_ISSUE | {"labels": labels})]), redact=str)
    assert (await github.threads.get("o/r", 1)).labels == ()
