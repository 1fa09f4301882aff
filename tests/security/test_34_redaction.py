"""Threat 34: no secret leaves in any text, whatever it is wrapped in; the client is the one way out."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import quote

import pytest

from agent_runtime.providers.scripted import ScriptedReply
from bot.github.client import GitHub
from bot.github.types import CommentTarget, PullDraft
from bot.publishing.outcome import Published
from bot.publishing.redact import Redactor
from localhub import LocalHub
from tests.changes import a_change, a_file
from tests.origin import git
from tests.pauses import ASKING
from tests.publishing_world import an_outlet, cause_of, reason_of, sha_of
from tests.stage import WEBHOOK_SECRET, acting, staged

SECRET = "s3cret/of+the=bot&its own"
# https://www.jwt.io/
SAMPLE_JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ."
    "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
FORMS = [
    SECRET,
    base64.b64encode(f"x-access-token:{SECRET}".encode()).decode(),
    base64.urlsafe_b64encode(SECRET.encode()).decode(),
    SECRET.encode().hex(),
    SECRET[::-1],
    quote(SECRET, safe=""),
    SECRET[4:16],
    "ghs_1234_eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9." + "aB3-_" * 80 + "." + "xY9" * 20,
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[:12])
async def test_no_form_of_a_secret_reaches_github(form: str, hub: LocalHub) -> None:
    token = hub.add_user("mona").token
    repo = hub.add_repo("mona/calc", owner="mona", files={"a.txt": "1\n"})
    sha = hub.branches(repo)["main"]
    issue = hub.open_issue(repo, author="mona", title="It breaks").number
    spot = CommentTarget(kind="thread", number=issue)
    redact = Redactor([SECRET]).redact
    async with GitHub.for_token(token, hub.api_url, redact=redact, seconds_between_writes=0) as github:
        made = await github.comments.create("mona/calc", spot, f"before {form} after")
        edited = await github.comments.edit("mona/calc", spot, made.id, f"again {form} after")
        await github.commits.create_branch("mona/calc", "codepilot/x", sha)
        commit = await github.commits.create(
            "mona/calc",
            branch="codepilot/x",
            expected_head=sha,
            title=f"Fix {form}",
            body=f"Because {form}",
            change=a_change(a_file("a.txt", b"2\n"), base_sha=sha),
        )
        draft = PullDraft(base="main", title=f"Fix {form}", body=f"So {form}", draft=False)
        pull = await github.pulls.create("mona/calc", draft, head="codepilot/x")
    opened = hub.issue(repo, pull.number)
    message = git(repo.path, "log", "-1", "--format=%B", commit.sha)
    for text in (made.body, edited.body, message, opened.title, opened.body or ""):
        assert form not in text
        assert "[redacted]" in text


async def test_no_form_of_a_token_minted_while_it_runs_reaches_github(hub: LocalHub) -> None:
    hub.add_user("mona")
    repo = hub.add_repo("mona/calc", owner="mona", files={"a.txt": "1\n"})
    app = hub.add_app("codepilot", webhook_secret="w" * 20)
    installation = hub.install(app, repo)
    issue = hub.open_issue(repo, author="mona", title="It breaks").number
    spot = CommentTarget(kind="thread", number=issue)
    redactor = Redactor()
    async with GitHub.for_installation(
        app.id,
        app.private_key_pem,
        installation,
        hub.api_url,
        redact=redactor.redact,
        on_mint=redactor.add_secret,
        seconds_between_writes=0,
    ) as github:
        first = await github.comments.create("mona/calc", spot, "The client mints one for this.")
        _, client = await github._connection.token()
        clone = await github.tokens.for_clone("mona/calc")
        # One token of each form that GitHub gives out.
        assert sorted(token.count(".") for token in (client, clone)) == [0, 2]
        for token in (client, clone):
            for form in (token, token[::-1], token.encode().hex(), base64.b64encode(token.encode()).decode()):
                shown = await github.comments.edit("mona/calc", spot, first.id, f"before {form} after")
                # What all tokens of the new form have in common stays: less than half of one.
                assert len(shown.body) < 40 + len(form) * (0.5 if "." in token else 0)
                assert "[redacted]" in shown.body


async def test_no_secret_of_the_bots_is_kept_in_a_session_or_shown_to_the_model(hub: LocalHub, tmp_path: Path) -> None:
    # As if one had come into the sandbox by some way that nobody knows of.
    split = f'print("{WEBHOOK_SECRET[:5]}" + "{WEBHOOK_SECRET[5:]}")'
    leak = acting(split)
    hidden = ScriptedReply(
        text=acting('execute("main", "make it")'), expect=("[redacted]",), expect_not=(WEBHOOK_SECRET,)
    )
    async with staged(hub, tmp_path, [leak, hidden], operator=ASKING) as stage:
        await stage.waits(stage.say(stage.issue().number, "/codepilot fix"))
        kept = [path.read_bytes() for path in (stage.data / "sessions").rglob("*") if path.is_file()]
        assert any(b"redacted" in each for each in kept)
        assert not any(WEBHOOK_SECRET.encode() in each for each in kept)


async def test_a_token_that_holds_a_jwt_is_held_back_and_nobody_elses_jwt_is(hub: LocalHub, tmp_path: Path) -> None:
    async with an_outlet(hub, tmp_path) as outlet:
        token = next(
            each
            for each in [
                await outlet.github.tokens.for_clone("mona/calc"),
                await outlet.github.tokens.for_push("mona/calc"),
            ]
            if "." in each
        )
        redactor = Redactor([token])
        (outlet.tree.path / "test_jwt.py").write_text(f'TOKEN = "{SAMPLE_JWT}"\n')
        assert redactor.redact_known(SAMPLE_JWT) == SAMPLE_JWT  # what the model reads
        assert sha_of(await outlet.send(await outlet.publication(), redactor=redactor))
        (outlet.tree.path / "leak.py").write_text(f'TOKEN = "{token[-40:]}"\n')
        outlet.record.value = Published()
        sent = await outlet.send(await outlet.publication(branch="topic"), redactor=redactor)
        assert not sha_of(sent)
        assert cause_of(sent) == "secret"
        assert "`leak.py`" in reason_of(sent)
