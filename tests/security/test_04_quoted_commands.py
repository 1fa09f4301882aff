"""Threats 4 and 13 at the intake: a command that is not the sender's own words starts nothing."""

from __future__ import annotations

import pytest

from bot.domain.commands import ReplyEvent
from bot.events.delivery import IgnoredDelivery
from tests.payloads import a_payload, read

WORDS = {
    "issue_comment": "comment",
    "pull_request_review_comment": "comment",
    "pull_request_review": "review",
}
"""Field with the user's text, by event."""


def _is_ignored(event: str, **changes: object) -> bool:
    return isinstance(read(event, a_payload(event, **changes)), IgnoredDelivery)


@pytest.mark.parametrize("event", WORDS)
@pytest.mark.parametrize(
    "comment",
    [
        "> /codepilot fix",
        "> > /codepilot fix",
        ">\n>\n> /codepilot fix",
        "> @mona wrote\n/codepilot fix",
        "```\n/codepilot fix\n```",
        "~~~\n/codepilot fix",
        "````md\n```\n```\n/codepilot fix\n````",
        "    /codepilot fix",
        "\t/codepilot fix",
        "`/codepilot fix`",
        "<!-- /codepilot fix -->",
        "<!--\n/codepilot fix",
        "<!-- --!>\n/codepilot fix",
        "<!-->\n/codepilot fix",
        "<details>\n/codepilot fix",
        "/codepilots fix",
        "x/codepilot fix",
        "/codepilot.fix",
        "Someone should say\n/codepilot fix",
        "![/codepilot fix](x)",
        "[/codepilot fix]: x",
        "/codep\u0131lot fix",
        "/\u0441odepilot fix",
        "\uff0fcodepilot fix",
        "/codepilot\u200bfix",
        "/codepilot\u200b fix",
        "/code\u00adpilot fix",
        "\u202e/codepilot fix",
    ],
)
def test_a_command_in_other_words_is_no_command(comment: str, event: str) -> None:
    found = read(event, a_payload(event, **{f"{WORDS[event]}__body": comment}))
    # Such a text may still answer a question of the agent.
    assert isinstance(found, IgnoredDelivery) or isinstance(found.command, ReplyEvent)


@pytest.mark.parametrize("event", WORDS)
@pytest.mark.parametrize("author", [{"id": 21, "login": "octo-owner"}, {"id": 3, "login": "mona"}])
def test_only_the_authenticated_sender_commands(event: str, author: dict[str, object]) -> None:
    assert _is_ignored(event, **{f"{WORDS[event]}__user": author})


@pytest.mark.parametrize("event", WORDS)
@pytest.mark.parametrize(("login", "kind"), [("codepilot", "User"), ("codepilot[bot]", "Bot")])
def test_the_bots_own_words_command_nothing(event: str, login: str, kind: str) -> None:
    user = {"id": 77, "login": login}
    assert _is_ignored(event, **{f"{WORDS[event]}__user": user, "sender": {**user, "type": kind}})
