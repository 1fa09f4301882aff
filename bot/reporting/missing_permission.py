"""Explain a missing permission to the person who can grant it."""

from __future__ import annotations

from bot.jobs.context import JobContext


def lacking(context: JobContext, permission: str) -> str:
    """What to do about a permission to read that is missing: the App's, or the workflow's in YAML."""
    if not context.services.checks:
        return f"The workflow's token cannot read {permission}: add `{permission}: read` to its `permissions:`."
    return (
        f"The App is missing the permission *{permission.capitalize()}: read-only*. Grant it in the App's settings, "
        "then accept it in the installation."
    )
