"""All checks, in the order in which an operator fixes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bot.apps.doctor import findings, probes
from bot.apps.doctor.findings import Finding
from bot.publishing.redact import Redactor
from bot.settings.model import Survey


async def examine(survey: Survey, *, online: bool) -> list[Finding]:
    """Look at everything.

    Args:
        survey: the settings, as far as there are any.
        online: whether to ask the model, which costs a little.
    """
    agent, key = survey.agent, survey.private_key
    found = [
        findings.bad("settings", wrong, fix or wrong)
        # Two sentences, or two halves of one: what is wrong, and what it should be.
        for wrong, _, fix in (each.partition(". " if ". " in each else "; ") for each in survey.problems)
    ]
    found += [] if survey.problems else [findings.good("settings", "complete")]
    found += [probes.user(allow_root=agent.allow_root)]
    # bubblewrap is started from the main thread, which waits for it here.
    found += [*probes.sandbox(agent), *probes.programs()]
    found += [*probes.data_directory(agent.data_dir), *probes.temporary_files(), probes.terminals()]
    if survey.webhook_secret is None:
        found += [findings.skipped("webhook secret", "not set, or invalid")]
    else:
        found += [findings.webhook_secret(survey.webhook_secret.get_secret_value())]
    asked = await asyncio.gather(
        probes.github(survey.app_id, key.get_secret_value() if key else None, survey.api_url),
        probes.model(agent, online=online),
    )
    found += [*asked[0], asked[1]]
    secrets = (survey.webhook_secret, key, agent.api_key)
    redactor = Redactor(secret.get_secret_value() for secret in secrets if secret is not None)
    return [replace(each, found=redactor.redact(each.found), fix=redactor.redact(each.fix)) for each in found]
