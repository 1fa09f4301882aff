"""The brief for the agent: the goal from the commander, and the thread's text as quotes, within one budget. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeVar, get_args

from agent_runtime import Image, Quote, Task
from bot.domain.commands import Bare, Command, Work
from bot.domain.job import Job, Lines, OriginKind
from bot.gate.goals import goal_for
from bot.gate.pictures import Picture, PictureText, pictures
from bot.gate.red_jobs import change_quotes, job_quotes, remark_lines
from bot.gate.sanitise import clean, clean_code, clean_line, clip
from bot.intake.grammar import parse_command
from bot.red_ci.failed import FailedRun, Remark

BUDGET = 60_000
"""Characters of all quotes together: about 15,000 tokens."""

_TITLE_CHARS = 500
_BODY_CHARS = 20_000
_COMMENT_CHARS = 4_000
_HUNK_CHARS = 3_000
_CHECK_CHARS = 4_000
_FILE_CHARS = 8_000
_NAME_CHARS = 200
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
    kinds: tuple[tuple[str, int, Iterable[Quote]], ...] = (
        ("commented lines", 4_000, [_lines(lines)] if lines else []),
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


def _name(text: str) -> str:
    return clean_line(text, limit=_NAME_CHARS)


def _lines(lines: Lines) -> Quote:
    hunk = clean_code(lines.hunk, limit=_HUNK_CHARS)
    side = "after the change" if lines.side == "RIGHT" else "before the change"
    place = f"{_name(lines.path)}{_numbers(lines.start_line, lines.line)}, {side}, at commit {lines.commit_sha[:10]}"
    return Quote(source="the lines that the request is about", text=f"{place}\n\n{hunk}")


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
