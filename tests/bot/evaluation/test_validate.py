"""Tasks of two published projects, mined, confirmed by their tests in the sandbox, and imported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_runtime import SandboxError
from bot.evaluation.instances import import_instances
from bot.evaluation.mine import MineOptions, mine
from bot.evaluation.suite import SuiteError, read_refusals, read_suite, write_task
from bot.evaluation.validate import COMMAND_TEST, ValidationResult, validate_suite
from tests.bot.evaluation.test_mine import API, FIXED, SHOP, TEST
from tests.bot.evaluation.test_run_tests import PLACE
from tests.evaluation_histories import ANNOTATED_TYPES, PATH_PARSE, make_history
from tests.origin import Origin

PYTEST = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q"


async def validate(origin: Origin, suite: Path, test_command: str = PYTEST) -> ValidationResult:
    await mine(origin.path, suite, MineOptions(test_command=test_command), name="mona/shop", api_url=API)
    return await validate_suite(suite, PLACE)


async def test_a_published_python_project_s_repair_is_confirmed_test_by_test(tmp_path: Path) -> None:
    origin = make_history(tmp_path / "project", "annotated-types", ANNOTATED_TYPES[:1])
    result = await validate(origin, tmp_path / "suite")
    [task] = read_suite(tmp_path / "suite").tasks
    assert (result.tasks, result.refusals) == ((task,), ())
    assert task.fail_to_pass == ("tests/test_len.py::test_no_bounds",)
    assert "tests/test_grouped_metadata.py::test_non_subclass_implementer" in task.pass_to_pass
    assert len(task.pass_to_pass) > 100
    assert task.validated is not None
    # Nothing has changed, so nothing is run: no sandbox can be started in this place.
    again = await validate_suite(tmp_path / "suite", replace(PLACE, sandbox=None))  # type: ignore[arg-type]
    assert (again.tasks, again.settled) == ((), 1)


async def test_a_published_javascript_project_s_repair_is_confirmed_by_the_exit_code(tmp_path: Path) -> None:
    result = await validate(
        make_history(tmp_path / "project", "path-parse", PATH_PARSE), tmp_path / "suite", "npm test"
    )
    [task] = result.tasks
    assert (task.fail_to_pass, task.pass_to_pass) == ((COMMAND_TEST,), ())


@pytest.mark.parametrize(
    ("test", "fixed", "reason"),
    [
        ("def test_nothing():\n    pass\n", FIXED, "no test fails before the change"),
        (TEST, FIXED + "\n\ndef old():\n    return 2\n", "the change breaks test_old.py::test_old"),
        (
            # The file outside of the tree is lost with the sandbox, the one in it is there at the second run.
            TEST
            + "    from pathlib import Path\n    seen = Path('seen')\n    assert not seen.exists()\n    seen.touch()\n",
            FIXED,
            "flaky ones are left out: test_shop.py::test_half",
        ),
    ],
)
async def test_a_task_that_its_tests_do_not_confirm_is_refused(
    tmp_path: Path, test: str, fixed: str, reason: str
) -> None:
    origin = Origin(tmp_path / "shop")
    old = "def old():\n    return 1\n"
    origin.commit(
        {"shop.py": SHOP + old, "test_old.py": "from shop import old\n\n\ndef test_old():\n    assert old() == 1\n"}
    )
    kept = fixed if "def old" in fixed else fixed + old
    origin.commit({"shop.py": kept, "test_shop.py": test}, "Totals lose their halves")
    result = await validate(origin, tmp_path / "suite")
    assert [reason in refusal.reason for refusal in result.refusals] == [True]
    [refusal] = result.refusals
    assert read_refusals(tmp_path / "suite") == [refusal]
    [task] = read_suite(tmp_path / "suite").tasks
    assert task.validated is None
    # It is settled until somebody edits the task.
    assert (await validate_suite(tmp_path / "suite", replace(PLACE, sandbox=None))).refusals == (refusal,)  # type: ignore[arg-type]
    edited = task.model_copy(update={"test_command": "! grep -q //. shop.py"})
    write_task(tmp_path / "suite", edited)
    assert (await validate_suite(tmp_path / "suite", PLACE)).settled == 0


async def test_a_setup_that_fails_is_the_reason_and_a_missing_sandbox_is_no_refusal(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "shop")
    origin.commit({"shop.py": SHOP})
    origin.commit({"shop.py": FIXED, "test_shop.py": TEST}, "Totals lose their halves")
    options = MineOptions(setup=("echo no network >&2; false",))
    await mine(origin.path, tmp_path / "suite", options, name="mona/shop", api_url=API)

    class Missing:
        level = "bubblewrap"

        def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - of any part
            raise SandboxError("there is no bubblewrap")

    with pytest.raises(SandboxError, match="no bubblewrap"):
        await validate_suite(tmp_path / "suite", replace(PLACE, sandbox=Missing()))
    [refusal] = (await validate_suite(tmp_path / "suite", PLACE)).refusals
    assert "before the change the setup failed" in refusal.reason
    assert "no network" in refusal.reason


def instance(origin: Origin, **fields: object) -> dict[str, object]:
    return {
        "instance_id": "mona__shop-12",
        "repo": "mona/shop",
        "base_commit": origin.git("rev-parse", "HEAD~"),
        "problem_statement": "Totals lose their halves\n\nReally.",
        "patch": origin.git("diff", "HEAD~", "HEAD", "--", "shop.py"),
        "test_patch": origin.git("diff", "HEAD~", "HEAD", "--", "test_shop.py"),
        "FAIL_TO_PASS": '["test_shop.py::test_half"]',
        "version": "1.0",
        **fields,
    }


@pytest.fixture
def shop(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "shop")
    origin.commit({"shop.py": SHOP})
    origin.commit({"shop.py": FIXED, "test_shop.py": TEST}, "Totals lose their halves")
    return origin


@pytest.mark.parametrize("as_lines", [True, False])
async def test_instances_of_swe_bench_are_imported_and_confirmed(
    shop: Origin, tmp_path: Path, *, as_lines: bool
) -> None:
    instances = [instance(shop), instance(shop, instance_id="mona__shop-13", FAIL_TO_PASS=["test_shop.py::test_other"])]
    file = tmp_path / "instances"
    file.write_text("\n".join(map(json.dumps, instances)) if as_lines else json.dumps(instances, indent=1))
    suite = tmp_path / "suite"
    imported = await import_instances(file, shop.path, suite, test_command=PYTEST)
    assert [task.id for task in imported] == ["mona__shop-12", "mona__shop-13"]
    assert read_suite(suite).read_issue(imported[0]) == "Really.\n"
    assert await import_instances(file, shop.path, suite, test_command=PYTEST) == ()
    if as_lines:
        result = await validate_suite(suite, PLACE)
        [task] = result.tasks
        assert (task.id, task.fail_to_pass) == ("mona__shop-12", ("test_shop.py::test_half",))
        assert "test_shop.py::test_other" in result.refusals[0].reason


async def test_several_tasks_are_confirmed_side_by_side(shop: Origin, tmp_path: Path) -> None:
    file, suite = tmp_path / "instances", tmp_path / "suite"
    file.write_text("".join(json.dumps(instance(shop, instance_id=f"shop-{n}", FAIL_TO_PASS=[])) for n in range(3)))
    await import_instances(file, shop.path, suite, test_command="! grep //. shop.py")
    events: list[str] = []
    result = await validate_suite(suite, PLACE, jobs=2, report=events.append)
    assert sorted(event.split(":")[0] for event in events) == ["shop-0", "shop-1", "shop-2"]
    assert {task.fail_to_pass for task in result.tasks} == {(COMMAND_TEST,)}
    assert len(result.tasks) == 3


async def test_errors_of_instances_name_line_instance_and_field(shop: Origin, tmp_path: Path) -> None:
    wrong = [
        {key: value for key, value in instance(shop).items() if key != "problem_statement"} | {"problem_statment": "x"},
        instance(shop, instance_id="../../etc"),
        instance(shop, instance_id="a", base_commit="1" * 40),
        instance(shop, instance_id="b", patch=5),
        instance(shop, instance_id="c", PASS_TO_PASS="[oops"),
        "text",
        instance(shop, instance_id="d", repo="mona/other"),
    ]
    file = tmp_path / "instances.jsonl"
    file.write_text("\n".join(map(json.dumps, wrong)))
    with pytest.raises(SuiteError) as caught:
        await import_instances(file, shop.path, tmp_path / "suite", test_command=PYTEST)
    shown = str(caught.value).splitlines()
    for number, (name, field) in enumerate(
        [
            ("mona__shop-12", "`problem_statement`: must be set. Is `problem_statment` a misspelling?"),
            ("../../etc", "`instance_id`: must have at most 100"),
            ("a", "`base_commit`: the clone does not have 1111"),
            ("b", "`patch`: must be text, but is a number"),
            ("c", "`PASS_TO_PASS`: "),
            ("instance", "must be an object"),
        ]
    ):
        assert shown[number].startswith(f"{name}: ")
        assert field in shown[number]
        assert f"instances.jsonl:{number + 1}: " in shown[number]
    assert "several repositories: mona/shop (line 3), mona/other (line 7)" in shown[-1]
    assert not (tmp_path / "suite").exists()
    file.write_text('{"instance_id": "a"}\n{"b": ')
    with pytest.raises(SuiteError, match=r"instances\.jsonl:2: this is not JSON"):
        await import_instances(file, shop.path, tmp_path / "suite", test_command=PYTEST)
