"""Threat 65: trust is in one content of one directory; no link, named file, other name or change gets round it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_runtime import AgentFile, ScriptedProvider, SettingsError, TrustRecord, TrustRequest
from agent_runtime.agent import trust
from agent_runtime.agent.document import Document
from agent_runtime.agent.trust import guarded_keys


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with every kind of referenced file; its agent file requires trust."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "clone"
    (folder / "skills/one").mkdir(parents=True)
    (folder / "skills/one/SKILL.md").write_text("---\nname: one\ndescription: d\n---\nDo it.")
    (folder / "prompt.md").write_text("Be careful.")
    (folder / "script.yaml").write_text("- reply: first\n")
    (folder / "work").mkdir()
    write(folder)
    return folder


def write(folder: Path, name: str = "agent.yaml", **sections: Any) -> None:  # noqa: ANN401 - of an agent file
    agent = {
        "name": "A",
        "model": {"provider": "scripted", "script": "script.yaml"},
        "system_prompt": "prompt.md",
        "skills": ["skills"],
        "runtime": {"sandbox": "local", "work_dir": "work"},
        **sections,
    }
    (folder / name).write_text(yaml.safe_dump({"agent": agent}))


def request_for(path: Path) -> TrustRequest:
    requests: list[TrustRequest] = []
    AgentFile.load(path, review=requests.append)
    return requests[0]


def keys_of(path: Path) -> dict[str, str]:
    return {each.key: each.value for each in request_for(path).keys}


@pytest.fixture
def record(clone: Path) -> TrustRecord:
    """The user's record that trusts the clone."""
    kept = TrustRecord(reach=(clone,))
    kept.add(request_for(clone / "agent.yaml"))
    assert kept.has(request_for(clone / "agent.yaml"))
    return kept


@pytest.mark.parametrize("name", ["agent.yaml", "prompt.md", "skills/one/SKILL.md", "script.yaml"])
def test_a_change_of_any_file_that_takes_effect_ends_the_trust(clone: Path, record: TrustRecord, name: str) -> None:
    file = clone / name
    before = file.read_text()
    file.write_text(before + "\n# changed\n")
    assert not record.has(request_for(clone / "agent.yaml"))
    file.write_text(before)
    assert record.has(request_for(clone / "agent.yaml"))


def test_a_further_skill_ends_the_trust(clone: Path, record: TrustRecord) -> None:
    (clone / "skills/two").mkdir()
    (clone / "skills/two/SKILL.md").write_text("---\nname: two\ndescription: d\n---\nDo it.")
    assert not record.has(request_for(clone / "agent.yaml"))


def test_contents_that_change_places_end_the_trust(clone: Path, record: TrustRecord) -> None:
    write(clone, system_prompt="a.md", model={"provider": "scripted", "script": "b.md"})
    (clone / "a.md").write_text("- reply: a\n")
    (clone / "b.md").write_text("- reply: b\n")
    record.add(request_for(clone / "agent.yaml"))
    (clone / "a.md").rename(clone / "c.md")
    (clone / "b.md").rename(clone / "a.md")
    (clone / "c.md").rename(clone / "b.md")
    assert not record.has(request_for(clone / "agent.yaml"))


def test_trust_in_a_new_content_ends_that_in_the_old_one(clone: Path, record: TrustRecord) -> None:
    (clone / "prompt.md").write_text("Better.")
    record.add(request_for(clone / "agent.yaml"))
    (clone / "prompt.md").write_text("Be careful.")
    assert not record.has(request_for(clone / "agent.yaml"))


def test_another_clone_with_the_same_content_is_not_trusted(clone: Path, record: TrustRecord) -> None:
    second = clone.with_name("second")
    shutil.copytree(clone, second)
    assert not record.has(request_for(second / "agent.yaml"))


def test_a_trusted_directory_that_was_moved_is_not_trusted(clone: Path, record: TrustRecord) -> None:
    clone.rename(clone.with_name("moved"))
    assert not record.has(request_for(clone.with_name("moved") / "agent.yaml"))


def test_a_link_to_the_directory_is_the_directory(clone: Path, record: TrustRecord) -> None:
    """A link in a hostile clone leads to a trusted directory only."""
    link = clone.with_name("link")
    link.symlink_to(clone)
    assert record.has(request_for(link / "agent.yaml"))
    link.unlink()
    shutil.copytree(clone, link)
    assert not record.has(request_for(link / "agent.yaml"))


def test_trust_is_neither_in_a_parent_nor_in_a_child(clone: Path, record: TrustRecord) -> None:
    child = clone / "child"
    shutil.copytree(clone, child)
    assert not record.has(request_for(child / "agent.yaml"))
    shutil.copytree(clone, clone.parent, dirs_exist_ok=True)
    assert not record.has(request_for(clone.parent / "agent.yaml"))


@pytest.mark.parametrize("name", ["Agent.yaml", "AGENT.YAML", "agent.yml"])
def test_a_file_of_another_name_is_not_trusted(clone: Path, record: TrustRecord, name: str) -> None:
    shutil.copy(clone / "agent.yaml", clone / name)
    assert not record.has(request_for(clone / name))


def test_an_agent_file_that_is_a_link_belongs_where_the_link_lies(clone: Path, record: TrustRecord) -> None:
    other = clone.with_name("other")
    shutil.copytree(clone, other)
    (other / "agent.yaml").unlink()
    (other / "agent.yaml").symlink_to(clone / "agent.yaml")
    assert not record.has(request_for(other / "agent.yaml"))


def outside(clone: Path) -> Path:
    """The user's own directory, with files of the right shape."""
    folder = clone.parent / "private"
    (folder / "skills/one").mkdir(parents=True)
    for name in ("skills/one/SKILL.md", "prompt.md", "script.yaml"):
        shutil.copy(clone / name, folder / name)
    return folder


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("prompt.md", "system_prompt"),
        ("skills", "skills[0]"),
        ("skills/one", "skills[0]"),
        ("skills/one/SKILL.md", "skills[0]"),
    ],
)
def test_a_link_out_of_the_directory_needs_trust_although_the_name_is_inside(
    clone: Path, record: TrustRecord, name: str, key: str
) -> None:
    private = outside(clone)
    assert key not in keys_of(clone / "agent.yaml")
    if (clone / name).is_dir():
        shutil.rmtree(clone / name)
    else:
        (clone / name).unlink()
    (clone / name).symlink_to(private / name)
    assert str(private) in keys_of(clone / "agent.yaml")[key]
    assert not record.has(request_for(clone / "agent.yaml"))  # although every content is the same


def test_a_file_outside_that_changes_ends_the_trust(clone: Path, record: TrustRecord) -> None:
    private = outside(clone)
    write(clone, system_prompt=str(private / "prompt.md"))
    record.add(request_for(clone / "agent.yaml"))
    assert record.has(request_for(clone / "agent.yaml"))
    (private / "prompt.md").write_text("Be careless.")
    assert not record.has(request_for(clone / "agent.yaml"))


def test_a_link_that_leads_to_another_place_outside_ends_the_trust(clone: Path, record: TrustRecord) -> None:
    private = outside(clone)
    shutil.copytree(private, private.with_name("another"))
    (clone / "prompt.md").unlink()
    (clone / "prompt.md").symlink_to(private / "prompt.md")
    record.add(request_for(clone / "agent.yaml"))
    (clone / "prompt.md").unlink()
    (clone / "prompt.md").symlink_to(private.with_name("another") / "prompt.md")
    assert not record.has(request_for(clone / "agent.yaml"))


def test_a_work_dir_that_becomes_a_link_ends_the_trust(clone: Path, record: TrustRecord) -> None:
    (clone / "work").rmdir()
    (clone / "work").symlink_to(clone.parent / "home")
    assert "runtime.work_dir" in keys_of(clone / "agent.yaml")
    assert not record.has(request_for(clone / "agent.yaml"))


def test_a_loop_of_links_lies_in_no_directory(clone: Path) -> None:
    (clone / "a").symlink_to(clone / "b")
    (clone / "b").symlink_to(clone / "a")
    document = Document(source="agent.yaml", data={"agent": {"runtime": {"work_dir": "a"}}})
    assert [each.key for each in guarded_keys(document, clone)] == ["runtime.work_dir"]


def test_the_hashed_content_is_used(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file changes after it was read, and again at the prompt."""
    reads: list[str] = []
    read = trust.read_text

    def read_and_change(path: Path, **options: Any) -> str:  # noqa: ANN401 - those of `read_text`
        reads.append(path.name)
        text = read(path, **options)
        path.write_text("- reply: another\n")
        return text

    monkeypatch.setattr(trust, "read_text", read_and_change)
    requests: list[TrustRequest] = []
    settings = AgentFile.load(clone / "agent.yaml", review=requests.append)
    monkeypatch.undo()
    assert sorted(reads) == ["SKILL.md", "agent.yaml", "prompt.md", "script.yaml"]
    assert settings.instructions == "Be careful."
    assert [text.endswith("Do it.") for text in settings.skills.values()] == [True]
    assert settings.model.options.script_text == "- reply: first\n"
    provider = settings.provider()
    assert isinstance(provider, ScriptedProvider)
    assert provider._replies[0].text == "first"


def test_a_later_change_does_not_reach_a_run_that_was_allowed(clone: Path, record: TrustRecord) -> None:
    settings = AgentFile.load(clone / "agent.yaml", review=record.has)
    write(clone, runtime={"unsafe_mode": True})
    assert not settings.unsafe_mode
    assert not record.has(request_for(clone / "agent.yaml"))


@pytest.mark.parametrize("name", ["prompt.md", "script.yaml", "skills"])
def test_nothing_outside_is_opened_before_trust(clone: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    private = outside(clone)
    write(
        clone,
        system_prompt=str(private / "prompt.md"),
        skills=[str(private / "skills")],
        model={"provider": "scripted", "script": str(private / "script.yaml")},
    )
    listed: list[Path] = []
    opened: list[Path] = []
    read = trust.read_text

    def read_first(path: Path, **options: Any) -> str:  # noqa: ANN401 - those of `read_text`
        opened.append(path)
        return read(path, **options)

    def list_nothing(folder: Path, _pattern: str) -> list[Path]:
        listed.append(folder)
        return []

    monkeypatch.setattr(Path, "glob", list_nothing)
    monkeypatch.setattr(trust, "read_text", read_first)

    def refuse(request: TrustRequest) -> None:
        assert not TrustRecord(reach=(clone,)).has(request)
        assert any(str(private / name) in each.line for each in request.keys)
        raise SettingsError("refused")

    with pytest.raises(SettingsError, match="refused"):
        AgentFile.load(clone / "agent.yaml", review=refuse)
    assert opened == [clone / "agent.yaml"]
    assert listed == []


def test_files_outside_are_read_only_for_trusted_settings(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust in other settings does not open the files that new ones name."""
    private = outside(clone)
    write(clone, system_prompt=str(private / "prompt.md"))
    kept = TrustRecord(reach=(clone,))
    kept.add(request_for(clone / "agent.yaml"))
    assert kept.has(request_for(clone / "agent.yaml"))
    write(clone, system_prompt=str(private / "prompt.md"), model={"provider": "scripted", "script": "/proc/self/maps"})
    read = trust.read_text

    def read_inside(path: Path, **options: Any) -> str:  # noqa: ANN401 - those of `read_text`
        assert path.is_relative_to(clone)
        return read(path, **options)

    monkeypatch.setattr(trust, "read_text", read_inside)

    def refuse(request: TrustRequest) -> None:
        assert not kept.has(request)
        raise SettingsError("refused")

    with pytest.raises(SettingsError, match="refused"):
        AgentFile.load(clone / "agent.yaml", review=refuse)


def test_files_that_change_during_the_question_change_nothing(clone: Path) -> None:
    kept = TrustRecord(reach=(clone,))

    def change(request: TrustRequest) -> None:
        write(clone, runtime={"unsafe_mode": True})
        for name in ("prompt.md", "script.yaml", "skills/one/SKILL.md"):
            (clone / name).write_text("- reply: another\n")
        shutil.copytree(clone / "skills/one", clone / "skills/two")
        kept.add(request)

    settings = AgentFile.load(clone / "agent.yaml", review=change)
    assert (settings.instructions, settings.unsafe_mode) == ("Be careful.", False)
    assert settings.model.options.script_text == "- reply: first\n"
    assert [text.endswith("Do it.") for text in settings.skills.values()] == [True]
    shutil.rmtree(clone / "skills/two")
    (clone / "skills/one/SKILL.md").write_text("---\nname: one\ndescription: d\n---\nDo it.")
    assert not kept.has(request_for(clone / "agent.yaml"))


def test_a_path_that_leads_out_since_the_question_is_not_followed(clone: Path) -> None:
    private = outside(clone)
    (private / "work").mkdir()

    def swap(_request: TrustRequest) -> None:
        (clone / "work").rmdir()
        (clone / "work").symlink_to(private / "work")

    with pytest.raises(SettingsError, match="which it did not"):
        AgentFile.load(clone / "agent.yaml", review=swap)


def test_a_work_dir_that_leads_into_git_since_the_question_is_not_used(clone: Path) -> None:
    (clone / ".git/hooks").mkdir(parents=True)

    def swap(_request: TrustRequest) -> None:
        (clone / "work").rmdir()
        (clone / "work").symlink_to(".git/hooks")

    with pytest.raises(SettingsError, match="which it did not"):
        AgentFile.load(clone / "agent.yaml", review=swap)


def test_places_outside_that_were_shown_are_used(clone: Path) -> None:
    private = outside(clone)
    write(clone, system_prompt="../private/prompt.md", skills=["../private/skills"], runtime={"work_dir": "../new"})
    settings = AgentFile.load(clone / "agent.yaml", review=lambda _request: None)
    assert settings.instructions == "Be careful."
    assert len(settings.skills) == 1
    assert settings.work_dir == private.with_name("new")


def test_a_named_file_that_is_a_device_is_not_read(clone: Path) -> None:
    (clone / "prompt.md").unlink()
    (clone / "prompt.md").symlink_to("/dev/zero")
    with pytest.raises(SettingsError, match="regular file"):
        request_for(clone / "agent.yaml")
