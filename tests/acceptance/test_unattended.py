"""A workflow's run, in which nobody can be asked: what would need a person is denied, and the run goes on."""

from __future__ import annotations

from pathlib import Path

from bot.jobs.job import JobState
from bot.localhub import LocalHub
from bot.wiring import act
from tests.acceptance.test_action_outage import a_runner
from tests.stage import COMPLETION, MENDED, acting

NETWORK = {"CODEPILOT_NETWORK": "pypi.org"}
"""What commands can reach, so that some of them need an approval."""

FIXED = acting('write_file("calc.py")', MENDED, fence="python")
PROVEN = acting('execute("main", "cat calc.py", check=True)', completion=COMPLETION)


async def test_what_nobody_can_approve_is_denied_and_the_run_goes_on(hub: LocalHub, tmp_path: Path) -> None:
    asks = (
        'for command in ["npm view left-pad", "sh check.sh > told"]:\n'
        "    try:\n"
        '        execute("main", command, check=True)\n'
        "    except PermissionError as denied:\n"
        "        print(denied)\n"
        'ask_user("Is one too many?")\n'
        'print("not reached")'
    )
    told_model = "nobody can be asked in this run; decide for yourself, and say in the completion what you decided"
    proven = {"expect": told_model, "reply": PROVEN}
    run = a_runner(hub, tmp_path, FIXED, acting(asks), proven, **NETWORK)
    assert await act(run.settings) is JobState.DONE
    [_, status] = hub.comments(run.repo, run.number)
    for told in (status.body, run.summary.read_text(encoding="utf-8")):
        assert "**Denied, because nobody can be asked in this run**" in told
        assert "- Denied: `npm view left-pad`; allow it with the input `allow-commands`" in told
        assert "- Denied: `sh check.sh > told`; allow it with `level: auto`" in told
        assert "- Not answered: `Is one too many?`" in told
        assert "did not end" not in told, "what never ran is no check"
    [branch] = set(hub.branches(run.repo)) - {"main"}
    assert branch.startswith("codepilot/")
