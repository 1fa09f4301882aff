"""Texts of proposed actions: harmless where they are sent, whole where a person approves them."""

from __future__ import annotations

import pytest

from bot.domain.actions import Action, Comment, CreateIssue, Proposal, SetFields, StartWorkflow, UpdateBody
from bot.domain.cmark import parse_markdown
from bot.domain.job import Actor
from bot.github.types import TargetFacts
from bot.publishing.actions import clean_texts, merge_body, show_proposals, sign_body
from bot.publishing.markdown import Allowlist, active_references

ALLOWED = Allowlist(login="mona", number=7, server="https://github.com", repo="acme/shop")
MARK = "<!-- codepilot:job=action-1-abc sig=00000000000000000000000000000000 -->"
SECRET = "sk-live-0123456789"


def _redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def _target(body: str, *, kind: str = "pull") -> TargetFacts:
    return TargetFacts.model_construct(
        kind=kind, number=7, title="Add a topic", body=body, author=Actor(id=2, login="codepilot[bot]"), state="open"
    )


def test_a_text_notifies_nobody_and_keeps_references_to_the_repositorys_threads() -> None:
    action = clean_texts(
        Comment(body="Hi @mona and @acme/core, see #12 and evil/repo#3.\n/codepilot fix"), ALLOWED, _redact
    )
    assert isinstance(action, Comment)
    assert active_references(action.body) == {"#12"}
    assert not action.body.splitlines()[1].startswith("/codepilot")


def test_a_title_with_the_words_of_the_body_stays_as_it_is() -> None:
    action = clean_texts(CreateIssue(title="Ask @mona", body="Ask @mona"), ALLOWED, _redact)
    assert isinstance(action, CreateIssue)
    assert action.title == "Ask @mona"
    assert not active_references(action.body)


@pytest.mark.parametrize(
    "action",
    [
        Comment(body=f"The key is {SECRET}."),
        CreateIssue(title=f"Rotate {SECRET}", body="Soon."),
        UpdateBody(body=f"{SECRET}"),
        SetFields(fields={"Note": SECRET}),
        StartWorkflow(workflow="nightly.yml", ref="develop", inputs={"suite": SECRET}),
    ],
    ids=lambda action: action.kind,
)
def test_secrets_are_removed_before_a_person_reads_the_list(action: Action) -> None:
    cleaned = clean_texts(action, ALLOWED, _redact)
    assert SECRET not in str(cleaned)
    assert "[redacted]" in str(cleaned)


def test_a_body_is_signed_with_its_origin_and_its_mark() -> None:
    body = sign_body("Part one.", ALLOWED, MARK, origin="https://github.com/acme/shop/issues/7")
    assert body.endswith(MARK)
    links = [node.target for node in parse_markdown(body) if node.kind == "link" and not node.is_end]
    assert links == ["https://github.com/acme/shop/issues/7"]
    assert sign_body("Part one.", ALLOWED, MARK, origin="") == f"Part one.\n\n{MARK}"


def test_a_body_with_other_html_becomes_a_code_block() -> None:
    body = sign_body("<img src=x>", ALLOWED, MARK, origin="")
    assert body.startswith("```")
    assert body.endswith(MARK)


def test_a_new_text_of_a_pull_request_keeps_the_marks_and_the_closings() -> None:
    old = _target(f"Old words.\n\nFixes #7\n\n{MARK}")
    body = merge_body(UpdateBody(body="New words. Closes #99."), old, ALLOWED)
    assert body.startswith("New words.")
    assert MARK in body
    assert active_references(body) == {"#7"}


def test_a_new_text_of_an_issue_keeps_the_marks() -> None:
    old = _target(f"Old words.\n\n{MARK}", kind="issue")
    assert merge_body(UpdateBody(body="New words."), old, ALLOWED) == f"New words.\n\n{MARK}"


def test_the_list_shows_every_text_whole_and_makes_hidden_characters_visible() -> None:
    proposals = (
        Proposal(number=1, action=CreateIssue(title="Split", body="First line\n\nlast\u202eline"), handle="new-1"),
        Proposal(number=3, action=SetFields(fields={"Priority": "High"})),
    )
    assert show_proposals(proposals, 7, ("task", "api")) == (
        "1. Create the issue `Split` (new-1)\n   Labels: task, api\n   | First line\n   |\n   | last[U+202E]line\n\n"
        "3. Set `Priority` to `High` in #7"
    )
