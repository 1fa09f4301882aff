"""The report of a workflow's step: exit code, outputs, summary, log and annotations, all made from a `StepEnd`.

The last functions write workflow commands, lines that GitHub's runner executes; untrusted text must not become one:
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from agent_runtime import Ended, Event, Refused, StepStarted, Streamed, StreamReset, ToolCalled, ToolReturned
from bot.domain.errors import BotError
from bot.domain.job import Job, JobState
from bot.events.delivery import IgnoredDelivery
from bot.jobs.context import artifact_name
from bot.jobs.record import JobRecord
from bot.publishing.checks import Verdict
from bot.publishing.markdown import Allowlist, clean, code, duration, escape_markdown, fence, one_line
from bot.publishing.outcome import Failed, JobOutcome
from bot.publishing.render import NO_FILE, build_annotations, explain_result, render_status, settings_to_inputs
from bot.publishing.status_view import StatusView


class Conclusion(StrEnum):
    """The conclusion of a step; the words for a finished change are those of `Verdict`."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    RED = "red"
    UNCHANGED = "unchanged"
    SETUP_FAILED = "setup_failed"
    DONE = "done"
    IGNORED = "ignored"
    REFUSED = "refused"
    WAITING = "waiting"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    MISCONFIGURED = "misconfigured"


MEANINGS: Mapping[Conclusion, tuple[int, str]] = {
    Conclusion.VERIFIED: (0, "Files changed, and the last run of every check passed."),
    Conclusion.UNVERIFIED: (0, "Files changed, and no check passed on the final change."),
    Conclusion.UNCHANGED: (0, "The run finished, and nothing changed."),
    Conclusion.DONE: (0, "A review, an answer or a plan was published."),
    Conclusion.IGNORED: (0, "The event contains no command."),
    Conclusion.REFUSED: (0, "The command is not allowed; no run was started."),
    Conclusion.WAITING: (0, "The run waits for a person."),
    Conclusion.RED: (1, "Files changed, and the last run of at least one check failed."),
    Conclusion.SETUP_FAILED: (1, "A `setup` command of the repository failed."),
    Conclusion.STOPPED: (1, "Somebody stopped the run."),
    Conclusion.FAILED: (1, "The run did not finish; see the summary for the reason."),
    Conclusion.CANCELLED: (1, "The workflow was cancelled."),
    Conclusion.MISCONFIGURED: (2, "An input, a permission or the runner is misconfigured."),
}
"""Exit code and meaning of each, in the order of the documentation."""

_UNEXPECTED_STATES = frozenset({JobState.QUEUED, JobState.RUNNING})
"""States in which a step's job can only end by a crash."""


def conclusion_of(
    ended: JobState | IgnoredDelivery | None, verdict: Verdict | None = None, *, misconfigured: bool = False
) -> Conclusion:
    """Return the conclusion of a step.

    Args:
        ended: the state of its job, or the reason for none; None if the workflow was cancelled.
    """
    if ended is None:
        return Conclusion.CANCELLED
    if isinstance(ended, IgnoredDelivery):
        return Conclusion.IGNORED
    if ended is JobState.DONE and verdict is not None:
        return Conclusion(verdict.value)
    if ended is JobState.FAILED and misconfigured:
        return Conclusion.MISCONFIGURED
    return Conclusion.FAILED if ended in _UNEXPECTED_STATES else Conclusion(ended.value)


def exit_code(conclusion: Conclusion) -> int:
    return MEANINGS[conclusion][0]


def conclusions_table() -> str:
    rows = [f"| `{each}` | {code} | {meaning} |" for each, (code, meaning) in MEANINGS.items()]
    return "\n".join(["| `conclusion` | exit code | meaning |", "|---|---|---|", *rows, ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """The end of a workflow's step.

    Attributes:
        ended: the state of its job, or the reason for none.
        view: of its outcome; None if that was lost.
        is_cancelled: whether its job was stopped because the workflow run was cancelled.
    """

    ended: JobState | IgnoredDelivery
    job: Job | None = None
    view: StatusView | None = None
    record: JobRecord = field(default_factory=JobRecord)
    patch: str = ""
    patch_file: Path | None = None
    session_file: Path | None = None
    session_days: int = 1
    seconds: float = 0.0
    server_url: str = ""
    is_cancelled: bool = False

    @property
    def outcome(self) -> JobOutcome | None:
        return self.view.outcome if self.view is not None else None

    @property
    def status(self) -> StatusView | None:
        """The view of the status comment; None if there is none, as for a short reply."""
        outcome = self.outcome
        return self.view if outcome is not None and not outcome.reply and not outcome.is_silent else None

    @property
    def comment(self) -> str:
        return self.record.ending.body if self.record.ending is not None else ""

    @property
    def reason(self) -> str:
        if isinstance(self.ended, IgnoredDelivery):
            return self.ended.reason
        return self.outcome.cause if self.outcome is not None else ""

    @property
    def conclusion(self) -> Conclusion:
        return conclusion_of(
            None if self.is_cancelled else self.ended,
            self.view.verdict if self.view is not None else None,
            misconfigured=isinstance(self.outcome, Failed) and self.outcome.misconfigured,
        )


_MOST_FILES = 1_000
_MOST_DAYS = 90
_SUMMARY_CHARS = 60_000
_CALL_FIELDS = ("tool", "request", "reason", "setting", "value")


def outputs_of(end: StepEnd) -> dict[str, str]:
    record, view = end.record, end.status
    status = "ignored" if isinstance(end.ended, IgnoredDelivery) else end.ended.value
    comment, commit = record.comment.posted, record.published.commit
    # The pull request that has the commit: opened for it, or the one that the job belongs to.
    number, url = "", ""
    if (pull := record.published.pull) is not None:
        number, url = str(pull.number), pull.html_url
    elif commit is not None and end.job is not None and end.job.thread.kind == "pull":
        number = str(end.job.thread.number)
        url = f"{end.server_url.rstrip('/')}/{end.job.repo.full_name}/pull/{number}"
    files = [each.path.encode("utf-8", "replace").decode() for each in view.files[:_MOST_FILES]] if view else []
    usage = view.usage if view is not None else None
    denied = [{name: str(getattr(each, name)) for name in _CALL_FIELDS} for each in record.denied or ()]
    values = {
        "conclusion": end.conclusion.value,
        "status": status,
        "run-id": end.job.id if end.job else "",
        "comment-url": comment.url if comment else "",
        "comment-id": str(comment.id) if comment else "",
        "branch": commit.branch if commit else "",
        "commit-sha": commit.sha if commit else "",
        "pull-request-number": number,
        "pull-request-url": url,
        "changed-files": json.dumps(files, ensure_ascii=False),
        "patch-path": str(end.patch_file) if end.patch_file else "",
        "cost-usd": "" if usage is None or usage.cost_usd is None else f"{usage.cost_usd:.4f}",
        "input-tokens": str(usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens) if usage else "",
        "output-tokens": str(usage.output_tokens) if usage else "",
        "steps": str(view.steps) if view is not None else "",
        "duration-seconds": f"{end.seconds:.0f}",
        "session-path": str(end.session_file) if end.session_file else "",
        "structured-output": run.output_json if (run := end.outcome and end.outcome.run) else "",
        "denied-calls": json.dumps(denied),
        "summary": _summary(end),
    }
    # For the step of the action that uploads a session: the artifact's name, and for how long it is needed.
    if end.session_file is not None and end.job is not None:
        values |= {"session-name": artifact_name(end.job), "session-days": str(min(end.session_days, _MOST_DAYS))}
    return values


def _summary(end: StepEnd) -> str:
    text, outcome = end.reason, end.outcome
    if outcome is not None and outcome.reply:
        text = outcome.reply.removeprefix("🚫 ")
    elif outcome is not None and not outcome.is_silent:
        withheld = outcome.published.withheld
        text = outcome.completion or outcome.reason or (withheld.reason if withheld else "") or end.reason
    return escape_text(end, text)


def escape_text(end: StepEnd, text: str) -> str:
    if (job := end.job) is None:
        return text
    allowed = Allowlist(login="", number=job.thread.number, server=end.server_url.rstrip("/"), repo=job.repo.full_name)
    return escape_markdown(text, allowed, limit=_SUMMARY_CHARS)


_WITHOUT_RUN = outputs_of(StepEnd(ended=IgnoredDelivery(reason=""))) | {"status": "", "duration-seconds": ""}
OUTPUTS = tuple(_WITHOUT_RUN)
"""Names of the outputs, in the order of the documentation."""


def outputs_without_run(conclusion: Conclusion, summary: str) -> dict[str, str]:
    return _WITHOUT_RUN | {"conclusion": conclusion.value, "summary": summary}


_OUTPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")

MAX_SUMMARY_BYTES = 1024 * 1024
"""https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#step-isolation-and-limits"""


def write_outputs(
    path: Path, outputs: Mapping[str, str], *, new_delimiter: Callable[[], str] = lambda: secrets.token_hex(16)
) -> None:
    """Append the outputs to the file in `GITHUB_OUTPUT`.

    Each value stands between random delimiters that it does not contain, so that no value can set another output.

    Raises:
        BotError: the file cannot be written.
        ValueError: an output's name is invalid.
    """
    written = []
    for name, value in outputs.items():
        if not _OUTPUT_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid output name")
        delimiter = new_delimiter()
        while delimiter in value:
            delimiter = new_delimiter()
        written.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    _append(path, "".join(written).encode("utf-8", "replace"), "GITHUB_OUTPUT")


def write_summary(path: Path, markdown: str) -> None:
    """Append to the file in `GITHUB_STEP_SUMMARY`; cut at 1 MiB, beyond which GitHub drops all of it."""
    content = markdown.encode("utf-8", "replace") + b"\n"
    if len(content) > MAX_SUMMARY_BYTES:
        note = b"\n\n_Cut here: GitHub shows at most 1 MiB of a summary._\n"
        content = content[: MAX_SUMMARY_BYTES - len(note)].decode("utf-8", "ignore").encode() + note
    _append(path, content, "GITHUB_STEP_SUMMARY")


def _append(path: Path, content: bytes, variable: str) -> None:
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise BotError(f"the file {path} ({variable}) cannot be written: {error.strerror}") from error


_SPARE_BYTES = 4_096
"""For the parts around the change."""


def format_summary(end: StepEnd) -> str:
    view, rows = end.status, [("Conclusion", code(end.conclusion.value))]
    if isinstance(end.ended, IgnoredDelivery):
        return f"Codepilot had nothing to do: {settings_to_inputs(end.ended.reason)}\n\n{format_rows(rows)}"
    waits = render_status(view) if view is not None and end.ended is JobState.WAITING else ""
    parts = [end.comment or waits or f"Codepilot: {end.conclusion.value}. {escape_text(end, end.reason)}".strip()]
    posted = end.record.comment.posted
    if view is not None:
        rows += [
            ("Model", code(view.model) if view.model else ""),
            ("Steps", str(view.steps) if view.steps else ""),
            ("Time", duration(view.seconds)),
        ]
        usage = view.usage
        read = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
        cached = f", {usage.cached_tokens:,} of them from the cache" if usage.cached_tokens else ""
        rows += [
            ("Tokens", f"{read:,} in{cached}; {usage.output_tokens:,} out"),
            ("Cost", "not known for this model" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"),
        ]
    parts += [format_rows(rows), f"[The comment]({posted.url})" if posted is not None else ""]
    text = "\n\n".join(filter(None, parts))
    changed = end.patch if view is not None and view.files else ""
    if changed.strip() in text:  # the comment shows what was left out of a publication
        changed = ""
    room = MAX_SUMMARY_BYTES - len(text.encode()) - _SPARE_BYTES
    return f"{text}\n\n{_format_change(changed, room)}" if changed and room > 0 else text


def format_rows(rows: Sequence[tuple[str, str]]) -> str:
    head, *more = [f"| {name} | {value} |" for name, value in rows if value]
    return "\n".join([head, "|---|---|", *more])


def _format_change(patch: str, room: int) -> str:
    shown = "\r".join(map(clean, patch.split("\r")))
    lines, note = shown.split("\n"), ""
    block = fence(shown, "diff")
    while len(block.encode()) > room and lines:
        # A fence may be longer than the lines that were left out, when these are of back ticks.
        size = len("\n".join(lines).encode())
        keep = max(0, int(len(lines) * room / max(size, room + 1)) - 1)
        lines = lines[: min(keep, len(lines) - 1)]
        block = fence("\n".join(lines), "diff")
        note = f"_Truncated: the whole change has {len(patch):,} characters._"
    return "\n\n".join(filter(None, ["<details><summary>The change</summary>", block, note, "</details>"]))


_LEVELS: Mapping[str, Level] = {"warning": "warning", "notice": "notice"}
_QUIET = frozenset({Conclusion.VERIFIED, Conclusion.UNCHANGED, Conclusion.DONE})


def format_annotations(end: StepEnd) -> list[str]:
    view, outcome, lines = end.status, end.outcome, list[tuple[Level, str]]()
    most: Level = "error" if exit_code(end.conclusion) else "warning"
    if isinstance(end.ended, IgnoredDelivery):
        said = f"Nothing to do: {settings_to_inputs(end.ended.reason)}"
        lines.append(("notice", format_annotation("notice", said, title="Codepilot")))
    elif end.conclusion not in _QUIET:
        said = " ".join(filter(None, (outcome.reason, outcome.remedy))) if view is not None and outcome else ""
        said = settings_to_inputs(said or _verdict(end) or MEANINGS[end.conclusion][1])
        lines.append((most, format_annotation(most, said, title=f"Codepilot: {end.conclusion.value}")))
    if view is not None:
        for each in build_annotations(view):
            # In a step that is green no error, which would be read as its failure.
            level = most if each.level == "failure" else _LEVELS[each.level]
            file = "" if each.path == NO_FILE else each.path
            line = format_annotation(
                level, each.message, title=each.title, file=file, line=each.start_line, end_line=each.end_line
            )
            lines.append((level, line))
    levels = [level for level, _ in lines]
    return [line for number, (level, line) in enumerate(lines) if levels[:number].count(level) < MAX_ANNOTATIONS]


def _verdict(end: StepEnd) -> str:
    view = end.status
    if view is None or view.verdict is None:
        return end.reason
    return explain_result(view)


_GROUP_TITLE_CHARS = 100
_OUTPUT_CHARS = 20_000


class StepLog:
    """The human-readable log of a step's runs.

    Output of agents and programs stands between two commands that stop the runner from executing commands in it, with a
    new token each time.
    """

    def __init__(self, say: Callable[[str], None], redact: Callable[[str], str]) -> None:
        self._say, self._redact = say, redact
        self._number = 0
        self._prose = ""
        self._completing = False
        self._open = False

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted(step=step):
                self._close()
                self._number, self._prose = step, ""
            case Streamed(text=text, completion=completion):
                self._prose += "\n\n" if completion and not self._completing and self._prose else ""
                self._prose, self._completing = self._prose + text, completion
            case StreamReset():
                self._prose = ""
            case ToolCalled(label=label):
                self._open_group()
                self._quote(f"▸ {one_line(label, 500)}")
            case ToolReturned(text=text, ok=ok):
                self._quote(text if ok else f"✗ {text}")
            case Refused(error=error):
                self._open_group()
                self._quote(error)
            case Ended():
                self._open_group()
                self._close()
            case _:
                pass

    def _open_group(self) -> None:
        if not self._open and self._number:
            said = one_line(self._redact(self._prose), _GROUP_TITLE_CHARS)
            self._say(open_group(f"Step {self._number}{': ' if said else ''}{said}"))
            self._open = True
        if self._prose.strip():
            self._quote(self._prose)
        self._prose = ""

    def _close(self) -> None:
        if not self._open and self._prose.strip():
            self._open_group()
        if self._open:
            self._say(END_GROUP)
        self._open = False

    def _quote(self, text: str) -> None:
        shown = self._redact(text)
        if len(shown) > _OUTPUT_CHARS:
            half = _OUTPUT_CHARS // 2
            shown = f"{shown[:half]}\n… {len(shown) - 2 * half:,} characters left out …\n{shown[-half:]}"
        token = secrets.token_hex(16)
        while token in shown:
            token = secrets.token_hex(16)
        if shown.strip():
            self._say(enclose_foreign_text(shown, token))


Level = Literal["error", "warning", "notice"]

MAX_ANNOTATIONS = 10
"""Of each level in a step; GitHub drops the rest:
https://docs.github.com/en/rest/checks/runs#create-a-check-run and the runner's own limit.
"""

# The runner cuts a message there: https://github.com/actions/runner/blob/main/src/Runner.Worker/ExecutionContext.cs
_MESSAGE_CHARS = 4_000
_TITLE_CHARS = 200

END_GROUP = "::endgroup::"


def format_annotation(
    level: Level, message: str, *, title: str = "", file: str = "", line: int = 0, end_line: int = 0
) -> str:
    """Format a log line that GitHub also shows above the run, and beside the lines of a file."""
    properties = {
        "title": one_line(_printable(title), _TITLE_CHARS),
        "file": _printable(file),
        "line": str(line) if file and line else "",
        "endLine": str(end_line) if file and end_line > line else "",
    }
    values = {name: _data(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items() if value}
    written = ",".join(f"{name}={value}" for name, value in values.items())
    return f"::{level}{' ' if written else ''}{written}::{_data(_printable(message)[:_MESSAGE_CHARS])}"


def open_group(title: str) -> str:
    return f"::group::{_data(one_line(_printable(title), _TITLE_CHARS))}"


def mask_secret(secret: str) -> list[str]:
    """Mask a secret in the job's logs; a command for each line, since the runner masks by lines."""
    return [f"::add-mask::{_data(line)}" for line in dict.fromkeys(secret.splitlines()) if line.strip()]


def enclose_foreign_text(text: str, token: str) -> str:
    """Enclose untrusted text in commands that stop the runner from executing commands in it.

    Args:
        token: random and new for each text; a guessed one could end the text early.

    Raises:
        ValueError: the text contains the token.
    """
    shown = _printable(text).rstrip("\n")
    if token in shown:
        raise ValueError("the token that is to end a text must not be in it")
    return f"::stop-commands::{token}\n{shown}\n::{token}::"


def _printable(text: str) -> str:
    """Remove control codes, and the older form of commands, which the log's page executes anywhere in a line."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n")).replace("##[", "# #[")


# https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
