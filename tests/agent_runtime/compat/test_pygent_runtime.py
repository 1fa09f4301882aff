"""Pygent's workspace: files that cannot be led out of it, and commands that fail closed."""

from __future__ import annotations

import base64
import fcntl
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_runtime.compat.pygent import Runtime, load_config
from agent_runtime.core.errors import SandboxError, SettingsError, ToolError
from agent_runtime.sandbox.bubblewrap import Bubblewrap
from tests.sandboxes import processes_with
from tests.waiting import until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime(workspace=tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture
def rt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.chdir(tmp_path)
    with Runtime(workspace="work") as made:
        yield made


def test_a_command_is_given_with_its_output_and_exit_code(shared: Runtime) -> None:
    assert shared.bash("echo hi") == "$ echo hi\nhi\n[exit code: 0]"
    assert shared.bash("printf no; exit 3") == "$ printf no; exit 3\nno\n[exit code: 3]"
    assert shared.bash("cat") == "$ cat\n[exit code: 0]"
    assert shared.bash("echo 'open").endswith("[exit code: 2]")
    for command in ("echo \0", "echo \ud83d"):
        assert shared.bash(command) == f"$ {command}\n[error] a command can hold neither NUL nor half of a character"


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(shared: Runtime) -> None:
    marker = f"left-{secrets.token_hex(4)}"
    command = f"(exec -a {marker} sleep 600) & until pgrep -f '^{marker}'; do :; done; echo begun; sleep 600"

    assert shared.bash(command, timeout=2).endswith("begun\n[timeout after 2s]")
    until(lambda: not processes_with(marker))
    assert shared.bash("sleep 5", timeout=0) == "$ sleep 5\n[timeout after 0s]"


def test_much_output_keeps_its_head_and_tail_and_can_be_read_whole(shared: Runtime) -> None:
    told = shared.bash("seq 100000")

    assert len(told) < 12_000
    assert told.startswith("$ seq 100000\n1\n2\n")
    assert told.endswith("[exit code: 0]")
    log = told.partition("the whole output: ")[2].partition("]")[0]
    assert "100000\n" in shared.bash(f"tail -1 {log}")


def test_a_command_sees_neither_the_users_environment_nor_files_nor_a_network(
    shared: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up")
    (tmp_path / "file").write_text("secret")

    assert "sk-made-up" not in shared.bash("env")
    assert "secret" not in shared.bash(f"cat {tmp_path}/file")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        assert "Connection refused" in shared.bash(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
        with pytest.raises(BlockingIOError):
            server.accept()
        with socket.create_connection(("127.0.0.1", port)):  # from here there is a way
            server.accept()[0].close()


def test_a_container_that_is_wanted_and_cannot_be_had_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SandboxError, match="docker"):
        Runtime(use_docker=True)
    monkeypatch.setenv("PYGENT_USE_DOCKER", "1")
    with pytest.raises(SandboxError, match="docker"):
        Runtime()
    assert not [*tmp_path.glob("agent_*")]


def test_without_a_sandbox_commands_are_refused_and_files_can_be_used(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Bubblewrap) -> None:
        raise SandboxError("no namespaces here; install them")

    monkeypatch.setattr(Bubblewrap, "probe", broken)

    assert rt.bash("touch ran").startswith("$ touch ran\n[error] ")
    assert "install them" in rt.bash("touch ran")
    assert rt.use_docker is False
    assert rt.write_file("a/b.txt", "x") == "Wrote a/b.txt"
    assert not (rt.base_dir / "ran").exists()


def test_on_the_machine_itself_commands_run_only_where_that_is_said(tmp_path: Path) -> None:
    with Runtime(workspace=tmp_path / "work", sandbox="local") as rt:
        assert rt.bash("pwd") == f"$ pwd\n{tmp_path}/work\n[exit code: 0]"


def test_files_are_written_and_read(rt: Runtime) -> None:
    assert rt.write_file(Path("a") / "b.txt", "für\r\n") == "Wrote a/b.txt"
    (rt.base_dir / "raw").write_bytes(b"\xff\x00")

    assert rt.read_file("a/b.txt") == "für\r\n"
    assert rt.read_file("a/b.txt", binary=True) == base64.b64encode("für\r\n".encode()).decode()
    assert rt.read_file("raw") == "/wA="
    assert rt.read_file("none") == "file none not found"
    os.truncate(rt.base_dir / "raw", 20_000_000)
    with pytest.raises(ToolError, match="more than the"):
        rt.read_file("raw")
    with pytest.raises(ToolError, match="cannot be UTF-8"):
        rt.write_file("half", "\ud83d")


@pytest.mark.parametrize("path", ["../out.txt", "/etc/passwd", "link/x", "dangling", ".git/config"])
def test_no_path_leads_out_of_the_workspace(rt: Runtime, tmp_path: Path, path: str) -> None:
    (rt.base_dir / "link").symlink_to(tmp_path)
    (rt.base_dir / "dangling").symlink_to(tmp_path / "made-by-link")
    (tmp_path / "in.txt").write_text("in")

    with pytest.raises(ToolError):
        rt.write_file(path, "x")
    with pytest.raises(ToolError):
        rt.read_file(path)
    with pytest.raises(ToolError):
        rt.upload_file(tmp_path / "in.txt", path)
    with pytest.raises(ToolError):
        rt.export_file(path, tmp_path / "exported")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.txt", "work"]


def test_files_and_directories_are_uploaded_and_exported(rt: Runtime, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (tree / "sub" / "run.sh").chmod(0o755)
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "x.log").write_text("kept")
    (tree / "out").symlink_to("/etc/passwd")

    assert rt.upload_file(tree) == "Uploaded tree"
    assert rt.upload_file(tree / "x.log", "in/y.log") == "Uploaded in/y.log"
    assert rt.upload_file("none") == "file none not found"
    assert rt.upload_file(tree / "x.log", "in") == "Uploaded in"
    assert rt.upload_file(tree / "x.log", ".") == "Uploaded ."
    assert [(rt.base_dir / name).read_text() for name in ("in/x.log", "x.log")] == ["kept", "kept"]
    (rt.base_dir / "tree" / "evil").symlink_to("/etc/hostname")
    assert rt.export_file("tree", tmp_path / "back") == "Exported tree"
    assert rt.export_file("in/y.log", tmp_path) == "Exported in/y.log"
    assert rt.export_file("none", tmp_path) == "file none not found"

    back = sorted(str(each.relative_to(tmp_path / "back")) for each in (tmp_path / "back").rglob("*") if each.is_file())
    assert back == [".gitignore", "sub/run.sh", "x.log"]
    assert os.access(tmp_path / "back" / "sub" / "run.sh", os.X_OK)
    assert (tmp_path / "y.log").read_text() == "kept"


def test_a_workspace_of_its_own_goes_and_one_that_was_named_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seed.txt").write_text("seed")
    monkeypatch.setenv("PYGENT_INIT_FILES", f"seed.txt{os.pathsep}missing.txt")
    with caplog.at_level(logging.WARNING), Runtime() as own:
        assert own.base_dir.parent == tmp_path
        assert own.read_file("seed.txt") == "seed"
    assert not own.base_dir.exists()
    assert "missing.txt" in caplog.text

    monkeypatch.setenv("PYGENT_WORKSPACE", str(tmp_path / "named" / "deep"))
    with Runtime(initial_files=[]) as named:
        named.write_file("a", "b")
    assert (tmp_path / "named" / "deep" / "a").read_text() == "b"


def test_what_commands_leave_running_ends_with_the_workspace(tmp_path: Path) -> None:
    rt = Runtime(workspace=tmp_path / "work")
    rt.bash("(exec 9> held; flock 9; touch ready; sleep 1000) & disown")
    until((rt.base_dir / "ready").exists)
    with (rt.base_dir / "held").open() as held:
        with pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)

        rt.cleanup()
        rt.cleanup()

        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_settings_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERSONA", "PERSONA_NAME", "TASK_PERSONAS", "TASK_PERSONAS_JSON", "INIT_FILES"):
        monkeypatch.setenv(f"PYGENT_{name}", "")
        monkeypatch.delenv(f"PYGENT_{name}")
    monkeypatch.setenv("PYGENT_PERSONA_NAME", "Kept")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pygent.toml").write_text(
        'persona = "bot"\npersona_name = "Bot"\ninitial_files = ["seed.txt"]\n'
        '[[task_personas]]\nname = "a"\ndescription = "does a"\n'
    )

    assert load_config()["persona"] == "bot"

    assert [os.environ[f"PYGENT_{name}"] for name in ("PERSONA", "PERSONA_NAME", "TASK_PERSONAS", "INIT_FILES")] == [
        "bot",
        "Kept",
        "a",
        "seed.txt",
    ]
    (tmp_path / "pygent.toml").write_text("persona =")
    with pytest.raises(SettingsError, match=r"pygent\.toml"):
        load_config()
    with pytest.raises(SettingsError, match=r"none\.toml"):
        load_config("none.toml")
