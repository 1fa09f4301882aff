"""Build the agent's brief: a goal, and the thread as quotes within one budget.

`brief_for` chooses and cleans quotes, `goal_for` writes the goal, `choose_pictures` selects images.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeVar, assert_never, get_args
from urllib.parse import urlsplit

from agent_runtime import Image, Quote, Task
from bot.ci_logs.failed_run import FailedJob, FailedRun, StepDefinition
from bot.domain.commands import (
    Ask,
    BareCommand,
    Command,
    Describe,
    Edit,
    Explain,
    Fix,
    Plan,
    Resolve,
    Review,
    Test,
    Work,
)
from bot.domain.grammar import parse_command
from bot.domain.job import Job, LineRange, OriginKind
from bot.github.types import Annotation, CheckFacts, CommentFacts, ReviewCommentFacts, ReviewFacts, StepFacts
from bot.prompt.difference import DIFF_SOURCE, Difference, is_cut
from bot.prompt.sanitize import clean, clean_code, clean_line, clip, image_sources, remove_invisible, visible_images

BUDGET = 60_000
"""Characters of all quotes: about 15,000 tokens."""

_TITLE_CHARS = 500
_BODY_CHARS = 20_000
_COMMENT_CHARS = 4_000
_HUNK_CHARS = 3_000
_CHECK_CHARS = 4_000
_FILE_CHARS = 8_000
_FRAME_CHARS = 100
_BEGINNING_CHARS = 150
_MAX_CHECKS = 20

_MIN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFile:
    """A linked file or part of it, e.g. `src/a.py lines 3-9`."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The raw texts about a job. Comments and reviews are oldest first.

    Attributes:
        own_id: of the bot's account.
        difference: from the merge base to the head of the pull request.
        continues: whether work on an issue continues in a pull request, which `difference` and `checks` are from.
        typed_commits: whether titles of commits have a type, as in Conventional Commits.
        unread: which failing checks could not be read, with the remedy, for users.
        merged: the branch that is merged, as conflict markers name it; empty without conflicts to resolve.
        undone: how the bot's last change in the thread was undone.
        choices: the values for actions that the agent may propose.
    """

    own_id: int | None = None
    comments: tuple[CommentFacts, ...] = ()
    line_comments: tuple[ReviewCommentFacts, ...] = ()
    reviews: tuple[ReviewFacts, ...] = ()
    difference: Difference = field(default_factory=Difference)
    checks: tuple[CheckFacts, ...] = ()
    files: tuple[LinkedFile, ...] = ()
    workflow: str = ""
    failed: FailedRun | None = None
    approved_plan: str = ""
    language: str = ""
    typed_commits: bool = False
    continues: bool = False
    unread: str = ""
    merged: str = ""
    conflicts: tuple[Quote, ...] = ()
    undone: tuple[Quote, ...] = ()
    choices: tuple[Quote, ...] = ()

    @property
    def failing(self) -> tuple[str, ...]:
        """Commands of the failed workflow steps."""
        return tuple(command for job in self.failed.jobs for command in job.commands) if self.failed else ()

    def is_own(self, comment: CommentFacts) -> bool:
        return comment.author.id == self.own_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A task before its pictures are fetched; they are sorted, most important first."""

    goal: str
    quotes: tuple[Quote, ...]
    notes: tuple[str, ...]
    pictures: tuple[Picture, ...]

    def task(self, images: Iterable[Image] = (), notes: Iterable[str] = ()) -> Task:
        left_out = "; ".join([*self.notes, *notes])
        note = (Quote(source="left out of this task", text=left_out),) if left_out else ()
        return Task(goal=self.goal, quotes=(*self.quotes, *note), images=tuple(images))


_Kind = Literal["comment", "review_comment", "review"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    quote: Quote
    comment: CommentFacts
    kind: _Kind


Comment = TypeVar("Comment", bound=CommentFacts)


def brief_for(job: Job, command: Command | None = None, material: Material | None = None) -> Brief:
    """Build the agent's brief, without the command itself and any text that was written or edited after it.

    `command` replaces `job.command`, e.g. by the meaning of a bare text.

    Raises:
        ValueError: the command needs no agent.
    """
    command, material = command or job.command, material or Material()
    if not isinstance(command, get_args(Work)):
        raise ValueError(f"the command {command.verb} needs no agent")  # noqa: TRY004 - the value is wrong, not a type
    left_out: Counter[str] = Counter()
    parts, statements = _parts(job, material, left_out)
    quotes, notes = fit_quotes(parts, BUDGET)
    goal = goal_for(
        job,
        command,
        workflow=material.workflow,
        approved_plan=bool(material.approved_plan),
        continues=material.continues,
        is_cut=any(quote.source == DIFF_SOURCE and is_cut(quote.text) for quote in quotes),
        merged=material.merged,
        conflicts=len(material.conflicts),
        undone=bool(material.undone),
        language=clean_line(material.language, limit=40),
        typed_commits=material.typed_commits,
    )
    notes += [f"{label}: {number}" for label, number in left_out.items()]
    quoted = set(map(_fingerprint, quotes))
    foreign = [part for part in statements if not material.is_own(part.comment) and _fingerprint(part.quote) in quoted]
    return Brief(goal=goal, quotes=tuple(quotes), notes=tuple(notes), pictures=_pictures(job, command.goal, foreign))


def _parts(job: Job, material: Material, left_out: Counter[str]) -> tuple[list[QuoteShare], list[_Statement]]:
    """Return the quotes by kind, most important first, with shares of the budget; and the statements."""
    comments = [
        _statement(comment, "comment", _author(material, comment))
        for comment in _select(job, material, material.comments, "comment", left_out)
    ]
    reviews = [
        _statement(review, "review", f"review by @{_name(review.author.login)}: {_name(review.state)}")
        for review in _select(job, material, material.reviews, "review", left_out)
    ]
    # Threads in the order of their first comments; the code once a thread.
    by_root: dict[int, list[_Statement]] = {}
    for comment in _select(job, material, material.line_comments, "review_comment", left_out):
        thread = by_root.setdefault(comment.root, [])
        hunk = "" if thread else clean_code(comment.hunk, limit=_HUNK_CHARS)
        source = f"{_author(material, comment)} on {_name(comment.path)}{_line_range(None, comment.line)}"
        thread.append(_statement(comment, "review_comment", source, above=hunk and f"{hunk}\n\n"))
    threads = [statement for thread in by_root.values() for statement in thread]
    lines, has_description = job.origin.lines, job.thread.title or job.thread.body
    failed = material.failed
    # The check of a failed job adds nothing to the job.
    jobs = {failed_job.facts.name for failed_job in failed.jobs} if failed is not None else set()
    other_checks = [check for check in material.checks if check.name not in jobs]
    failing = [*(job_quotes(failed) if failed is not None else []), *map(_check, other_checks[:_MAX_CHECKS])]
    diff = material.difference.render(BUDGET)
    plan = clean(material.approved_plan, limit=_BODY_CHARS)
    files = [
        Quote(source=f"linked file {_name(file.place)}", text=clean_code(file.text, limit=_FILE_CHARS))
        for file in material.files
    ]
    inputs = [
        # The expression of a title, whose text is no Markdown.
        Quote(
            source=_name(value.source),
            text=(clean_line if value.source.endswith(".title }}") else clean)(value.text, limit=_BODY_CHARS),
        )
        for value in job.origin.values
    ]
    # A job has commented lines or a workflow's inputs, never both.
    first = ("commented lines", 4_000, [_lines(lines)]) if lines else ("values of the workflow's inputs", 4_000, inputs)
    kinds: tuple[tuple[str, int, Iterable[Quote]], ...] = (
        first,
        ("plan", 6_000, [Quote(source="the plan that a maintainer approved", text=plan)] if plan.strip() else []),
        ("undone changes", 2_000, material.undone),
        ("description", 9_000, [_description(job)] if has_description else []),
        ("values for actions", 0, material.choices),
        # The first failed job is cut before it is omitted.
        ("failing checks", 8_000, failing[:1]),
        ("further failing checks", 0, failing[1:]),
        ("conflicts", 12_000 if material.merged else 0, material.conflicts),
        ("diff", 5_000 if material.merged else 17_000, [Quote(source=DIFF_SOURCE, text=diff)] if diff else []),
        ("changes since the last green run", 0, change_quotes(failed) if failed else []),
        ("comments from the middle of the threads about lines", 5_000, _quotes(threads)),
        ("reviews from the middle", 2_000, _quotes(reviews)),
        ("comments from the middle of the discussion", 5_000, _quotes(comments)),
        ("linked files", 2_000, files),
    )
    shorten = {"diff": material.difference.render}
    parts = [
        QuoteShare(label=label, share=share, quotes=tuple(quotes), shorten=shorten.get(label))
        for label, share, quotes in kinds
    ]
    return parts, [*comments, *reviews, *threads]


def _pictures(job: Job, words: str, statements: Iterable[_Statement]) -> tuple[Picture, ...]:
    origin, command = job.origin, None
    if origin.kind in {"comment", "review_comment", "review"}:
        command = PictureText(
            kind=origin.kind, id=origin.id, name=f"the command of @{_name(job.actor.login)}", text=words
        )
    description = PictureText(kind="thread", id=0, name=_thread(job), text=job.thread.body)
    texts = []
    for statement in sorted(statements, key=lambda statement: (statement.comment.created_at, statement.comment.id)):
        comment, kind = statement.comment, statement.kind.replace("review_comment", "line comment")
        name = f"{kind} {comment.id} by @{_name(comment.author.login)}"
        texts.append(PictureText(kind=statement.kind, id=comment.id, name=name, text=comment.body))
    return choose_pictures(description, texts, command)


def _quotes(statements: Iterable[_Statement]) -> list[Quote]:
    return [statement.quote for statement in statements]


def _fingerprint(quote: Quote) -> tuple[str, str]:
    return quote.source, quote.text[:_BEGINNING_CHARS]


def _select(
    job: Job, material: Material, comments: Sequence[Comment], kind: OriginKind, left_out: Counter[str]
) -> list[Comment]:
    earlier = []
    for comment in comments:
        # Within one kind ids grow with time; timestamps have whole seconds.
        if kind == job.origin.kind:
            if comment.id == job.origin.id:
                continue
            # A repeated command keeps its id; `at` is the time of the repetition.
            is_later = comment.id > job.origin.id and not "" < comment.created_at < job.origin.at
        else:
            is_later = bool(job.origin.at) and comment.created_at >= job.origin.at
        if is_later:
            if not material.is_own(comment):  # such as the answer to this command
                left_out["comments made after the command"] += 1
        elif job.origin.at and comment.updated_at != comment.created_at and comment.updated_at >= job.origin.at:
            left_out["comments edited after the command was given"] += 1
        else:
            earlier.append(comment)
    # Drop what cannot fit before it is cleaned: cleaning hostile text is slow.
    sizes = [min(len(comment.body), _COMMENT_CHARS) + _FRAME_CHARS for comment in earlier]
    first = bisect_right(list(accumulate(sizes)), BUDGET // 3)
    last = bisect_right(list(accumulate(reversed(sizes))), BUDGET - BUDGET // 3)
    if (too_many := len(earlier) - first - last) > 0:
        left_out["comments from the middle of long threads"] += too_many
        earlier[first : first + too_many] = []
    return earlier


def _lines(lines: LineRange) -> Quote:
    hunk = clean_code(lines.hunk, limit=_HUNK_CHARS)
    side = "after the change" if lines.side == "RIGHT" else "before the change"
    place = f"{_name(lines.path)}{_line_range(lines.start_line, lines.line)}, {side}, at commit {lines.commit_sha[:10]}"
    return Quote(source="the lines that the request is about", text=f"{place}\n\n{hunk}")


def _line_range(first: int | None, last: int | None) -> str:
    if last is None:
        return ""
    return f" line {last}" if first in {None, last} else f" lines {first}-{last}"


def _description(job: Job) -> Quote:
    body, command = job.thread.body, job.command
    parsed = parse_command(body, triggers=(job.trigger,)) if job.origin.kind == "description" else None
    quoted = parsed.command if parsed is not None else None
    # The goal repeats the command in the description, unless the description was edited before a `retry`.
    kinds = Work | BareCommand
    if parsed and isinstance(quoted, kinds) and isinstance(command, kinds) and quoted.goal == command.goal:
        body = parsed.text_above
    title = clean_line(job.thread.title, limit=_TITLE_CHARS)
    return Quote(source=_thread(job), text=f"{title}\n\n{clean(body, limit=_BODY_CHARS)}".rstrip())


def _thread(job: Job) -> str:
    if job.thread.kind == "branch":
        return f"branch {_name(job.thread.branch)}"
    kind = "issue" if job.thread.kind == "issue" else "pull request"
    return f"{kind} #{job.thread.number} by @{_name(job.thread.author)}"


def _check(check: CheckFacts) -> Quote:
    lines = annotation_lines(check.annotations)
    text = "\n".join(filter(None, [clean_code(check.summary, limit=_CHECK_CHARS), *lines]))
    return Quote(
        source=f"failing check {_name(check.name)}: {_name(check.conclusion)}", text=text or "(it says nothing)"
    )


def _statement(comment: CommentFacts, kind: _Kind, source: str, *, above: str = "") -> _Statement:
    body = clean(comment.body, limit=_COMMENT_CHARS)
    return _Statement(quote=Quote(source=source, text=above + body), comment=comment, kind=kind)


def _author(material: Material, comment: CommentFacts) -> str:
    return "an earlier comment of yours" if material.is_own(comment) else f"comment by @{_name(comment.author.login)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteShare:
    """Quotes of one kind, in the order of time; the middle is omitted first.

    Attributes:
        label: a plural noun for the note about omitted quotes.
        shorten: returns a single quote's text within a number of characters; None to cut its middle out.
    """

    label: str
    share: int
    quotes: tuple[Quote, ...]
    shorten: Callable[[int], str] | None = None

    @property
    def need(self) -> int:
        return sum(map(_size, self.quotes))


def fit_quotes(parts: Sequence[QuoteShare], budget: int) -> tuple[list[Quote], list[str]]:
    """Return the quotes that fit into `budget` characters, and notes about omitted ones.

    The sum of the shares must not exceed the budget.
    """
    reserved = [min(part.need, part.share) for part in parts]
    rest = budget - sum(reserved)
    fitting: list[Quote] = []
    notes: list[str] = []
    for part, minimum in zip(parts, reserved, strict=True):
        extra = min(part.need - minimum, rest)
        rest -= extra
        quotes = _fit_share(part, minimum + extra)
        fitting += quotes
        if missing := len(part.quotes) - len(quotes):
            notes.append(f"{part.label}: {missing}")
    return fitting, notes


def _size(quote: Quote) -> int:
    return len(quote.text) + len(quote.source) + _FRAME_CHARS


def _fit_share(part: QuoteShare, budget: int) -> list[Quote]:
    quotes = part.quotes
    if sum(map(_size, quotes)) <= budget:
        return list(quotes)
    if len(quotes) == 1 or _size(quotes[-1]) > budget:
        # Leave room for the note about the cut.
        source, room = quotes[-1].source, budget - len(quotes[-1].source) - 2 * _FRAME_CHARS
        if room < _MIN_CHARS:
            return []
        text = clip(quotes[-1].text, limit=room) if part.shorten is None else part.shorten(room)
        return [Quote(source=source, text=text)]
    first = _take_prefix(quotes, budget // 3)
    last = _take_prefix(quotes[: len(first) - 1 if first else None : -1], budget - sum(map(_size, first)))
    return [*first, *reversed(last)]


def _take_prefix(quotes: Sequence[Quote], budget: int) -> list[Quote]:
    prefix: list[Quote] = []
    for quote in quotes:
        budget -= _size(quote)
        if budget < 0:
            break
        prefix.append(quote)
    return prefix


MAX_REVIEW_COMMENTS = 30

MAX_GOAL_CHARS = 20_000

# A workflow's name comes from the repository; the goal omits one that could be more than a name.
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
_DESCRIBE = """\
Write the title and the description of this pull request for its reviewers: what changes, why, what to look at. The \
present ones and the diff are quoted; read the code where they do not suffice. Change nothing, and claim nothing that \
you did not see.

Your completion is the title alone on its first line, an empty line, and the description in Markdown. Keep what people \
wrote there that is still true: reasons, references to issues, how to test, and the headings of a template."""
_RESOLVE = """\
The base branch of this pull request is being merged into its branch. The workspace holds git's merge of {label} into \
HEAD: everything that git could merge is merged, and {count} conflicts, quoted below, are yours.
1. Resolve every conflict so that what both sides meant holds. In a text, replace everything from `<<<<<<< HEAD` \
(this pull request's version), over `|||||||` (the common ancestor) and `=======`, to `>>>>>>> {label}` (the base's \
version), and leave no such line. Of any other conflict, leave the right files under the right names. Make a lock file \
again with its own tool where you can. `git show :1:PATH` prints the common ancestor's version of a file, `:2:PATH` \
this pull request's, `:3:PATH` the base's.
2. Change another file only where the merge makes that necessary, such as a caller of what the other side renamed.
3. Run the tests, and what else checks the result.
The host commits the files as you leave them, with both branches as parents; do not commit. Your completion says in a \
list how you resolved each conflict. There, name by its path, with the reason on the same line, every other file that \
you changed, and every conflict that stays as git left it: without that the host refuses the result."""
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
Do what is asked below. Nothing that you change is published: your completion is the answer.

{goal}"""
_CONTINUES = """\
A pull request for this issue is open already. The workspace holds its branch, and what it changes so far is quoted as \
its diff: go on from there."""
_UNDONE = """\
Your last change here was undone: why, as far as a reason was given, is quoted, with the patch that undid it. Do not \
make the same change again; find out what was wrong with it."""
_TYPED = (
    "The first line of your completion becomes a title. Write it as this project does, in the form of "
    "Conventional Commits: `fix(parser): accept empty input`."
)
_APPROVED = """\
A maintainer has approved the quoted plan. Carry it out; where it turns out to be wrong, do what is right and say so."""


_CUT = """\
The quoted diff names every changed file, and shows the changes of some. Read the others where they matter: read_file \
shows a file as it is after the change."""
_CUT_WITH_GIT = f"{_CUT[:-1]}, and git diff from the merge base its changes."
_CUT_REVIEW = f"""\
{_CUT} Read them before you judge, the most important first: the published review names the files whose changed lines \
no step read."""


def goal_for(
    job: Job,
    command: Work,
    *,
    workflow: str = "",
    approved_plan: bool = False,
    continues: bool = False,
    is_cut: bool = False,
    merged: str = "",
    conflicts: int = 0,
    language: str = "",
    typed_commits: bool = False,
    undone: bool = False,
) -> str:
    goal = _goal(job, command, workflow)
    if merged:
        how = f"\n\nHow it is to be resolved: {goal}" if command.goal.strip() else ""
        goal = f"{_RESOLVE.format(count=conflicts, label=merged)}{how}"
    parts = [goal]
    if job.origin.lines is not None:
        parts.append("The request is about the quoted lines.")
    if continues:
        parts.append(_CONTINUES)
    if undone:
        parts.append(_UNDONE)
    if is_cut:
        # Only these run commands.
        cut = _CUT_WITH_GIT if isinstance(command, Edit | Test) else _CUT
        parts.append(_CUT_REVIEW if isinstance(command, Review) else cut)
    if approved_plan:
        parts.append(_APPROVED)
    if language:
        parts.append(f"Write your completion in {language}.")
    if typed_commits and isinstance(command, Fix | Describe):
        parts.append(_TYPED)
    return "\n\n".join(parts)


def _goal(job: Job, command: Work, workflow: str) -> str:
    words = remove_invisible(command.goal)[0].strip()
    if (cut := len(words) - MAX_GOAL_CHARS) > 0:  # at the end: a recipe's text comes before the user's words
        words = f"{words[:MAX_GOAL_CHARS]}\n[… {cut:,} characters left out …]"
    recipe = _RECIPE.format(goal=words) if job.recipe is not None else ""
    match command:
        case Fix() | Resolve():
            return words or _default_fix(job, workflow)
        case Review() | Describe():
            task = _REVIEW if isinstance(command, Review) else _DESCRIBE
            return f"{task}\n\nLook above all at this: {words}" if words else task
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


def _failed_check(job: Job, name: str) -> str:
    kind = "workflow" if job.origin.id else "check"
    return f'The {kind} "{name}"' if _NAME.fullmatch(name) else f"A {kind}, named below,"


def _default_fix(job: Job, workflow: str) -> str:
    if job.origin.kind == "ci":
        # Another App chose the name of its own check.
        name = (workflow or job.origin.name) if job.origin.id else ""
        return _CI.format(what=_failed_check(job, name), where=_this_thread(job))
    if job.origin.lines is not None:
        return "Fix what the discussion of the quoted lines is about."
    return f"Fix the problem described in {_this_thread(job)}."


def _explain_thread(job: Job) -> str:
    if job.origin.kind == "ci":
        return _CI_OF_A_FORK.format(what=_failed_check(job, ""))  # the name is from a fork's file
    if job.origin.lines is not None:
        return _EXPLAIN.format(what="the quoted lines")
    subjects = {
        "issue": "what this issue is about",
        "pull": "what this pull request changes, and how",
        "branch": "what this project is, and how it is built",
    }
    return _EXPLAIN.format(what=subjects[job.thread.kind])


def _this_thread(job: Job) -> str:
    return "this pull request" if job.thread.kind == "pull" else f"this {job.thread.kind}"


_NAME_CHARS = 200
_RUN_CHARS = 2_000
_VALUE_CHARS = 300
_EXCERPT_CHARS = 6_000
_ANNOTATION_CHARS = 1_000
_CHANGES_CHARS = 20_000
_MAX_VALUES = 30
_MAX_STEPS = 30
_MAX_ANNOTATIONS = 20


def job_quotes(run: FailedRun) -> list[Quote]:
    quotes: list[Quote] = []
    for job in run.jobs:
        failed_steps = [_step(step, definition) for step, definition in job.steps if step.failed]
        parts = [*failed_steps, "\n".join(_environment(job)), _log(job)]
        if lines := annotation_lines(job.annotations):
            parts.append("\n".join(["Annotations:", *lines]))
        name, conclusion = _name(job.facts.name), _name(job.facts.conclusion)
        source = f"failed job {name} of workflow {_name(run.facts.name)}: {conclusion}"
        if not run.is_current:
            source += f", on commit {_name(run.facts.head_sha[:10])}, which is not HEAD"
        quotes.append(Quote(source=source, text="\n\n".join(filter(None, parts))))
    if run.unread:
        quotes.append(Quote(source="other failed jobs", text=f"{run.unread} more jobs of this run failed."))
    return quotes


def change_quotes(run: FailedRun) -> list[Quote]:
    if not run.changes.strip():
        return []
    source = f"the diff since commit {_name(run.green_sha[:10])}, on which this workflow last succeeded"
    return [Quote(source=source, text=clean_code(run.changes, limit=_CHANGES_CHARS))]


def annotation_lines(annotations: Sequence[Annotation]) -> list[str]:
    return [
        f"{_name(annotation.path)}:{annotation.start_line}: {clean_code(annotation.message, limit=_ANNOTATION_CHARS)}"
        for annotation in annotations[:_MAX_ANNOTATIONS]
    ]


def _step(step: StepFacts, definition: StepDefinition) -> str:
    title = f"Failed step {step.number}: {_name(step.name)} ({_name(step.conclusion)})"
    if definition.uses:
        return f"{title}\nuses: {_uses(definition)}"
    if not definition.run:
        return title
    details = [f"shell: {_name(definition.shell)}"] if definition.shell else []
    if definition.working_directory:
        details.append(f"working-directory: {_name(definition.working_directory)}")
    return "\n".join([title, *details, "run:", _indent(clean_code(definition.run, limit=_RUN_CHARS))])


def _environment(job: FailedJob) -> Iterator[str]:
    others = [definition for step, definition in job.steps if not step.failed and (definition.run or definition.uses)]
    if others:
        yield "\n".join(["Other steps of the job:", *(f"- {_summary(step)}" for step in others[:_MAX_STEPS])])
    if job.environment:
        yield f"Environment:\n{_indent(_variables(job.environment))}"
    if job.services:
        yield f"Services:\n{_indent(_variables(job.services))}"
    if job.container:
        yield f"Container: {_name(job.container)}"
    if job.facts.labels:
        yield f"Runner: {_name(', '.join(job.facts.labels))}"


def _summary(step: StepDefinition) -> str:
    if step.uses:
        return f"uses {_uses(step)}"
    first, _, rest = clean_code(step.run, limit=_VALUE_CHARS).partition("\n")
    return f"run: {first}{' …' if rest else ''}"


def _uses(step: StepDefinition) -> str:
    inputs = ", ".join(f"{_name(key)}: {_name(value)}" for key, value in list(step.inputs.items())[:_MAX_VALUES])
    return f"{_name(step.uses)} ({inputs})" if inputs else _name(step.uses)


def _variables(pairs: Mapping[str, str]) -> str:
    variables = list(pairs.items())[:_MAX_VALUES]
    return "\n".join(f"{_name(key)}={clean_code(value, limit=_VALUE_CHARS)}" for key, value in variables)


def _log(job: FailedJob) -> str:
    if job.no_log:
        return f"No log: {clean_line(job.no_log, limit=_VALUE_CHARS)}"
    if not job.excerpt.strip():
        return "The log is empty."
    omitted = f" ({job.more:,} more failures are left out)" if job.more else ""
    return f"From the log{omitted}:\n{clean_code(job.excerpt, limit=_EXCERPT_CHARS)}"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _name(text: str) -> str:
    return clean_line(text, limit=_NAME_CHARS)


MAX_PICTURES = 5
"""Pictures in one job."""

MAX_PICTURE_BYTES = 3_500_000
"""Of one picture; the limit of `Image.of`."""

MAX_TOTAL_BYTES = 8_000_000
"""Of all pictures in one job."""

MAX_NOTES = 10

# GitHub signs addresses of the second host for a few minutes; the first host is from before it did.
_IMAGE_HOSTS = frozenset({"user-images.githubusercontent.com", "private-user-images.githubusercontent.com"})
_SERVER = "https://github.com"
# github.com redirects requests for an attachment of a public repository to this host.
_STORE = "github-production-user-asset-6210df.s3.amazonaws.com"

# Attachments of an Enterprise Server. With subdomain isolation, the host `media.…` replaces `/media`:
# https://docs.github.com/enterprise-server@latest/admin/configuring-settings/hardening-security-for-your-enterprise/enabling-subdomain-isolation
_MEDIA = re.compile(r"/media/user/[0-9]+/files/[0-9a-f-]{36}", re.ASCII)

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The second form was used until 2024.
_ATTACHMENT = re.compile(rf"/(?:user-attachments/assets|[\w.-]+/[\w.-]+/assets/[0-9]+)/{_UUID}", re.ASCII)
_ASSET = re.compile(_UUID)
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/[!#-;=?-\[\]_a-z~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureText:
    """A text of a thread that may contain pictures.

    Attributes:
        id: GitHub's id; 0 for the description.
    """

    kind: Literal["thread", "comment", "review_comment", "review"]
    id: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture in a text.

    Attributes:
        place: numbers of the text in reading order, and of the picture in it.
    """

    text: PictureText
    place: tuple[int, int]
    address: str

    @property
    def source(self) -> str:
        number = self.place[1]
        return self.text.name if number == 1 else f"{self.text.name}, picture {number}"


def choose_pictures(
    description: PictureText, comments: Sequence[PictureText], command: PictureText | None
) -> tuple[Picture, ...]:
    """Return a thread's pictures, most important first, each address once."""
    texts = [description, *comments, *([command] if command else [])]
    by_text = [
        [Picture(text=words, place=(order, number), address=address) for number, address in enumerate(addresses, 1)]
        for order, (words, addresses) in enumerate((words, picture_addresses(words.text)) for words in texts)
    ]
    unique: dict[str, Picture] = {}
    for group in [*by_text[1 + len(comments) :], by_text[0], *reversed(by_text[1 : 1 + len(comments)])]:
        for picture in group:
            unique.setdefault(picture.address or picture.source, picture)
    return tuple(unique.values())


def picture_addresses(text: str) -> list[str]:
    if "![" not in text and "<img" not in text.casefold():
        return []
    return visible_images(text)


def is_fetchable(address: str, server_url: str, *, redirected: bool = False) -> bool:
    """Whether an address is an attachment on GitHub or the configured server, or `redirected` from one.

    https://docs.github.com/get-started/writing-on-github/working-with-advanced-formatting/attaching-files
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


def signed_address(address: str, page: str, server_url: str) -> str:
    """Return an attachment's short-lived signed address from a text's `body_html`, or the address itself."""
    asset = _ASSET.search(urlsplit(address).path)
    if asset is None:
        return address
    for source in image_sources(page):
        if asset[0] in source and is_fetchable(source, server_url) and asset[0] in urlsplit(source).path:
            return source
    return address


def omission_notes(omitted: Iterable[tuple[Picture, str]]) -> list[str]:
    pictures = list(omitted)
    lines = [f"a picture of {picture.source}: {reason}" for picture, reason in pictures[:MAX_NOTES]]
    return [*lines, f"further pictures: {len(pictures) - MAX_NOTES}"] if len(pictures) > MAX_NOTES else lines
