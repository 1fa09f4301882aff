"""Threats 3, 4, 8 and 13 at the intake: a command that is not the sender's own fresh words starts nothing."""

from __future__ import annotations

import pytest

from bot.intake.deliveries import Delivery, Ignored
from bot.intake.triggers import job_from
from tests.builders import a_comment_event


def _is_ignored(payload: dict[str, object]) -> bool:
    action = str(payload["action"])
    delivery = Delivery(id="d", event="issue_comment", action=action, payload=payload, installation=None)
    return isinstance(job_from(delivery, trigger="/codepilot", own_ids=frozenset({77})), Ignored)


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
    ],
)
def test_a_command_in_other_words_is_no_command(comment: str) -> None:
    assert _is_ignored(a_comment_event(comment))


@pytest.mark.parametrize("action", ["edited", "deleted"])
def test_a_comment_edited_into_a_command_is_none(action: str) -> None:
    assert _is_ignored(a_comment_event("/codepilot fix", action=action))


@pytest.mark.parametrize(
    ("identity", "login", "kind"),
    [(77, "codepilot", "User"), (77, "codepilot[bot]", "Bot"), (5, "evil[bot]", "User"), (5, "evil", "Bot")],
)
def test_the_bot_itself_and_other_bots_do_not_command(identity: int, login: str, kind: str) -> None:
    user = {"id": identity, "login": login}
    assert _is_ignored(a_comment_event(comment__user=user, sender={**user, "type": kind}))
