"""The failed jobs of a workflow run as quotes: commands with their environment, the log, the remarks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent_runtime import Quote
from bot.gate.sanitise import clean_code, clean_line
from bot.red_ci.failed import FailedJob, FailedRun, Remark, Step

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
