"""Rules of a repository for a branch: of rulesets, and of classic protection as far as writers may read it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AliasChoices, AliasPath, BeforeValidator, Field

from bot.github.types import Facts, Text


class BranchRule(Facts):
    """A rule of a ruleset; `ruleset_id` is None for classic protection, whose exemptions nobody without it can read.

    https://docs.github.com/rest/repos/rules#get-rules-for-a-branch
    """

    type: Annotated[str, AfterValidator(str.lower)]
    ruleset_id: int | None = Field(
        default=None, validation_alias=AliasChoices("ruleset_id", AliasPath("repositoryRuleset", "databaseId"))
    )
    operator: Text = Field(default="", validation_alias=AliasPath("parameters", "operator"))
    pattern: Text = Field(default="", validation_alias=AliasPath("parameters", "pattern"))
    negate: Annotated[bool, BeforeValidator(bool)] = Field(
        default=False, validation_alias=AliasPath("parameters", "negate")
    )

    @property
    def requirement(self) -> str:
        """The pattern's requirement, as in "must start with `PROJ-`"."""
        verb = {"starts_with": "start with", "ends_with": "end with", "contains": "contain"}.get(self.operator, "match")
        return f"must {'not ' if self.negate else ''}{verb} `{self.pattern}`"

    def refuses(self, text: str) -> bool:
        """Whether the pattern refuses a text. Regular expressions are GitHub's to evaluate: another engine may hang."""
        match self.operator:
            case "starts_with":
                matches = text.startswith(self.pattern)
            case "ends_with":
                matches = text.endswith(self.pattern)
            case "contains":
                matches = self.pattern in text
            case _:
                return False
        return matches is self.negate


class _UpdateRule(Facts):
    """Classic protection: https://docs.github.com/graphql/reference/objects#refupdaterule."""

    required_signatures: bool = Field(validation_alias="requiresSignatures")
    required_linear_history: bool = Field(validation_alias="requiresLinearHistory")


class BranchFacts(Facts):
    """A branch in the answer to `graphql.branches_query`."""

    rules: tuple[BranchRule, ...] = Field(default=(), validation_alias=AliasPath("rules", "nodes"))
    update_rule: _UpdateRule | None = Field(default=None, validation_alias="refUpdateRule")

    @property
    def all_rules(self) -> tuple[BranchRule, ...]:
        classic = () if self.update_rule is None else (name for name, applies in self.update_rule if applies)
        return (*self.rules, *(BranchRule(type=name) for name in classic))


class Ruleset(Facts):
    bypass: Text = Field(default="", validation_alias="current_user_can_bypass")

    @property
    def binds_us(self) -> bool:
        """Whether the ruleset certainly applies to the bot's pushes; GitHub does not always say so."""
        return self.bypass in {"never", "pull_requests_only"}
