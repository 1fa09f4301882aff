"""The events of the GitHub in memory become the jobs that the hub's events become."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from bot.domain.access import BotProfile
from bot.domain.job import Job
from bot.events.delivery import Delivery
from bot.events.triggers import job_from
from localhub import LocalHub
from localhub.operations.pulls import NewComment
from tests.fakes.hub import FakeHub

FILES = {"calc.py": "".join(f"line {number}\n" for number in range(1, 11))}
_UNLIKE = frozenset({"id", "delivery_id", "installation", "at", "root", "words", "url", "hunk"})
"""Fields of a job that are another hub's own; `words` and `hunk` are compared by whether there are any."""
_SHA = re.compile(r"[0-9a-f]{40}")


def act(hub: Any, app: Any) -> None:  # noqa: ANN401 - either hub
    """Do on a hub what people do."""
    repo, name = hub.repo("mona/calc"), "mona"
    for login in ("mona", "rita"):
        hub.add_user(login)
    hub.add_collaborator(repo, "rita", "write")
    issue = hub.open_issue(repo, author=name, title="It breaks", body="/codepilot fix it")
    hub.comment(repo, issue.number, author="rita", body="/codepilot plan the fix")
    hub.label(repo, issue.number, "bug", "codepilot", by=name)
    hub.add_label(repo, issue.number, "codepilot:auto", by="rita")
    hub.remove_label(repo, issue.number, "bug", by=name)
    hub.edit_thread(repo, issue.number, by=name, body="Edited.")
    hub.assign(repo, issue.number, "codepilot[bot]", by=name)
    hub.lock(repo, issue.number)
    hub.close(repo, issue.number, by="rita")
    head = hub.commit(repo, {"calc.py": "changed\n"}, message="Change", author="rita", branch="topic")
    pull = hub.open_pull(repo, author="rita", head="topic", title="Change it", body="As discussed.", draft=True)
    hub.set_draft(repo, pull.number, draft=False, by="rita")
    hub.comment(repo, pull.number, author=name, body="/codepilot review")
    comment = hub.review_comment(repo, pull.number, author=name, path="calc.py", line=1, body="/codepilot fix this")
    hub.review_comment(repo, pull.number, author="rita", in_reply_to=comment.id, body="/codepilot explain")
    notes = [NewComment(path="calc.py", body="/codepilot ask why", line=2, side="LEFT")]
    hub.review(repo, pull.number, author=name, body="/codepilot fix all of it", comments=notes)
    hub.label(repo, pull.number, "codepilot:ask", by=name)
    run = hub.workflow_run(repo, head_sha=head, head_branch="topic", conclusion="failure", actor="rita")
    hub.end_attempt(hub.run_again(run, by="mona"), conclusion="failure")
    facts = {"head_sha": head, "head_branch": "topic", "conclusion": "failure"}
    hub.workflow_run(repo, actor="rita", triggering_actor="mona", **facts)
    other = hub.add_app("other-ci")
    hub.check(repo, other, head_sha=head, name="build", conclusion="failure")
    hub.check(repo, other, head_sha=head, name="lint", conclusion="success")
    hub.commit(repo, {"more.txt": "more\n"}, message="More", author=name, branch="topic")
    hub.merge(repo, pull.number, by=name)
    hub.take_out(hub.install(app, repo), repo)


def jobs_of(events: list[tuple[str, str, dict[str, Any]]], app_id: int) -> list[tuple[str, str, object]]:
    """Return the jobs of events."""
    profile, jobs, shas = BotProfile(own_app_id=app_id), list[tuple[str, str, object]](), dict[str, str]()
    for number, (event, action, payload) in enumerate(events):
        job = job_from(Delivery(payload, event=event, delivery_id=f"d{number}"), profile)
        if isinstance(job, Job):
            jobs.append((event, action, _like(asdict(job), shas)))
    return jobs


def _like(value: Any, shas: dict[str, str], name: str = "") -> Any:  # noqa: ANN401 - parsed JSON
    """Replace the values that are a hub's own."""
    if isinstance(value, dict):
        return {key: _like(item, shas, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_like(item, shas, name) for item in value]
    if name in _UNLIKE or name.endswith("_id") or name == "repo_ids" or (name == "bound_to" and "text:" in value):
        return bool(value)
    if isinstance(value, str):
        return _SHA.sub(lambda match: shas.setdefault(match[0], f"commit {len(shas)}"), value)
    return value


async def test_the_same_actions_are_the_same_jobs(hub: LocalHub) -> None:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files=FILES)
    app = hub.add_app("codepilot")
    hub.install(app, repo)
    hub.set_webhook(app, "http://127.0.0.1:9/hook", "s")
    act(hub, app)
    deliveries = sorted(hub.deliveries, key=lambda delivery: delivery.id)
    expected = [(each.event, each.action or "", json.loads(each.body)) for each in deliveries]
    fake = FakeHub()
    fake.add_user("mona")
    fake.add_repo("mona/calc", owner="mona", files=FILES)
    act(fake, fake.app)
    events = [(each.event, each.action, each.payload) for each in fake.deliveries]
    assert jobs_of(events, fake.app.id) == jobs_of(expected, app.id)
