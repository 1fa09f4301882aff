"""The repository's own file: what it may say, and how it is told what it may not."""

from __future__ import annotations

import pytest

from bot.gate.repo_config import MAX_BYTES, RepoConfig, RepoConfigError, in_the_way, parse_config
from tests.source_files import ROOT

WHOLE = b"""\
setup:
  - python3 -m venv .venv
  - .venv/bin/pip install -r requirements.txt
cache: [.venv, web/node_modules/]
network: [registries, index.example.com:8443]
instructions: |
  Run `make test`.
"""


def test_every_key_is_read() -> None:
    assert parse_config(WHOLE) == RepoConfig(
        setup=("python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt"),
        cache=(".venv", "web/node_modules"),
        network=("registries", "index.example.com:8443"),
        instructions="Run `make test`.",
    )


def test_the_example_in_the_documentation_works() -> None:
    page = (ROOT / "docs" / "repository-configuration.md").read_text(encoding="utf-8")
    config = parse_config(page.partition("```yaml\n")[2].partition("```")[0].encode())
    assert config.setup
    assert config.cache == (".venv",)
    assert config.network == ("registries",)
    assert "pytest" in config.instructions


@pytest.mark.parametrize("data", [b"", b"# nothing yet\n", b"{}", b"\xef\xbb\xbf"])
def test_a_file_without_keys_asks_for_nothing(data: bytes) -> None:
    assert parse_config(data) == RepoConfig()


@pytest.mark.parametrize("written", [b"off", b"'off'", b"[off]", b"false"])
def test_off_means_off_although_yaml_reads_false(written: bytes) -> None:
    assert parse_config(b"network: " + written).network == ("off",)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\nsetpu: [make]", ".github/codepilot.yml:2: `setpu`: is no key here. Did you mean 'setup'?"),
        (b"model_url: https://evil.example", "`model_url`: is no key here."),
        (b"setup: make", ":1: `setup`: must be a list, and is text."),
        (b"setup:\n- make\n- 5", ":3: `setup[1]`: must be text, and is a number."),
        (b"setup: ['']", "`setup[0]`: must not be empty."),
        (b'setup: ["a\\0b"]', "`setup[0]`: holds a NUL character"),
        (b"setup: [" + b"a," * 21 + b"]", "`setup`: must have at most 20 entries, and has 21."),
        (b"cache:\n- a\n- '*.x'", ":3: `cache[1]`: must be a plain path"),
        (b"cache: [/etc]", "`cache[0]`: must be a path below the repository's root"),
        (b"cache: [a/../../b]", "`cache[0]`: must be a path below the repository's root"),
        (b"cache: [.]", "`cache[0]`: must be a path below the repository's root"),
        (b"cache: [a/.GIT]", "`cache[0]`: must not be git's own."),
        (b"cache: [~/x]", "`cache[0]`: must be a plain path"),
        (b"cache: [a]", ":1: `cache`: keeps what `setup` makes, and there is no `setup`."),
        (b"setup: [make]\ncache: [a, b, a/c]", ":2: `cache`: `a/c` lies in `a`, which is kept whole; leave it out."),
        (b"network: [off, registries]", "`network`: must be `off` alone or hosts, not both"),
        (b"network: 'http://x/y'", "`network`: must name hosts as example.org or example.org:8443"),
        (b"instructions: 5", "`instructions`: must be text, and is a number."),
        (b"instructions: " + b"x" * 17_000, "`instructions`: must have at most 16,000 characters."),
        (b"- a", ":1: the file: must be a mapping of keys to values, and is a list."),
        (b"setup: [a", ":1: this is not YAML"),
        (b"setup: [a]\nsetup: [b]", ":2: `setup` stands here and in line 1; remove one of them."),
        (b"setup: !!python/object/apply:os.system [id]", "is not known here; remove it."),
        (b"\xff", "is not UTF-8 (byte 0)"),
        (b"#" * (MAX_BYTES + 1), "65,536 is the most"),
    ],
)
def test_what_does_not_fit_is_told_with_line_and_key_and_what_to_do(data: bytes, told: str) -> None:
    with pytest.raises(RepoConfigError) as caught:
        parse_config(data)
    assert told in caught.value.reason
    assert "Mend `.github/codepilot.yml` on the base branch" in caught.value.remedy


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(RepoConfigError) as caught:
        parse_config(b"setup: make\ncache: [..]\nspeed: high\n")
    assert caught.value.reason.count("\n- ") == 3


@pytest.mark.parametrize("bomb", [b"a: &a [" + b"x," * 400 + b"]\nb: [" + b"*a," * 40 + b"]", b"[" * 5_000])
def test_a_document_that_unfolds_into_much_is_refused(bomb: bytes) -> None:
    with pytest.raises(RepoConfigError):
        parse_config(bomb)


@pytest.mark.parametrize(
    ("cache", "blocker"),
    [("vendor", "vendor/a.txt"), ("README.md", "README.md"), ("link/kept", "link"), ("a/b/c", "a/b")],
)
def test_what_is_committed_cannot_be_kept(cache: str, blocker: str) -> None:
    committed = frozenset({"vendor/a.txt", "README.md", "link", "a/b"})
    told = in_the_way([".venv", cache], committed)
    assert told is not None
    assert f"`{cache}` cannot be kept, because `{blocker}` is committed there" in told


def test_what_is_committed_beside_it_is_not_in_the_way() -> None:
    assert in_the_way(["a/kept", ".venv"], frozenset({"a/keptx", "a/b", ".venvs/x"})) is None
