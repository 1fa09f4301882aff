"""CodingTools: what llm-coding-agent documents, and what strangers and models get wrong."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import llm
import pytest

from agent_runtime.compat.coding import CodingTools
from agent_runtime.compat.coding import tools as tools_module
from agent_runtime.core.errors import SandboxError
from agent_runtime.sandbox import bubblewrap
from tests.sandboxes import processes_with, seconds
from tests.waiting import until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# Title\nwords\n")
    (tmp_path / "app.py").write_text("import os\nDEBUG = True\n# TODO: tidy\n")
    return tmp_path


@pytest.fixture
def tools(root: Path) -> Iterator[CodingTools]:
    with CodingTools(root) as made:
        yield made


def test_a_replacement_keeps_how_a_file_is_written(tools: CodingTools, root: Path) -> None:
    crlf = root / "crlf.txt"
    crlf.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    crlf.chmod(0o755)
    latin = root / "latin.txt"
    latin.write_bytes("é\nname = 1\n".encode("latin-1"))

    tools.edit_file("crlf.txt", "one\ntwo", "1\n2")
    tools.edit_file("latin.txt", "name = 1", "name = 2")
    refused = tools.edit_file("latin.txt", "name = 2", "name = '→'")

    assert crlf.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree"
    assert stat.S_IMODE(crlf.stat().st_mode) == 0o755
    assert latin.read_bytes() == "é\nname = 2\n".encode("latin-1")
    assert refused.startswith("Error: ")


def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(tools: CodingTools, root: Path) -> None:
    (root / "twice.txt").write_text("same\nsame\n")

    assert "occurs 2 times in twice.txt" in tools.edit_file("twice.txt", "same", "other")
    assert "old_string not found in twice.txt" in tools.edit_file("twice.txt", "Same", "other")
    assert "identical" in tools.edit_file("twice.txt", "same", "same")
    assert "empty" in tools.edit_file("twice.txt", "", "other")
    assert "file not found" in tools.edit_file("none.txt", "same", "other")
    assert "10,000,000" in tools.edit_file("twice.txt", "s", "s" * 6_000_000, replace_all=True)
    assert (root / "twice.txt").read_text() == "same\nsame\n"
    assert tools.edit_file("twice.txt", "same", "other", replace_all=True).startswith("Made 2 replacements in ")


def test_an_edit_of_a_large_file_answers_with_its_diff(tools: CodingTools, root: Path) -> None:
    (root / "large.txt").write_text("".join(f"line {number}\n" for number in range(20_000)))

    told = tools.edit_file("large.txt", "line 19999\n", "the end\n")

    assert told.startswith("Made 1 replacement in large.txt:\n")
    assert told.endswith("\n-line 19999\n+the end")


@pytest.mark.parametrize(
    "path", ["../out/secret.txt", "{out}/secret.txt", "link.txt", "links/secret.txt", ".git/config"]
)
def test_a_path_that_leaves_the_root_is_refused_by_every_tool(
    tools: CodingTools, root: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    out = tmp_path_factory.mktemp("out")
    (out / "secret.txt").write_text("secret\n")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("secret\n")
    (root / "link.txt").symlink_to(out / "secret.txt")
    (root / "links").symlink_to(out)
    path = path.format(out=out)
    place = path if path == "link.txt" else str(Path(path).parent)

    answers = [
        tools.read_file(path),
        tools.write_file(path, "changed"),
        tools.edit_file(path, "secret", "changed"),
        tools.list_files(path=place),
        tools.search_files("secret", path=place),
    ]

    assert [answer.partition(" ")[0] for answer in answers] == ["Error:"] * 5
    assert (out / "secret.txt").read_text() == (root / ".git/config").read_text() == "secret\n"


def test_lists_and_searches_pass_over_what_is_hidden_ignored_or_elsewhere(
    tools: CodingTools, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("out")
    (out / "words.txt").write_text("words\n")
    (root / "links").symlink_to(out)
    for name in ("sub/a.txt", "sub/.hidden/a.txt", "node_modules/a.txt", "__pycache__/a.txt", "built/a.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("words\n")
    (root / ".gitignore").write_text("built\n")

    assert set(tools.list_files().split("\n")) == {"README.md", "app.py", "sub/a.txt"}
    assert tools.list_files("*.txt") == "No files found matching *.txt in ."
    assert tools.list_files(path="sub") == "a.txt"
    assert tools.search_files("words") == "README.md:2:words\nsub/a.txt:1:words"
    assert tools.search_files("words", path="sub") == "a.txt:1:words"
    (root / "sub" / "[x] y").mkdir()
    (root / "sub" / "[x] y" / "b.txt").write_text("words\n")
    assert tools.search_files("words", glob="sub/*.txt") == "sub/a.txt:1:words"
    for place, name in (("sub", "[x] y/b.txt"), ("sub/[x] y", "b.txt")):  # a glob with a slash begins there
        for glob in (name.replace("[", "?"), f"./{name.replace('[', '?')}", "**/b.txt", "/**/b.*"):
            assert tools.list_files(glob, place) == name
            assert tools.search_files("words", place, glob) == f"{name}:1:words"
    assert tools.search_files("words", "sub", "../*.txt").startswith("Error: ")
    for place in ("sub/.hidden", "node_modules"):  # is not passed over where it is named itself
        assert (tools.list_files(path=place), tools.search_files("words", path=place)) == ("a.txt", "a.txt:1:words")
    assert tools.search_files("words", max_results=1).endswith("\n... results truncated at 1 matches")
    assert tools.search_files("--force") == "No matches found for --force in ."
    assert tools.search_files("[open").startswith("Error: ")
    assert tools.search_files("words", max_results=0).startswith("Error: ")


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tools: CodingTools) -> None:
    tag = seconds(3141)
    told = tools.execute_command(f"setsid sleep {tag} & echo begun; sleep {tag}", timeout=1)

    assert told == "Error: command timed out after 1s\nPartial output:\nbegun\n"
    until(lambda: not processes_with(tag))
    assert tools.execute_command("echo again") == "again\nExit code: 0"


def test_no_command_may_take_longer_than_ten_minutes(tools: CodingTools, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tools_module._MOST_SECONDS == 600
    monkeypatch.setattr(tools_module, "_MOST_SECONDS", 1)
    assert tools.execute_command("sleep 3141", timeout=10_000).startswith("Error: command timed out after 1s")


def test_a_command_starts_afresh_in_the_root_without_the_users_environment(
    tools: CodingTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up")
    tools.execute_command("cd /tmp; export KEPT=1")

    assert tools.execute_command("test -f app.py && echo here; env | grep -c -e KEPT -e sk-made-up") == (
        "here\n0\nExit code: 1"
    )
    assert tools.execute_command("true") == "(no output)\nExit code: 0"
    assert tools.execute_command("read x; echo got $?").startswith("got 1")
    assert tools.execute_command("ls \ud83d").startswith("Error: ")  # a terminal would send another character, a glob


def test_long_output_keeps_its_head_and_tail_and_can_be_read_whole(tools: CodingTools) -> None:
    told = tools.execute_command("echo first; seq 100000; echo last")

    assert told.startswith("first\n")
    assert "\nlast\n" in told
    assert len(told) < 12_000
    log = told.partition("all of it: ")[2].partition(".log")[0] + ".log"
    assert tools.read_file(log, offset=50_000, limit=1).startswith(" 50001\t50000\n")


def test_without_a_sandbox_commands_are_refused_and_files_can_be_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object) -> None:
        raise SandboxError("No sandbox here. Install one.")

    monkeypatch.setattr(bubblewrap.Bubblewrap, "probe", broken)
    with CodingTools(root) as tools:
        assert tools.execute_command("touch made") == "Error: No sandbox here. Install one."
        assert tools.search_files("Title") == "README.md:1:# Title"
    assert not (root / "made").exists()


def test_a_root_that_is_no_directory_is_named(root: Path) -> None:
    with CodingTools(root / "none") as tools:
        assert tools.read_file("a").startswith(f"Error: the session root {root}/none cannot be opened")


def test_it_is_a_toolbox_of_llm_that_an_event_loop_can_call(tools: CodingTools, root: Path) -> None:
    async def called() -> str:
        return tools.read_file("README.md", limit=1)

    names = {tool.name.removeprefix("CodingTools_") for tool in tools.tools()}
    assert isinstance(tools, llm.Toolbox)
    assert names == {"read_file", "write_file", "edit_file", "list_files", "search_files", "execute_command"}
    assert asyncio.run(called()).startswith("     1\t# Title")
    assert tools._config == {"root": str(root)}


def test_a_toolbox_that_nobody_closes_gives_everything_back(root: Path) -> None:
    tools = CodingTools(root)
    tag = seconds(2718)
    tools.execute_command(f"sleep {tag} & echo begun")
    until(lambda: processes_with(tag))

    del tools
    gc.collect()  # whatever is left open warns, and warnings are errors

    until(lambda: not processes_with(tag))


def test_names_and_arguments_with_half_a_character_break_nothing(tools: CodingTools, root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")).touch()
    assert tools.list_files("*.txt") == "'caf\\udce9.txt'"
    for text in (tools.search_files("\ud800"), tools.list_files("\ud800*"), tools.search_files("x", glob="\ud800")):
        assert text.startswith("Error: ")
