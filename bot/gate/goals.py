"""The agent's goal: in the commander's words and ours, never in a stranger's. Pure."""

from __future__ import annotations

import re
from typing import assert_never

from bot.domain.commands import Ask, Explain, Fix, Plan, Review, Test, Work
from bot.domain.job import Job
from bot.gate.characters import without_invisible

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
