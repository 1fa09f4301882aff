"""The brief for the agent: the goal from the commander, and the thread's text as quotes, within one budget.

`brief_for` chooses and cleans the quotes: nothing that was written or edited after the command is among them.
`goal_for` gives the goal in the commander's words and ours, never in a stranger's. `job_quotes` quotes the failed jobs
of a workflow run, and `pictures` chooses the pictures of the thread.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeVar, assert_never, get_args
from urllib.parse import urlsplit

from agent_runtime import Image, Quote, Task
from bot.ci_logs.failed_run import FailedJob, FailedRun, Remark, Step
from bot.domain.commands import Ask, Bare, Command, Explain, Fix, Plan, Review, Test, Work
from bot.domain.grammar import parse_command
from bot.domain.job import InputValue, Job, Lines, OriginKind
from bot.prompt.sanitize import clean, clean_code, clean_line, clip, image_sources, shown_images, without_invisible

BUDGET = 60_000
"""Characters of all quotes together: about 15,000 tokens."""

_TITLE_CHARS = 500
_BODY_CHARS = 20_000
_COMMENT_CHARS = 4_000
_HUNK_CHARS = 3_000
_CHECK_CHARS = 4_000
_FILE_CHARS = 8_000
_FRAME_CHARS = 100
_BEGINNING_CHARS = 150
_MOST_CHECKS = 20

_LEAST_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadComment:
    """One comment of the thread, as GitHub has it now.

    Attributes:
        id: GitHub's numeric id; later comments have higher ones.
        author: login of its author.
        body: its Markdown.
        created_at: ISO 8601, UTC; may be empty where it is not known.
        updated_at: the same; another than `created_at` when it was edited.
        ours: whether the bot wrote it.
    """

    id: int
    author: str
    body: str
    created_at: str = ""
    updated_at: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineComment:
    """One comment on lines of a pull request.

    Attributes:
        comment: who says what, when.
        root: the first comment of its thread.
        path: the file.
        line: the last line that it is about, or None when it is about the file, or outdated.
        hunk: the part of the diff that ends there; shown with the first comment of a thread.
    """

    comment: ThreadComment
    root: int
    path: str
    line: int | None = None
    hunk: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewVerdict:
    """The words above a review, and what it came to, e.g. `CHANGES_REQUESTED`; `comment.created_at` is when."""

    comment: ThreadComment
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingCheck:
    """A check that went wrong.

    Attributes:
        conclusion: in GitHub's words, e.g. `failure` or `timed_out`.
        summary: what it says about it, Markdown or a log; may be empty.
    """

    name: str
    conclusion: str
    summary: str = ""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFile:
    """A file, or some lines of it, that the thread links to, e.g. `src/a.py lines 3-9`."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What there is to read about a job, raw; all of it is cleaned and quoted.

    Attributes:
        comments: of the thread, oldest first.
        line_comments: of the pull request, oldest first.
        verdicts: of its reviews, oldest first.
        diff: of the pull request, from the merge base to the head.
        checks: that fail on its head.
        files: that the thread links to.
        workflow: for a job that red CI started: the name of the workflow that failed.
        failed: what failed in it.
        approved_plan: a plan of the agent's that a person has approved.
        language: what the agent is to answer in, from the configuration.
        continues: whether the work on an issue continues in a pull request, whose `diff` and `checks` these are.
        unread: what could not be read of the failing checks that began the job, with the remedy, for people.
    """

    comments: tuple[ThreadComment, ...] = ()
    line_comments: tuple[LineComment, ...] = ()
    verdicts: tuple[ReviewVerdict, ...] = ()
    diff: str = ""
    checks: tuple[FailingCheck, ...] = ()
    files: tuple[LinkedFile, ...] = ()
    workflow: str = ""
    failed: FailedRun | None = None
    approved_plan: str = ""
    language: str = ""
    continues: bool = False
    unread: str = ""

    @property
    def failing(self) -> tuple[str, ...]:
        """The commands of the workflow's steps that failed."""
        return tuple(each for job in self.failed.jobs for each in job.commands) if self.failed else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What the agent is told, before anybody has looked at pictures.

    Attributes:
        goal: what to do.
        quotes: what there is to read about it.
        notes: what was left out of these.
        pictures: what there is to look at, those that matter most first; none that is in what was left out.
    """

    goal: str
    quotes: tuple[Quote, ...]
    notes: tuple[str, ...]
    pictures: tuple[Picture, ...]

    def task(self, images: Iterable[Image] = (), notes: Iterable[str] = ()) -> Task:
        """The task with these images; `notes` say which are left out."""
        left_out = "; ".join([*self.notes, *notes])
        note = (Quote(source="left out of this task", text=left_out),) if left_out else ()
        return Task(goal=self.goal, quotes=(*self.quotes, *note), images=tuple(images))


_Kind = Literal["comment", "review_comment", "review"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What somebody said, and how it is quoted; `kind` is what it is on GitHub."""

    quote: Quote
    comment: ThreadComment
    kind: _Kind


T = TypeVar("T")


def brief_for(job: Job, command: Command | None = None, material: Material | None = None) -> Brief:
    """What the agent is told: its goal in the asker's own words and ours, everything else quoted and cleaned.

    What was written after the command, or edited after it, is not quoted, and neither is the command itself.

    Args:
        job: whose task it is.
        command: what is to be done, when it is another thing than `job.command`, e.g. what a bare text means.
        material: what there is to read beside the description that the delivery brought.

    Raises:
        ValueError: the command needs no agent, which is a bug of the caller.
    """
    command, material = command or job.command, material or Material()
    if not isinstance(command, get_args(Work)):
        raise ValueError(f"the command {command.verb} needs no agent")  # noqa: TRY004 - the value is wrong, not a type
    goal = goal_for(
        job,
        command,
        workflow=material.workflow,
        approved_plan=bool(material.approved_plan),
        continues=material.continues,
        language=clean_line(material.language, limit=40),
    )
    left_out: Counter[str] = Counter()
    parts, told = _parts(job, material, left_out)
    quotes, notes = fitted(parts, BUDGET)
    notes += [f"{what}: {number}" for what, number in left_out.items()]
    kept = set(map(_beginning, quotes))
    said = [each for each in told if not each.comment.ours and _beginning(each.quote) in kept]
    return Brief(goal=goal, quotes=tuple(quotes), notes=tuple(notes), pictures=_pictures(job, command.goal, said))


def _parts(job: Job, material: Material, left_out: Counter[str]) -> tuple[list[QuoteShare], list[_Told]]:
    """All kinds of quotes, those that matter most first; the shares add up to the budget. And what people said."""
    comments = [
        _said(each, "comment", _author(each))
        for each in _before(job, material.comments, lambda each: each, "comment", left_out)
    ]
    verdicts = [
        _said(each.comment, "review", f"review by @{_name(each.comment.author)}: {_name(each.state)}")
        for each in _before(job, material.verdicts, lambda each: each.comment, "review", left_out)
    ]
    # Comment by comment, thread by thread, in the order in which the threads began; code once a thread.
    by_root: dict[int, list[_Told]] = {}
    for each in _before(job, material.line_comments, lambda each: each.comment, "review_comment", left_out):
        thread = by_root.setdefault(each.root, [])
        hunk = "" if thread else clean_code(each.hunk, limit=_HUNK_CHARS)
        source = f"{_author(each.comment)} on {_name(each.path)}{_numbers(None, each.line)}"
        thread.append(_said(each.comment, "review_comment", source, above=hunk))
    threads = [each for thread in by_root.values() for each in thread]
    lines, described = job.origin.lines, job.thread.title or job.thread.body
    failed = material.failed
    # A failed job's own check says nothing more than the job.
    jobs = {each.name for each in failed.jobs} if failed is not None else set()
    others = [each for each in material.checks if each.name not in jobs]
    failing = [*(job_quotes(failed) if failed is not None else []), *map(_check, others[:_MOST_CHECKS])]
    diff = clean_code(material.diff, limit=BUDGET)
    plan = clean(material.approved_plan, limit=_BODY_CHARS)
    # A workflow is not about lines, and lines are not a workflow's.
    first = (
        ("commented lines", 4_000, [_lines(lines)])
        if lines
        else ("values of the workflow's inputs", 4_000, [_input_value(each) for each in job.origin.values])
    )
    kinds: tuple[tuple[str, int, Iterable[Quote]], ...] = (
        first,
        (
            "plan",
            8_000,
            [Quote(source="the plan that a maintainer approved", text=plan)] if material.approved_plan.strip() else [],
        ),
        ("description", 9_000, [_description(job)] if described else []),
        # The first job that failed is cut before it is left out, whatever the others take.
        ("failing checks", 8_000, failing[:1]),
        ("further failing checks", 0, failing[1:]),
        ("diff", 17_000, [Quote(source="the pull request's diff", text=diff)] if material.diff.strip() else []),
        ("changes since the last green run", 0, change_quotes(failed) if failed else []),
        ("comments from the middle of the threads about lines", 5_000, _quotes(threads)),
        ("reviews from the middle", 2_000, _quotes(verdicts)),
        ("comments from the middle of the discussion", 5_000, _quotes(comments)),
        ("linked files", 2_000, map(_file, material.files)),
    )
    parts = [QuoteShare(what=what, share=share, quotes=tuple(quotes)) for what, share, quotes in kinds]
    return parts, [*comments, *verdicts, *threads]


def _pictures(job: Job, words: str, said: Iterable[_Told]) -> tuple[Picture, ...]:
    """What the command, the description and the comments that are quoted show."""
    origin, command = job.origin, None
    if origin.kind in {"comment", "review_comment", "review"}:
        command = PictureText(
            kind=origin.kind, id=origin.id, name=f"the command of @{_name(job.actor.login)}", text=words
        )
    description = PictureText(kind="thread", id=0, name=_thread(job), text=job.thread.body)
    in_order = sorted(said, key=lambda each: (each.comment.created_at, each.comment.id))
    spoken = []
    for each in in_order:
        comment, kind = each.comment, each.kind.replace("review_comment", "line comment")
        name = f"{kind} {comment.id} by @{_name(comment.author)}"
        spoken.append(PictureText(kind=each.kind, id=comment.id, name=name, text=comment.body))
    return pictures(description, spoken, command)


def _quotes(told: Iterable[_Told]) -> list[Quote]:
    return [each.quote for each in told]


def _beginning(quote: Quote) -> tuple[str, str]:
    """What is the same of a quote when its middle was cut out."""
    return quote.source, quote.text[:_BEGINNING_CHARS]


def _before(
    job: Job, items: Sequence[T], comment_of: Callable[[T], ThreadComment], kind: OriginKind, left_out: Counter[str]
) -> list[T]:
    """Those that stood before the command as they stand now; `kind` is what the command is when it is one of them."""
    kept = []
    for item in items:
        comment = comment_of(item)
        # Within one kind ids grow with time; and times tell no order within a second.
        if kind == job.origin.kind:
            if comment.id == job.origin.id:
                continue
            # The id of a command that is repeated stays, and `at` is when that was asked for.
            is_later = comment.id > job.origin.id and not "" < comment.created_at < job.origin.at
        else:
            is_later = bool(job.origin.at) and comment.created_at >= job.origin.at
        if is_later:
            if not comment.ours:  # as the answer to this very command is
                left_out["comments made after the command"] += 1
        elif job.origin.at and comment.updated_at != comment.created_at and comment.updated_at >= job.origin.at:
            left_out["comments edited after the command was given"] += 1
        else:
            kept.append(item)
    # Only what may find room is cleaned at all: cleaning takes a while where it meets malice.
    sizes = [min(len(comment_of(item).body), _COMMENT_CHARS) + _FRAME_CHARS for item in kept]
    first = bisect_right(list(accumulate(sizes)), BUDGET // 3)
    last = bisect_right(list(accumulate(reversed(sizes))), BUDGET - BUDGET // 3)
    if (too_many := len(kept) - first - last) > 0:
        left_out["comments from the middle of long threads"] += too_many
        kept[first : first + too_many] = []
    return kept


def _lines(lines: Lines) -> Quote:
    hunk = clean_code(lines.hunk, limit=_HUNK_CHARS)
    side = "after the change" if lines.side == "RIGHT" else "before the change"
    place = f"{_name(lines.path)}{_numbers(lines.start_line, lines.line)}, {side}, at commit {lines.commit_sha[:10]}"
    return Quote(source="the lines that the request is about", text=f"{place}\n\n{hunk}")


def _input_value(value: InputValue) -> Quote:
    return Quote(source=_name(value.source), text=clean(value.text, limit=_BODY_CHARS))


def _numbers(first: int | None, last: int | None) -> str:
    if last is None:
        return ""
    return f" line {last}" if first in {None, last} else f" lines {first}-{last}"


def _description(job: Job) -> Quote:
    body, asked = job.thread.body, job.command
    found = parse_command(body, triggers=(job.trigger,)) if job.origin.kind == "description" else None
    given = found.command if found is not None else None
    # The goal says the command that it holds, and the words of that. Asked for once more by `retry`, it may have been
    # edited since: then the goal does not say it.
    if found and isinstance(given, Work | Bare) and isinstance(asked, Work | Bare) and given.goal == asked.goal:
        body = found.above
    title = clean_line(job.thread.title, limit=_TITLE_CHARS)
    return Quote(source=_thread(job), text=f"{title}\n\n{clean(body, limit=_BODY_CHARS)}".rstrip())


def _thread(job: Job) -> str:
    if job.thread.kind == "branch":
        return f"branch {_name(job.thread.branch)}"
    kind = "issue" if job.thread.kind == "issue" else "pull request"
    return f"{kind} #{job.thread.number} by @{_name(job.thread.author)}"


def _check(check: FailingCheck) -> Quote:
    text = "\n".join(filter(None, [clean_code(check.summary, limit=_CHECK_CHARS), *remark_lines(check.remarks)]))
    return Quote(
        source=f"failing check {_name(check.name)}: {_name(check.conclusion)}", text=text or "(it says nothing)"
    )


def _said(comment: ThreadComment, kind: _Kind, source: str, *, above: str = "") -> _Told:
    said = clean(comment.body, limit=_COMMENT_CHARS)
    return _Told(quote=Quote(source=source, text=f"{above}\n\n{said}" if above else said), comment=comment, kind=kind)


def _author(comment: ThreadComment) -> str:
    return "an earlier comment of yours" if comment.ours else f"comment by @{_name(comment.author)}"


def _file(file: LinkedFile) -> Quote:
    return Quote(source=f"linked file {_name(file.place)}", text=clean_code(file.text, limit=_FILE_CHARS))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteShare:
    """Quotes of one kind.

    Attributes:
        what: what they are, in the plural, for the note of what was left out.
        share: of the budget, in characters, that no other kind can take from it.
        quotes: in the order of time; the middle goes first.
    """

    what: str
    share: int
    quotes: tuple[Quote, ...]

    @property
    def need(self) -> int:
        """Characters that all of it would take."""
        return sum(map(_size, self.quotes))


def fitted(parts: Sequence[QuoteShare], budget: int) -> tuple[list[Quote], list[str]]:
    """The quotes that fit into `budget` characters, and notes of what was left out.

    Args:
        parts: those that matter most first; their shares are together no more than the budget.
        budget: for all texts, with something for the frame of each.
    """
    given = [min(part.need, part.share) for part in parts]
    rest = budget - sum(given)
    kept: list[Quote] = []
    notes: list[str] = []
    for part, sure in zip(parts, given, strict=True):
        extra = min(part.need - sure, rest)
        rest -= extra
        quotes = _within(part.quotes, sure + extra)
        kept += quotes
        if missing := len(part.quotes) - len(quotes):
            notes.append(f"{part.what}: {missing}")
    return kept, notes


def _size(quote: Quote) -> int:
    return len(quote.text) + len(quote.source) + _FRAME_CHARS


def _within(quotes: Sequence[Quote], budget: int) -> list[Quote]:
    """From both ends inward, a third of the budget from the start; one that is too large for all of it is cut."""
    if sum(map(_size, quotes)) <= budget:
        return list(quotes)
    if len(quotes) == 1 or _size(quotes[-1]) > budget:
        # The note of the cut takes some room, too.
        source, room = quotes[-1].source, budget - len(quotes[-1].source) - 2 * _FRAME_CHARS
        return [Quote(source=source, text=clip(quotes[-1].text, limit=room))] if room >= _LEAST_CHARS else []
    first = _taken(quotes, budget // 3)
    last = _taken(quotes[: len(first) - 1 if first else None : -1], budget - sum(map(_size, first)))
    return [*first, *reversed(last)]


def _taken(quotes: Sequence[Quote], budget: int) -> list[Quote]:
    taken: list[Quote] = []
    for quote in quotes:
        budget -= _size(quote)
        if budget < 0:
            break
        taken.append(quote)
    return taken


MAX_REVIEW_COMMENTS = 30

MOST_GOAL_CHARS = 20_000
"""Characters of a request that the agent is told."""

# A workflow's name comes from the repository; one that could be more than a name is not told.
_NAME = re.compile(r"[\w][\w .,/()-]{0,59}")

_REVIEW = f"""\
Review the changes of this pull request, quoted as its diff; the workspace holds them already. Look for mistakes: \
wrong results, broken edge cases, security, missing tests; leave taste alone. Check what you claim. Change nothing.

Finish with a completion that holds a short summary in prose and below it one fenced block with the comments:
```json
[{{"path": "src/a.py", "start_line": 10, "line": 12, "side": "RIGHT", "body": "what is wrong, and why", \
"suggestion": "lines 10 to 12 as they should read"}}]
```
`line` is the last line that a comment is about, counted in the file after the change (with `"side": "LEFT"`, before \
it), and must be in the diff. `start_line`, `side` and `suggestion` may be left out. At most {MAX_REVIEW_COMMENTS} \
comments; `[]` when there is nothing to say."""
_PLAN = """\
Make a plan for {what}: what is to be changed in which files, in which order, how it will be checked, what is open. \
Read what you need; change nothing. Your completion is the plan; it is carried out when a maintainer approves it."""
_TEST = """\
Run this project's tests and say what they show: which commands you ran, what failed, the likely cause. Fix nothing: \
nothing of what you change is published."""
_EXPLAIN = "Explain {what}, with the files and lines that matter. Change nothing; your completion is the answer."
_ASK = "Answer the question below. Read what you need and check what you say; change nothing.\n\n{goal}"
_CI = """\
{what} failed on {where}. What failed is quoted, with the commands of its steps where they are known.
1. Before you change anything, see it fail here: run the failing step's own command, or the part of it that fails, \
with check=True. Set the variables that it needs in the same command (NAME=value COMMAND).
2. Fix the cause, not the check: make nothing pass by skipping, weakening or deleting a test, a rule or a step.
3. Run the same command again, and what is near it.
After you end, the host runs the command that you saw fail once more, in a fresh sandbox with the files as you leave \
them. Your change is published only if that command failed before it and passes after it. If you cannot see it fail \
here, change nothing, and complete with a diagnosis: the likely cause, what you tried, why it does not show here.
Your completion says the cause and what you changed, in a few sentences; its first line becomes the title."""
_CI_OF_A_FORK = """\
{what} failed on this pull request, which comes from a fork. Its code is not run and nothing is changed. Read what is \
quoted and the code, and complete with a diagnosis for its author: the likely cause, and what to change in which \
lines. Say what you could not verify."""
_RECIPE = """\
Do what is asked below. Nothing that you change is published: your completion is the answer, and all that people see.

{goal}"""
_GOING_ON = """\
A pull request for this issue is open already. The workspace holds its branch, and what it changes so far is quoted as \
its diff: go on from there."""
_APPROVED = """\
A maintainer has approved the quoted plan. Carry it out; where it turns out to be wrong, do what is right and say so."""


def goal_for(
    job: Job,
    command: Work,
    *,
    workflow: str = "",
    approved_plan: bool = False,
    continues: bool = False,
    language: str = "",
) -> str:
    """The goal of a job.

    Args:
        job: whose it is.
        command: what is to be done; `job.command`, or what its words were found to mean.
        workflow: for a job that red CI started: the workflow's name.
        approved_plan: whether a plan is quoted that a person approved.
        continues: whether the work continues in a pull request that is open for the job's issue.
        language: what the agent is to answer in; empty for that of the command.
    """
    parts = [_goal(job, command, workflow)]
    if job.origin.lines is not None:
        parts.append("The request is about the quoted lines.")
    if continues:
        parts.append(_GOING_ON)
    if approved_plan:
        parts.append(_APPROVED)
    if language:
        parts.append(f"Write your completion in {language}.")
    return "\n\n".join(parts)


def _goal(job: Job, command: Work, workflow: str) -> str:
    words = without_invisible(command.goal)[0].strip()
    if (cut := len(words) - MOST_GOAL_CHARS) > 0:  # at the end: a recipe's text stands before the words of its starter
        words = f"{words[:MOST_GOAL_CHARS]}\n[… {cut:,} characters left out …]"
    recipe = _RECIPE.format(goal=words) if job.recipe is not None else ""
    match command:
        case Fix():
            return words or _default_fix(job, workflow)
        case Review():
            return f"{_REVIEW}\n\nLook above all at this: {words}" if words else _REVIEW
        case Explain():
            return _EXPLAIN.format(what="what is asked below") + f"\n\n{words}" if words else _explain_thread(job)
        case Plan():
            return (
                _PLAN.format(what="the request below") + f"\n\n{words}"
                if words
                else _PLAN.format(what=f"what is asked for in {_this_thread(job)}")
            )
        case Ask():
            return recipe or _ASK.format(goal=words) if words else _explain_thread(job)
        case Test():
            return recipe or f"{_TEST}\n\nIn particular: {words}" if words else _TEST
        case other:
            assert_never(other)


def _failed(job: Job, name: str) -> str:
    kind = "workflow" if job.origin.id else "check"
    return f'The {kind} "{name}"' if _NAME.fullmatch(name) else f"A {kind}, named below,"


def _default_fix(job: Job, workflow: str) -> str:
    if job.origin.kind == "ci":
        # Of another App's check that App chose the name.
        name = (workflow or job.origin.name) if job.origin.id else ""
        return _CI.format(what=_failed(job, name), where=_this_thread(job))
    if job.origin.lines is not None:
        return "Fix what the discussion of the quoted lines is about."
    return f"Fix the problem described in {_this_thread(job)}."


def _explain_thread(job: Job) -> str:
    if job.origin.kind == "ci":
        return _CI_OF_A_FORK.format(what=_failed(job, ""))  # a fork's file gives the name
    if job.origin.lines is not None:
        return _EXPLAIN.format(what="the quoted lines")
    what = {
        "issue": "what this issue is about",
        "pull": "what this pull request changes, and how",
        "branch": "what this project is, and how it is built",
    }
    return _EXPLAIN.format(what=what[job.thread.kind])


def _this_thread(job: Job) -> str:
    return "this pull request" if job.thread.kind == "pull" else f"this {job.thread.kind}"


_NAME_CHARS = 200
_RUN_CHARS = 2_000
_VALUE_CHARS = 300
_EXCERPT_CHARS = 6_000
_REMARK_CHARS = 1_000
_CHANGES_CHARS = 20_000
_MOST_VALUES = 30
_MOST_STEPS = 30
_MOST_REMARKS = 20


def job_quotes(run: FailedRun) -> list[Quote]:
    """A quote of each failed job, in the order of the run."""
    quotes: list[Quote] = []
    for job in run.jobs:
        parts = [*map(_step, job.failed_steps), "\n".join(_circumstances(job)), _log(job)]
        if remarks := remark_lines(job.annotations):
            parts.append("\n".join(["Annotations:", *remarks]))
        source = f"failed job {_name(job.name)} of workflow {_name(run.name)}: {_name(job.conclusion)}"
        if not run.is_current:
            source += f", on commit {_name(run.head_sha[:10])}, which is not HEAD"
        quotes.append(Quote(source=source, text="\n\n".join(filter(None, parts))))
    if run.unread:
        quotes.append(Quote(source="other failed jobs", text=f"{run.unread} more jobs of this run failed."))
    return quotes


def change_quotes(run: FailedRun) -> list[Quote]:
    """What was changed since the workflow last succeeded."""
    if not run.changes.strip():
        return []
    source = f"the diff since commit {_name(run.green_sha[:10])}, on which this workflow last succeeded"
    return [Quote(source=source, text=clean_code(run.changes, limit=_CHANGES_CHARS))]


def remark_lines(remarks: Sequence[Remark]) -> list[str]:
    """What a check says about lines, each on a line of its own."""
    return [
        f"{_name(each.path)}:{each.line}: {clean_code(each.message, limit=_REMARK_CHARS)}"
        for each in remarks[:_MOST_REMARKS]
    ]


def _step(step: Step) -> str:
    title = f"Failed step {step.number}: {_name(step.name)} ({_name(step.conclusion)})"
    if step.uses:
        return f"{title}\nuses: {_uses(step)}"
    if not step.run:
        return title
    how = [f"shell: {_name(step.shell)}"] if step.shell else []
    how += [f"working-directory: {_name(step.working_directory)}"] if step.working_directory else []
    return "\n".join([title, *how, "run:", _indented(clean_code(step.run, limit=_RUN_CHARS))])


def _circumstances(job: FailedJob) -> Iterator[str]:
    """Where it ran, after which steps, with which variables."""
    if before := [_brief(each) for each in job.steps if not each.failed and (each.run or each.uses)]:
        yield "\n".join(["Other steps of the job:", *(f"- {each}" for each in before[:_MOST_STEPS])])
    if job.environment:
        yield f"Environment:\n{_indented(_pairs(job.environment))}"
    if job.services:
        yield f"Services:\n{_indented(_pairs(job.services))}"
    if job.container:
        yield f"Container: {_name(job.container)}"
    if job.runs_on:
        yield f"Runner: {_name(', '.join(job.runs_on))}"


def _brief(step: Step) -> str:
    if step.uses:
        return f"uses {_uses(step)}"
    first, _, rest = clean_code(step.run, limit=_VALUE_CHARS).partition("\n")
    return f"run: {first}{' …' if rest else ''}"


def _uses(step: Step) -> str:
    given = ", ".join(f"{_name(key)}: {_name(value)}" for key, value in list(step.inputs.items())[:_MOST_VALUES])
    return f"{_name(step.uses)} ({given})" if given else _name(step.uses)


def _pairs(pairs: Mapping[str, str]) -> str:
    shown = [
        f"{_name(key)}={clean_code(value, limit=_VALUE_CHARS)}" for key, value in list(pairs.items())[:_MOST_VALUES]
    ]
    return "\n".join(shown)


def _log(job: FailedJob) -> str:
    if job.no_log:
        return f"No log: {clean_line(job.no_log, limit=_VALUE_CHARS)}"
    if not job.excerpt.strip():
        return "The log is empty."
    more = f" ({job.more:,} more failures are left out)" if job.more else ""
    return f"From the log{more}:\n{clean_code(job.excerpt, limit=_EXCERPT_CHARS)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _name(text: str) -> str:
    return clean_line(text, limit=_NAME_CHARS)


MOST = 5
"""Pictures that one job shows."""

LARGEST_BYTES = 3_500_000
"""Of one picture; `Image.of` takes no larger one."""

TOGETHER_BYTES = 8_000_000
"""Of all pictures of one job."""

MOST_NOTES = 10

# GitHub signs addresses at the second of these for a few minutes; the first is from before it did.
_IMAGE_HOSTS = frozenset({"user-images.githubusercontent.com", "private-user-images.githubusercontent.com"})
_SERVER = "https://github.com"
# Where github.com redirects requests for an attachment of a public repository.
_STORE = "github-production-user-asset-6210df.s3.amazonaws.com"

# Where an Enterprise Server keeps attachments. With subdomain isolation, `media.` before its name replaces `/media`:
# https://docs.github.com/enterprise-server@latest/admin/configuring-settings/hardening-security-for-your-enterprise/enabling-subdomain-isolation
_MEDIA = re.compile(r"/media/user/[0-9]+/files/[0-9a-f-]{36}", re.ASCII)

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Also as they were until 2024: `/owner/name/assets/<account>/<uuid>`.
_ATTACHMENT = re.compile(rf"/(?:user-attachments/assets|[\w.-]+/[\w.-]+/assets/[0-9]+)/{_UUID}", re.ASCII)
_ASSET = re.compile(_UUID)
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/[!#-;=?-\[\]_a-z~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureText:
    """A text of a thread in which pictures may stand.

    Attributes:
        kind: what it is: the `thread`'s description, a `comment`, a comment on lines or the words of a `review`.
        id: GitHub's id; of no use for the description.
        name: where a picture comes from, for the agent, e.g. `comment 17 by @mona`; cleaned.
        text: the Markdown.
    """

    kind: Literal["thread", "comment", "review_comment", "review"]
    id: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that a text shows.

    Attributes:
        words: the text.
        place: where it is in reading order: the number of the text, and its own within that.
        address: as the text has it; empty where a definition elsewhere gives it.
    """

    words: PictureText
    place: tuple[int, int]
    address: str

    @property
    def source(self) -> str:
        """Where it comes from, for the agent."""
        number = self.place[1]
        return self.words.name if number == 1 else f"{self.words.name}, picture {number}"


def pictures(description: PictureText, said: Sequence[PictureText], command: PictureText | None) -> tuple[Picture, ...]:
    """The pictures of a thread, those that matter most first, each address once.

    The command's come first, then the description's, then those of what was said last. They are read in another order:
    the description, what was said, the command.

    Args:
        description: the thread's.
        said: in the thread, oldest first.
        command: what the one who asked wrote, where the job came from words.
    """
    texts = [description, *said, *([command] if command else [])]
    found = [
        [Picture(words=words, place=(order, number), address=address) for number, address in enumerate(addresses, 1)]
        for order, (words, addresses) in enumerate((words, shown(words.text)) for words in texts)
    ]
    later = found[1 : 1 + len(said)]
    once: dict[str, Picture] = {}
    for group in [*found[1 + len(said) :], found[0], *reversed(later)]:
        for picture in group:
            once.setdefault(picture.address or picture.source, picture)
    return tuple(once.values())


def shown(text: str) -> list[str]:
    """Addresses of the pictures that a reader of the page sees, in order."""
    if "![" not in text and "<img" not in text.casefold():
        return []
    return shown_images(text.replace("\r\n", "\n").replace("\r", "\n"))


def may_be_fetched(address: str, server_url: str, *, redirected: bool = False) -> bool:
    """Whether an address is one of an attachment at GitHub, or at the server that the bot works for.

    Pictures are fetched from nowhere else.
    https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/attaching-files

    Args:
        address: whole; nothing in it is repaired.
        server_url: the configured server's.
        redirected: whether another such address leads there.
    """
    if not _ADDRESS.fullmatch(address):
        return False
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    server = server_url.rstrip("/")
    if origin in {_SERVER, server}:
        own_media = origin == server != _SERVER and _MEDIA.fullmatch(parts.path) is not None
        return own_media or _ATTACHMENT.fullmatch(parts.path) is not None
    if server != _SERVER and origin == server.replace("://", "://media.", 1):
        return _MEDIA.fullmatch(f"/media{parts.path}") is not None
    hosts = _IMAGE_HOSTS | {_STORE} if redirected else _IMAGE_HOSTS
    return parts.scheme == "https" and parts.netloc in hosts


def signed(address: str, page: str, server_url: str) -> str:
    """The address at which GitHub gives out an attachment for the next minutes, from a text as it renders it.

    Private attachments are given out nowhere else. The signed address names the same asset in its path.

    Args:
        address: as the text has it.
        page: the text's `body_html`.
        server_url: the configured server's.

    Returns:
        The address itself where the page has no other of that asset.
    """
    asset = _ASSET.search(urlsplit(address).path)
    if asset is None:
        return address
    for source in image_sources(page):
        if asset[0] in source and may_be_fetched(source, server_url) and asset[0] in urlsplit(source).path:
            return source
    return address


def notes(left_out: Iterable[tuple[Picture, str]]) -> list[str]:
    """Notes for the agent about the pictures that it is not shown, up to `MOST_NOTES`."""
    every = list(left_out)
    told = [f"a picture of {picture.source}: {reason}" for picture, reason in every[:MOST_NOTES]]
    return [*told, f"further pictures: {len(every) - MOST_NOTES}"] if len(every) > MOST_NOTES else told
