"""All checks, in the order in which an operator fixes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bot.apps.doctor import findings, probes
from bot.apps.doctor.findings import Finding
from bot.apps.services import redactor_for
from bot.settings.model import Survey

_UNKNOWN = "not set, or invalid"


async def examine(survey: Survey, *, online: bool) -> list[Finding]:
    """Look at everything.

    Args:
        survey: the settings, as far as there are any.
        online: whether to ask the model, which costs a little.
    """
    settings, agent, wrong = survey.settings, survey.settings.agent, survey.wrong
    found = _problems(survey)
    found += [] if survey.problems else [findings.good("settings", "complete")]
    found += [probes.user(allow_root=agent.allow_root)]
    # bubblewrap is started from the main thread, which waits for it here.
    found += [*probes.sandbox(agent), *probes.programs()]
    found += [*probes.data_directory(agent.data_dir), *probes.temporary_files(), probes.terminals()]
    found += [findings.skipped("database", _UNKNOWN) if "database_url" in wrong else probes.database(settings)]
    storage = any(each.startswith(("storage_", "aws_")) for each in wrong)
    found += [findings.skipped("blob store", _UNKNOWN) if storage else probes.blob_store(settings)]
    if "webhook_secret" in wrong:
        found += [findings.skipped("webhook secret", _UNKNOWN)]
    else:
        found += [findings.webhook_secret(settings.webhook_secret.get_secret_value())]
    unknown = bool(wrong & {"app_id", "private_key", "api_url"})
    asked = await asyncio.gather(
        probes.github(None if unknown else settings),
        probes.model(agent, online=online),
    )
    found += [*asked[0], asked[1]]
    return _told(found, survey)


async def examine_app(survey: Survey) -> list[Finding]:
    """Look at the App as GitHub sees it, and at nothing of this machine but the settings that say which it is."""
    if survey.wrong & {"app_id", "private_key", "api_url"}:
        return _told(_problems(survey), survey)
    return _told(await probes.github(survey.settings), survey)


def _problems(survey: Survey) -> list[Finding]:
    return [
        findings.bad("settings", what, fix or what)
        # Two sentences, or two halves of one: what is wrong, and what it should be.
        for what, _, fix in (each.partition(". " if ". " in each else "; ") for each in survey.problems)
    ]


def _told(found: list[Finding], survey: Survey) -> list[Finding]:
    redactor = redactor_for(survey.settings)
    return [replace(each, found=redactor.redact(each.found), fix=redactor.redact(each.fix)) for each in found]
