"""`ask_user`: one question, one answer."""

from __future__ import annotations

import pytest

from agent_runtime.core.errors import ToolError
from agent_runtime.tools.conversation import QuestionTools
from agent_runtime.tools.tool import Registry


class Person:
    """Answers every question alike."""

    def __init__(self, answer: str) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def ask(self, question: str) -> str:
        self.asked.append(question)
        return self._answer


async def test_the_answer_is_what_the_call_evaluates_to() -> None:
    person = Person("port 8080")
    result = await QuestionTools(person.ask).ask_user(" Which port?\n")
    assert (result.value, result.text) == ("port 8080", "[ask_user] port 8080")
    assert person.asked == ["Which port?"]


async def test_an_empty_answer_is_said_to_be_one() -> None:
    assert (await QuestionTools(Person("").ask).ask_user("Well?")).text == "[ask_user] (an empty answer)"


@pytest.mark.parametrize("question", ["", " \n", "x" * 4001])
async def test_a_question_nobody_could_answer_is_not_asked(question: str) -> None:
    person = Person("yes")
    with pytest.raises(ToolError, match="ask_user: question"):
        await QuestionTools(person.ask).ask_user(question)
    assert person.asked == []


def test_the_model_is_told_of_it_in_one_line() -> None:
    registry = Registry()
    registry.add_family(QuestionTools(Person("yes").ask))
    assert registry.declarations.splitlines() == [
        "def ask_user(question: str) -> str:",
        '    """Ask the user what only they can decide, and wait for the answer."""',
    ]
    assert registry.get("ask_user").described({"question": "Which port?"}) == "Asking: Which port?"
