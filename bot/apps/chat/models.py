"""The model of a chat, and switching to another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent_runtime import CATALOG, ModelSettings, Provider, SettingsError, known_models


class ChatModels:
    """The model that is asked, and those that are known.

    Attributes:
        current: the model that is asked.
    """

    def __init__(self, current: ModelSettings) -> None:
        """Begin with a model."""
        self.current = current

    def named(self, text: str) -> ModelSettings:
        """The model that `NAME`, `PROVIDER/NAME` or `PROVIDER` names.

        A name that is another service's by its beginning is asked for there, unless the current model is on a server
        of one's own or in a cloud, which may serve any model.

        Raises:
            SettingsError: it names no model.
        """
        if not text.isprintable() or " " in text:
            raise SettingsError("A model's name has no spaces. Use /model NAME, or /model PROVIDER/NAME.")
        here = self.current
        before, slash, after = text.partition("/")
        if before in CATALOG and (not slash or after):
            provider, name = before, after or None
        else:
            known = (each for each, entry in CATALOG.items() if text.startswith(entry.families or ("/",)))
            stays = here.base_url or CATALOG[here.provider].cloud
            provider, name = here.provider if stays else next(known, here.provider), text
        if provider == "scripted":
            raise SettingsError("A script can only be named when the program is started: --script FILE.")
        if provider == here.provider:
            return replace(here, name=name)
        return ModelSettings.named(provider, name=name).at(None)

    def switch(self, text: str, use: Callable[[Provider], None]) -> None:
        """Have the model that `text` names asked from now on.

        Raises:
            SettingsError: as for `named`; or its key is not set, or `use` refuses it. The current one stays.
        """
        model = self.named(text)
        use(model.made())
        self.current = model

    @property
    def service(self) -> str:
        """Where the current model is asked."""
        return f"{self.current.provider} at {self.current.base_url}" if self.current.base_url else self.current.provider

    @property
    def known(self) -> str:
        """The models that are known, by their services."""
        lines = ["Known, for /model NAME:"]
        lines += [f"  {each}: {', '.join(known_models(each))}" for each, entry in CATALOG.items() if entry.families]
        return "\n".join([*lines, "Any other model of a service: /model PROVIDER/NAME."])
