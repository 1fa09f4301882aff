"""Every setting by the model that has it, and the table of them for the documentation."""

from __future__ import annotations

from collections.abc import Mapping

from agent_runtime import CATALOG
from bot.settings.agent import MODELS, AgentSettings
from bot.settings.model import ActionInputs, ActionSettings, Settings, Sources
from bot.settings.setting import Setting, settings_of

CONFIG: Setting = settings_of(Sources)["config"]
SERVICE: Mapping[str, Setting] = settings_of(Settings)
AGENT: Mapping[str, Setting] = settings_of(AgentSettings)
INPUTS: Mapping[str, Setting] = settings_of(ActionInputs)
"""The inputs of the action that `codepilot serve` has no setting for."""
RUNNER: Mapping[str, Setting] = settings_of(ActionSettings)

SETTINGS: tuple[Setting, ...] = (CONFIG, *SERVICE.values(), *AGENT.values())
"""The settings of an operator, in the order of the documentation."""

PROVIDER_KEYS: Mapping[str, Setting] = {
    name: AGENT[variable.lower()] for name in MODELS if (variable := CATALOG[name].key_variable)
}
"""The setting that holds a model service's key, by the service."""

SECRETS: tuple[Setting, ...] = tuple(each for each in (*SETTINGS, *INPUTS.values(), *RUNNER.values()) if each.secret)
"""The settings that are secrets themselves, rather than name a file with one."""


def settings_table() -> str:
    """Every operator setting as a Markdown table, for the documentation."""
    rows = ["| variable | meaning | default | example |", "|---|---|---|---|"]
    for each in SETTINGS:
        default = "must be set" if each.default is None else each.default and f"`{each.default}`"
        rows.append(f"| `{each.name}` | {each.meaning} | {default} | `{each.example}` |")
    return "\n".join([*rows, ""])
