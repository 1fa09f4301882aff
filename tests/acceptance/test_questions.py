"""What the agent cannot decide it asks a person: the run waits, and goes on with the answer."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.providers.scripted import ScriptedReply
from bot.domain.job import JobState
from localhub import LocalHub
from tests.pauses import buttons_of, check_of, pause_of
from tests.stage import COMPLETION, FIXED_CALC, acting, staged

QUESTION = "Should add() take floats, too?"
ASKS = acting(f'answer = ask_user("{QUESTION}")\nprint("they said", answer)')
FIXES = acting('write_file("calc.py")', FIXED_CALC, completion=COMPLETION, fence="python")


async def test_a_question_waits_for_an_answer_and_the_run_goes_on_with_it(hub: LocalHub, tmp_path: Path) -> None:
    script = [ScriptedReply(text=FIXES, expect=("they said Yes, and complex numbers",))]
    async with staged(hub, tmp_path, [ASKS], script) as stage:
        issue = stage.issue()
        command = stage.say(issue.number, "/codepilot fix")
        pause = await pause_of(stage, command)
        for said in ("Waiting for you", "A question.", QUESTION, "/codepilot continue <your answer>"):
            assert said in pause.status, said
        assert "/codepilot approve" not in pause.status
        assert set(buttons_of(check_of(stage, pause.job_id))) == {"Stop"}
        [told] = stage.notices(issue.number)
        status_url = f"/issues/{issue.number}#issuecomment-{stage.hub.comments(stage.repo, issue.number)[1].id}"
        assert told.startswith("@mona `/codepilot fix` is waiting for an answer until ")
        assert status_url in told
        answer = stage.say(issue.number, "/codepilot continue Yes, and complex numbers")
        end = await stage.end_of(command)
        assert end.state is JobState.DONE, end
        assert end.job_id == pause.job_id
        await stage.end_of(answer)
        assert stage.reactions(answer) == ["+1"]
        [status] = stage.bot_comments(issue.number)
        assert COMPLETION in status
        assert status.count(f"Asking: {QUESTION}") == 1
        assert stage.notices(issue.number) == [told], "it ended soon enough for the asker to see it"
        assert len(stage.pulls()) == 1
        assert [each.remaining for each in stage.providers] == [0, 0]


async def test_a_run_that_only_looks_asks_nobody(hub: LocalHub, tmp_path: Path) -> None:
    told = ScriptedReply(text="```completion\nIt adds.\n```\n", expect=("ask_user",))
    async with staged(hub, tmp_path, [ASKS, told]) as stage:
        end = await stage.ask(stage.issue().number, "/codepilot explain")
        assert end.state is JobState.DONE, end
        assert "It adds." in end.status
