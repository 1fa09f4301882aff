"""Render the dashboard's pages; every value is escaped."""

from __future__ import annotations

from importlib.resources import files

import jinja2

from bot.publishing.text import duration

STATIC = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("bot.dashboard"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["duration"] = duration


def render(template: str, **values: object) -> str:
    """A page as HTML."""
    return _TEMPLATES.get_template(template).render(values)


def static(name: str) -> str:
    """One of the files of `STATIC`."""
    return files("bot.dashboard").joinpath("static", name).read_text(encoding="utf-8")
