"""Questions of the agent to a person: the run waits, and goes on with the answer."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.bot.jobs.test_run_questions import QUESTION
from tests.pauses import buttons_of, check_of, pause_of
from tests.stage import COMPLETION, FIXED_CALC, acting, staged

ASKS = acting(f'answer = ask_user("{QUESTION}")\nprint("they said", answer)')
FIXES = acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION, fence="python")


async def test_a_question_waits_for_an_answer_and_the_run_goes_on_with_it(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=FIXES, expect=("they said Yes, and complex numbers",))]
    async with staged(hub, tmp_path, [ASKS], script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await pause_of(stage, command)
        for text in ("Waiting for you", "A question.", QUESTION, "/codepilot continue <your answer>"):
            assert text in pause.status, text
        assert "/codepilot approve" not in pause.status
        assert set(buttons_of(check_of(stage, pause.job_id))) == {"Stop"}
        [notice] = stage.notices(issue.number)
        status_url = f"/issues/{issue.number}#issuecomment-{stage.hub.comments(stage.repo, issue.number)[1].id}"
        assert notice.startswith("@mona `/codepilot fix` is waiting for an answer until ")
        assert status_url in notice
        answer = stage.say(issue.number, "Yes, and complex numbers")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        await stage.end_of(answer)
        assert stage.reactions(answer) == ["+1"]
        [status] = stage.bot_comments(issue.number)
        assert COMPLETION in status
        assert status.count(f"Asking: {QUESTION}") == 1
        [notice] = stage.notices(issue.number)
        assert "no longer waits: `mona` answered it" in notice, "it ended soon enough for the user to see it"
        assert len(stage.pulls()) == 1
        assert [each.remaining for each in stage.providers] == [0, 0]


async def test_a_run_that_only_looks_asks_nobody(hub: LocalHub, tmp_path: Path) -> None:
    answer = ScriptedReply(text="```completion\nIt adds.\n```\n", expect=("ask_user",))
    async with staged(hub, tmp_path, [ASKS, answer]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot explain")
        assert end.state is JobState.DONE, end
        assert "It adds." in end.status
