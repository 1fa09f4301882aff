"""What an operator says about permissions, as a table of settings. Data only; `load.py` reads by it."""

from __future__ import annotations

from bot.domain.commands import DEFAULT_TRIGGER
from bot.settings import parsing
from bot.settings.setting import Setting

GATE: dict[str, Setting] = {
    "triggers": Setting(
        name="CODEPILOT_TRIGGER",
        meaning="The word that starts a command; or several with commas between, of which the bot uses the first.",
        example=f"{DEFAULT_TRIGGER},@codepilot",
        parse=parsing.triggers,
        default=DEFAULT_TRIGGER,
    ),
    "start_label": Setting(
        name="CODEPILOT_START_LABEL",
        meaning="The label that starts work, where a repository does not name another.",
        example="codepilot",
        parse=parsing.label,
        default="codepilot",
    ),
    "level": Setting(
        name="CODEPILOT_LEVEL",
        meaning="What a run may do unasked, where neither repository nor label says otherwise: `ask` (write files, run "
        "commands; where these can reach a network, only those of the list), `auto` (anything in the sandbox), or "
        "`read-only`, which nothing raises.",
        example="ask",
        parse=parsing.one_of("read-only", "ask", "auto"),
        default="ask",
    ),
    "allow_commands": Setting(
        name="CODEPILOT_ALLOW_COMMANDS",
        meaning="Patterns of commands that need no approval at the level `ask` with a network, beside the built-in "
        "ones; with `;` or line breaks between.",
        example="npm run e2e *; ./scripts/check",
        parse=parsing.command_patterns,
        default="",
        between=";",
    ),
    "models": Setting(
        name="CODEPILOT_MODELS",
        meaning="Further models that a command or a repository may ask for, with commas between.",
        example="claude-haiku-4-5,claude-opus-5",
        parse=parsing.names,
        default="",
    ),
    "caps": Setting(
        name="CODEPILOT_CAPS",
        meaning="The most pieces of work that are begun in an hour, where it is to differ from thread=10, user=20, "
        "repository=50, installation=200; and in a thread without a person asking: unattended=3.",
        example="user=40,installation=500",
        parse=parsing.caps,
        default="",
    ),
    "pictures": Setting(
        name="CODEPILOT_PICTURES",
        meaning="Whether the model is shown the pictures that people attached to the thread: `auto` where it is known "
        "to see, `on` always, `off` never.",
        example="off",
        parse=parsing.one_of("auto", "on", "off"),
        default="auto",
    ),
    "approval_hours": Setting(
        name="CODEPILOT_APPROVAL_HOURS",
        meaning="Hours that a run waits for an approval or an answer, before it ends.",
        example="72",
        parse=parsing.whole(1, 720),
        default="72",
    ),
    "keep_days": Setting(
        name="CODEPILOT_KEEP_DAYS",
        meaning="Days for which ended jobs and patches that were not published are kept.",
        example="30",
        parse=parsing.whole(1, 3650),
        default="30",
    ),
    "review_on": Setting(
        name="CODEPILOT_REVIEW_ON",
        meaning="When a pull request of somebody with write access is reviewed without a command, where its repository "
        "does not say: `opened`, `ready` (a draft became ready), `push`, with commas between.",
        example="opened,push",
        parse=parsing.review_events,
        default="",
    ),
    "allowed_users": Setting(
        name="CODEPILOT_ALLOWED_USERS",
        meaning="Logins of the people who may command, with commas between, where not everybody with write access is "
        "to. It gives nobody more than GitHub does.",
        example="mona,octocat",
        parse=parsing.logins,
        default="",
    ),
    "trusted_bots": Setting(
        name="CODEPILOT_TRUSTED_BOTS",
        meaning="Bots that may command, with commas between: names of Apps' accounts, which end in `[bot]`, or numeric "
        "user ids; all others are ignored.",
        example="dependabot[bot],29139614",
        parse=parsing.trusted_bots,
        default="",
    ),
}
