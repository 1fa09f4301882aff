"""Tools of the conversation: archive finished tasks, ask the user, read a skill."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from agent_runtime.context.transcript import TaskRecord, estimate_savings, list_tasks, render_original
from agent_runtime.core.errors import ToolError
from agent_runtime.core.events import Archived, Revealed
from agent_runtime.core.values import Plain, Skill, ToolResult
from agent_runtime.sessions.protocol import EventLog
from agent_runtime.tools.tool import TEXTS, Texts, ToolFamily

Numbers = int | list[int] | tuple[int, ...]

_REVEAL_CHARS = 24_000
"""Limit of one reveal; the session log has the full text."""
_PREVIEW_CHARS = 100
_SUMMARY_CHARS = 4_000


class ContextTools(ToolFamily):
    """Archive tools on one session's log."""

    value_types: ClassVar[dict[str, str]] = {
        "archive_context": "str",
        "reveal_context": "str",
        "list_archived_context": "list[dict[str, Any]]",
    }
    labels: ClassVar[dict[str, str]] = {
        "archive_context": "Archiving task {position}{task}",
        "reveal_context": "Revealing task {position}",
        "list_archived_context": "Listing archived tasks",
    }
    is_listed = False  # they serve from the second task on, whose message tells of them
    stub_types: ClassVar[str] = f"Numbers = int | list[int] | tuple[int, ...]\n{TEXTS}"

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def archive_context(
        self, position: Numbers | None = None, summary: Texts | None = None, task: Numbers | None = None
    ) -> ToolResult:
        """Put finished tasks aside by number ([Task N]): your summary stands for each. task and position are the same.

        Raises:
            ToolError: no such task, the current one, one archived already, or an empty or missing summary.
        """
        numbers = _task_numbers(position, task)
        summaries = _check_summaries(summary, len(numbers))
        records = {record.number: record for record in list_tasks(self._log.events)}
        for number in numbers:
            record = _find_task(number, records, "archive_context")
            if number == max(records):
                problem = f"task {number} is the current one; archive it when the next task has begun"
            elif record.summary is not None:
                problem = f"task {number} is archived already; reveal_context({number}) takes it back first"
            elif record.summarised:
                problem = f"task {number} is told by the [GLOBAL SUMMARY] already"
            else:
                continue
            raise ToolError(f"archive_context: {problem}", kind="ValueError")
        for number, text in zip(numbers, summaries, strict=True):
            self._log.record(Archived(task=number, summary=text))
        events = self._log.events
        saved = sum(estimate_savings(events, record) for record in list_tasks(events) if record.number in numbers)
        text = (
            f"[archive_context] {_format_numbers(numbers)} archived, about {max(0, saved):,} tokens less in requests "
            "to come. Summaries take their place when that pays; reveal_context(N) shows a task again."
        )
        return ToolResult(value=text, text=text)

    async def reveal_context(self, position: int) -> ToolResult:
        """Show an archived task's messages again."""
        events = self._log.events
        record = _find_task(position, {entry.number: entry for entry in list_tasks(events)}, "reveal_context")
        if record.summary is None and not record.summarised and not record.applied:
            raise ToolError(f"reveal_context: task {position} is not archived; its messages are in the conversation")
        if record.summary is not None:
            self._log.record(Revealed(task=position))
        if not record.applied and not record.summarised:
            text = f"[reveal_context] task {position} is no longer archived; its messages were not replaced yet"
        else:
            messages = render_original(events, record, max_chars=_REVEAL_CHARS)
            text = f"[TASK {position} REVEALED]\n{messages}\n[end of task {position}]"
        return ToolResult(value=text, text=text, max_chars=len(text))

    async def list_archived_context(self) -> ToolResult:
        """List archived tasks, with the tokens saved."""
        events = self._log.events
        archived = [record for record in list_tasks(events) if record.summary is not None]
        value: list[Plain] = [
            {"task": record.number, "summary": record.summary, "tokens_saved": max(0, estimate_savings(events, record))}
            for record in archived
        ]
        lines: list[str] = []
        for record in archived:
            summary = " ".join((record.summary or "").split())
            preview = summary if len(summary) <= _PREVIEW_CHARS else f"{summary[: _PREVIEW_CHARS - 1]}…"
            state = "" if record.applied else " (still shown in full)"
            saved = max(0, estimate_savings(events, record))
            lines.append(f"[ARCHIVED TASK {record.number}] about {saved:,} tokens saved{state}: {preview}")
        return ToolResult(value=value, text="\n".join(lines) or "[list_archived_context] no task is archived")


def _task_numbers(position: Numbers | None, task: Numbers | None) -> list[int]:
    if (position is None) == (task is None):
        problem = "both task and position are given, which are the same" if task is not None else "no task is given"
        raise ToolError(f"archive_context: {problem}; write archive_context(task=N, summary=...)", kind="ValueError")
    value = task if task is not None else position
    numbers = [value] if isinstance(value, int) else list(value or ())
    if not numbers:
        raise ToolError("archive_context: the list of tasks is empty", kind="ValueError")
    duplicates = sorted({number for number in numbers if numbers.count(number) > 1})
    if duplicates:
        raise ToolError(f"archive_context: {_format_numbers(duplicates)} given twice", kind="ValueError")
    return numbers


def _check_summaries(summary: Texts | None, count: int) -> list[str]:
    texts = [summary] if isinstance(summary, str) else list(summary or ())
    if len(texts) != count:
        raise ToolError(
            f"archive_context: {count} task(s), but {len(texts)} summaries; give one summary for each task",
            kind="ValueError",
        )
    for text in texts:
        if not text.strip():
            raise ToolError(
                "archive_context: a summary is empty; say what was done and what matters", kind="ValueError"
            )
        if len(text) > _SUMMARY_CHARS:
            raise ToolError(
                f"archive_context: a summary has {len(text):,} characters; use at most {_SUMMARY_CHARS:,}",
                kind="ValueError",
            )
    return [text.strip() for text in texts]


def _find_task(number: int, records: dict[int, TaskRecord], tool: str) -> TaskRecord:
    try:
        return records[number]
    except KeyError:
        last = max(records, default=0)
        available = f"there are tasks 1 to {last}" if last else "there is none yet"
        raise ToolError(f"{tool}: there is no task {number}; {available}", kind="ValueError") from None


def _format_numbers(numbers: Sequence[int]) -> str:
    return f"task{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


Ask = Callable[[str], Awaitable[str]]
"""Ask the user a question and return the answer, which may come in another process."""

_QUESTION_CHARS = 4_000


class QuestionTools(ToolFamily):
    value_types: ClassVar[dict[str, str]] = {"ask_user": "str"}
    labels: ClassVar[dict[str, str]] = {"ask_user": "Asking: {question}"}

    def __init__(self, ask: Ask, *, is_listed: bool = True) -> None:
        self._ask, self.is_listed = ask, is_listed

    async def ask_user(self, question: str) -> ToolResult:
        """Ask what only the user can decide."""
        text = question.strip()
        if not text:
            raise ToolError("ask_user: question is empty; say what the user should decide", kind="ValueError")
        if len(text) > _QUESTION_CHARS:
            raise ToolError(
                f"ask_user: question has {len(text):,} characters, and {_QUESTION_CHARS:,} is the most",
                kind="ValueError",
            )
        answer = await self._ask(text)
        return ToolResult(value=answer, text=f"[ask_user] {answer or '(an empty answer)'}")


class SkillTools(ToolFamily):
    value_types: ClassVar[dict[str, str]] = {"read_skill": "str"}
    labels: ClassVar[dict[str, str]] = {"read_skill": "Reading the skill {name}"}

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        self._skills = skills

    def read_skill(self, name: str) -> ToolResult:
        """Read a skill that the first message lists, before you do what it is about."""
        skill = self._skills.get(name)
        if skill is None:
            raise ToolError(
                f"read_skill: there is no skill {name!r}; there are: {', '.join(self._skills)}", kind="ValueError"
            )
        text = skill.text.strip("\r\n")
        folder = skill.path.rpartition("/")[0]
        head = f"[skill {name}, whose other files are in {folder}/]"
        return ToolResult(value=text, text=f"{head}\n{text}", max_chars=len(head) + len(text) + 1)
