"""Each verb in each place, in the App and in a workflow: its set-up, and what it does there.

`run_cell` gives the command on the seam and compares what happened with `CELLS`; docs/commands.md has the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from unittest.mock import AsyncMock, patch

from bot.domain.grammar import VERBS, describe_verb
from bot.domain.grammar import Place as WorkPlace
from bot.jobs import handover
from tests.fakes.agent import Script, execute, reply, wait_for_test, write
from tests.fakes.site import FakeComment, FakeCommit, FakeThread
from tests.pauses import ASKING
from tests.seam import COMPLETION, FIX, FIXED_CALC, Seam, open_seam
from tests.seam_step import on_seam, run_step
from tests.stage import FILES

Place = Literal["issue", "pull request", "fork's pull request", "line of a pull request", "e-mail"]
System = Literal["App", "workflow"]
SetUp = Literal["", "base", "fix", "ask", "vain fix", "plan", "waiting fix", "running ask"]
_HEADS: dict[Place, str] = {
    "issue": "issue",
    "pull request": "pull request",
    "fork's pull request": "fork's pull request",
    "line of a pull request": "comment on a line",
    "e-mail": "reply by e-mail",
}
FORK: Place = "fork's pull request"

_VARIABLES = {"CODEPILOT_SESSION_KEY": "session-key-of-the-seam-0123456789abcdef"}
_ASKING = {"CODEPILOT_LEVEL": "ask", "CODEPILOT_NETWORK": "nowhere.example", "CODEPILOT_APPROVALS": "artifact"}
_RECIPE = "---\non: comment\npublish: pull-request\n---\nMake `add` right.\n"
_MAIL = """

On Tue, Jan 2, 2024 at 10:00 AM codepilot[bot] ***@***.***>
wrote:

> Answer with one of these:
>
> /codepilot deny
>
> —
> Reply to this email directly, view it on GitHub
> <https://github.com/mona/calc/pull/1#issuecomment-1>.

--\x20
Mona Example, Example Inc.
"""

_MESSAGE = "be quick"
_ANSWER = "Because of the sum."
_ANSWERS: Script = [reply(completion=_ANSWER)]
_NOTES = '[{"path": "topic.txt", "line": 1, "body": "Say which topic."}]'
_REVIEWS: Script = [reply(completion=f"It adds a topic.\n\n```json\n{_NOTES}\n```")]
_DESCRIBES: Script = [reply(completion="Add a topic for readers\n\nIt adds a topic.")]
_PLANS: Script = [reply(completion="1. Take the one out.")]
_FINDS_NOTHING: Script = [reply(completion="I could not find it.")]
_ASKS: Script = [
    reply(write("calc.py", FIXED_CALC), execute("sh check.sh > log", handled=True)),
    reply(completion=COMPLETION),
]
_LISTENS: Script = [reply(wait_for_test()), reply(completion=_ANSWER, expect=f"while you work: {_MESSAGE}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a command.

    Attributes:
        name: in the table.
        changes: on GitHub, besides comments.
        text: in the bot's new or edited comments of the place.
        is_paid: whether an agent starts.
    """

    name: str
    changes: tuple[str, ...] = ()
    text: str
    is_paid: bool = True


def _refusal(reason: str, text: str) -> Result:
    return Result(name=f"refused: {reason}", text=text, is_paid=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A verb with a set-up, in one system or both.

    Attributes:
        command: the text after the trigger.
        scripts: of the agents, also of those of the set-up.
    """

    verb: str
    command: str
    scripts: tuple[Script, ...]
    set_up: SetUp = ""
    systems: tuple[System, ...] = ("App", "workflow")
    results: dict[Place, Result]


def _everywhere(result: Result, **others: Result) -> dict[Place, Result]:
    """Return a result for all places, except `issue` and `fork`."""
    changed = {"issue": others.get("issue", result), FORK: others.get("fork", result)}
    return {**dict.fromkeys(get_args(Place), result), **changed}


def _published(result: Result) -> dict[Place, Result]:
    """Return the results of work that ends in a commit, a new pull request or, for a fork, a patch."""
    name = result.name.removesuffix("commit")
    return _everywhere(
        result,
        issue=replace(result, name=f"{name}new pull request", changes=("new pull request",)),
        fork=replace(result, name=f"{name}patch", changes=(), text=_PATCH),
    )


_COMMIT = Result(name="commit", changes=("commit",), text=COMPLETION)
_NEW_PULL = Result(name="new pull request", changes=("new pull request",), text=COMPLETION)
_TEXT = Result(name="answer", text=_ANSWER)
_LABEL = "a permission label is missing"
_PLAN_ALONE = Result(name="plan; its work needs a permission label", text="code from forks requires permission to run.")
_NEEDS_LABEL = _refusal(_LABEL, "code from forks requires permission to run.")

_NO_PULL = "a pull request is needed"
_RETRIED = Result(name="the last work again: commit", changes=("commit",), text=COMPLETION)
_REVERT = Result(name="reverting commit", changes=("commit",), text="I reverted commit", is_paid=False)
_TEST_REPORT = Result(name="report", text=_ANSWER)
_RESUMED = Result(name="the run goes on: commit", changes=("commit",), text=COMPLETION, is_paid=False)
_RESUMED_WITHOUT = replace(_RESUMED, name="the run goes on without it: commit")
_PATCH = "Nothing is pushed to a fork: the patch is kept."

ROWS: tuple[Row, ...] = (
    Row(
        verb="fix",
        command="fix",
        scripts=(FIX,),
        results=_everywhere(_COMMIT, issue=_NEW_PULL, fork=_NEEDS_LABEL),
    ),
    Row(
        verb="resolve",
        command="resolve",
        scripts=(),
        set_up="base",
        results=_everywhere(
            Result(name="merge commit", changes=("merge commit",), text="I merged `main`", is_paid=False),
            issue=_refusal(_NO_PULL, "Use `resolve` on a pull request."),
            fork=_refusal("I push to no fork", "I never push to forks"),
        ),
    ),
    Row(
        verb="review",
        command="review",
        scripts=(_REVIEWS,),
        results=_everywhere(
            Result(name="review", changes=("review",), text="It adds a topic."),
            issue=_refusal(_NO_PULL, "Use `review` on a pull request, or use `explain`."),
        ),
    ),
    Row(
        verb="describe",
        command="describe",
        scripts=(_DESCRIBES,),
        results=_everywhere(
            Result(name="new title and description", changes=("new text",), text="I replaced the title and"),
            issue=_refusal(_NO_PULL, "Use `describe` on a pull request, or use `explain`."),
        ),
    ),
    Row(verb="explain", command="explain", scripts=(_ANSWERS,), results=_everywhere(_TEXT)),
    Row(
        verb="plan",
        command="plan",
        scripts=(_PLANS,),
        systems=("App",),
        results=_everywhere(
            Result(name="plan that waits for approval", text="approving it starts the work"), fork=_PLAN_ALONE
        ),
    ),
    Row(
        verb="plan",
        command="plan",
        scripts=(_PLANS,),
        systems=("workflow",),
        results=_everywhere(
            Result(name="plan for `continue`", text="`/codepilot continue` starts the work on this plan."),
            fork=_PLAN_ALONE,
        ),
    ),
    Row(verb="ask", command="ask why?", scripts=(_ANSWERS,), results=_everywhere(_TEXT)),
    Row(verb="test", command="test", scripts=(_ANSWERS,), results=_everywhere(_TEST_REPORT, fork=_NEEDS_LABEL)),
    Row(
        verb="run",
        command="run tidy",
        scripts=(FIX,),
        results=_everywhere(_COMMIT, issue=_NEW_PULL, fork=_NEEDS_LABEL),
    ),
    Row(verb="triage", command="triage", scripts=(_ANSWERS,), results=_everywhere(_TEXT)),
    Row(
        verb="split",
        command="split",
        scripts=(_ANSWERS,),
        results=_everywhere(_refusal("not an issue", "Only an issue has sub-issues"), issue=_TEXT),
    ),
    Row(
        verb="undo",
        command="undo",
        scripts=(FIX,),
        set_up="fix",
        results=_everywhere(
            _REVERT,
            issue=replace(_REVERT, name="reverting commit, pull request closed", changes=("commit", "closed")),
            fork=_refusal("no commit is there", "There is no commit of mine in this thread"),
        ),
    ),
    Row(
        verb="remember",
        command="remember Run the checks.",
        scripts=(),
        results=_everywhere(
            Result(
                name="pull request with the rule",
                changes=("new pull request",),
                text="This rule is in this pull request",
                is_paid=False,
            )
        ),
    ),
    Row(
        verb="continue",
        command="continue be quick",
        scripts=(_LISTENS,),
        set_up="running ask",
        systems=("App",),
        results=_everywhere(Result(name="message to the running job", text=_ANSWER, is_paid=False)),
    ),
    Row(
        verb="continue",
        command="continue",
        scripts=(_PLANS, FIX),
        set_up="plan",
        systems=("workflow",),
        results=_everywhere(
            replace(_COMMIT, name="work on the plan: commit"),
            issue=replace(_NEW_PULL, name="work on the plan: new pull request"),
            fork=_refusal("no work can start", "No job is running in this thread. Start a new one with `fix`."),
        ),
    ),
    Row(
        verb="approve",
        command="approve",
        scripts=(_ASKS,),
        set_up="waiting fix",
        results=_published(_RESUMED),
    ),
    Row(
        verb="deny",
        command="deny",
        scripts=(_ASKS,),
        set_up="waiting fix",
        results=_published(_RESUMED_WITHOUT),
    ),
    Row(
        verb="stop",
        command="stop",
        scripts=(_LISTENS,),
        set_up="running ask",
        results=_everywhere(Result(name="stopped", text="### ⏹️ Stopped", is_paid=False)),
    ),
    Row(
        verb="retry",
        command="retry",
        scripts=(_FINDS_NOTHING, FIX),
        set_up="vain fix",
        results=_published(_RETRIED),
    ),
    Row(
        verb="status",
        command="status",
        scripts=(_ANSWERS,),
        set_up="ask",
        results=_everywhere(
            Result(name="list of jobs", text="No job is running in this thread. Last: [ask](", is_paid=False)
        ),
    ),
    Row(
        verb="help",
        command="help",
        scripts=(),
        results=_everywhere(Result(name="list of commands", text="`/codepilot fix [what to do]`", is_paid=False)),
    ),
)
CELLS = [(row, place, system) for row in ROWS for system in row.systems for place in get_args(Place)]


def render_matrix() -> str:
    """Return the table for docs/commands.md."""
    lines = [f"| | {' | '.join(_HEADS.values())} |", "|---" * (1 + len(_HEADS)) + "|"]
    for verb in VERBS:
        rows = [row for row in ROWS if row.verb == verb.name]
        texts = []
        for place in _HEADS:
            names = {row.results[place].name: row.systems for row in rows}
            texts.append(
                "; ".join(name if len(names) == 1 else f"{systems[0]}: {name}" for name, systems in names.items())
            )
        lines.append(f"| `{verb.name}` | {' | '.join(texts)} |")
    return "\n".join(lines)


_AT_TERMINAL: Mapping[str, str] = {
    "fix": "`codepilot run`",
    "review": "`codepilot run`, as text",
    **dict.fromkeys(("explain", "ask"), "`codepilot run`, `codepilot chat`"),
    "test": "`codepilot run`",
    "continue": "the next line of a chat; `codepilot run --answer`",
    "approve": "`y`; `codepilot run --approve`",
    "deny": "`n`; `codepilot run --deny`",
    "stop": "Ctrl+C",
    "help": "`codepilot run --help`; `/help` in a chat",
}


def render_places() -> str:
    """Return a Markdown table of all verbs and the places in which they work."""
    places: tuple[WorkPlace, ...] = get_args(WorkPlace)
    heads = ["", "App", *(place.capitalize() for place in places[1:]), "Terminal"]
    cells = (
        [
            f"`{verb.name}`",
            *("yes" if describe_verb(verb, place) else "" for place in places),
            _AT_TERMINAL.get(verb.name, ""),
        ]
        for verb in VERBS
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells))


@dataclass(slots=True, kw_only=True)
class Scene:
    """A thread of a place, and the system that answers there.

    Attributes:
        asks: whether commands outside the list wait for a person.
        root: the first comment on the line.
    """

    stage: Seam
    place: Place
    system: System
    thread: FakeThread
    asks: bool
    root: int = 0

    def comment(self, text: str) -> FakeComment:
        body = f"/codepilot {text}"
        if self.place != "line of a pull request":
            return self.stage.say(self.thread.number, body + (_MAIL if self.place == "e-mail" else ""))
        where: dict[str, Any] = {"in_reply_to": self.root} if self.root else {"path": "topic.txt", "line": 1}
        comment = self.stage.hub.review_comment(self.stage.repo, self.thread.number, author="mona", body=body, **where)
        self.root = comment.root
        return comment

    async def say(self, text: str) -> FakeComment:
        """Comment, and run what the comment starts."""
        comment = self.comment(text)
        await (self.stage.settle() if self.system == "App" else self._step())
        return comment

    async def _step(self, cancelled: asyncio.Event | None = None, **variables: str) -> None:
        event = "pull_request_review_comment" if self.root else "issue_comment"
        inputs = {**_VARIABLES, **variables}
        if self.asks:  # the place of the files is a part of the call that is approved
            inputs |= {**_ASKING, "CODEPILOT_DATA_DIR": str(self.stage.directory / "data")}
        values = (await run_step(self.stage, event, None, 0.05, cancelled, **inputs)).values
        if "session-name" in values:
            self._keep(values["session-name"], Path(values["session-path"]))

    def _keep(self, name: str, file: Path) -> None:
        self.stage.hub.keep_artifact(self.stage.repo, name, {file.name: file.read_bytes()}, run_id=41)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Give a command whose agent waits; let it go on at the end, or end the step that was cancelled."""
        stage = self.stage
        comment = self.comment("ask why?")
        if self.system == "App":
            await stage.at_work()
            yield
            if stage._blocked:
                await stage.let_go(await stage.job_of(comment))
            await stage.settle()
            return
        run, waits, cancelled = stage.hub.start_run(stage.repo), asyncio.Event(), asyncio.Event()
        stage.hub.workflow_app.permissions["actions"] = "write"
        stage.hub.on_call = lambda call: cancelled.set() if call == "runs.cancel" else None
        stage.agents.on_wait, stage.agents.on_go = lambda _play: waits.set(), lambda _play: None
        with on_seam(stage):
            work = asyncio.create_task(self._step(cancelled, GITHUB_RUN_ID=str(run.id)))
            await asyncio.wait_for(waits.wait(), 20)
            try:
                yield
            finally:
                cancelled.set()
                await work

    @asynccontextmanager
    async def ready(self, set_up: SetUp) -> AsyncIterator[None]:
        """Do a row's set-up; its running job runs until the end."""
        if set_up == "base":
            self.stage.hub.commit(
                self.stage.repo, {"base.txt": "A base.\n"}, message="Add a base", author="mona", branch="main"
            )
        elif set_up in {"waiting fix", "vain fix"} and self.place == FORK:
            self.stage.advance(10)  # GitHub's times have whole seconds
            self.stage.hub.add_label(self.stage.repo, self.thread.number, "codepilot:ask", by="mona")
            if self.system == "App":
                await self.stage.settle()
        if set_up == "running ask":
            async with self.at_work():
                yield
            return
        if set_up not in {"", "base"}:
            await self.say({"ask": "ask why?", "plan": "plan"}.get(set_up, "fix"))
            self.stage.advance(10)  # people read before they answer
        yield

    def look(self) -> View:
        """Look at GitHub, as far as commands may change it."""
        hub, repo = self.stage.hub, self.stage.repo
        bots = {self.stage.app.bot.id, hub.workflow_app.bot.id}
        pulls = {number: thread for number, thread in repo.threads.items() if thread.pull is not None}
        in_place = self.thread.comments if not self.root or self.thread.pull is None else self.thread.pull.line_comments
        return View(
            branches={
                (each.full_name, name): sha for each in hub.repos.values() for name, sha in each.branches.items()
            },
            pulls={number: thread.state for number, thread in pulls.items()},
            texts={number: (thread.title, thread.body) for number, thread in repo.threads.items()},
            reviews=sum(
                review.author_id in bots and bool(review.body)
                for thread in pulls.values()
                if thread.pull is not None
                for review in thread.pull.reviews
            ),
            comments={comment.id: comment.body for comment in in_place if comment.author_id in bots},
            agents=len(self.stage.providers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The part of GitHub that commands may change.

    Attributes:
        texts: titles and descriptions by thread.
        reviews: of the bot.
        comments: of the bot in the place of the command.
        agents: that have started.
    """

    branches: dict[tuple[str, str], str]
    pulls: dict[int, str]
    texts: dict[int, tuple[str, str | None]]
    reviews: int
    comments: dict[int, str]
    agents: int

    def changes_until(self, after: View, commits: Mapping[str, FakeCommit]) -> tuple[str, ...]:
        """Return the changes on GitHub, besides comments."""
        new = after.pulls.keys() - self.pulls.keys()
        moved = [sha for name, sha in after.branches.items() if self.branches.get(name, sha) != sha]
        closed = [number for number, state in self.pulls.items() if after.pulls[number] != state]
        edited = [number for number, text in self.texts.items() if after.texts[number] != text]
        return (
            *("new pull request" for _ in new),
            *("merge commit" if len(commits[sha].parents) > 1 else "commit" for sha in moved),
            *("new branch" for _ in range(len(after.branches) - len(self.branches) - len(new))),
            *("closed" for _ in closed),
            *("new text" for number in edited if number not in closed),
            *("review" for _ in range(after.reviews - self.reviews)),
        )

    def comments_until(self, after: View) -> str:
        """Return the new and edited comments of the bot."""
        return "\n".join(text for number, text in after.comments.items() if self.comments.get(number) != text)


@contextmanager
def _artifacts(stage: Seam) -> Iterator[None]:
    """Let workflow runs read the artifacts of the hub, in this process."""

    def save(address: str, file: Path, **_: object) -> None:
        number = int(address.rpartition("/")[2])
        [artifact] = [each for each in stage.repo.artifacts if each.id == number]
        file.write_bytes(artifact.content)

    def call(function: Callable[..., Any], *args: object, **_: object) -> Any:  # noqa: ANN401 - any function
        return function(*args)

    saved, called = AsyncMock(side_effect=save), AsyncMock(side_effect=call)
    with patch.multiple(handover, save_log=saved, run_bounded=called):
        yield


@asynccontextmanager
async def open_scene(directory: Path, row: Row, place: Place, system: System) -> AsyncIterator[Scene]:
    asks, files = row.set_up == "waiting fix", FILES | {".github/codepilot/tidy.md": _RECIPE}
    operator = ASKING if asks else {"level": "auto"}
    async with open_seam(directory, *row.scripts, files=files, operator=operator) as stage:
        if place == "issue":
            thread = stage.issue()
        elif place == FORK:
            stage.hub.add_user("forker")
            fork = stage.hub.add_repo("forker/calc", owner="forker", fork_of=stage.repo)
            stage.hub.commit(fork, {"topic.txt": "A topic.\n"}, message="Add a topic", author="forker", branch="topic")
            thread = stage.hub.open_pull(stage.repo, author="forker", head="forker:topic", title="Add a topic")
        else:
            thread = stage.pull()
        with _artifacts(stage):
            yield Scene(stage=stage, place=place, system=system, thread=thread, asks=asks)
