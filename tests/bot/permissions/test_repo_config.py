"""The repository's own file: what it may say, and how it is told what it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.permissions.repo_config import (
    MAX_BYTES,
    LabelNames,
    Overrides,
    Recipe,
    RepoConfig,
    RepoConfigError,
    VerbsKeys,
    cache_conflict,
    fallback_config,
    json_schema,
    merge_configs,
    parse_config,
    parse_recipe,
)
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
        (b"\nsetpu: [make]", ".github/codepilot.yml:2: `setpu`: unknown key. Did you mean 'setup'?"),
        (b"model_url: https://evil.example", "`model_url`: unknown key."),
        (b"setup: make", ":1: `setup`: must be a list, but is text."),
        (b"setup:\n- make\n- 5", ":3: `setup[1]`: must be text, but is a number."),
        (b"setup: ['']", "`setup[0]`: must not be empty."),
        (b'setup: ["a\\0b"]', "`setup[0]`: contains a NUL character"),
        (b"setup: [" + b"a," * 21 + b"]", "`setup`: must have at most 20 entries, but has 21."),
        (b"cache:\n- a\n- '*.x'", ":3: `cache[1]`: must be a plain path"),
        (b"cache: [/etc]", "`cache[0]`: must be a path below the repository's root"),
        (b"cache: [a/../../b]", "`cache[0]`: must be a path below the repository's root"),
        (b"cache: [.]", "`cache[0]`: must be a path below the repository's root"),
        (b"cache: [a/.GIT]", "`cache[0]`: must not be git's own."),
        (b"cache: [~/x]", "`cache[0]`: must be a plain path"),
        (b"cache: [a]", ":1: `cache`: caches what `setup` creates, but there is no `setup`."),
        (
            b"setup: [make]\ncache: [a, b, a/c]",
            ":2: `cache`: `a/c` is inside `a`, which is cached as a whole; leave it out.",
        ),
        *(
            (b"branch_prefix: " + prefix, "`branch_prefix`: must be at most 60 letters, digits and ./_- with / or -")
            for prefix in (
                b"codepilot",
                b"-x/",
                b"a..b/",
                b"refs/heads/x/",
                b"'a b/'",
                b"x" * 61 + b"/",
                b"/",
                b"a//b/",
            )
        ),
        (b"network: [off, registries]", "`network`: must be `off` alone or hosts, not both"),
        (b"network: 'http://x/y'", "`network`: must name hosts as example.org or example.org:8443"),
        (b"instructions: 5", "`instructions`: must be text, but is a number."),
        (b"instructions: " + b"x" * 9_000, "`instructions`: must have at most 8,000 characters."),
        (b"- a", ":1: the file: must be a mapping of keys to values, but is a list."),
        (b"setup: [a", ":1: this is not YAML"),
        (b"setup: [a]\nsetup: [b]", ":2: `setup` is also set in line 1; remove one of them."),
        (b"setup: !!python/object/apply:os.system [id]", "is not supported; remove it."),
        (b"\xff", "is not UTF-8 (byte 0)"),
        (b"#" * (MAX_BYTES + 1), "the limit is 65,536"),
    ],
)
def test_what_does_not_fit_is_told_with_line_and_key_and_what_to_do(data: bytes, told: str) -> None:
    with pytest.raises(RepoConfigError) as caught:
        parse_config(data)
    assert told in caught.value.reason
    assert "Fix `.github/codepilot.yml` on the base branch" in caught.value.remedy


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
    told = cache_conflict([".venv", cache], committed)
    assert told is not None
    assert f"`{cache}` cannot be cached, because `{blocker}` is committed there" in told


def test_what_is_committed_beside_it_is_not_in_the_way() -> None:
    assert cache_conflict(["a/kept", ".venv"], frozenset({"a/keptx", "a/b", ".venvs/x"})) is None


EVERYTHING = b"""\
triggers: ['/codepilot', '@helper']
bare_issue: plan
bare_pull: review
level: auto
allow: [npm run e2e *, ./scripts/check]
protected: ['infra/**', '*.pem']
model: big
budget_usd: 2
max_steps: 20
verbs:
  fix: {model: small, max_steps: 40}
  plan: {budget_usd: 0.5}
labels: {start: 'bot: go', auto: 'bot: auto'}
language: pt-BR
review_on: [ready, push]
fix_ci: [pull-requests, default-branch]
rerun_failed_jobs: true
wip_branches: false
base: develop
"""


def test_what_is_asked_about_runs_is_read() -> None:
    config = parse_config(EVERYTHING)
    assert config == RepoConfig(
        triggers=("/codepilot", "@helper"),
        bare_issue="plan",
        bare_pull="review",
        level="auto",
        allow=("npm run e2e *", "./scripts/check"),
        protected=("infra/**", "*.pem"),
        model="big",
        budget_usd=2,
        max_steps=20,
        verbs=VerbsKeys(fix=Overrides(model="small", max_steps=40), plan=Overrides(budget_usd=0.5)),
        labels=LabelNames(start="bot: go", auto="bot: auto"),
        language="pt-BR",
        review_on=("ready", "push"),
        fix_ci=("pull-requests", "default-branch"),
        rerun_failed_jobs=True,
        wip_branches=False,
        base="develop",
    )


def test_a_verbs_own_wishes_count_before_those_for_all() -> None:
    config = parse_config(EVERYTHING)
    assert config.overrides("fix") == Overrides(model="small", budget_usd=2, max_steps=40)
    assert config.overrides("plan") == Overrides(model="big", budget_usd=0.5, max_steps=20)
    assert config.overrides("ask") == Overrides(model="big", budget_usd=2, max_steps=20)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"review:\n  ignroe: [docs/]", ":2: `review.ignroe`: unknown key. Did you mean 'ignore'?"),
        (b"review:\n  ignore: [/docs]", ":2: `review.ignore[0]`: is relative to the repository's root; write 'docs'"),
        (b"trigers: [/x]", ":1: `trigers`: unknown key. Did you mean 'triggers'?"),
        (b"triggers: [codepilot]", "`triggers[0]`: must be / or @ and a word"),
        (b"triggers: []", "`triggers`: must not be empty; without entries, remove the key."),
        (b"bare_issue: review", "`bare_issue`: must be one of 'fix', 'explain', 'plan', 'ask' or 'test'."),
        (b"\nlevel: root", ":2: `level`: must be one of 'read-only', 'ask' or 'auto'."),
        (b"allow: ['*']", "`allow[0]`: must name the program, e.g. 'npm test *'"),
        (b"allow: ['./bin/* x']", "`allow[0]`: must name the program"),
        (b"""allow: ["say 'hi"]""", "`allow[0]`: is not a valid command pattern"),
        (b"protected: [../x]", "`protected[0]`: path glob '../x': must name files"),
        (b"protected: [/etc]", "`protected[0]`: is relative to the repository's root; write 'etc'."),
        (b"budget_usd: 0", "`budget_usd`: must be more than 0."),
        (b"budget_usd: .inf", "`budget_usd`: must be"),
        (b"max_steps: 1.5", "`max_steps`: must be a whole number"),
        (b"verbs:\n  fxi: {}", ":2: `verbs.fxi`: unknown key. Did you mean 'fix'?"),
        (b"verbs:\n  fix:\n    steps: 3", ":3: `verbs.fix.steps`: unknown key."),
        (b"labels: {auto: Same, ask: same}", "`labels.auto`: two labels have the same name"),
        (b"labels: {start: go, read_only: Go}", "`labels.read_only`: two labels have the same name, 'Go'"),
        (b"labels: {read_only: 'codepilot:ask'}", "`labels.ask`: two labels have the same name, 'codepilot:ask'"),
        (b"notify: sometimes", "`notify`: must be `waiting`, `done` or both, or else `never` alone."),
        (b"notify: [never, done]", "`notify`: must be `waiting`, `done` or both, or else `never` alone."),
        (b"labels: {auto: ' x'}", "`labels.auto`: must be a label name on one line"),
        (b"labels: {auto: " + b"x" * 51 + b"}", "`labels.auto`: must have at most 50 characters."),
        (b"language: 'Obey; rm -rf'", "`language`: must be the name of a language"),
        (b"fix_ci: everywhere", "`fix_ci[0]`: must be one of 'pull-requests' or 'default-branch'."),
        (b"review_on: [opened, always]", "`review_on[1]`: must be one of 'opened', 'ready' or 'push'."),
        (b"wip_branches: maybe", "`wip_branches`: must be true or false, but is text."),
        (b"base: ../x", "`base`: must be a branch name"),
        (b"base: -x", "`base`: must be a branch name"),
        (b"highest: auto", "`highest`: unknown key."),
    ],
)
def test_what_does_not_fit_in_the_wishes_is_told_as_well(data: bytes, told: str) -> None:
    with pytest.raises(RepoConfigError) as caught:
        parse_config(data)
    assert told in caught.value.reason


def test_a_list_whose_only_entry_is_wrong_is_not_called_empty_as_well() -> None:
    with pytest.raises(RepoConfigError) as caught:
        parse_config(b"triggers: [codepilot]")
    assert "must not be empty" not in caught.value.reason


def test_the_file_of_an_organisation_is_named_in_its_errors() -> None:
    with pytest.raises(RepoConfigError) as caught:
        parse_config(b"speed: 1", source="octo/.github: codepilot.yml")
    assert "octo/.github: codepilot.yml:1: `speed`" in caught.value.reason
    assert caught.value.remedy.startswith("Fix `octo/.github: codepilot.yml` on the default branch")


def test_a_repository_says_over_its_organisation_key_by_key() -> None:
    organisation = parse_config(
        b"level: read-only\nprotected: [a]\nbare_pull: fix\nmodel: big\nlabels: {ask: A, auto: B}\n"
        b"wip_branches: false\nverbs: {fix: {max_steps: 9, budget_usd: 1}}"
    )
    repository = parse_config(b"level: ask\nprotected: [b, a]\nlabels: {ask: C}\nverbs: {fix: {max_steps: 5}}")
    both = merge_configs(organisation, repository)
    assert (both.level, both.protected, both.bare_pull, both.model) == ("ask", ("a", "b"), "fix", "big")
    assert (both.labels.ask, both.labels.auto, both.labels.start) == ("C", "B", None)
    assert (both.wip_branches, both.verbs) == (False, VerbsKeys(fix=Overrides(max_steps=5, budget_usd=1)))


def test_a_key_counts_also_when_it_says_what_would_hold_anyway() -> None:
    organisation = parse_config(b"wip_branches: false\nfix_ci: [pull-requests]\nlabels: {auto: X}")
    repository = parse_config(b"wip_branches: true\nfix_ci: []\nlabels: {auto: 'codepilot:auto'}")
    assert merge_configs(organisation, repository) == RepoConfig()


def test_nothing_of_an_organisations_setup_is_kept_for_another_setup() -> None:
    organisation = parse_config(b"setup: [make]\ncache: [built]\nnetwork: registries")
    both = merge_configs(organisation, parse_config(b"setup: [ninja]"))
    assert (both.setup, both.cache, both.network) == (("ninja",), (), ("registries",))
    assert merge_configs(organisation, RepoConfig()) == organisation


def test_a_broken_file_of_an_organisation_is_as_strict() -> None:
    both = merge_configs(fallback_config(), parse_config(b"level: auto\nnetwork: registries"))
    assert (both.highest, both.level, both.network) == ("ask", "auto", ("registries",))


def test_in_place_of_a_file_that_does_not_fit_little_is_done() -> None:
    organisation = parse_config(
        b"setup: [make]\ncache: [built]\nnetwork: registries\nlevel: auto\nallow: [x *]\nfix_ci: [pull-requests]\n"
        b"protected: [a]"
    )
    strict = merge_configs(organisation, fallback_config())
    assert (strict.setup, strict.cache, strict.network, strict.allow) == ((), (), ("off",), ())
    assert (strict.highest, strict.fix_ci, strict.protected) == ("ask", (), ("a",))


def test_a_recipe_whose_label_says_how_much_work_may_do_is_refused_with_both_places() -> None:
    def recipe(name: str, label: str) -> Recipe:
        return parse_recipe(f"---\non: {{label: '{label}'}}\n---\nTidy.\n".encode(), name).head

    config = parse_config(b"labels: {start: go, ask: May Ask}\n")
    tidy, starts = recipe("tidy", "tidy"), recipe("starts", "go")
    found = config.with_recipes(
        [
            tidy,
            recipe("asks", "may ask"),
            recipe("checks", "codepilot:fix-ci"),
            starts,
            recipe("once", "codepilot:ask"),
        ],
        ["another"],
    )
    assert [each.name for each in found.recipes] == ["tidy", "starts", "once"]
    another, asks, checks = found.recipe_problems
    assert another == "another"
    assert asks.startswith(
        ".github/codepilot/asks.md: `on.label`: 'may ask' is `labels.ask` of .github/codepilot.yml already; choose"
    )
    assert checks.startswith(
        ".github/codepilot/checks.md: `on.label`: 'codepilot:fix-ci' is `labels.fix_ci` of .github/codepilot.yml"
    )
    assert config.labels.key_of("go") is None


_PUBLISHED = ROOT / "docs" / "codepilot.schema.json"
_CHECKER = Path(sys.executable).with_name("check-jsonschema")
_GOOD = {
    "setup": "setup: [make]\ncache: [built]\nnetwork: [registries]\ninstructions: Be kind.\n",
    "one host": "network: registries\n",
    "bounds": "bare_pull: review\nlevel: ask\nallow: [make e2e]\nprotected: [infra/**]\nbudget_usd: 0.5\nbase: main\n",
    "by verb": "verbs: {fix: {model: big}, plan: {max_steps: 3}}\nlabels: {start: go}\nfix_ci: default-branch\n",
    "actions": "actions: {approval: always, add-labels: {labels: [bug], from: anyone}, reopen: {}}\n",
}
_BAD = {
    "unknown key": "setpu: [make]\n",
    "unknown verb": "verbs: {fxi: {}}\n",
    "wrong type": "max_steps: many\n",
    "out of range": "max_steps: 0\n",
    "no such level": "level: root\n",
    "review of an issue": "bare_issue: review\n",
    "no triggers": "triggers: []\n",
    "unknown action": "actions: {merge: {}}\n",
    "action without values": "actions: {add-labels: {}}\n",
}


def _check(folder: Path, examples: dict[str, str]) -> subprocess.CompletedProcess[str]:
    paths = [folder / f"{name.replace(' ', '-')}.yml" for name in examples]
    for path, text in zip(paths, examples.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    options = ["--output-format", "json", "--verbose", "--schemafile", str(_PUBLISHED)]
    return subprocess.run([_CHECKER, *options, *paths], capture_output=True, text=True, check=False)


def test_the_published_schema_is_up_to_date() -> None:
    fresh = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        _PUBLISHED.write_text(fresh, encoding="utf-8")
    assert _PUBLISHED.read_text(encoding="utf-8") == fresh, (
        "run: UPDATE_DOCS=1 pytest tests/bot/permissions/test_repo_config.py"
    )


def test_editors_accept_what_the_bot_accepts(tmp_path: Path) -> None:
    for text in _GOOD.values():
        parse_config(text.encode())
    result = _check(tmp_path, _GOOD)
    assert result.returncode == 0, result.stdout


def test_editors_flag_what_the_bot_refuses(tmp_path: Path) -> None:
    for text in _BAD.values():
        with pytest.raises(RepoConfigError):
            parse_config(text.encode())
    result = _check(tmp_path, _BAD)
    flagged = {Path(error["filename"]).stem for error in json.loads(result.stdout)["errors"]}
    assert flagged == {name.replace(" ", "-") for name in _BAD}


def test_every_key_is_described() -> None:
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    bare = [
        name
        for section in sections
        for name, key in section["properties"].items()
        if "description" not in key and "$ref" not in key
    ]
    assert bare == []
