"""The step's summary: the comment, what the run cost, and the change as far as it fits."""

from __future__ import annotations

from bot.apps.action.end import StepEnd
from bot.apps.action.files import MAX_SUMMARY_BYTES
from bot.apps.action.outputs import escaped
from bot.domain.job import JobState
from bot.intake.deliveries import IgnoredDelivery
from bot.publishing.inputs import in_inputs
from bot.publishing.render import render_status
from bot.publishing.text import clean, code, duration, fenced

_SPARE_BYTES = 4_096
"""For what stands around the change."""


def summary(end: StepEnd) -> str:
    """What the page of the workflow run shows, in Markdown; every foreign word in it is harmless."""
    if isinstance(end.ended, IgnoredDelivery):
        return f"Codepilot had nothing to do: {in_inputs(end.ended.reason)}"
    waits = render_status(end.view) if end.view is not None and end.ended is JobState.WAITING else ""
    parts = [end.told or waits or f"Codepilot: {end.ended.value}. {escaped(end, end.why)}".strip()]
    if end.view is not None:
        rows = [
            ("Conclusion", code(end.conclusion.value)),
            ("Model", code(end.view.model) if end.view.model else ""),
            ("Steps", str(end.view.steps) if end.view.steps else ""),
            ("Time", duration(end.view.seconds)),
        ]
        if (usage := end.view.usage) is not None:
            read = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens
            cached = f", {usage.cached_tokens:,} of them from the cache" if usage.cached_tokens else ""
            rows += [
                ("Tokens", f"{read:,} in{cached}; {usage.output_tokens:,} out"),
                ("Cost", "not known for this model" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"),
            ]
        head, *more = [f"| {name} | {value} |" for name, value in rows if value]
        posted = end.record.comment.posted
        parts += ["\n".join([head, "|---|---|", *more]), f"[The comment]({posted.url})" if posted is not None else ""]
    text = "\n\n".join(filter(None, parts))
    changed = end.patch if end.view is not None and end.view.files else ""
    if changed.strip() in text:  # the comment shows what was left out of a publication
        changed = ""
    room = MAX_SUMMARY_BYTES - len(text.encode()) - _SPARE_BYTES
    return f"{text}\n\n{_change(changed, room)}" if changed and room > 0 else text


def _change(patch: str, room: int) -> str:
    """The change, folded: whole where it fits, else as many whole lines as do."""
    shown = "\r".join(map(clean, patch.split("\r")))
    lines, note = shown.split("\n"), ""
    block = fenced(shown, "diff")
    while len(block.encode()) > room and lines:
        # A fence may be longer than the lines that were left out, when these are of back ticks.
        size = len("\n".join(lines).encode())
        keep = max(0, int(len(lines) * room / max(size, room + 1)) - 1)
        lines = lines[: min(keep, len(lines) - 1)]
        block = fenced("\n".join(lines), "diff")
        note = f"_Truncated: the whole change has {len(patch):,} characters._"
    return "\n\n".join(filter(None, ["<details><summary>The change</summary>", block, note, "</details>"]))
