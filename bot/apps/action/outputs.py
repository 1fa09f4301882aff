"""The outputs of a workflow's step: every one of them at every ending, with documented values."""

from __future__ import annotations

import json

from bot.apps.action.conclusion import Conclusion
from bot.apps.action.end import StepEnd
from bot.intake.deliveries import IgnoredDelivery
from bot.jobs.context import ShortReply
from bot.jobs.services import artifact_name
from bot.publishing.inert import Allowed, escape_markdown
from bot.publishing.view import StatusView

OUTPUTS = (
    "conclusion",
    "status",
    "run-id",
    "comment-url",
    "comment-id",
    "branch",
    "commit-sha",
    "pull-request-number",
    "pull-request-url",
    "changed-files",
    "patch-path",
    "cost-usd",
    "input-tokens",
    "output-tokens",
    "steps",
    "duration-seconds",
    "session-path",
    "structured-output",
    "denied-calls",
    "summary",
)
"""Their names, in the order of the documentation."""

_MOST_FILES = 1_000
_MOST_DAYS = 90
_SUMMARY_CHARS = 60_000
_CALL_FIELDS = ("tool", "asked", "reason", "setting", "value")
_NOTHING = dict.fromkeys(OUTPUTS, "") | {"changed-files": "[]", "denied-calls": "[]"}


def outputs_without_run(conclusion: Conclusion, summary: str) -> dict[str, str]:
    """The outputs of a step that began nothing."""
    return _NOTHING | {"conclusion": conclusion.value, "status": "", "summary": summary}


def outputs_of(end: StepEnd) -> dict[str, str]:
    """The outputs of a step, each a value that a workflow can branch on."""
    record, view = end.record, end.view
    status = "ignored" if isinstance(end.ended, IgnoredDelivery) else end.ended.value
    comment, commit = record.comment.posted, record.published.commit
    # The pull request that has the commit: opened for it, or the one that the job belongs to.
    number, url = "", ""
    if (pull := record.published.pull) is not None:
        number, url = str(pull.number), pull.html_url
    elif commit is not None and end.job is not None and end.job.thread.kind == "pull":
        number = str(end.job.thread.number)
        url = f"{end.server_url.rstrip('/')}/{end.job.repo.full_name}/pull/{number}"
    known = {
        "conclusion": end.conclusion.value,
        "status": status,
        "run-id": end.job.id if end.job else "",
        "comment-url": comment.url if comment else "",
        "comment-id": str(comment.id) if comment else "",
        "branch": commit.branch if commit else "",
        "commit-sha": commit.sha if commit else "",
        "pull-request-number": number,
        "pull-request-url": url,
        "patch-path": str(end.patch_file) if end.patch_file else "",
        "duration-seconds": f"{end.seconds:.0f}",
        "session-path": str(end.session_file) if end.session_file else "",
        "structured-output": end.ending.output_json if end.ending is not None else "",
        "denied-calls": json.dumps(
            [{name: str(getattr(each, name)) for name in _CALL_FIELDS} for each in record.denied or ()]
        ),
        "summary": _summary(end),
    }
    if view is not None:
        files = [each.path.encode("utf-8", "replace").decode() for each in view.files[:_MOST_FILES]]
        known |= {"steps": str(view.steps), "changed-files": json.dumps(files, ensure_ascii=False)}
    if view is not None and (usage := view.usage) is not None:
        known |= {
            "input-tokens": str(usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens),
            "output-tokens": str(usage.output_tokens),
            "cost-usd": "" if usage.cost_usd is None else f"{usage.cost_usd:.4f}",
        }
    # For the step of the action that uploads a session: the artifact's name, and for how long it is needed.
    if end.session_file is not None and end.job is not None:
        known |= {"session-name": artifact_name(end.job), "session-days": str(min(end.session_days, _MOST_DAYS))}
    return _NOTHING | known


def _summary(end: StepEnd) -> str:
    """What the run says of itself."""
    told = end.ending.view if end.ending is not None else None
    text = end.why
    if isinstance(told, StatusView):
        text = told.completion or told.reason or told.withheld or end.why
    elif isinstance(told, ShortReply):
        text = told.text
    return escaped(end, text)


def escaped(end: StepEnd, text: str) -> str:
    """What is said of a job's end, harmless wherever a workflow puts it."""
    if (job := end.job) is None:
        return text
    allowed = Allowed(login="", number=job.thread.number, server=end.server_url.rstrip("/"), repo=job.repo.full_name)
    return escape_markdown(text, allowed, limit=_SUMMARY_CHARS)
