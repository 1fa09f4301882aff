"""Read what format 1 of sealed jobs kept of a job: strings by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_SIMPLE = {
    "base": "base_sha",
    "meant": "answering",
    "leads-to": "leads_to",
    "verdict": "verdict",
}
_JSON = {
    "greeted": "greeted_at",
    "continues": "continues",
    "branch-number": "branch_number",
    "steps": "steps",
    "progress": "progress",
    "denied": "denied",
    "model outage": "outage",
    "work": "result",
}


def record_of_facts(facts: Mapping[str, str]) -> str:
    """The record, as `encode_record` of version 1 writes it, that says what the facts say."""
    record: dict[str, Any] = {
        "version": 1,
        "seen": "seen" in facts,
        "bound": facts.get("bound") == "yes",
        "comment": _comment(facts, ""),
        "parts": {name: _comment(facts, f"{name} ") for name in _parts(facts)},
        "check": {"head_sha": facts.get("checked"), **_posted(facts, "check", "checking")},
        "approvals": {
            "waiting": json.loads(facts.get("waiting", "null")),
            "shown": _by_id(facts, "shown "),
            "answers": _by_id(facts, "answer "),
            "alike_void": "alike void" in facts,
        },
        "published": _published(facts),
        "undoing": _commit(facts.get("undoing")),
    }
    record |= {field: facts[key] for key, field in _SIMPLE.items() if key in facts}
    record |= {field: json.loads(facts[key]) for key, field in _JSON.items() if key in facts}
    if "silent" in facts:
        since, _, last = facts["silent"].partition(" ")
        record["github_outage"] = {"since": float(since), "last": float(last or since)}
    if "ending" in facts:
        state, _, body = facts["ending"].partition("\n")
        check = json.loads(facts.get("ending-check", "null"))
        record["ending"] = {"state": state, "body": body, "check": check, "proven": "unproven" not in facts}
    return json.dumps(record)


def _comment(facts: Mapping[str, str], prefix: str) -> dict[str, Any]:
    return {"below": f"{prefix}below" in facts, **_posted(facts, f"{prefix}comment", f"{prefix}commenting")}


def _posted(facts: Mapping[str, str], made: str, asked: str) -> dict[str, Any]:
    number, _, url = facts.get(made, "").partition(" ")
    posted = {"id": int(number), "url": url} if number else None
    return {"requests": {"begun": 1, "again": 2}.get(facts.get(asked, ""), 0), "posted": posted}


def _parts(facts: Mapping[str, str]) -> set[str]:
    """The names of the further comments: `part`, the request and a number."""
    return {key.rpartition(" ")[0] for key in facts if key.startswith("part ")}


def _by_id(facts: Mapping[str, str], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): json.loads(fact) for key, fact in facts.items() if key.startswith(prefix)}


def _published(facts: Mapping[str, str]) -> dict[str, Any]:
    number, _, url = facts.get("pull", "").partition(" ")
    return {
        "commit": _commit(facts.get("commit")),
        "pull": {"number": int(number), "html_url": url, "draft": "draft" in facts} if number else None,
        "onto": facts.get("onto"),
        "review_requested": "reviewing" in facts,
        "review_url": facts.get("review"),
    }


def _commit(fact: str | None) -> dict[str, str] | None:
    if fact is None:
        return None
    sha, _, branch = fact.partition(" ")
    return {"sha": sha, "branch": branch}
