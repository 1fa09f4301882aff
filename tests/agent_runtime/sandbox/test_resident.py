from __future__ import annotations

import gc
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox import resident as resident_module
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from agent_runtime.sandbox.protocol import SandboxSettings
from agent_runtime.sandbox.resident import Resident
from tests.sandboxes import processes_with, seconds
from tests.waiting import eventually


def create(workspace: Path) -> Resident:
    return Resident(Bubblewrap(SandboxSettings()), workspace, {})


async def output(resident: Resident, *argv: str) -> bytes:
    return b"".join([chunk async for chunk in resident.run(argv)])


async def test_programs_run_one_after_the_other_in_one_sandbox(tmp_path: Path) -> None:
    resident = create(tmp_path)
    assert await output(resident, "sh", "-c", "pwd; echo x > /tmp/kept; exit 3") == b"/workspace\n"
    assert (resident.exit_code, resident.errors) == (3, "")
    assert await output(resident, "cat", "/tmp/kept", "/tmp/none") == b"x\n"  # noqa: S108 - inside
    assert resident.exit_code == 1
    assert resident.errors.startswith("cat: /tmp/none: No such file")
    resident.close()


@pytest.mark.parametrize("word", ["", "a b", "it's", "two\nlines", "$HOME `id` \\", "-n", "\u00fc", "x" * 50_000])
async def test_words_arrive_as_they_are(tmp_path: Path, word: str) -> None:
    resident = create(tmp_path)
    assert await output(resident, "printf", "%s|", word, "end") == f"{word}|end|".encode()
    resident.close()


async def test_output_of_any_size_and_content_is_whole(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(256)) * 40_000)
    resident = create(tmp_path)
    assert await output(resident, "cat", "data") == bytes(range(256)) * 40_000
    assert await output(resident, "true") == b""
    resident.close()


async def test_a_system_that_gives_no_larger_pipe_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_module, "_PIPE", -1)  # refused, as any size is beyond what a user may have
    resident = create(tmp_path)
    assert await output(resident, "echo", "there") == b"there\n"
    resident.close()


async def test_leaving_early_stops_the_program_and_the_next_one_starts_anew(tmp_path: Path) -> None:
    resident, tag = create(tmp_path), seconds(80801)
    async with aclosing(resident.run(["sh", "-c", f"yes | head -c 100000; sleep {tag}"])) as chunks:
        async for _ in chunks:
            break
    await eventually(lambda: not processes_with(tag))
    assert await output(resident, "echo", "again") == b"again\n"
    resident.close()


async def test_a_sandbox_that_does_not_start_says_why(tmp_path: Path) -> None:
    resident = Resident(Bubblewrap(SandboxSettings()), tmp_path, {"/logs": tmp_path / "gone"})
    with pytest.raises(SandboxError, match="Can't find source path"):
        await output(resident, "true")
    resident.close()


async def test_it_goes_with_its_object(tmp_path: Path) -> None:
    resident, tag = create(tmp_path), seconds(80802)
    await output(resident, "sh", "-c", f"setsid sleep {tag} >/dev/null 2>&1 &")
    await eventually(lambda: processes_with(tag))
    del resident
    gc.collect()
    await eventually(lambda: not processes_with(tag))
