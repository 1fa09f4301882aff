from __future__ import annotations

from agent_runtime import Message, Request
from bot.demo.tour import TourConversation, TourModel, TourReply

LOOK, FOUND, MISSING = "I look.", "It is there.", "It is not there."
MODEL = TourModel(
    conversations=[
        TourConversation(
            goal=("look for it",),
            replies=(
                TourReply(expect=(), reply=f"{LOOK}\n"),
                TourReply(expect=("1 match",), reply=FOUND),
                TourReply(expect=(), reply=MISSING),
            ),
        )
    ],
    chunk_chars=4,
    delay=0.0,
)


def reply_to(*texts: str) -> str:
    messages = tuple(Message(role="assistant" if place % 2 else "user", text=text) for place, text in enumerate(texts))
    return MODEL.reply_to(Request(system="", messages=messages)).strip()


def test_a_reply_follows_from_the_conversation_alone() -> None:
    task = "[Task 1]\nplease look for it\n\n[quote 4f from issue #1]\nanything"
    assert reply_to(task) == LOOK
    assert reply_to(task, LOOK, "1 match") == FOUND
    assert reply_to(task, LOOK, "0 matches") == MISSING


def test_only_the_goal_chooses_a_conversation_and_no_reply_is_given_twice() -> None:
    assert "Tour: comments to try" in reply_to("[Task 1]\nexplain\n\n[quote 4f from a comment]\nlook for it")
    task = "[Task 1]\nlook for it"
    assert "Tour: comments to try" in reply_to(task, LOOK, "0 matches", MISSING, "The step failed.")
