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
    found = [*_settings(survey), probes.user(allow_root=agent.allow_root)]
    # bubblewrap is started from the main thread, which waits for it here.
    found += [*probes.sandbox(agent), *probes.programs()]
    found += [*probes.data_directory(agent.data_dir), *probes.temporary_files(), probes.terminals()]
    found += [_webhook_secret(survey)]
    asked = await asyncio.gather(
        probes.github(survey.app_id, key.get_secret_value() if key else None, survey.api_url),
        probes.model(agent, online=online),
    )
    found += [*asked[0], asked[1]]
    redactor = _redactor(survey)
    return [replace(each, found=redactor.redact(each.found), fix=redactor.redact(each.fix)) for each in found]


def _settings(survey: Survey) -> list[Finding]:
    if not survey.problems:
        return [findings.good("settings", "complete")]
    return [findings.bad("settings", found, fix or found) for found, _, fix in map(_halves, survey.problems)]


def _halves(problem: str) -> tuple[str, str, str]:
    """What is wrong, and what it should be: two sentences, or two halves of one."""
    return problem.partition(". ") if ". " in problem else problem.partition("; ")


def _webhook_secret(survey: Survey) -> Finding:
    if survey.webhook_secret is None:
        return findings.skipped("webhook secret", "not set, or invalid")
    return findings.webhook_secret(survey.webhook_secret.get_secret_value())


def _redactor(survey: Survey) -> Redactor:
    secrets = (survey.webhook_secret, survey.private_key, survey.agent.api_key)
    return Redactor(secret.get_secret_value() for secret in secrets if secret is not None)
